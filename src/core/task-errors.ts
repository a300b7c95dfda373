/** The errors a caller meets when work it waits for did not complete. */

import type { EndedWork } from './agent-journal.ts'
import { formatDuration } from './duration.ts'
import { CurfewError } from './errors.ts'
import type { Failure } from './failure.ts'
import type { WorkKind } from './own-work.ts'
import type { SettledOutcomes } from './settled-outcomes.ts'
import type { EndsAs, Progress, Receipt, StopReason, TimeoutKind } from './states.ts'

export interface TaskErrorFields {
  taskId: string
  name: string
  /** What it is about; an agent's attempts are its turns. */
  work?: WorkKind
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
    const { timeoutMs, kind, work, failure } = fields
    const after = timeoutMs === null ? '' : ` after ${formatDuration(timeoutMs)}`
    // A job may end as one of its workflows did.
    const why = work === 'job' && failure ? `: ${failure.message}` : `${after}: ${MEANING[kind]}`
    super('task_timed_out', `${who(fields)} timed out${why}`, fields, {
      ...(fields.receipt === 'abandoned' && {
        hint:
          (work ?? 'task') === 'task'
            ? "Its handler ignored the abort signal and still runs; isolation: 'process' can kill it."
            : 'Its clean-up, or a handler below it, was abandoned and may still run.',
      }),
    })
    this.kind = fields.kind
    this.timeoutMs = fields.timeoutMs
    this.startedAt = fields.startedAt
    this.failure = fields.failure
  }
}

const MEANING: Record<TimeoutKind, string> = {
  job: 'its timeout, from the submit on, was over',
  workflow: 'its timeout was over',
  agent: 'its timeout was over',
  total: 'its timeout, from scheduling over all attempts, was over',
  queue: 'nobody started it within its queueTimeout',
  execution: 'an attempt took longer than its attemptTimeout',
  heartbeat: 'no heartbeat came within its heartbeatTimeout',
  stuck: 'it made no progress for its stuckAfter, or used up its extensions',
}

export class TaskFailed extends TaskError {
  readonly failure: Failure
  /** Of a workflow that fails on its timeout, when it was that. */
  readonly timeoutKind: TimeoutKind | null
  readonly timeoutMs: number | null

  constructor(
    fields: TaskErrorFields & {
      failure: Failure
      timeoutKind?: TimeoutKind | null
      timeoutMs?: number | null
    },
  ) {
    super('task_failed', `${who(fields)} failed: ${fields.failure.message}`, fields)
    this.failure = fields.failure
    this.timeoutKind = fields.timeoutKind ?? null
    this.timeoutMs = fields.timeoutMs ?? null
  }
}

export class TaskCancelled extends TaskError {
  /** Why, where it was not asked for itself. */
  readonly failure: Failure | null

  constructor(fields: TaskErrorFields & { failure?: Failure | null }) {
    const why = fields.failure ? `: ${fields.failure.message}` : ''
    super('task_cancelled', `${who(fields)} was cancelled${why}`, fields)
    this.failure = fields.failure ?? null
  }
}

function who({ work = 'task', name, taskId }: TaskErrorFields): string {
  return `${work} ${name} (${taskId})`
}

/** None of those that were waited for completed. */
export class AllTasksFailed extends CurfewError {
  /** In the order in which they were given. */
  readonly errors: readonly Error[]

  constructor(errors: readonly Error[]) {
    const messages = errors.map((error, i) => `  ${i}: ${error.message}`).join('\n')
    super('all_tasks_failed', `none of ${errors.length} completed:\n${messages}`, {
      fields: { errors: errors.map((error) => (error as Partial<CurfewError>).code ?? error.name) },
    })
    this.errors = errors
  }
}

/** What whoever waits for work that did not complete is told. */
export function outcomeError(ended: EndedWork): CurfewError {
  const fields: TaskErrorFields = {
    taskId: ended.id,
    name: ended.name,
    work: ended.kind,
    attempts: ended.attempts,
    deadlineAt: ended.deadlineAt,
    receipt: ended.receipt,
    progress: ended.progress,
    details: ended.details,
  }
  if (ended.status === 'cancelled') {
    // What a task failed with before it was cancelled is not why.
    return new TaskCancelled({ ...fields, failure: ended.kind === 'task' ? null : ended.failure })
  }
  if (ended.status === 'timed_out') {
    const { timeoutKind, timeoutMs, startedAt, failure } = ended
    return new TaskTimedOut({ ...fields, kind: timeoutKind ?? 'total', timeoutMs, startedAt, failure })
  }
  const failure = ended.failure ?? { code: 'failed', message: 'it failed', retryable: false }
  const { timeoutKind, timeoutMs } = ended
  return new TaskFailed({ ...fields, failure, timeoutKind, timeoutMs })
}

/** Thrown by code of Curfew's own: a run that ends as what ended it. */
export class RunEnded extends Error {
  readonly failure: Failure
  readonly endsAs: EndsAs

  constructor(failure: Failure, endsAs: EndsAs) {
    super(failure.message)
    this.failure = failure
    this.endsAs = endsAs
  }
}

/** The wait was over before the work was. The work goes on. */
export class WaitTimedOut extends CurfewError {
  readonly timeoutMs: number
  /** Of a wait for several: what had ended, and what had not. */
  readonly settled: SettledOutcomes | null

  constructor(what: string, timeoutMs: number, settled: SettledOutcomes | null = null) {
    super('wait_timed_out', `${what} did not end within ${formatDuration(timeoutMs)}`, {
      fields: { timeoutMs },
    })
    this.timeoutMs = timeoutMs
    this.settled = settled
  }
}

/** What `ctx.run` was given failed, and was not tried again. */
export class RunFailed extends CurfewError {
  readonly failure: Failure

  constructor(name: string, failure: Failure) {
    super('run_failed', `run ${name} failed: ${failure.message}`, { fields: { name, failure } })
    this.failure = failure
  }
}

/** The code of an agent did not ask for what its journal holds: it was changed under a live run. */
export class JournalMismatch extends CurfewError {
  readonly step: number
  readonly expected: string
  readonly got: string | null

  constructor(step: number, expected: string, got: string | null) {
    super(
      'journal_mismatch',
      `step ${step}: the journal has ${expected}, the code ${got === null ? 'did not come to it' : `asked for ${got}`}`,
      {
        hint: 'The code changed under a live run, or depends on something that is not from ctx. Deploy code that takes the same steps, then resume the run.',
        fields: { step, expected, got },
      },
    )
    this.step = step
    this.expected = expected
    this.got = got
  }
}

/** The reason of an attempt's abort signal. */
export class Stopped extends CurfewError {
  readonly kind: TimeoutKind | undefined
  readonly deadlineAt: number | undefined
  readonly timeoutMs: number | undefined

  constructor(reason: Omit<StopReason, 'code'> & { code: string }) {
    super(reason.code, reason.message, { fields: { kind: reason.kind, deadlineAt: reason.deadlineAt } })
    this.kind = reason.kind
    this.deadlineAt = reason.deadlineAt
    this.timeoutMs = reason.timeoutMs
  }
}
