/**
 * The state machine of a task. `decideTask(row, event, now)` is pure and total: it answers with the new row and
 * everything that goes with it, and an event that does not fit the state changes nothing.
 * Invariants: a task ends once; a settled task has no attempt that anybody waits for; a retry starts only after
 * the attempt before it has stopped or its worker's lease is over.
 */

import { unreachable } from '../core/errors.ts'
import type { ExtensionState } from '../core/extension.ts'
import { decideExtension, NO_EXTENSIONS } from '../core/extension.ts'
import type { LateResult } from '../core/failure.ts'
import type { KeptLimit, Note } from '../core/note.ts'
import type { AttemptReport } from '../core/reports.ts'
import type { Receipt, StopReason } from '../core/states.ts'
import { isEnded } from '../core/states.ts'
import { ATTEMPT_LEASE_BASE_MS } from '../leadership/lease-times.ts'
import type { TaskRow } from '../store/task-row.ts'
import { followsBy } from './inherited-policy.ts'
import { TaskDraft } from './task-draft.ts'
import type { TaskAnswer, TaskInput } from './task-input.ts'
import { nextDue } from './task-limits.ts'
import { afterStop, failAttempt, fireDue, fireLimits, lateResult, loseAttempt } from './task-outcome.ts'

export interface Decision {
  draft: TaskDraft
  answer: TaskAnswer
}

/** `chance` is uniform in [0, 1): the jitter of a retry. */
export function decideTask(row: TaskRow, input: TaskInput, now: number, chance: number): Decision {
  const draft = new TaskDraft(row, now)
  const answer = decide(draft, input, chance)
  const due = nextDue(draft.row, draft.policy)
  // A limit that moves later leaves `dueAt` where it is: it is looked at again when it comes up.
  draft.row.dueAt =
    due !== null && input.type !== 'due' && row.dueAt !== null && row.dueAt > now
      ? Math.min(due, row.dueAt)
      : due
  return { draft, answer }
}

function decide(draft: TaskDraft, input: TaskInput, chance: number): TaskAnswer {
  const { row } = draft
  switch (input.type) {
    case 'due':
      fireDue(draft)
      return { type: 'accepted' }
    case 'cancel':
      return cancel(draft)
    case 'extend_by':
      return extendBy(draft, input.byMs)
    case 'follow':
      return follow(draft, input.deadlineAt)
    case 'resume':
      return resume(draft)
    case 'lost':
      if (row.live === 0 || row.nodeId !== input.nodeId || (input.token ?? row.token) !== row.token) {
        return { type: 'unchanged', reason: 'not its attempt' }
      }
      // A limit that an attempt set for itself ends with whoever was to keep it.
      if (draft.policy.attemptTimeoutMs === null) row.attemptDeadlineAt = null
      fireLimits(draft)
      loseAttempt(draft, input.receipt, { chance, counted: true })
      return { type: 'accepted' }
    default:
      if (row.live === 1 && row.token === input.token) return decideAttempt(draft, input, chance)
      keepLate(draft, input)
      return stale(draft)
  }
}

/** From an attempt that nobody waits for any more: what it brings is kept, and changes nothing. */
function keepLate(draft: TaskDraft, input: AttemptReport): void {
  const { row } = draft
  const attempt = attemptOf(row, input.token)
  if (input.type === 'completed') {
    const repeated = row.status === 'completed' && row.token === input.token
    if (!repeated) lateResult(draft, { output: input.output }, attempt)
  } else if (input.type === 'failed') lateResult(draft, { failure: input.failure }, attempt)
  else if ((input.type === 'stopped' || input.type === 'returned') && input.late)
    lateResult(draft, input.late, attempt)
  if (input.type === 'stopped') keepOverlap(draft, input)
}

/** Its number; null where it may be any of several. */
function attemptOf({ token, attempt }: TaskRow, reported: string): number | null {
  if (reported === token) return attempt
  return attempt === 2 ? 1 : null
}

