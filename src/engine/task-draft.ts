/**
 * A task's row while something is decided about it, and what the decision brings with it.
 * Owns the few moves every decision is made of; which of them to make is decided in `task-decide.ts`.
 */
import { formatDuration } from '../core/duration.ts'
import type { Failure } from '../core/failure.ts'
import type { DeadLetterNote } from '../core/note.ts'
import type { WorkKind } from '../core/own-work.ts'
import type { AttemptStatus, Receipt, StopReason, TaskStatus, TimeoutKind } from '../core/states.ts'
import { decodePolicy } from '../definitions/policy-text.ts'
import type { TaskPolicy } from '../definitions/task-policy.ts'
import type { AttemptRow } from '../store/attempt-row.ts'
import type { TaskRow } from '../store/task-row.ts'
import { copyRow } from '../store/task-row.ts'
import { policyInForce } from './inherited-policy.ts'
import type { TaskEventBody } from './task-event.ts'

/** What has to happen outside the store, once the decision is committed. */
export type Effect =
  | { type: 'stop'; nodeId: string; taskId: string; token: string; reason: StopReason; graceMs: number }
  | {
      type: 'limits'
      nodeId: string
      taskId: string
      token: string
      deadlineAt: number | null
      attemptDeadlineAt: number | null
    }
  | { type: 'settled'; taskId: string }
  | { type: 'ready'; queue: string; name: string }
  /** There is news for a turn that runs; `dropped`: nothing it does counts any more. */
  | { type: 'news'; nodeId: string; agentId: string; token: string; dropped: boolean }
  /** A turn may be claimed; `elsewhere`: by a peer, which has the agent in memory. */
  | { type: 'woken'; name: string; elsewhere: boolean }
  | { type: 'timeout_wakes'; agentId: string; taskId: string }
  | { type: 'agent_settled'; work: { kind: WorkKind; name: string }; status: TaskStatus; tookMs: number }

/** What a receipt is waited for beyond the grace. */
export const RECEIPT_MS = 2_000

export class TaskDraft {
  readonly row: TaskRow
  /** As it was before the decision. */
  readonly before: TaskRow
  readonly policy: TaskPolicy
  readonly events: { seq: number; at: number; body: TaskEventBody }[] = []
  readonly attempts: AttemptRow[] = []
  readonly receipts: { taskId: string; attempt: number; receipt: Receipt }[] = []
  readonly effects: Effect[] = []
  readonly letters: DeadLetterNote[] = []
  readonly now: number

  constructor(row: TaskRow, now: number, policy: TaskPolicy = policyInForce(row, decodePolicy(row.policy))) {
    this.row = copyRow(row)
    this.before = row
    this.policy = policy
    this.now = now
  }

  record(body: TaskEventBody): number {
    this.events.push({ seq: ++this.row.seq, at: this.now, body })
    return this.row.seq
  }

  /** The outcome. It may be told once the attempt has stopped. */
  end(status: 'failed' | 'timed_out' | 'cancelled', event: TaskEventBody): void {
    const { row } = this
    row.status = status
    row.ready = 0
    row.retryAt = null
    row.endedAt = this.now
    if (status !== 'timed_out') row.timeoutKind = null
    row.endedSeq = this.record(event)
    const receiptGivenUp = row.stopping === 1 && row.stopBoundAt === null
    if ((row.stopping === 0 && row.live === 0) || receiptGivenUp) this.settle()
  }

  settle(): void {
    if (this.row.settledAt !== null) return
    this.row.settledAt = this.now
    this.row.parked = null // nobody has to let it go on any more
    this.effects.push({ type: 'settled', taskId: this.row.id })
  }

  /** The attempt is told to stop; its receipt is waited for, within a bound. */
  stop(reason: StopReason): void {
    const { row } = this
    row.stopping = 1
    row.stopBoundAt = this.now + row.graceMs + RECEIPT_MS
    this.effects.push({
      type: 'stop',
      nodeId: row.nodeId,
      taskId: row.id,
      token: row.token as string,
      reason,
      graceMs: row.graceMs,
    })
  }

  /** The attempt is over, one way or the other; `stillRuns` keeps its slot taken. */
  closeAttempt(
    status: AttemptStatus,
    receipt: Receipt,
    options: { stillRuns?: boolean; failure?: Failure } = {},
  ): void {
    const { row } = this
    row.live = options.stillRuns ? 1 : 0
    row.stopping = 0
    row.stopBoundAt = null
    row.receipt = receipt
    row.activeAt = this.now
    this.attempts.push({
      taskId: row.id,
      attempt: row.attempt,
      status,
      nodeId: row.nodeId,
      startedAt: row.startedAt as number,
      startedSeq: row.startedSeq,
      endedAt: this.now,
      timeoutKind: status === 'timed_out' ? row.timeoutKind : null,
      failure: options.failure ? JSON.stringify(options.failure) : null,
      receipt,
      grantedMs: row.extension ? (JSON.parse(row.extension) as { grantedMs: number }).grantedMs : 0,
      progress: row.progress,
      details: row.details,
    })
  }

  /** Back into the queue: at once, or at a later moment. */
  requeue(at: number): void {
    const { row } = this
    row.status = 'pending'
    row.retryAt = at
    row.timeoutKind = null
    row.ready = at <= this.now && row.parked === null ? 1 : 0
    row.attemptDeadlineAt = null
    row.heartbeatDeadlineAt = null
    row.stuckDeadlineAt = null
    row.exhaustedDeadlineAt = null
    if (row.ready) this.effects.push({ type: 'ready', queue: row.queue, name: row.name })
  }
}

export function timeoutReason(kind: TimeoutKind, deadlineAt: number, timeoutMs: number | null): StopReason {
  const after = timeoutMs === null ? '' : ` of ${formatDuration(timeoutMs)}`
  return { code: 'timed_out', kind, deadlineAt, message: `its ${kind} limit${after} is over` }
}
