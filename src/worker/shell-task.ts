/**
 * The action `shell`: a command, ended with everything it started. What it printed so far is reported as it runs, so
 * that it is there also after it had to be killed.
 */
import { assert } from '../core/errors.ts'
import { HandlerError } from '../core/failure.ts'
import { MAX_SHELL_OUTPUT } from '../core/limits.ts'
import { SHELL } from '../core/own-work.ts'
import type { TaskContext } from '../definitions/task.ts'
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import type { ShellRequest } from '../graph/graph-types.ts'
import type { CommandNotStarted } from './command-start.ts'
import type { AttemptCommands, CommandTask } from './command-task.ts'
import { childEnvironment } from './node-options.ts'
import type { RunningCommand } from './running-command.ts'
import { tracedEnvironment } from './traced-environment.ts'

interface ShellResult {
  exitCode: number
  stdout: string
  stderr: string
}

export const shellTask: CommandTask = {
  kind: 'task',
  name: SHELL,
  work: 'shell',
  policy: DEFAULT_POLICY,
  isolation: 'inline',
  commands: true,
  file: null,
  schema: null,
  run: (input, context, commands) => {
    assert(commands, 'a command needs somebody who runs it')
    return runCommand(input as ShellRequest, context, commands)
  },
}

/** Between two reports of what was printed; what ends sooner reports nothing. */
const REPORT_MS = 100
/** Of each stream, in a report and in a failure. */
const REPORTED_BYTES = 4_096
const FAILURE_BYTES = 2_048
const NO_SECRETS: readonly string[] = []

async function runCommand(
  { command, argv, env, workingDir }: ShellRequest,
  context: TaskContext,
  commands: AttemptCommands,
): Promise<ShellResult> {
  const reports = new Reports(context, commands)
  const end = await commands.run(
    {
      argv: command === null ? (argv ?? []) : ['/bin/sh', '-c', command],
      env: { ...tracedEnvironment(childEnvironment(process.env), context.trace), ...env },
      cwd: workingDir,
      ...{ limitMs: null, idleMs: null, graceMs: commands.graceMs },
      ...{ secrets: NO_SECRETS, outputBytes: MAX_SHELL_OUTPUT, sweep: 'command' },
    },
    { onStarted: (running) => reports.begin(running), onOutput: (_, chunk) => reports.add(chunk) },
  )
  const tails = reports.end()
  if (end.type === 'not_started') throw notStarted(end, context)
  const { exitCode, signal, stdout, stderr } = end
  if (exitCode === 0) return { exitCode, stdout, stderr }
  // It followed the signal that comes before the deadline, which says what becomes of it.
  if (isSoftStop(context)) throw context.signal.reason
  const how = signal === null ? `exit code ${exitCode}` : `signal ${signal}`
  const last = tails.stderr.trimEnd().split('\n').at(-1)
  const program = command === null ? argv?.[0] : '/bin/sh'
  throw new HandlerError(`${program} ended with ${how}${last ? `: ${last.slice(-500)}` : ''}`, {
    code: 'command_failed',
    details: { exitCode, signal, ...tails },
  })
}

function isSoftStop({ signal }: TaskContext): boolean {
  return (signal.reason as { code?: string } | undefined)?.code === 'soft_stop'
}

function notStarted({ code, message, retryable }: CommandNotStarted, { signal }: TaskContext): Error {
  if (code === 'stopped') return signal.reason as Error
  const isEmpty = code === 'no_program'
  return new HandlerError(message, { code: isEmpty ? 'invalid_command' : 'command_not_started', retryable })
}

/** That a command prints is its progress. */
class Reports {
  readonly #context: TaskContext
  readonly #commands: AttemptCommands
  #running: RunningCommand | null = null
  #completed = 0
  #timer: { cancel(): void } | null = null

  constructor(context: TaskContext, commands: AttemptCommands) {
    this.#context = context
    this.#commands = commands
  }

  begin(running: RunningCommand): void {
    this.#running = running
  }

  add(chunk: Buffer): void {
    this.#completed += chunk.length
    this.#timer ??= this.#commands.clock.setTimer(REPORT_MS, () => {
      this.#timer = null
      this.#context.progress({ completed: this.#completed }, this.#running?.tails(REPORTED_BYTES))
    })
  }

  /** What a failure keeps of it. */
  end(): { stdout: string; stderr: string } {
    this.#timer?.cancel()
    return this.#running?.tails(FAILURE_BYTES) ?? { stdout: '', stderr: '' }
  }
}
