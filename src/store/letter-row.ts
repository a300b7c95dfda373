/** The row of a dead letter, as a task's row is in `task-row.ts`. */
import type { DeadLetterState } from '../core/dead-letter.ts'
import type { ColumnType } from './task-row.ts'

export interface LetterRow {
  jobId: string
  itemId: string
  state: DeadLetterState
  errorType: string
  message: string
  name: string
  /** JSON text. */
  body: string
  attempts: number
  createdAt: number
  updatedAt: number
  /** The run that works on it again. */
  retryId: string | null
  retriedAt: number | null
}

export const LETTER_COLUMNS: Record<keyof LetterRow, ColumnType> = {
  jobId: 'text',
  itemId: 'text',
  state: 'text',
  errorType: 'text',
  message: 'text',
  name: 'text',
  body: 'text',
  attempts: 'int4',
  createdAt: 'int8',
  updatedAt: 'int8',
  retryId: 'text',
  retriedAt: 'int8',
}
