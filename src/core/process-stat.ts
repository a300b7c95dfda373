/**
 * A process as /proc shows it. A pid is given out again, so a process is only ever known by its pid and its start time.
 * Without /proc (not Linux) nothing is known of any.
 */
import { readFileSync } from 'node:fs'

export interface ProcessStat {
  pid: number
  parent: number
  group: number
  session: number
  /** Clock ticks since boot. */
  startTime: number
  /** It has ended: it holds a pid until its parent looks, and nothing else. */
  zombie: boolean
  /** By SIGSTOP or a debugger. */
  stopped: boolean
}

/** Null when it is gone. */
export function readStat(pid: number): ProcessStat | null {
  const text = readProc(() => readFileSync(`/proc/${pid}/stat`, 'latin1'))
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

/** The start time of one that lives, as it is written down for others; null when it has ended. */
export function startText(pid: number): string | null {
  const stat = readStat(pid)
  return stat === null || stat.zombie ? null : `${stat.startTime}`
}

/** Null when it is gone or another user's; anything else (no file descriptors left) must not pass for that. */
export function readProc<T>(read: () => T): T | null {
  try {
    return read()
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH' || code === 'EACCES' || code === 'EPERM') return null
    throw error
  }
}
