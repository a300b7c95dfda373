/** What follows when an attempt or a limit is over: another attempt, or the task's outcome. */
import { backoffMs } from '../core/backoff.ts'
import type { Failure, LateResult } from '../core/failure.ts'
import { MAX_LATE_BYTES } from '../core/limits.ts'
import type { KeptLimit } from '../core/note.ts'
import { isMapreduce } from '../core/own-work.ts'
import type { Receipt, TimeoutKind } from '../core/states.ts'
import { isEnded } from '../core/states.ts'
import type { TaskDraft } from './task-draft.ts'
import { RECEIPT_MS, timeoutReason } from './task-draft.ts'

import type { ActiveLimit } from './task-limits.ts'
import { activeLimits, startsAt, warningAt, wasDenied } from './task-limits.ts'

/** Attempts lost in a row that are repeated; one more and something about the task kills its workers. */
const MOST_LOSSES = 3

/** Everything that is due: limits, then the bound of a stop, then starts, then warnings. */
export function fireDue(draft: TaskDraft): void {
  const { row, now } = draft
  fireLimits(draft)
  if (row.stopBoundAt !== null && row.stopBoundAt <= now) giveUpReceipt(draft)
  const starts = startsAt(row)
  if (starts !== null && starts <= now) {
    row.ready = 1
    draft.effects.push({ type: 'ready', queue: row.queue, name: row.name })
  }
  warn(draft)
}

/** The first limit that is over decides; what it decided may leave none of the others in force. */
export function fireLimits(draft: TaskDraft): void {
  const limit = activeLimits(draft.row, draft.policy).find(({ deadlineAt }) => deadlineAt <= draft.now)
  if (limit) fire(draft, limit)
}

function fire(draft: TaskDraft, limit: ActiveLimit): void {
  const { row, policy, now } = draft
  const { kind, deadlineAt, timeoutMs } = limit
  const fired = { kind, deadlineAt, timeoutMs: timeoutMs || null, lateMs: now - deadlineAt }
  row.timeoutKind = kind
  row.losses = 0
  const reason = timeoutReason(kind, deadlineAt, fired.timeoutMs)
  // One that the attempt set for itself: whoever takes the next is told what it was.
  if (kind === 'execution' && policy.attemptTimeoutMs === null && row.details !== null)
    row.details = JSON.stringify({ ...(JSON.parse(row.details) as KeptLimit), firedAt: now })
  const ofAttempt = kind === 'execution' || kind === 'heartbeat' || kind === 'stuck'
  const retried =
    ofAttempt && (kind !== 'execution' || policy.onTimeout === 'retry') && row.failures < policy.retries
  if (row.status === 'running') draft.stop(reason)
  if (!retried) {
    const startedAt = row.attempt === 0 ? null : row.startedAt
    const agentId = row.parentId === null ? {} : { agentId: row.parentId }
    draft.end('timed_out', { type: 'task_timed_out', ...fired, startedAt, attempts: row.attempt, ...agentId })
    return
  }
  // Pending again, but not ready: the retry waits for the receipt.
  row.status = 'pending'
  row.failures++
  draft.record({ type: 'attempt_timed_out', attempt: row.attempt, ...fired })
}

/** The receipt of a stopping attempt has come. */
export function afterStop(draft: TaskDraft, receipt: Receipt, chance: number): void {
  const { row, policy, now } = draft
  // It was not stopped for a limit but let go of: it is repeated at once.
  if (row.status === 'pending' && row.timeoutKind === null) {
    if (receipt === 'abandoned') return // still
    draft.closeAttempt('lost', receipt)
    return draft.requeue(now)
  }
  const decidedAt = row.stopBoundAt === null ? null : row.stopBoundAt - row.graceMs - RECEIPT_MS
  draft.record({
    type: 'attempt_stopped',
    attempt: row.attempt,
    receipt,
    tookMs: decidedAt === null ? null : now - decidedAt,
  })
  draft.closeAttempt(row.status === 'cancelled' ? 'cancelled' : 'timed_out', receipt, {
    stillRuns: receipt === 'abandoned',
  })
  if (isEnded(row.status)) return draft.settle()
  if (receipt === 'abandoned') return endTimedOut(draft)
  const retryAt = now + backoffMs(policy.backoff, row.failures - 1, chance)
  if (row.deadlineAt !== null && retryAt >= row.deadlineAt) return endTimedOut(draft)
  draft.requeue(retryAt)
  draft.record({ type: 'retry_scheduled', attempt: row.attempt + 1, retryAt })
}

/** A timed-out attempt was to be retried and cannot be: the task ends with that timeout. */
function endTimedOut(draft: TaskDraft): void {
  const { row, policy, now } = draft
  const kind = row.timeoutKind ?? 'execution'
  // The row still has the limits of that attempt. How late it fired is told by its own event.
  const limits: Partial<Record<TimeoutKind, [number | null, number | null]>> = {
    execution: [row.attemptDeadlineAt, policy.attemptTimeoutMs],
    heartbeat: [row.heartbeatDeadlineAt, policy.heartbeatTimeoutMs],
    stuck: wasDenied(row)
      ? [row.exhaustedDeadlineAt, policy.extensions.exhaustedGraceMs]
      : [row.stuckDeadlineAt, policy.stuckAfterMs],
  }
  const [deadlineAt, timeoutMs] = limits[kind] ?? [row.deadlineAt, policy.timeoutMs]
  draft.end('timed_out', {
    type: 'task_timed_out',
    kind,
    deadlineAt: deadlineAt ?? now,
    timeoutMs,
    lateMs: 0,
    startedAt: row.startedAt,
    attempts: row.attempt,
    ...(row.parentId !== null && { agentId: row.parentId }),
  })
  draft.settle()
}

