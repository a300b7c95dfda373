/** A task's rows as they are shown: the record, its attempts, its events, and what explains it. Pure. */
import { formatDuration } from '../core/duration.ts'
import type { ExtensionState } from '../core/extension.ts'
import type { Failure } from '../core/failure.ts'
import { callersKey, ownLimit, workKind, workName } from '../core/own-work.ts'
import type { AttemptStatus, Progress, TimeoutKind } from '../core/states.ts'
import { isEnded, TASK_TIMEOUT_KINDS } from '../core/states.ts'
import type { LimitKey, TaskPolicy } from '../definitions/task-policy.ts'
import { policyWarnings } from '../definitions/task-policy.ts'
import type { AttemptRow, EventRow } from '../store/attempt-row.ts'
import type { TaskRow } from '../store/task-row.ts'
import { readablePolicyOf } from './inherited-policy.ts'
import type { TaskEvent, TaskEventBody } from './task-event.ts'
import { limitsInForce, wasDenied } from './task-limits.ts'

function timeoutMsOf(kind: TimeoutKind | null, policy: TaskPolicy): number | null {
  return kind === null ? null : policy[LIMITS[kind].field]
}

const LIMITS = {
  job: { key: 'timeout', field: 'timeoutMs' },
  workflow: { key: 'timeout', field: 'timeoutMs' },
  agent: { key: 'timeout', field: 'timeoutMs' },
  total: { key: 'timeout', field: 'timeoutMs' },
  queue: { key: 'queueTimeout', field: 'queueTimeoutMs' },
  execution: { key: 'attemptTimeout', field: 'attemptTimeoutMs' },
  heartbeat: { key: 'heartbeatTimeout', field: 'heartbeatTimeoutMs' },
  stuck: { key: 'stuckAfter', field: 'stuckAfterMs' },
} as const satisfies Record<TimeoutKind, { key: LimitKey; field: keyof TaskPolicy }>

/** What is stored, or null: a record that is damaged in one place is still shown. */
export function parsed<T>(text: string | null): T | null {
  if (text === null) return null
  try {
    return JSON.parse(text) as T
  } catch {
    return null // whoever decides about it parks it, with the reason
  }
}

export function taskView(row: TaskRow) {
  const policy = readablePolicyOf(row)
  return {
    id: row.id,
    kind: workKind(row),
    name: workName(row),
    title: row.title,
    queue: row.queue,
    priority: row.priority,
    key: callersKey(row.title, row.key),
    status: row.status,
    settled: row.settledAt !== null,
    parked: row.parked,
    attempts: row.attempt,
    createdAt: row.createdAt,
    startAt: row.startAt,
    startedAt: row.startedAt,
    endedAt: row.endedAt,
    deadlineAt: row.deadlineAt,
    attemptDeadlineAt: row.attemptDeadlineAt,
    timeoutKind: row.timeoutKind,
    timeoutMs: timeoutMsOf(row.timeoutKind, policy),
    failure: parsed<Failure>(row.failure),
    receipt: row.receipt,
    progress: parsed<Progress>(row.progress),
    details: parsed<unknown>(row.details),
    output: parsed<unknown>(row.output),
    parentId: row.parentId,
    trace: policy.trace?.traceparent ?? null,
  }
}

/** Those on record, and the current one out of the task's own row. */
export function attemptViews(row: TaskRow, recorded: readonly AttemptRow[]) {
  const views = recorded.map((attempt) => ({
    taskId: row.id,
    name: row.name,
    attempt: attempt.attempt,
    status: attempt.status as AttemptStatus,
    startedAt: attempt.startedAt,
    endedAt: attempt.endedAt as number | null,
    timeoutKind: attempt.timeoutKind,
    failure: parsed<Failure>(attempt.failure),
    receipt: attempt.receipt,
    grantedMs: attempt.grantedMs,
  }))
  const last = recorded.at(-1)?.attempt ?? 0
  if (row.attempt > last) {
    const status: AttemptStatus =
      row.stopping === 1 ? 'stopping' : row.status === 'pending' ? 'lost' : (row.status as AttemptStatus)
    views.push({
      taskId: row.id,
      name: row.name,
      attempt: row.attempt,
      status,
      startedAt: row.startedAt as number,
      endedAt: row.endedAt,
      timeoutKind: row.status === 'timed_out' || row.stopping === 1 ? row.timeoutKind : null,
      failure: row.status === 'failed' ? parsed<Failure>(row.failure) : null,
      receipt: row.receipt ?? (isEnded(row.status) && row.stopping === 0 ? 'exited' : null),
      grantedMs: parsed<ExtensionState>(row.extension)?.grantedMs ?? 0,
    })
  }
  return views
}

