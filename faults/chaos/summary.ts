/** The figures of a chaos run, as a row of a table. */
import type { TaskRecord } from './auditor.ts'

export interface Run {
  store: string
  seed: number
  seconds: number
  kills: number
  earlyKills: number
  complaints: number
}

export interface Summary extends Run {
  tasks: number
  attempts: number
  lost: number
  completed: number
  failed: number
  timed_out: number
  cancelled: number
  /** How late limits fired, restarts and takeovers included. */
  lateP50Ms: number
  lateP99Ms: number
  lateMaxMs: number
}

export function summarize(records: readonly TaskRecord[], run: Run): Summary {
  const count = (status: string) => records.filter(({ view }) => view.status === status).length
  const events = records.flatMap((record) => record.events)
  const late = events
    .filter(({ type }) => type === 'task_timed_out' || type === 'attempt_timed_out')
    .map(({ lateMs }) => lateMs as number)
    .sort((a, b) => a - b)
  const quantile = (share: number) => late[Math.min(late.length - 1, Math.floor(late.length * share))] ?? 0
  return {
    ...run,
    tasks: records.length,
    attempts: records.reduce((sum, { view }) => sum + view.attempts, 0),
    lost: events.filter(({ type }) => type === 'attempt_lost').length,
    completed: count('completed'),
    failed: count('failed'),
    timed_out: count('timed_out'),
    cancelled: count('cancelled'),
    lateP50Ms: quantile(0.5),
    lateP99Ms: quantile(0.99),
    lateMaxMs: late.at(-1) ?? 0,
  }
}
