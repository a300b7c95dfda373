/** Starts a process: the leader of a session of its own, with nothing to read and two pipes to write to. */
import { spawn as spawnByNode } from 'node:child_process'
import { once } from 'node:events'
import type { Readable } from 'node:stream'
import { PosixSpawn } from './posix-spawn.ts'

export interface SpawnRequest {
  /** A program, which is looked for in its own PATH, and its arguments. */
  argv: readonly string[]
  env: NodeJS.ProcessEnv
  /** Null or empty: that of this process. */
  cwd: string | null
  /**
   * End it as long as its program does not run, which may take for ever (a file system that does not answer). Node's
   * own way cannot: the whole process waits.
   */
  killed?: AbortSignal
  limitMs?: number | null
}

export interface SpawnedProcess {
  readonly pid: number
  readonly stdout: Readable
  readonly stderr: Readable
  /** Killed, because its limit was over before its program ran. */
  readonly isLate: boolean
  /** Null until it has ended, and when a signal ended it. */
  readonly exitCode: number | null
  readonly signalCode: NodeJS.Signals | null
  /** `close`: it has ended, and so have its pipes. */
  once(event: 'exit' | 'close', listener: () => void): unknown
}

let posix: PosixSpawn | null | undefined

/** For whoever has nothing to do, and knows that something will be started. */
export function prepareSpawn(): void {
  if (posix === undefined) posix = PosixSpawn.load()
}

/** Rejects with why there is none. It is not reaped before the turn of the event loop in which it is given ends. */
export function spawn(request: SpawnRequest): Promise<SpawnedProcess> {
  prepareSpawn()
  return posix ? posix.spawn(request) : spawnWithNode(request)
}

/** Slower, and everywhere. */
export async function spawnWithNode({ argv, env, cwd }: SpawnRequest): Promise<SpawnedProcess> {
  const [program = '', ...rest] = argv
  const child = spawnByNode(program, rest, {
    ...{ env, detached: true, stdio: ['ignore', 'pipe', 'pipe'] },
    ...(cwd !== null && { cwd }),
  })
  const { pid, stdout, stderr } = child
  if (pid !== undefined) return Object.assign(child, { pid, isLate: false })
  const failed = once(child, 'error')
  // Nobody else closes them. Without a free file descriptor there are none.
  for (const pipe of [stdout, stderr] as (Readable | undefined)[]) pipe?.destroy()
  const [error] = await failed
  throw error
}
