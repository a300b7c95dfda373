/**
 * What really happened, as seen from outside the engine: one JSON line per fact, appended by every process of a run
 * to one file. Times are the machine's CLOCK_MONOTONIC, which all its processes share, and its wall clock.
 */
import { appendFileSync, readFileSync } from 'node:fs'

export interface Fact {
  type: string
  /** CLOCK_MONOTONIC in milliseconds. */
  mono: number
  /** The wall clock in milliseconds. */
  wall: number
  pid: number
  /** The process of the engine: differs from `pid` for a handler in a process of its own. */
  owner: number
  taskId?: string
  attempt?: number
  [field: string]: unknown
}

export function monotonicMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}

/** One `write` with O_APPEND: lines of several processes do not mix. */
export function note(file: string, fact: { type: string; [field: string]: unknown }): void {
  const line = { mono: monotonicMs(), wall: Date.now(), pid: process.pid, owner: process.pid, ...fact }
  appendFileSync(file, `${JSON.stringify(line)}\n`)
}

/** In the order of their times. A line cut short by a kill -9 counts as not written. */
export function readJournal(file: string): Fact[] {
  const lines = readText(file).split('\n')
  const facts = lines.flatMap((line, i): Fact[] => {
    if (line === '') return []
    try {
      return [JSON.parse(line) as Fact]
    } catch (error) {
      if (i === lines.length - 1) return []
      throw new Error(`line ${i + 1} of ${file} cannot be read: ${line}`, { cause: error })
    }
  })
  return facts.sort((a, b) => a.mono - b.mono)
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return ''
    throw error
  }
}