/** Its worker slept past its lease, or could not stop it: another attempt was started meanwhile. */
function keepOverlap(draft: TaskDraft, input: Extract<AttemptReport, { type: 'stopped' }>): void {
  const { row } = draft
  const { reason, receipt, token } = input
  if (reason.code !== 'lease_over' || token === row.token) return
  const silentMs = reason.timeoutMs ?? 0
  if (silentMs <= ATTEMPT_LEASE_BASE_MS + row.graceMs && receipt !== 'abandoned') return
  draft.record({ type: 'attempt_overlapped', attempt: row.attempt, receipt, silentMs })
}

/** From the worker that runs the current attempt. */
function decideAttempt(draft: TaskDraft, input: AttemptReport, chance: number): TaskAnswer {
  const { row } = draft
  const running = row.status === 'running'
  switch (input.type) {
    case 'completed':
      if (running) complete(draft, input.output)
      else cameBack(draft, 'exited', { output: input.output }, chance)
      return { type: 'accepted' }
    case 'failed':
      if (running) failAttempt(draft, input.failure, chance)
      else cameBack(draft, 'exited', { failure: input.failure }, chance)
      return { type: 'accepted' }
    case 'stopped':
      // Its process only let go of it, and it was through all the same: that is its result.
      if (running && input.reason.code !== 'timed_out' && input.late && 'output' in input.late) {
        complete(draft, input.late.output)
        return { type: 'accepted' }
      }
      if (running) stoppedByItself(draft, input.reason, input.receipt, chance)
      if (!running || input.late) cameBack(draft, input.receipt, input.late, chance)
      return { type: 'accepted' }
    case 'returned':
      // Nothing has been decided about it yet: what it returned is its result.
      if (!running) cameBack(draft, 'exited', input.late, chance)
      else if ('output' in input.late) complete(draft, input.late.output)
      else failAttempt(draft, input.late.failure, chance)
      return { type: 'accepted' }
    case 'beat':
      if (row.settledAt === null) beat(draft, input)
      return running ? { type: 'accepted' } : stale(draft)
    case 'note':
      if (running) note(draft, input)
      // It had ended by itself, and nobody else will say how.
      else if (row.status === 'cancelled') note(draft, { events: input.events, letters: input.letters })
      return running ? { type: 'accepted' } : stale(draft)
    case 'overdue':
      fireLimits(draft)
      return row.status === 'running' ? remainingLimits(draft) : stale(draft)
    case 'extend':
      return running ? extend(draft, input) : stale(draft)
    default:
      return unreachable(input)
  }
}

function complete(draft: TaskDraft, output: string): void {
  const { row, now } = draft
  row.status = 'completed'
  row.live = 0
  row.losses = 0
  row.output = output
  row.endedAt = now
  row.endedSeq = ++row.seq
  draft.settle()
}

/** Something from an attempt that was told to stop, or that nobody waits for any more. */
function cameBack(draft: TaskDraft, receipt: Receipt, late: LateResult | null, chance: number): void {
  const { row } = draft
  if (late) lateResult(draft, late)
  if (row.live === 0) return
  if (row.stopping === 1) return afterStop(draft, receipt, chance)
  // It was given up as abandoned or unreachable, and ended after all.
  if (receipt === 'abandoned') return
  row.live = 0
  if (row.receipt === 'unreachable') {
    // What an agent was told of it stays as it was: its replay has to see the same.
    if (row.parentId === null) row.receipt = receipt
    draft.receipts.push({ taskId: row.id, attempt: row.attempt, receipt })
  }
  draft.record({ type: 'attempt_stopped', attempt: row.attempt, receipt, tookMs: null })
}

/** The worker stopped a running attempt before the store told it to. */
function stoppedByItself(draft: TaskDraft, reason: StopReason, receipt: Receipt, chance: number): void {
  // Its own timer for a limit that is over: the store decides the same now, then takes the receipt.
  if (reason.code === 'timed_out') fireLimits(draft)
  if (draft.row.stopping === 1) afterStop(draft, receipt, chance)
  else loseAttempt(draft, receipt, { chance, counted: false })
}

