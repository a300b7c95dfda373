/** The errors a caller meets when work it waits for did not complete. */

import { formatDuration } from './duration.ts'
import { CurfewError } from './errors.ts'
import type { Failure } from './failure.ts'
import type { Progress, Receipt, TimeoutKind } from './states.ts'

export interface TaskErrorFields {
  taskId: string
  name: string
  attempts: number
  /** The total deadline, if there is one. */
  deadlineAt: number | null
  receipt: Receipt | null
  progress: Progress | null
  /** What the handler last gave to `progress` or `heartbeat`. */
  details: unknown
}

abstract class TaskError extends CurfewError {
  readonly taskId: string
  readonly taskName: string
  readonly attempts: number
  readonly deadlineAt: number | null
  readonly receipt: Receipt | null
  readonly progress: Progress | null
  readonly details: unknown

  constructor(code: string, message: string, fields: TaskErrorFields, options: { hint?: string } = {}) {
    super(code, message, { ...options, fields: { ...fields } })
    this.taskId = fields.taskId
    this.taskName = fields.name
    this.attempts = fields.attempts
    this.deadlineAt = fields.deadlineAt
    this.receipt = fields.receipt
    this.progress = fields.progress
    this.details = fields.details
  }
}

export class TaskTimedOut extends TaskError {
  readonly kind: TimeoutKind
  readonly timeoutMs: number | null
  readonly startedAt: number | null
  /** The failure of an earlier attempt, where there was one. */
  readonly failure: Failure | null

  constructor(
    fields: TaskErrorFields & {
      kind: TimeoutKind
      timeoutMs: number | null
      startedAt: number | null
      failure: Failure | null
    },
  ) {
    const after = fields.timeoutMs === null ? '' : ` after ${formatDuration(fields.timeoutMs)}`
    super(
      'task_timed_out',
      `task ${fields.name} (${fields.taskId}) timed out${after}: ${MEANING[fields.kind]}`,
      fields,
      {
        ...(fields.receipt === 'abandoned' && {
          hint: "Its handler ignored the abort signal and still runs; isolation: 'process' can kill it.",
        }),
      },
    )
    this.kind = fields.kind
    this.timeoutMs = fields.timeoutMs
    this.startedAt = fields.startedAt
    this.failure = fields.failure
  }
}

const MEANING: Record<TimeoutKind, string> = {
  total: 'its timeout, from scheduling over all attempts, was over',
  queue: 'nobody started it within its queueTimeout',
  execution: 'an attempt took longer than its attemptTimeout',
  heartbeat: 'no heartbeat came within its heartbeatTimeout',
  stuck: 'it made no progress for its stuckAfter, or used up its extensions',
}

export class TaskFailed extends TaskError {
  readonly failure: Failure

  constructor(fields: TaskErrorFields & { failure: Failure }) {
    super('task_failed', `task ${fields.name} (${fields.taskId}) failed: ${fields.failure.message}`, fields)
    this.failure = fields.failure
  }
}

export class TaskCancelled extends TaskError {
  constructor(fields: TaskErrorFields) {
    super('task_cancelled', `task ${fields.name} (${fields.taskId}) was cancelled`, fields)
  }
}

/** The wait was over before the work was. The work goes on. */
export class WaitTimedOut extends CurfewError {
  constructor(what: string, timeoutMs: number) {
    super('wait_timed_out', `${what} did not end within ${formatDuration(timeoutMs)}`, {
      fields: { timeoutMs },
    })
  }
}

/** The reason of an attempt's abort signal. */
export class Stopped extends CurfewError {
  readonly kind: TimeoutKind | undefined
  readonly deadlineAt: number | undefined

  constructor(reason: { code: string; message: string; kind?: TimeoutKind; deadlineAt?: number }) {
    super(reason.code, reason.message, { fields: { kind: reason.kind, deadlineAt: reason.deadlineAt } })
    this.kind = reason.kind
    this.deadlineAt = reason.deadlineAt
  }
}
