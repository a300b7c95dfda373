/**
 * A process as /proc shows it. A pid is given out again, so a process is only ever known by its pid and its start time.
 * Without /proc (not Linux) nothing is known of any.
 */
import { closeSync, openSync, readSync } from 'node:fs'

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
  /** Its first thread has ended, and others run: it has an environment, but not where it is looked for. */
  headless: boolean
}

/** Null when it is gone. */
export function readStat(pid: number): ProcessStat | null {
  const text = readProc(() => readProcFile(`/proc/${pid}/stat`))
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

/** The start time of one that lives, as it is written down for others; null when it has ended. */
export function startText(pid: number): string | null {
  const stat = readStat(pid)
  return stat === null || stat.zombie ? null : `${stat.startTime}`
}

const buffer = Buffer.allocUnsafeSlow(64 * 1024)

/** The files of /proc say that they are empty, for which readFile takes several times as long. */
export function readProcFile(path: string): string {
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
export function readProc<T>(read: () => T): T | null {
  try {
    return read()
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT' || code === 'ESRCH' || code === 'EACCES' || code === 'EPERM') return null
    throw error
  }
}