function beat({ row, now }: TaskDraft, input: Extract<AttemptReport, { type: 'beat' }>): void {
  if (input.progress) row.progress = JSON.stringify(input.progress)
  if (input.details !== null) row.details = input.details
  // Of an attempt that was told to stop only what it says is kept: the limit that stopped it stays where it was.
  if (row.status !== 'running') return
  row.heartbeatDeadlineAt = renewed(row.heartbeatDeadlineAt, row.heartbeatTimeoutMs, now)
  if (!input.moved) return
  row.activeAt = now
  row.stuckDeadlineAt = renewed(row.stuckDeadlineAt, row.stuckAfterMs, now)
}

/** By a sign of life: what an operator gave is not taken back. */
function renewed(deadlineAt: number | null, timeoutMs: number | null, now: number): number | null {
  return timeoutMs === null ? deadlineAt : Math.max(deadlineAt ?? 0, now + timeoutMs)
}

/** What an attempt that runs commands says of them; each has a limit of its own. */
function note(draft: TaskDraft, { events, limitMs, limitOf, letters }: Note): void {
  const { row, now } = draft
  for (const event of events) draft.record({ ...event, attempt: row.attempt })
  draft.letters.push(...letters)
  // One that its policy limits is not for it to limit.
  if (limitMs === undefined || draft.policy.attemptTimeoutMs !== null) return
  row.attemptDeadlineAt = limitMs === null ? null : now + limitMs
  if (limitOf)
    row.details = JSON.stringify({ limit: limitOf, attempt: row.attempt, notedAt: now } satisfies KeptLimit)
  tellLimits(draft)
}

function extend(draft: TaskDraft, input: Extract<AttemptReport, { type: 'extend' }>): TaskAnswer {
  const { row, policy, now } = draft
  const state = row.extension ? (JSON.parse(row.extension) as ExtensionState) : NO_EXTENSIONS
  const decision = decideExtension(state, policy.extensions, input, now)
  const { answer } = decision
  if (!decision.repeated) {
    row.extension = JSON.stringify(decision.state)
    draft.record({
      type: 'extension_answered',
      attempt: row.attempt,
      requestId: input.requestId,
      progress: input.progress,
      answer,
    })
    if (answer.granted) grant(draft, state.grantedMs, decision.state.grantedMs)
    else if (answer.stopAt !== null) row.exhaustedDeadlineAt = answer.stopAt
  }
  return { type: 'extension', answer, deadlineAt: earliest(row) }
}

/** Granted time counts as progress and moves every deadline above the attempt that would cut it short. */
function grant(draft: TaskDraft, beforeMs: number, afterMs: number): void {
  const { row, policy, now } = draft
  /** By the total granted, never by more than the limit's own length again. */
  const moved = (timeoutMs: number, from: number, to: number) =>
    Math.min(to, timeoutMs) - Math.min(from, timeoutMs)
  row.activeAt = now
  row.exhaustedDeadlineAt = null
  if (row.attemptDeadlineAt !== null && policy.attemptTimeoutMs !== null) {
    row.attemptDeadlineAt += moved(policy.attemptTimeoutMs, beforeMs, afterMs)
  }
  row.heartbeatDeadlineAt = renewed(row.heartbeatDeadlineAt, row.heartbeatTimeoutMs, now)
  row.stuckDeadlineAt = renewed(row.stuckDeadlineAt, row.stuckAfterMs, now)
  const cutShort =
    row.deadlineAt !== null && (row.attemptDeadlineAt === null || row.deadlineAt < row.attemptDeadlineAt)
  // The largest total granted to one attempt counts, not the sum over attempts.
  if (cutShort && policy.timeoutMs !== null && afterMs > row.extendedMs) {
    row.deadlineAt = (row.deadlineAt as number) + moved(policy.timeoutMs, row.extendedMs, afterMs)
    row.extendedMs = afterMs
  }
  tellLimits(draft)
}

