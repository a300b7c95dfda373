/**
 * Ends a process between its beginning and its program, where a file system that does not answer may hold it for ever.
 * It has neither number nor mark yet that anybody would know: it is known by the pipe that it writes to. Linux.
 */
import { readlinkSync } from 'node:fs'
import type { Clock, Timer } from '../core/clock.ts'
import { readProc } from '../core/process-stat.ts'
import { listPids } from './process-table.ts'

/** Between two looks: at the first it may not have its pipe yet. */
const LOOK_EVERY_MS = 100

/** `pipe`: the end to write to, here. Goes on until it is cancelled. */
export function killWriters(clock: Clock, pipe: number): Timer {
  let timer: Timer
  const look = () => {
    timer = clock.setTimer(LOOK_EVERY_MS, look)
    try {
      const name = targetOf(`/proc/self/fd/${pipe}`)
      const pids = name === null ? [] : (listPids() ?? [])
      for (const pid of pids) if (targetOf(`/proc/${pid}/fd/1`) === name) process.kill(pid, 'SIGKILL')
    } catch {
      return // it has just gone, or there is no file descriptor to look with: the next look tells
    }
  }
  look()
  return { cancel: () => timer.cancel() }
}

/** Null also for what is another user's. */
function targetOf(link: string): string | null {
  return readProc(() => readlinkSync(link))
}