/** No receipt within the bound: the outcome is told, but the slot stays taken and nothing is started beside it. */
function giveUpReceipt(draft: TaskDraft): void {
  const { row, policy } = draft
  row.stopBoundAt = null
  row.receipt = 'unreachable'
  const retried = !isEnded(row.status) || (policy.retriedAbove && row.timeoutKind === 'execution')
  if (retried) return // a retry waits for the receipt, or for the lease of its worker
  draft.record({ type: 'attempt_stopped', attempt: row.attempt, receipt: 'unreachable', tookMs: null })
  draft.closeAttempt(row.status === 'cancelled' ? 'cancelled' : 'timed_out', 'unreachable', {
    stillRuns: true,
  })
  draft.settle()
}

export function failAttempt(draft: TaskDraft, failure: Failure, chance: number): void {
  const { row, policy, now } = draft
  row.losses = 0
  row.failure = JSON.stringify(failure)
  if (!failure.retryable || row.failures >= policy.retries) {
    row.live = 0
    return draft.end('failed', { type: 'task_failed', failure, attempts: row.attempt })
  }
  const retryAt = now + backoffMs(policy.backoff, row.failures, chance)
  row.failures++
  if (row.deadlineAt !== null && retryAt >= row.deadlineAt) {
    row.live = 0
    const noTime: Failure = {
      code: 'no_time_to_retry',
      message: `${failure.message} (a retry could not start before the deadline)`,
      retryable: false,
      cause: failure,
    }
    row.failure = JSON.stringify(noTime)
    return draft.end('failed', { type: 'task_failed', failure: noTime, attempts: row.attempt })
  }
  draft.closeAttempt('failed', 'exited', { failure })
  draft.record({ type: 'attempt_failed', attempt: row.attempt, failure })
  draft.requeue(retryAt)
  draft.record({ type: 'retry_scheduled', attempt: row.attempt + 1, retryAt })
}

/** Its process is gone, or had to let go of it, and with that the attempt. `counted`: its worker died of it. */
export function loseAttempt(
  draft: TaskDraft,
  receipt: Receipt,
  options: { chance: number; counted: boolean },
): void {
  const { row, policy, now } = draft
  if (row.stopping === 1) return afterStop(draft, receipt, options.chance)
  if (row.status !== 'running') {
    row.live = 0 // it had been given up already
    return
  }
  draft.record({ type: 'attempt_lost', attempt: row.attempt, nodeId: row.nodeId })
  // Whoever resumes a map-reduce decides that it is worth another try.
  if (options.counted && !isMapreduce(row)) row.losses++
  if (policy.atMostOnce || row.losses > MOST_LOSSES) return endLost(draft, receipt)
  if (receipt === 'abandoned') {
    // It still runs: it is repeated once it has come back, or once its process is gone.
    row.status = 'pending'
    row.stopping = 1
    row.receipt = receipt
    return
  }
  draft.closeAttempt('lost', receipt)
  draft.requeue(now)
}

function endLost(draft: TaskDraft, receipt: Receipt): void {
  const { row, policy } = draft
  const failure: Failure = {
    code: 'lost',
    message: policy.atMostOnce
      ? 'its attempt was lost, and atMostOnce forbids to run it again'
      : `its worker died while it ran, ${row.losses} times in a row`,
    retryable: false,
  }
  row.failure = JSON.stringify(failure)
  draft.closeAttempt('lost', receipt, { stillRuns: receipt === 'abandoned', failure })
  draft.end('failed', { type: 'task_failed', failure, attempts: row.attempt })
  draft.settle()
}

/** `attempt`: whose it is, if that is known. */
export function lateResult(
  draft: TaskDraft,
  late: LateResult,
  attempt: number | null = draft.row.attempt,
): void {
  const { row } = draft
  const kept =
    'output' in late
      ? {
          output:
            late.output.length <= MAX_LATE_BYTES ? late.output : `${late.output.slice(0, MAX_LATE_BYTES)}…`,
        }
      : late
  draft.record({ type: 'late_result', ...(attempt !== null && { attempt }), status: row.status, ...kept })
}

/** Once per limit and attempt, also over restarts: the bit is stored with it. */
export function warn(draft: TaskDraft): void {
  const { row, policy, now } = draft
  for (const limit of activeLimits(row, policy)) {
    if (limit.warningBit === 0 || (row.warned & limit.warningBit) !== 0 || warningAt(limit, policy) > now)
      continue
    row.warned |= limit.warningBit
    draft.record({
      type: 'limit_warning',
      kind: limit.kind,
      percent: Math.round(policy.warnAt * 100),
      deadlineAt: limit.deadlineAt,
      remainingMs: limit.deadlineAt - now,
    })
  }
}
