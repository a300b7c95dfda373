/** The action `shell`: a command in a process of its own, killed with everything it started. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { HandlerError } from '../core/failure.ts'
import { MAX_SHELL_OUTPUT } from '../core/limits.ts'
import { SHELL } from '../core/own-work.ts'
import type { TaskContext, TaskDefinition } from '../definitions/task.ts'
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import type { ShellRequest } from '../graph/graph-types.ts'

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

async function runCommand(request: ShellRequest, context: TaskContext): Promise<ShellResult> {
  const { command, argv, env, workingDir } = request
  const [program, ...rest] = command === null ? (argv ?? []) : ['/bin/sh', '-c', command]
  if (program === undefined || program === '')
    throw new HandlerError('there is no program to run', { code: 'invalid_command', retryable: false })
  const child = spawn(program, rest, {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
    ...(workingDir !== null && { cwd: workingDir }),
  })
  context.signal.addEventListener('abort', () => child.kill('SIGTERM'))
  const output = { stdout: new Tail(), stderr: new Tail() }
  child.stdout.on('data', (chunk: Buffer) => {
    output.stdout.add(chunk)
    context.heartbeat()
  })
  child.stderr.on('data', (chunk: Buffer) => {
    output.stderr.add(chunk)
    context.heartbeat()
  })
  const [exitCode, signal] = await ended(child, program)
  const stdout = output.stdout.text()
  const stderr = output.stderr.text()
  if (exitCode === 0) return { exitCode, stdout, stderr }
  const how = signal === null ? `exit code ${exitCode}` : `signal ${signal}`
  const last = stderr.trimEnd().split('\n').at(-1) ?? ''
  throw new HandlerError(`${program} ended with ${how}${last ? `: ${last.slice(0, 500)}` : ''}`, {
    code: 'command_failed',
    details: { exitCode, signal, stdout, stderr },
  })
}

async function ended(
  child: ReturnType<typeof spawn>,
  program: string,
): Promise<[number | null, NodeJS.Signals | null]> {
  try {
    return (await once(child, 'close')) as [number | null, NodeJS.Signals | null]
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const why = code === 'ENOENT' ? 'it was not found' : (error as Error).message
    throw new HandlerError(`${program} could not be started: ${why}`, {
      code: 'command_not_started',
      cause: error,
    })
  }
}

/** The end of a stream: what it says last is what one wants to know. */
class Tail {
  readonly #chunks: Buffer[] = []
  #bytes = 0
  #cut = false

  add(chunk: Buffer): void {
    this.#chunks.push(chunk)
    this.#bytes += chunk.length
    while (this.#bytes - (this.#chunks[0]?.length ?? 0) >= MAX_SHELL_OUTPUT) {
      this.#bytes -= this.#chunks.shift()?.length ?? 0
      this.#cut = true
    }
  }

  text(): string {
    const text = Buffer.concat(this.#chunks).toString('utf8')
    return this.#cut ? `…${text.slice(-MAX_SHELL_OUTPUT)}` : text
  }
}
