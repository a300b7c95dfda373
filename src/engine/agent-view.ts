/** An agent explained: what it waits for, since when, until when, or why it ended. Pure. */
import { inRanges } from '../core/agent-journal.ts'
import { formatDuration } from '../core/duration.ts'
import type { Failure } from '../core/failure.ts'
import { actionKind, WORKFLOW, workKind, workName } from '../core/own-work.ts'
import { isEnded } from '../core/states.ts'
import type { TaskRow } from '../store/task-row.ts'
import { hasUntil } from './agent-draft.ts'
import type { AgentWaits } from './agent-waits.ts'
import { decodeWaits } from './agent-waits.ts'
import { readablePolicyOf } from './inherited-policy.ts'
import { limitViews, parsed } from './task-view.ts'

export type WaitedFor = Pick<
  TaskRow,
  'id' | 'kind' | 'name' | 'title' | 'policy' | 'step' | 'status' | 'createdAt' | 'deadlineAt' | 'stopBoundAt'
>

/** Of what an agent waits for. */
export const MAX_SHOWN = 100

export function explainAgent(row: TaskRow, open: readonly WaitedFor[], now: number) {
  const policy = readablePolicyOf(row)
  const { limits, binding } = limitViews(row, policy, now)
  const stored = readableWaits(row)
  const all = row.live === 0 ? waitViews(stored, open, row.createdAt) : []
  // The timers and signals of a workflow or job are no user's.
  const waits = workKind(row) === 'agent' ? all : all.filter(({ id }) => id !== null)
  const left = binding
    ? `; its timeout ends in ${formatDuration(Math.max(0, binding.deadlineAt - now))}`
    : '; it has no timeout'
  return {
    id: row.id,
    name: workName(row),
    kind: workKind(row),
    status: row.status,
    summary: summaryOf(row, waits, { left, timeoutMs: policy.timeoutMs, now }),
    limits,
    retries: { used: 0, allowed: 0, nextAt: null },
    extensions: { granted: 0, grantedMs: 0, left: 0 },
    attempts: [],
    waits,
    journal: { steps: row.steps, results: row.results, turns: row.attempt, open: row.open },
    warnings: Object.entries(stored.queued).map(
      ([name, count]) => `${count} of signal '${name}' wait until it asks for them`,
    ),
    trace: policy.trace?.traceparent ?? null,
  }
}

function readableWaits(row: TaskRow): AgentWaits {
  try {
    return decodeWaits(row.waits)
  } catch {
    return decodeWaits(null) // whoever decides about it parks it, with the reason
  }
}

function waitViews(stored: AgentWaits, open: readonly WaitedFor[], createdAt: number) {
  const since = stored.since ?? createdAt
  const awaited = open.filter(({ step }) => stored.steps.some(({ steps }) => inRanges(steps, step ?? -1)))
  const timers = new Map(stored.timers)
  const signals = stored.signals.map(([step, name]) => ({
    what: 'signal' as const,
    id: null,
    name,
    status: null,
    since,
    until: timers.get(step) ?? null,
  }))
  const named = new Set(stored.signals.map(([step]) => step))
  return [
    ...awaited.map((work) => ({
      what: work.name === WORKFLOW ? ('workflow' as const) : work.kind,
      id: work.id,
      name: actionKind(work.name) === null ? workName(work) : (work.title ?? work.name),
      status: work.status,
      since: Math.max(work.createdAt, since),
      until: waitedUntil(work),
    })),
    ...signals,
    ...stored.timers
      .filter(([step]) => !named.has(step))
      .map(([, at]) => ({ what: 'time' as const, id: null, name: null, status: null, since, until: at })),
  ]
}

/** One that was stopped has its clean-up or its grace left, whatever its deadline was. */
function waitedUntil(work: WaitedFor): number | null {
  const { status, deadlineAt, stopBoundAt } = work
  if (status === 'pending' || status === 'running') return deadlineAt
  return isEnded(status) ? stopBoundAt : hasUntil(work)
}

type Views = ReturnType<typeof waitViews>

function summaryOf(
  row: TaskRow,
  waits: Views,
  { left, timeoutMs, now }: { left: string; timeoutMs: number | null; now: number },
): string {
  if (row.parked !== null && row.settledAt === null) return `parked: ${row.parked}${left}`
  const below = row.open > 0 ? `; ${row.open} below it have not stopped yet` : ''
  switch (row.status) {
    case 'pending':
      return `waits for a worker${left}`
    case 'running':
      return `${row.live === 1 ? `turn ${row.attempt} runs` : waitingFor(row, waits, now)}${left}`
    case 'cancelling':
      return `is being cancelled${row.stopping === 1 ? ': its clean-up runs' : ''}${below}`
    case 'completed':
      return `completed after ${formatDuration((row.endedAt ?? now) - row.createdAt)}, ${counted(row.steps, 'step')} and ${counted(row.attempt, 'turn')}${below}`
    case 'cancelled':
      return `cancelled${row.attempt === 0 ? ' before it started' : because(row)}${abandoned(row)}`
    case 'failed':
      return `failed: ${parsed<Failure>(row.failure)?.message ?? 'for an unknown reason'}${below}`
    case 'timed_out':
      return `timed out${because(row) || `: its timeout${timeoutMs === null ? '' : ` of ${formatDuration(timeoutMs)}`} was over`}${row.stopping === 1 ? '; its clean-up runs' : ''}${below}${abandoned(row)}`
  }
}

/** Of one that ended as what ended it did. */
function because({ failure }: TaskRow): string {
  const message = parsed<Failure>(failure)?.message
  return message === undefined ? '' : `: ${message}`
}

function counted(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`
}

function abandoned({ receipt }: TaskRow): string {
  return receipt === 'abandoned' ? '; its clean-up took too long and was abandoned' : ''
}

function waitingFor(row: TaskRow, waits: Views, now: number): string {
  if (row.wokenAt !== null) return `woken ${formatDuration(now - row.wokenAt)} ago, waits for a worker`
  if (waits.length === 0) return 'waits'
  const [first] = waits.map(({ what, name, id, until }) => {
    const named = name === null ? 'the time' : `${what} ${name}${id === null ? '' : ` (${id})`}`
    return `${named}${until === null ? '' : `, at most ${formatDuration(Math.max(0, until - now))} more`}`
  })
  const others = waits.length > 1 ? ` and ${waits.length - 1} more` : ''
  const since = waits[0]?.since ?? now
  return `waits since ${formatDuration(Math.max(0, now - since))} for ${first}${others}`
}
