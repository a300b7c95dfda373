/** The limits of a task as sums over its row: which hold now, which is next, what is left. Pure. */
import { ownLimit } from '../core/own-work.ts'
import type { TimeoutKind } from '../core/states.ts'
import type { LimitKey, TaskPolicy } from '../definitions/task-policy.ts'
import type { NewTask } from '../store/hot-statements.ts'
import type { TaskRow } from '../store/task-row.ts'

export interface ActiveLimit {
  kind: TimeoutKind
  key: LimitKey
  deadlineAt: number
  timeoutMs: number
  /** Of the warnings already given. Zero: no warning belongs to it. */
  warningBit: number
}

/** Bits 0 and 1 outlive an attempt, see the claim statement. */
const WARNING_BITS: Record<TimeoutKind, number> = {
  ...{ job: 1, workflow: 1, agent: 1, total: 1 },
  ...{ queue: 2, execution: 4, heartbeat: 8, stuck: 16 },
}

/** Those that can fire in the row's present state, in the order in which they are looked at. */
export function activeLimits(row: TaskRow, policy: TaskPolicy): ActiveLimit[] {
  const limits: ActiveLimit[] = []
  const add = (kind: TimeoutKind, key: LimitKey, deadlineAt: number | null, timeoutMs: number | null) => {
    if (deadlineAt !== null) {
      limits.push({ kind, key, deadlineAt, timeoutMs: timeoutMs ?? 0, warningBit: WARNING_BITS[kind] })
    }
  }
  if (row.status !== 'pending' && row.status !== 'running') return limits
  if (row.kind === 'agent') {
    add(policy.boundBy ?? ownLimit(row), 'timeout', row.deadlineAt, policy.timeoutMs)
    return limits
  }
  add(policy.boundBy ?? 'total', 'timeout', row.deadlineAt, policy.timeoutMs)
  if (row.attempt === 0) add('queue', 'queueTimeout', row.queueDeadlineAt, policy.queueTimeoutMs)
  if (row.status !== 'running') return limits
  add('execution', 'attemptTimeout', row.attemptDeadlineAt, policy.attemptTimeoutMs ?? notedMs(row))
  add('heartbeat', 'heartbeatTimeout', row.heartbeatDeadlineAt, policy.heartbeatTimeoutMs)
  add('stuck', 'stuckAfter', row.stuckDeadlineAt, policy.stuckAfterMs)
  if (row.exhaustedDeadlineAt !== null) {
    limits.push({
      kind: 'stuck',
      key: 'stuckAfter',
      deadlineAt: row.exhaustedDeadlineAt,
      timeoutMs: policy.extensions.exhaustedGraceMs,
      warningBit: 0,
    })
  }
  return limits
}

/** As they are shown: a cancel does not disarm the deadline of an agent, which may end its clean-up. */
export function limitsInForce(row: TaskRow, policy: TaskPolicy): ActiveLimit[] {
  const endsCleanup = (cleanupDeadline(row, policy) ?? Infinity) < (row.stopBoundAt ?? -Infinity)
  return activeLimits(endsCleanup ? { ...row, status: 'running' } : row, policy)
}

/** The deadline of an agent that was cancelled, where it ends its clean-up: one that was over by then does not. */
export function cleanupDeadline(
  { status, deadlineAt, stopBoundAt }: Pick<TaskRow, 'status' | 'deadlineAt' | 'stopBoundAt'>,
  { cleanupMs }: TaskPolicy,
): number | null {
  if (status !== 'cancelling' || deadlineAt === null || stopBoundAt === null) return null
  return deadlineAt > stopBoundAt - cleanupMs ? deadlineAt : null
}

/** Of one that is stuck: it was denied more time, before any `stuckAfter` was over. */
export function wasDenied({ exhaustedDeadlineAt, stuckDeadlineAt }: TaskRow): boolean {
  return (exhaustedDeadlineAt ?? Infinity) < (stuckDeadlineAt ?? Infinity)
}

/** Of an attempt that says itself how long it may go on. */
function notedMs({ attemptDeadlineAt, startedAt }: TaskRow): number | null {
  return attemptDeadlineAt === null || startedAt === null ? null : attemptDeadlineAt - startedAt
}

export function warningAt(limit: ActiveLimit, policy: TaskPolicy): number {
  return limit.deadlineAt - limit.timeoutMs + Math.ceil(limit.timeoutMs * policy.warnAt)
}

/** The earliest moment at which anything of this row may have to happen. */
export function nextDue(row: TaskRow, policy: TaskPolicy): number | null {
  let due = Infinity
  for (const limit of activeLimits(row, policy)) {
    due = Math.min(due, limit.deadlineAt)
    if ((row.warned & limit.warningBit) === 0 && limit.warningBit > 0)
      due = Math.min(due, warningAt(limit, policy))
  }
  if (row.stopBoundAt !== null) due = Math.min(due, row.stopBoundAt)
  const starts = startsAt(row)
  if (starts !== null) due = Math.min(due, starts)
  return due === Infinity ? null : due
}

/** When a waiting task may be handed out; null when it does not wait for time. */
export function startsAt(row: TaskRow): number | null {
  if (row.kind === 'agent') return null // woken, not started
  if (row.status !== 'pending' || row.ready === 1 || row.stopping === 1 || row.parked !== null) return null
  return row.retryAt ?? row.startAt
}

/** The limits' columns of a new task. */
export function newTaskLimits(
  policy: TaskPolicy,
  now: number,
  start: number,
): Omit<
  NewTask,
  'id' | 'name' | 'queue' | 'priority' | 'key' | 'status' | 'input' | 'policy' | 'nodeId' | 'createdAt'
> {
  // What inherits no time at all has no start to wait for.
  const startAt = policy.timeoutMs === 0 ? now : start
  const deadlineAt = policy.timeoutMs === null ? null : startAt + policy.timeoutMs
  const queueDeadlineAt = policy.queueTimeoutMs === null ? null : startAt + policy.queueTimeoutMs
  const ready = startAt <= now ? 1 : 0
  const early = (deadline: number | null, timeoutMs: number | null) =>
    deadline === null || timeoutMs === null
      ? Infinity
      : deadline - timeoutMs + Math.ceil(timeoutMs * policy.warnAt)
  const due = Math.min(
    ready ? Infinity : startAt,
    early(deadlineAt, policy.timeoutMs),
    early(queueDeadlineAt, policy.queueTimeoutMs),
  )
  const perAttempt = [policy.attemptTimeoutMs, policy.heartbeatTimeoutMs, policy.stuckAfterMs].filter(
    (ms) => ms !== null,
  )
  return {
    ready,
    startAt,
    deadlineAt,
    queueDeadlineAt,
    attemptTimeoutMs: policy.attemptTimeoutMs,
    heartbeatTimeoutMs: policy.heartbeatTimeoutMs,
    stuckAfterMs: policy.stuckAfterMs,
    firstDueMs: perAttempt.length ? Math.min(...perAttempt.map((ms) => Math.ceil(ms * policy.warnAt))) : null,
    graceMs: policy.graceMs,
    dueAt: due === Infinity ? null : due,
  }
}
