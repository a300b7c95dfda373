/** Where this process runs, so that another one on the same machine can tell whether it still does. */
import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'
import { readProc, startText } from '../core/process-stat.ts'

export interface ThisMachine {
  host: string
  /** Another start of the machine is another machine. */
  bootId: string
  /** A pid means nothing in another container. */
  pidSpace: string
  pid: number
  pidStarted: string
}

export function thisMachine(): ThisMachine {
  return {
    host: hostname(),
    bootId: readProc(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8'))?.trim() ?? '',
    pidSpace: readProc(() => readlinkSync('/proc/self/ns/pid')) ?? '',
    pid: process.pid,
    pidStarted: startText(process.pid) ?? '',
  }
}

/** A pid is only that process together with its start time. False where that cannot be told. */
export function isProcessGone({ pid, pidStarted }: { pid: number; pidStarted: string }): boolean {
  return pidStarted !== '' && startText(pid) !== pidStarted
}
