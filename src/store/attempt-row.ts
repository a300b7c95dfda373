/** The rows of attempts and of events, as a task's row is in `task-row.ts`. */
import type { Receipt, TimeoutKind } from '../core/states.ts'
import type { ColumnType } from './task-row.ts'

/** One earlier attempt of a task, kept when the next one starts or when it stopped with a receipt. */
export interface AttemptRow {
  taskId: string
  attempt: number
  status: string
  nodeId: string
  startedAt: number
  startedSeq: number | null
  endedAt: number
  timeoutKind: TimeoutKind | null
  failure: string | null
  receipt: Receipt | null
  grantedMs: number
  progress: string | null
  details: string | null
}

export const ATTEMPT_COLUMNS: Record<keyof AttemptRow, ColumnType> = {
  taskId: 'text',
  attempt: 'int4',
  status: 'text',
  nodeId: 'text',
  startedAt: 'int8',
  startedSeq: 'int4',
  endedAt: 'int8',
  timeoutKind: 'text',
  failure: 'text',
  receipt: 'text',
  grantedMs: 'int8',
  progress: 'text',
  details: 'text',
}

/** The events of one root in one transaction: a JSON array, and the number of the first. */
export interface EventRow {
  rootId: string
  seq: number
  at: number
  body: string
}

export const EVENT_COLUMNS: Record<keyof EventRow, ColumnType> = {
  rootId: 'text',
  seq: 'int4',
  at: 'int8',
  body: 'text',
}
