/**
 * Who holds a SQLite store, and where that process listens: told in a file beside it. The lock itself is the
 * database's, and dies with its process; the file may outlive it.
 */
import { readFileSync, realpathSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { startText } from '../../core/process-stat.ts'
import { StoreError } from '../store-error.ts'

interface HolderFile {
  pid: number
  startedAt: string
  nodeId: string
  /** The Unix socket it serves on. */
  socket: string | null
}

/** A living process that works on a store. */
export interface Holder {
  pid: number
  /** The Unix socket it serves on; null when it does not, or not yet. */
  socket: string | null
}

export interface FileLock {
  /** The server starts after the lock was taken. */
  setSocket(path: string | null): void
  remove(): void
}

/** Only for whoever holds the database's lock. */
export function writeFileLock(file: string, nodeId: string): FileLock {
  const path = lockPath(file)
  const holder: HolderFile = {
    pid: process.pid,
    startedAt: startText(process.pid) ?? '',
    nodeId,
    socket: null,
  }
  let removed = false
  replace(path, holder)
  return {
    setSocket(socket) {
      // Afterwards the file may be another process's.
      if (!removed) replace(path, { ...holder, socket })
    },
    remove() {
      removed = true
      // Where the store was moved away, another process may have made one in its place.
      const written = readHolder(path)
      if (!written || written.nodeId === nodeId) rmSync(path, { force: true })
    },
  }
}

/** The process that works on the store `file`; null when nobody does, or nothing that is still there. */
export function findHolder(file: string): Holder | null {
  const holder = readHolder(lockPath(file))
  // A pid is only that process together with its start time.
  if (!holder || startText(holder.pid) !== holder.startedAt) return null
  return { pid: holder.pid, socket: holder.socket }
}

export function lockedBy(file: string, hint = ONE_AT_A_TIME): StoreError {
  const holder = findHolder(file)
  const who = holder ? `process ${holder.pid}` : 'another process'
  return new StoreError('store_unavailable', `${file} is in use by ${who}`, {
    hint,
    fields: { file, ...holder },
  })
}

const ONE_AT_A_TIME =
  'One process works on a SQLite store at a time. Close it first, or use PostgreSQL for several.'

/** Beside the file itself, as SQLite has its log: whoever comes over a link finds it too. */
function lockPath(file: string): string {
  try {
    return `${realpathSync(file)}.lock`
  } catch {
    return `${file}.lock` // not there, and so is its lock
  }
}

/** In one step: a reader sees the old file or the new one. */
function replace(path: string, holder: HolderFile): void {
  const draft = `${path}.new`
  try {
    rmSync(draft, { force: true })
    writeFileSync(draft, `${JSON.stringify(holder)}\n`, { mode: 0o600, flag: 'wx' })
    renameSync(draft, path)
  } catch {
    // A full disk, or a folder that is gone: the database's lock holds without it, and others only know less.
    rmSync(draft, { force: true })
  }
}

function readHolder(path: string): HolderFile | null {
  try {
    const { pid, startedAt, nodeId, socket } = JSON.parse(readFileSync(path, 'utf8')) as HolderFile
    if (!Number.isInteger(pid)) return null
    return { pid, startedAt, nodeId, socket: typeof socket === 'string' ? socket : null }
  } catch {
    return null // not there, or not ours: all that is known is that somebody may have the database open
  }
}
