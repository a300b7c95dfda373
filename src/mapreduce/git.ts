/**
 * Runs git: an argv, a bound on time and output, and an environment in which nothing of the caller's repository,
 * hooks or terminal has a say. It does not know what the commands are for.
 *
 * git runs in a session of its own, so that a Ctrl-C in the terminal does not end it half-way.
 */
import { statSync } from 'node:fs'
import { backoffMs } from '../core/backoff.ts'
import type { Clock } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { signalGroup } from '../worker/process-tree.ts'
import { spawn } from '../worker/spawn.ts'

/** Where git runs. With `gitDir` it does not look for a repository: what became of `.git` in the folder is no matter. */
export interface GitPlace {
  cwd: string
  gitDir?: string
  workTree?: string
}

export interface GitOptions {
  env?: Record<string, string>
  /** `name=value`, for this one command. */
  settings?: readonly string[]
  /** For what reads or writes every file. */
  isLong?: boolean
  /** Only the beginning of a long output is wanted. */
  mayBeCut?: boolean
}

export interface GitResult {
  /** -1: ended by a signal. */
  code: number
  stdout: string
  stderr: string
}

/** They name a repository or a part of one, and would make any git elsewhere work on that one. */
export const REPOSITORY_VARIABLES = [
  ...['GIT_DIR', 'GIT_WORK_TREE', 'GIT_INDEX_FILE', 'GIT_COMMON_DIR', 'GIT_PREFIX', 'GIT_NAMESPACE'],
  ...['GIT_OBJECT_DIRECTORY', 'GIT_ALTERNATE_OBJECT_DIRECTORIES', 'GIT_QUARANTINE_PATH', 'GIT_SHALLOW_FILE'],
  ...['GIT_IMPLICIT_WORK_TREE', 'GIT_INTERNAL_SUPER_PREFIX', 'GIT_REFLOG_ACTION'],
] as const

const TIMEOUT_MS = 60_000
const LONG_TIMEOUT_MS = 600_000
const KILL_AFTER_MS = 2_000
/** What git started may hold its pipes open. */
const DRAIN_MS = 2_000
const MAX_OUTPUT_BYTES = 8 * 1024 * 1024
const MAX_MESSAGE = 2_000

const LOCK_WAITS = { initialMs: 50, factor: 2, maxMs: 1_000, jitter: 0 }
const LOCK_TRIES = 12
/** The last: a worktree that another git is about to register. */
const IS_LOCKED = /\.lock': File exists|could not lock config file|failed to read \S*\/commondir/

const SETTINGS: readonly string[] = [
  ...['core.hooksPath=/dev/null', 'core.fsmonitor=false', 'core.safecrlf=false', 'core.quotePath=false'],
  ...['commit.gpgsign=false', 'gc.auto=0', 'maintenance.auto=false', 'advice.addEmbeddedRepo=false'],
]

export class Git {
  readonly clock: Clock
  readonly #env: NodeJS.ProcessEnv

  constructor({ clock, env }: { clock: Clock; env: NodeJS.ProcessEnv }) {
    this.clock = clock
    this.#env = { ...env, GIT_TERMINAL_PROMPT: '0', GIT_OPTIONAL_LOCKS: '0', LC_ALL: 'C' }
    for (const name of REPOSITORY_VARIABLES) delete this.#env[name]
  }

  /** What it printed, without the line break at its end. Rejects with `git_failed` unless it exits with 0. */
  async run(place: GitPlace, args: readonly string[], options: GitOptions = {}): Promise<string> {
    const result = await this.ask(place, args, options)
    if (result.code !== 0) throw gitFailed(args, result)
    return result.stdout.replace(/\n$/, '')
  }

