/** A claimed task as it is handed out, and what is left of its limits. */
import { readablePolicy } from '../definitions/policy-text.ts'
import type { Scope } from '../engine/agent-batch.ts'
import type { ClaimedTask } from '../store/hot-statements.ts'
import type { Assignment } from '../wire/worker-port.ts'

/** Progress and heartbeats of one attempt: at most one a second. */
const MOST_BEAT_EVERY_MS = 1_000

export function assignmentOf(task: ClaimedTask, token: string, now: number): Assignment {
  const { deadlineAt, attemptMs, totalMs } = remaining(task.deadlineAt, task.attemptDeadlineAt, now)
  const { softStopMs, beatEveryMs, trace } = attemptOptions(task.policy)
  return {
    taskId: task.id,
    name: task.name,
    queue: task.queue,
    attempt: task.attempt,
    token,
    input: task.input,
    details: task.details,
    deadlineAt,
    attemptMs,
    totalMs,
    softStopMs,
    beatEveryMs,
    graceMs: task.graceMs,
    trace,
    scope: scopeOf(task),
  }
}

function scopeOf({ parentId, rootId, step, detached }: ClaimedTask): Scope | null {
  if (parentId === null || rootId === null || step === null) return null
  return { parentId, rootId, step, detached: detached === 1 }
}

export function remaining(deadlineAt: number | null, attemptDeadlineAt: number | null, now: number) {
  const left = (at: number | null) => (at === null ? null : Math.max(0, at - now))
  const first = Math.min(deadlineAt ?? Infinity, attemptDeadlineAt ?? Infinity)
  return {
    deadlineAt: first === Infinity ? null : first,
    attemptMs: left(attemptDeadlineAt),
    totalMs: left(deadlineAt),
  }
}

const PLAIN = { softStopMs: 0, beatEveryMs: MOST_BEAT_EVERY_MS, trace: null }

/** Beats come often enough to be in time for limits that are shorter than a few seconds. */
function attemptOptions(policyText: string): Pick<Assignment, 'softStopMs' | 'beatEveryMs' | 'trace'> {
  if (policyText === '{}') return PLAIN
  const { softStopMs, heartbeatTimeoutMs, stuckAfterMs, trace } = readablePolicy(policyText)
  const shortest = Math.min(heartbeatTimeoutMs ?? Infinity, stuckAfterMs ?? Infinity)
  return { softStopMs, beatEveryMs: Math.max(10, Math.min(MOST_BEAT_EVERY_MS, shortest / 3)), trace }
}