/** In the order of their numbers: the plain ones from columns, the others from the event rows. */
export function taskEvents(
  row: TaskRow,
  recorded: readonly AttemptRow[],
  eventRows: readonly EventRow[],
): TaskEvent[] {
  const scheduled =
    row.kind === 'agent'
      ? ({ type: 'agent_scheduled' } as const)
      : ({ type: 'task_scheduled', startAt: row.startAt } as const)
  const events: TaskEvent[] = [{ taskId: row.id, seq: 1, at: row.createdAt, ...scheduled }]
  if (row.kind === 'agent' && row.startedAt !== null && row.startedSeq !== null) {
    events.push({ taskId: row.id, seq: row.startedSeq, at: row.startedAt, type: 'agent_started' })
  }
  const started = (attempt: number, nodeId: string, at: number | null, seq: number | null) => {
    if (at !== null && seq !== null) {
      events.push({ taskId: row.id, seq, at, type: 'attempt_started', attempt, nodeId })
    }
  }
  for (const attempt of recorded)
    started(attempt.attempt, attempt.nodeId, attempt.startedAt, attempt.startedSeq)
  if (row.kind === 'task' && row.attempt > (recorded.at(-1)?.attempt ?? 0))
    started(row.attempt, row.nodeId, row.startedAt, row.startedSeq)
  for (const { seq, at, body } of eventRows) {
    for (const [i, event] of (parsed<TaskEventBody[]>(body) ?? []).entries()) {
      events.push({ taskId: row.id, seq: seq + i, at, ...event })
    }
  }
  if (row.status === 'completed' && row.endedAt !== null && row.endedSeq !== null) {
    const end =
      row.kind === 'agent'
        ? ({ type: 'agent_completed', turns: row.attempt } as const)
        : ({ type: 'task_completed', attempts: row.attempt } as const)
    events.push({ taskId: row.id, seq: row.endedSeq, at: row.endedAt, ...end })
  }
  const kind = workKind(row)
  const own = kind === 'workflow' || kind === 'job'
  const named = own
    ? events.map((event) => ({ ...event, type: event.type.replace(/^agent_/, `${kind}_`) }))
    : events
  return (named as TaskEvent[]).sort((a, b) => a.seq - b.seq)
}

/** `abandoned`: every slot here is held by a handler that ignored its signal. */
export function explainTask(row: TaskRow, recorded: readonly AttemptRow[], now: number, abandoned: boolean) {
  const policy = readablePolicyOf(row)
  const { limits, binding } = limitViews(row, policy, now)
  const extension = parsed<ExtensionState>(row.extension)
  return {
    id: row.id,
    name: row.name,
    kind: workKind(row),
    status: row.status,
    summary: summaryOf(row, policy, binding, now),
    limits,
    retries: { used: row.failures, allowed: policy.retries, nextAt: row.ready === 0 ? row.retryAt : null },
    extensions: {
      granted: extension?.grants ?? 0,
      grantedMs: extension?.grantedMs ?? 0,
      left: policy.extensions.maxGrants - (extension?.grants ?? 0),
    },
    attempts: attemptViews(row, recorded),
    waits: [],
    journal: null,
    warnings: [
      ...policyWarnings(policy),
      ...(abandoned && row.ready === 1
        ? ['every slot of this process is held by a handler that ignored its signal: it starts nothing']
        : []),
    ],
    trace: policy.trace?.traceparent ?? null,
  }
}