function cancel(draft: TaskDraft): TaskAnswer {
  const { row } = draft
  if (row.status === 'cancelled') return { type: 'cancel', answer: 'already_cancelled' }
  if (isEnded(row.status)) return { type: 'cancel', answer: 'already_completed' }
  const wasRunning = row.status === 'running'
  if (wasRunning) draft.stop({ code: 'cancelled', message: 'it was cancelled' })
  draft.end('cancelled', { type: 'task_cancelled', wasRunning })
  return { type: 'cancel', answer: wasRunning ? 'cancelled' : 'pending_cancelled' }
}

/** By an operator: any amount, every limit that holds. */
function extendBy(draft: TaskDraft, byMs: number): TaskAnswer {
  const { row } = draft
  if (isEnded(row.status)) return { type: 'unchanged', reason: `it is ${row.status} already` }
  if (row.deadlineAt !== null) row.deadlineAt += byMs
  if (row.attempt === 0 && row.queueDeadlineAt !== null) row.queueDeadlineAt += byMs
  if (row.status === 'running') {
    row.activeAt = draft.now // as time that it asked for
    if (row.attemptDeadlineAt !== null) row.attemptDeadlineAt += byMs
    if (row.heartbeatDeadlineAt !== null) row.heartbeatDeadlineAt += byMs
    if (row.stuckDeadlineAt !== null) row.stuckDeadlineAt += byMs
    row.exhaustedDeadlineAt = null
    tellLimits(draft)
  }
  const deadlineAt = earliest(row)
  draft.record({ type: 'deadlines_extended', byMs, deadlineAt })
  return { type: 'extended', deadlineAt }
}

/** What is above it was given more time. */
function follow(draft: TaskDraft, above: number): TaskAnswer {
  const { row, policy } = draft
  const byMs = followsBy(row, policy, above)
  if (row.deadlineAt === null || byMs === 0) return { type: 'accepted' }
  row.deadlineAt += byMs
  if (row.status === 'running') tellLimits(draft)
  draft.record({ type: 'deadlines_extended', byMs, deadlineAt: earliest(row) })
  return { type: 'accepted' }
}

function resume(draft: TaskDraft): TaskAnswer {
  const { row } = draft
  if (row.parked === null) return { type: 'unchanged', reason: 'it is not parked' }
  row.parked = null
  draft.record({ type: 'resumed' })
  if (row.status === 'pending' && row.stopping === 0) {
    draft.requeue(Math.max(row.retryAt ?? row.startAt, draft.now))
    if (row.attempt === 0) row.retryAt = null // its first attempt is no retry
  }
  return { type: 'accepted' }
}

function tellLimits({ row, effects }: TaskDraft): void {
  effects.push({
    type: 'limits',
    nodeId: row.nodeId,
    taskId: row.id,
    token: row.token as string,
    deadlineAt: row.deadlineAt,
    attemptDeadlineAt: row.attemptDeadlineAt,
  })
}

function remainingLimits({ row, now }: TaskDraft): TaskAnswer {
  const left = (at: number | null) => (at === null ? null : Math.max(0, at - now))
  return {
    type: 'limits',
    deadlineAt: earliest(row),
    attemptMs: left(row.attemptDeadlineAt),
    totalMs: left(row.deadlineAt),
  }
}

/** Of the limits of the whole and of its attempt. */
export function earliest(row: TaskRow): number | null {
  const deadline = Math.min(row.deadlineAt ?? Infinity, row.attemptDeadlineAt ?? Infinity)
  return deadline === Infinity ? null : deadline
}

/** What the sender of something outdated is told: that it has to stop, and why. */
function stale({ row }: TaskDraft): TaskAnswer {
  const why = isEnded(row.status) ? `the task is ${row.status}` : `attempt ${row.attempt} is the current one`
  return { type: 'stale', reason: { code: 'stale', message: `not the current attempt any more: ${why}` } }
}

/** The total that the current attempt was granted. */
export function grantedMs({ extension }: TaskRow): number {
  return extension === null ? 0 : (JSON.parse(extension) as { grantedMs: number }).grantedMs
}
