/**
 * What is known about the processes of this machine. Reads /proc, signals nothing.
 *
 * A pid is given out again, so a process is only ever known by its pid and its start time (clock ticks since boot).
 * A zombie has ended: it holds a pid until its parent looks, and nothing else. One whose first thread alone has ended
 * is none.
 *
 * Without /proc (not Linux) there are no start times and no marks: `startTimeOf` answers null, `scan` answers null, and
 * all that can be ended is the process group. What left its group with `setsid` is not found there.
 */
import { closeSync, openSync, readdirSync, readSync } from 'node:fs'
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
/**
 * How long a pid stays known as a process that is older than us without being read again. Pids are given out in turn,
 * so one is another process only after all others were used, which takes longer.
 */
const KNOWN_MS = 250

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

  /** Everything there is, read after this call. Whoever asks while a scan runs shares the one that follows it. */
  scan(): Promise<ProcessEntry[] | null> {
    this.#next ??= this.#running.then(async () => {
      // So that all that ends in this turn shares it.
      await endOfTurn(this.#clock)
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

function listPids(): number[] | null {
  const names = readOrNull(() => readdirSync('/proc'))
  if (names === null) return null
  const pids = names.map(Number).filter((pid) => pid > 0)
  return pids.length > 0 ? pids : null
}

interface Stat extends Omit<ProcessEntry, keyof Marks> {
  /** Its first thread has ended, and others run: it has an environment, but not where it is looked for. */
  headless?: boolean
}

function readStat(pid: number): Stat | null {
  const text = readOrNull(() => readText(`/proc/${pid}/stat`))
  if (text === null) return null
  // The name in parentheses may hold anything, parentheses too: fields are counted after the last one.
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const threads = Number(fields[17])
  return {
    pid,
    zombie: (fields[0] === 'Z' && threads <= 1) || fields[0] === 'X',
    headless: fields[0] === 'Z' && threads > 1,
    stopped: fields[0] === 'T' || fields[0] === 't',
    parent: Number(fields[1]),
    group: Number(fields[2]),
    session: Number(fields[3]),
    startTime: Number(fields[19]),
  }
}

function readEnviron({ pid, headless }: Pick<Stat, 'pid' | 'headless'>): string {
  const threads = headless ? (readOrNull(() => readdirSync(`/proc/${pid}/task`)) ?? []) : [pid]
  for (const thread of threads) {
    const text = readOrNull(() => readText(`/proc/${pid}/task/${thread}/environ`))
    if (text) return text
  }
  return ''
}

const buffer = Buffer.allocUnsafeSlow(64 * 1024)

/** The files of /proc say that they are empty, for which readFile takes several times as long. */
function readText(path: string): string {
  const file = openSync(path, 'r')
  try {
    for (let text = ''; ; ) {
      const length = readSync(file, buffer, 0, buffer.length, null)
      text += buffer.toString('latin1', 0, length)
      if (length < buffer.length) return text
    }
  } finally {
    closeSync(file)
  }
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