/** Every limit that was set, and which of those in force ends first. */
export function limitViews(row: TaskRow, policy: TaskPolicy, now: number) {
  const active = limitsInForce(row, policy)
  const binding = active.reduce<(typeof active)[number] | null>(
    (first, limit) => (first === null || limit.deadlineAt < first.deadlineAt ? limit : first),
    null,
  )
  const limits = TASK_TIMEOUT_KINDS.flatMap((kind) => {
    const isOwn = LIMITS[kind].key === 'timeout'
    if (isOwn ? kind !== ownLimit(row) : row.kind === 'agent') return []
    const { key } = LIMITS[kind]
    const timeoutMs = timeoutMsOf(kind, policy)
    const setBy = policy.origins[key]
    if (timeoutMs === null || setBy === undefined) return []
    // One that is inherited has the kind of the limit it comes from.
    const named = isOwn ? (policy.boundBy ?? kind) : kind
    const ofKind = active.filter((one) => one.kind === named)
    const limit = ofKind.find((one) => one === binding) ?? ofKind[0]
    const deadlineAt = limit?.deadlineAt ?? (isOwn ? row.deadlineAt : null)
    return [
      {
        kind: named,
        option: key,
        timeoutMs,
        setBy,
        deadlineAt,
        remainingMs: limit ? limit.deadlineAt - now : null,
        active: limit !== undefined,
        binding: limit !== undefined && limit === binding,
      },
    ]
  })
  return { limits, binding }
}

function summaryOf(
  row: TaskRow,
  policy: TaskPolicy,
  binding: { kind: TimeoutKind; deadlineAt: number } | null,
  now: number,
): string {
  const left = binding
    ? `; its ${binding.kind} limit ends in ${formatDuration(Math.max(0, binding.deadlineAt - now))}`
    : '; it has no limit'
  const ended = row.receipt === 'abandoned' && row.live === 0 ? 'abandoned, and ended later' : null
  const how = row.receipt ? ` (the attempt was ${ended ?? RECEIPTS[row.receipt]})` : ''
  switch (row.status) {
    case 'pending':
      return `${pendingBecause(row, now)}${left}`
    case 'running':
      return `attempt ${row.attempt} runs since ${formatDuration(now - (row.startedAt ?? now))}${left}`
    case 'completed':
      return `completed by attempt ${row.attempt} in ${formatDuration((row.endedAt ?? now) - (row.startedAt ?? now))}`
    case 'cancelling':
    case 'cancelled':
      return `cancelled${row.attempt === 0 ? ' before it started' : ''}${how}`
    case 'failed':
      return `failed: ${parsed<Failure>(row.failure)?.message ?? 'for an unknown reason'}`
    case 'timed_out': {
      const ms = timeoutMsOf(row.timeoutKind, policy)
      const limit = row.timeoutKind ? LIMITS[row.timeoutKind].key : 'limit'
      const advice = row.receipt === 'abandoned' ? "; isolation: 'process' would have killed it" : ''
      const why =
        row.timeoutKind === 'stuck' && wasDenied(row)
          ? 'it was given no more time'
          : `its ${limit}${ms === null ? '' : ` of ${formatDuration(ms)}`} was over`
      return `timed out: ${why}${how}${advice}`
    }
  }
}

function pendingBecause(row: TaskRow, now: number): string {
  if (row.parked !== null) return `parked: ${row.parked}`
  if (row.stopping === 1) return `waits until attempt ${row.attempt} has stopped, then it is retried`
  if (row.ready === 1)
    return row.attempt === 0 ? 'waits for a worker' : `waits for a worker, for attempt ${row.attempt + 1}`
  const at = row.retryAt ?? row.startAt
  return `${row.retryAt === null ? 'starts' : `is retried (attempt ${row.attempt + 1})`} in ${formatDuration(Math.max(0, at - now))}`
}

const RECEIPTS = {
  exited: 'over by itself',
  aborted: 'stopped by its signal',
  terminated: 'terminated',
  killed: 'killed',
  abandoned: 'abandoned: it ignored its signal and still runs',
  unreachable: 'not reached: its worker did not answer',
} as const
