/**
 * What is known about the processes of this machine. Reads /proc, signals nothing.
 *
 * A pid is given out again, so a process is only ever known by its pid and its start time (clock ticks since boot).
 * A zombie has ended: it holds a pid until its parent looks, and nothing else.
 *
 * Without /proc (not Linux) there are no start times and no marks: `startTimeOf` answers null, `scan` answers null, and
 * all that can be ended is the process group. What left its group with `setsid` is not found there.
 */
import { readdirSync, readFileSync } from 'node:fs'
import type { Clock } from '../core/clock.ts'
import type { Marks } from './marker.ts'
import { marksOf } from './marker.ts'

export interface ProcessEntry extends Marks {
  pid: number
  parent: number
  group: number
  session: number
  startTime: number
  zombie: boolean
  stopped: boolean
}

/** Processes read in one go: about a millisecond, so that a scan does not hold up the deadlines of its process. */
const CHUNK = 40

export function startTimeOf(pid: number): number | null {
  return readStat(pid)?.startTime ?? null
}

export function isAlive(pid: number, startTime: number | null): boolean {
  if (startTime === null) return exists(pid)
  const stat = readStat(pid)
  return stat !== null && stat.startTime === startTime && !stat.zombie
}

/** By SIGSTOP or a debugger. */
export function isStopped(pid: number): boolean {
  return readStat(pid)?.stopped ?? false
}

/** Whether anything has this pid, zombies included, or is in this group (the negative). */
export function exists(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false
    if ((error as NodeJS.ErrnoException).code === 'EPERM') return true
    throw error
  }
}

export class ProcessTable {
  readonly #clock: Clock
  readonly #since: number
  #running: Promise<unknown> = Promise.resolve()
  #next: Promise<ProcessEntry[] | null> | null = null

  /**
   * Processes older than `since` (a start time) are left out: what a worker started is younger than itself. Whoever
   * looks for what another one started leaves it at 0.
   */
  constructor(clock: Clock, since = 0) {
    this.#clock = clock
    this.#since = since
  }

  /** Everything there is, read after this call. Whoever asks while a scan runs shares the one that follows it. */
  scan(): Promise<ProcessEntry[] | null> {
    this.#next ??= this.#running.then(() => {
      this.#next = null
      const reading = this.#read()
      this.#running = reading.catch(() => null) // told to those who asked for it
      return reading
    })
    return this.#next
  }

  async #read(): Promise<ProcessEntry[] | null> {
    const pids = listPids()
    if (pids === null) return null
    const entries: ProcessEntry[] = []
    const unknown: ProcessEntry[] = []
    for (let i = 0; i < pids.length; i++) {
      if (i % CHUNK === CHUNK - 1) await endOfTurn(this.#clock)
      const stat = readStat(pids[i] as number)
      if (stat === null || stat.startTime < this.#since) continue
      const environ = stat.zombie ? '' : readEnviron(stat.pid)
      const entry = { ...stat, ...marksOf(environ) }
      entries.push(entry)
      if (environ === '' && !stat.zombie) unknown.push(entry)
    }
    // A process in the middle of exec shows no environment; it has one a moment later.
    if (unknown.length > 0) await endOfTurn(this.#clock)
    for (const entry of unknown) Object.assign(entry, marksOf(readEnviron(entry.pid)))
    return entries
  }
}

function endOfTurn(clock: Clock): Promise<void> {
  return new Promise((resolve) => clock.endOfTurn(resolve))
}

function listPids(): number[] | null {
  const names = readOrNull(() => readdirSync('/proc'))
  if (names === null) return null
  const pids = names.map(Number).filter((pid) => pid > 0)
  return pids.length > 0 ? pids : null
}

function readStat(pid: number): Omit<ProcessEntry, keyof Marks> | null {
  const text = readOrNull(() => readFileSync(`/proc/${pid}/stat`, 'latin1'))
  if (text === null) return null
  // The name in parentheses may hold anything, parentheses too: fields are counted after the last one.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return {
    pid,
    zombie: fields[0] === 'Z' || fields[0] === 'X',
    stopped: fields[0] === 'T' || fields[0] === 't',
    parent: Number(fields[1]),
    group: Number(fields[2]),
    session: Number(fields[3]),
    startTime: Number(fields[19]),
  }
}

function readEnviron(pid: number): string {
  return readOrNull(() => readFileSync(`/proc/${pid}/environ`, 'latin1')) ?? ''
}

/** Null when it is gone or another user's; anything else (no file descriptors left) must not pass for that. */
function readOrNull<T>(read: () => T): T | null {
  try {
    return read()
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH' || code === 'EACCES' || code === 'EPERM') return null
    throw error
  }
}