  /** Every exit code is an answer. Where another git holds a lock, it waits a little and tries again. */
  async ask(place: GitPlace, args: readonly string[], options: GitOptions = {}): Promise<GitResult> {
    for (let tries = 0; ; tries++) {
      const result = await this.#once(place, args, options)
      if (result.code === 0 || tries + 1 === LOCK_TRIES || !IS_LOCKED.test(result.stderr)) return result
      await sleep(this.clock, backoffMs(LOCK_WAITS, tries, 0))
    }
  }

  async #once(place: GitPlace, args: readonly string[], options: GitOptions): Promise<GitResult> {
    const env = { ...this.#env, ...options.env }
    if (place.gitDir !== undefined) env.GIT_DIR = place.gitDir
    if (place.workTree !== undefined) env.GIT_WORK_TREE = place.workTree
    const settings = [...SETTINGS, ...(options.settings ?? [])].flatMap((setting) => ['-c', setting])
    const limitMs = options.isLong ? LONG_TIMEOUT_MS : TIMEOUT_MS
    const argv = ['git', ...settings, ...args]
    const child = await spawn({ argv, env, cwd: place.cwd, limitMs }).catch((error) => {
      throw notStarted(place, error)
    })
    // Signalled until its end is heard: its number is its own.
    const group = { pid: child.pid, startTime: null }
    const stdout = new Output()
    const stderr = new Output()
    child.stdout.on('data', (chunk: Buffer) => stdout.add(chunk))
    child.stderr.on('data', (chunk: Buffer) => stderr.add(chunk))

    return new Promise((resolve, reject) => {
      let { isLate } = child
      let timer = this.clock.setTimer(limitMs, () => {
        isLate = true
        signalGroup(group, 'SIGTERM') // it takes its lock files along
        timer = this.clock.setTimer(KILL_AFTER_MS, () => signalGroup(group, 'SIGKILL'))
      })
      child.once('exit', () => {
        timer.cancel()
        if (isLate) signalGroup(group, 'SIGKILL') // what it started may be deaf to the first signal
        timer = this.clock.setTimer(DRAIN_MS, () => {
          child.stdout.destroy()
          child.stderr.destroy()
        })
      })
      child.once('close', () => {
        timer.cancel()
        const result = { code: child.exitCode ?? -1, stdout: stdout.text(), stderr: stderr.text() }
        if (isLate) reject(gitFailed(args, result, `it took longer than ${limitMs / 1000} s`))
        else if (stdout.isCut && !options.mayBeCut) reject(gitFailed(args, result, 'it printed too much'))
        else resolve(result)
      })
    })
  }
}

export function gitFailed(args: readonly string[], result: GitResult, why?: string): CurfewError {
  const said = why ?? (result.stderr.trim().slice(0, MAX_MESSAGE) || `it ended with ${result.code}`)
  const name = args[0] === 'worktree' ? `worktree ${args[1]}` : args[0]
  return new CurfewError('git_failed', `git ${name}: ${said}`, { fields: { args, exitCode: result.code } })
}

function notStarted(place: GitPlace, error: NodeJS.ErrnoException): CurfewError {
  if (error.code !== 'ENOENT')
    return new CurfewError('git_failed', `git could not be started: ${error.message}`, { cause: error })
  if (!statSync(place.cwd, { throwIfNoEntry: false })?.isDirectory())
    return new CurfewError('git_failed', `git could not be started: there is no folder '${place.cwd}'`)
  return new CurfewError('git_not_found', 'there is no git program on PATH', {
    hint: 'Install git 2.38 or newer.',
  })
}

/** The beginning of what is printed; the rest is read and dropped. */
class Output {
  readonly #chunks: Buffer[] = []
  #bytes = 0
  isCut = false

  add(chunk: Buffer): void {
    const kept = chunk.subarray(0, MAX_OUTPUT_BYTES - this.#bytes)
    if (kept.length < chunk.length) this.isCut = true
    if (kept.length > 0) this.#chunks.push(kept)
    this.#bytes += kept.length
  }

  text(): string {
    return Buffer.concat(this.#chunks).toString('utf8')
  }
}
