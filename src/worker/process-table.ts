/**
 * What is known about the processes of this machine. Reads /proc, signals nothing.
 *
 * Without /proc (not Linux) there are no start times and no marks: `startTimeOf` answers null, `scan` answers null, and
 * all that can be ended is the process group. What left its group with `setsid` is not found there.
 */
import { readdirSync } from 'node:fs'
import type { Clock } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'
import type { ProcessStat } from '../core/process-stat.ts'
import { readProc, readProcFile, readStat } from '../core/process-stat.ts'
import type { Marks } from './marker.ts'
import { marksOf } from './marker.ts'

export interface ProcessEntry extends ProcessStat, Marks {}

/** Processes read in one go: about a millisecond, so that a scan does not hold up the deadlines of its process. */
const CHUNK = 40
/**
 * How long a pid stays known as a process that is older than us without being read again. Pids are given out in turn,
 * so one is another process only after all others were used, which takes longer.
 */
const KNOWN_MS = 250
/** Between two scans: with many short commands at once, each of them waits for one, and few are made. */
const SPACING_MS = 6

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
  /** Pids of processes older than `since`, as of the last scan. */
  #older = new Set<number>()
  #scannedAt = -Infinity
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

  /** Everything there is, read after this call. Whoever asks soon after a scan shares the one that follows it. */
  scan(): Promise<ProcessEntry[] | null> {
    this.#next ??= this.#running.then(async () => {
      const waitMs = this.#scannedAt + SPACING_MS - this.#clock.monotonic()
      // So that all that ends in this turn shares it.
      await (waitMs > 0 ? sleep(this.#clock, waitMs) : endOfTurn(this.#clock))
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
    const now = this.#clock.monotonic()
    const known = now - this.#scannedAt <= KNOWN_MS ? this.#older : new Set<number>()
    this.#scannedAt = now
    this.#older = new Set()
    let read = 0
    for (const pid of pids) {
      if (known.has(pid)) {
        this.#older.add(pid)
        continue
      }
      if (++read % CHUNK === 0) await endOfTurn(this.#clock)
      const stat = readStat(pid)
      if (stat === null) continue
      if (stat.startTime < this.#since) {
        this.#older.add(pid)
        continue
      }
      const environ = stat.zombie ? '' : readEnviron(stat)
      const entry = { ...stat, ...marksOf(environ) }
      entries.push(entry)
      if (environ === '' && !stat.zombie) unknown.push(entry)
    }
    // A process in the middle of exec shows no environment; it has one a moment later.
    if (unknown.length > 0) await endOfTurn(this.#clock)
    for (const entry of unknown) Object.assign(entry, marksOf(readEnviron(entry)))
    return entries
  }
}

function endOfTurn(clock: Clock): Promise<void> {
  return new Promise((resolve) => clock.endOfTurn(resolve))
}

/** Null where there is no /proc. */
export function listPids(): number[] | null {
  const names = readProc(() => readdirSync('/proc'))
  if (names === null) return null
  const pids = names.map(Number).filter((pid) => pid > 0)
  return pids.length > 0 ? pids : null
}

function readEnviron({ pid, headless }: Pick<ProcessStat, 'pid' | 'headless'>): string {
  const threads = headless ? (readProc(() => readdirSync(`/proc/${pid}/task`)) ?? []) : [pid]
  for (const thread of threads) {
    const text = readProc(() => readProcFile(`/proc/${pid}/task/${thread}/environ`))
    if (text) return text
  }
  return ''
}
