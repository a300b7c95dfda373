/** Where this process runs, so that another one on the same machine can tell whether it still does. */
import { readFileSync, readlinkSync } from 'node:fs'
import { hostname } from 'node:os'

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
    bootId: readText('/proc/sys/kernel/random/boot_id') ?? '',
    pidSpace: readLink('/proc/self/ns/pid') ?? '',
    pid: process.pid,
    pidStarted: startOf(process.pid) ?? '',
  }
}

/** A pid is only that process together with its start time. False where that cannot be told. */
export function isProcessGone({ pid, pidStarted }: { pid: number; pidStarted: string }): boolean {
  return pidStarted !== '' && startOf(pid) !== pidStarted
}

function startOf(pid: number): string | null {
  const stat = readText(`/proc/${pid}/stat`)
  if (stat === null) return null
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields[0] === 'Z' ? null : (fields[19] ?? null)
}

function readText(path: string): string | null {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch {
    return null // gone, or not Linux
  }
}

function readLink(path: string): string | null {
  try {
    return readlinkSync(path)
  } catch {
    return null // not Linux
  }
}
