/** Who holds a SQLite store: told in a file beside it. The lock itself is the database's, and dies with its process. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { StoreError } from '../store-error.ts'

interface Holder {
  pid: number
  startedAt: string
  nodeId: string
}

export interface FileLock {
  remove(): void
}

export function writeFileLock(file: string, nodeId: string): FileLock {
  const path = `${file}.lock`
  const holder: Holder = { pid: process.pid, startedAt: startOf(process.pid) ?? '', nodeId }
  writeFileSync(path, `${JSON.stringify(holder)}\n`, { mode: 0o600 })
  return { remove: () => rmSync(path, { force: true }) }
}

export function lockedBy(file: string): StoreError {
  const holder = readHolder(`${file}.lock`)
  // A pid is only that process together with its start time.
  const who = holder && startOf(holder.pid) === holder.startedAt ? `process ${holder.pid}` : 'another process'
  return new StoreError('store_unavailable', `${file} is in use by ${who}`, {
    hint: 'One process works on a SQLite store at a time. Close it first, or use PostgreSQL for several.',
  })
}

function readHolder(path: string): Holder | null {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Holder
  } catch {
    return null // not there, or not ours: all that is known is that somebody has the database open
  }
}

/** The start of a process in clock ticks since boot; null when it is gone or this is not Linux. */
function startOf(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null
  } catch {
    return null // gone
  }
}
