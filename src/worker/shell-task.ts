/**
 * The action `shell`: a command in a process of its own, killed with everything it started. It ends when its main
 * process has exited; what that one leaves behind is ended with the attempt. What it printed so far is reported as it
 * runs, so that it is there also after it had to be killed.
 */
import type { ChildProcess } from 'node:child_process'
import { spawn } from 'node:child_process'
import { statSync } from 'node:fs'
import { within } from '../core/clock.ts'
import { HandlerError } from '../core/failure.ts'
import { MAX_SHELL_OUTPUT } from '../core/limits.ts'
import { SHELL } from '../core/own-work.ts'
import { SystemClock } from '../core/system-clock.ts'
import type { TaskContext, TaskDefinition } from '../definitions/task.ts'
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import type { ShellRequest } from '../graph/graph-types.ts'
import { commandEnvironment, isTaskProcess } from './marker.ts'
import { OutputTail } from './output-tail.ts'

interface ShellResult {
  exitCode: number
  stdout: string
  stderr: string
}

/** Imported again in the process of each attempt, so that supervision is that of any isolated task. */
export const shellTask: TaskDefinition = {
  kind: 'task',
  name: SHELL,
  work: 'shell',
  policy: DEFAULT_POLICY,
  isolation: 'process',
  file: import.meta.url,
  schema: null,
  run: ((input: ShellRequest, context: TaskContext) => runCommand(input, context)) as TaskDefinition['run'],
}

const clock = new SystemClock()
/** From the end of the main process to the end of its pipes: a process that it left may hold them open. */
const DRAIN_MS = 2_000
/** Between two reports of what was printed; what ends sooner reports nothing. */
const REPORT_MS = 100
/** Of each stream, in a report and in a failure. */
const REPORTED_BYTES = 4_096
const FAILURE_BYTES = 2_048

async function runCommand(request: ShellRequest, context: TaskContext): Promise<ShellResult> {
  const { command, argv, workingDir } = request
  const [program, ...rest] = command === null ? (argv ?? []) : ['/bin/sh', '-c', command]
  if (program === undefined || program === '')
    throw new HandlerError('there is no program to run', { code: 'invalid_command', retryable: false })
  const output = new Output(context)
  let ended: [exitCode: number | null, signal: NodeJS.Signals | null]
  try {
    const child = spawn(program, rest, {
      env: commandEnvironment(process.env, request.env),
      stdio: ['ignore', 'pipe', 'pipe'],
      ...(workingDir !== null && { cwd: workingDir }),
    })
    child.stdout.on('data', (chunk: Buffer) => output.add('stdout', chunk))
    child.stderr.on('data', (chunk: Buffer) => output.add('stderr', chunk))
    context.signal.addEventListener('abort', () => terminate(child))
    ended = await endOf(child)
  } catch (error) {
    throw notStarted(program, workingDir, error as Error)
  } finally {
    output.close()
  }
  const [exitCode, signal] = ended
  if (exitCode === 0) return { exitCode, ...output.tails(MAX_SHELL_OUTPUT) }
  // It followed the signal that comes before the deadline, which says what becomes of it.
  if ((context.signal.reason as { code?: string } | undefined)?.code === 'soft_stop')
    throw context.signal.reason
  const tails = output.tails(FAILURE_BYTES)
  const how = signal === null ? `exit code ${exitCode}` : `signal ${signal}`
  const last = tails.stderr.trimEnd().split('\n').at(-1)
  throw new HandlerError(`${program} ended with ${how}${last ? `: ${last.slice(-500)}` : ''}`, {
    code: 'command_failed',
    details: { exitCode, signal, ...tails },
  })
}

/** To its whole group, which is that of this process: a shell does not pass a signal on. */
function terminate(child: ChildProcess): void {
  if (!isTaskProcess()) return void child.kill('SIGTERM')
  process.on('SIGTERM', () => undefined)
  process.kill(-process.pid, 'SIGTERM')
}

async function endOf(child: ChildProcess): Promise<[number | null, NodeJS.Signals | null]> {
  const closed = new Promise((resolve) => child.once('close', resolve))
  const end = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (exitCode, signal) => resolve([exitCode, signal]))
  })
  await within(clock, DRAIN_MS, closed)
  child.stdout?.destroy()
  child.stderr?.destroy()
  return end
}

const WHY_NOT: Record<string, string> = {
  ENOENT: 'it was not found',
  EACCES: 'it may not be run, or its folder may not be entered',
  E2BIG: 'its arguments and variables are too large; pass what is large in a file',
  ERR_INVALID_ARG_VALUE: 'an argument or variable holds a NUL',
}

function notStarted(program: string, workingDir: string | null, error: Error): HandlerError {
  const { code = '' } = error as NodeJS.ErrnoException
  const noFolder = (code === 'ENOENT' || code === 'ENOTDIR') && workingDir !== null && !isFolder(workingDir)
  const why = noFolder ? `there is no folder '${workingDir}'` : (WHY_NOT[code] ?? error.message)
  return new HandlerError(`${program} could not be started: ${why}`, {
    code: 'command_not_started',
    retryable: !noFolder && WHY_NOT[code] === undefined,
    cause: error,
  })
}

function isFolder(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false
}

/** What a command prints. That it prints is its progress. */
class Output {
  readonly #context: TaskContext
  readonly #streams = { stdout: new OutputTail(MAX_SHELL_OUTPUT), stderr: new OutputTail(MAX_SHELL_OUTPUT) }
  #completed = 0
  #timer: { cancel(): void } | null = null

  constructor(context: TaskContext) {
    this.#context = context
  }

  add(stream: 'stdout' | 'stderr', chunk: Buffer): void {
    this.#completed += chunk.length
    this.#streams[stream].add(chunk)
    this.#timer ??= clock.setTimer(REPORT_MS, () => {
      this.#timer = null
      this.#context.progress({ completed: this.#completed }, this.tails(REPORTED_BYTES))
    })
  }

  tails(maxBytes: number): { stdout: string; stderr: string } {
    const { stdout, stderr } = this.#streams
    return { stdout: stdout.text(maxBytes), stderr: stderr.text(maxBytes) }
  }

  close(): void {
    this.#timer?.cancel()
  }
}
