/**
 * Ends a process between its beginning and its program, where a file system that does not answer may hold it for ever.
 * It has neither number nor mark yet that anybody would know: it is known by the pipe that it writes to. Linux.
 */
import { closeSync, readlinkSync } from 'node:fs'
import type { Clock, Timer } from '../core/clock.ts'
import { readProc } from '../core/process-stat.ts'
import { listPids } from './process-table.ts'

/** Between two looks: at the first it may not have its pipe yet. */
const LOOK_EVERY_MS = 100

export interface Killing extends Timer {
  /** There was one. */
  readonly hasKilled: boolean
}

/** `pipe`: the end to write to, here. Goes on until it is cancelled. */
export function killWriters(clock: Clock, pipe: number): Killing {
  let timer: Timer
  let hasKilled = false
  const look = () => {
    timer = clock.setTimer(LOOK_EVERY_MS, look)
    try {
      const name = targetOf(`/proc/self/fd/${pipe}`)
      const pids = name === null ? [] : (listPids() ?? [])
      for (const pid of pids) {
        if (targetOf(`/proc/${pid}/fd/1`) !== name) continue
        process.kill(pid, 'SIGKILL')
        hasKilled = true
      }
    } catch {
      return // it has just gone, or there is no file descriptor to look with: the next look tells
    }
  }
  look()
  return {
    cancel: () => timer.cancel(),
    get hasKilled() {
      return hasKilled
    },
  }
}

/**
 * Once and for all, when this process is about to exit: none of those that begin to start with one of these pipes does.
 * What has not begun finds its pipe closed, and fails. What has begun has a copy of it, under the same number until it
 * has put it in its place.
 */
export function endStarts(pipes: readonly number[]): void {
  const names = new Set(pipes.map((pipe) => targetOf(`/proc/self/fd/${pipe}`)))
  for (const pipe of pipes) closeSync(pipe)
  const isStarting = (pid: number) =>
    [1, ...pipes].some((fd) => {
      const target = targetOf(`/proc/${pid}/fd/${fd}`)
      return target !== null && names.has(target)
    })
  for (const pid of pipes.length === 0 ? [] : (listPids() ?? [])) {
    if (isStarting(pid)) kill(pid)
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    return // it has just gone
  }
}

/** Null also for what is another user's. */
function targetOf(link: string): string | null {
  return readProc(() => readlinkSync(link))
}
