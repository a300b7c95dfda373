/**
 * Checks a finished run against a model of its own: the journal says what was asked for, answered and seen, the
 * records say what the store made of it. Knows nothing of the engine but its promises. Pure.
 */
import type { Explanation, TaskEventView, TaskView } from '../../src/curfew.ts'
import type { Fact } from '../journal.ts'
import { findOverlaps, findOverload, spansOf } from './attempt-spans.ts'
import type { Plan } from './kinds.ts'
import { NARROW_QUEUE } from './kinds.ts'

export interface TaskRecord {
  view: TaskView
  events: TaskEventView[]
  explanation: Explanation
}

export interface Complaint {
  rule: string
  taskId: string | null
  text: string
}

export interface AuditRules {
  /** A result may win over a limit that has not fired yet; not when it is over for longer than this. */
  latestResultMs: number
  /** What the clocks of two processes may differ by: each keeps a lower bound of the store's. */
  clockSlackMs: number
  /** Codes of calls that may fail in this run. */
  allowedCodes: readonly string[]
}

const ENDED = ['completed', 'failed', 'timed_out', 'cancelled']
const OUTCOMES = ['task_completed', 'task_failed', 'task_timed_out', 'task_cancelled']
/** The wall clocks of the store and of a handler are one machine's, read at two moments. */
const CLOCK_SLACK_MS = 25
const MOST_LOSSES = 3

export function audit(
  facts: readonly Fact[],
  records: readonly TaskRecord[],
  rules: AuditRules,
): Complaint[] {
  const complaints: Complaint[] = []
  const complain = (rule: string, taskId: string | null, text: string) =>
    complaints.push({ rule, taskId, text })
  const byId = new Map(records.map((record) => [record.view.id, record]))
  if (byId.size !== records.length) complain('one record', null, 'a task is listed twice')

  auditProcesses(facts, rules, complain)
  auditAnswers(facts, byId, complain)
  auditKeys(facts, records, complain)
  const plans = new Map<string, Plan>()
  for (const { type, taskId, plan } of facts) {
    if (type === 'scheduled' && taskId !== undefined) plans.set(taskId, plan as Plan)
  }
  auditUnanswered(facts, records, plans, complain)
  const factsByTask = Map.groupBy(
    facts.filter(({ attempt }) => attempt !== undefined),
    ({ taskId }) => taskId as string,
  )
  for (const record of records) {
    const { view } = record
    const plan = plans.get(view.id) ?? planAsShown(record)
    const seen = factsByTask.get(view.id) ?? []
    auditEnd(record, rules, complain)
    auditAttempts(record, seen, complain)
    auditLimits(record, plan, rules, complain)
    auditOutcome(record, plan, seen, complain)
    for (const fact of seen) auditAbort(fact, complain)
  }
  for (const taskId of factsByTask.keys()) {
    if (!byId.has(taskId)) complain('nothing is lost', taskId, 'it was started and is not in the store')
  }
  const spans = spansOf(facts)
  for (const { taskId, text } of findOverlaps(spans)) complain('no attempt beside another', taskId, text)
  const narrow = spans.filter(({ taskId }) => byId.get(taskId)?.view.queue === NARROW_QUEUE.name)
  const most = findOverload(narrow)
  if (most > NARROW_QUEUE.concurrency) {
    complain('queue limit', null, `${most} attempts ran at once in a queue of ${NARROW_QUEUE.concurrency}`)
  }
  return complaints
}

type Complain = (rule: string, taskId: string | null, text: string) => void

function auditProcesses(facts: readonly Fact[], rules: AuditRules, complain: Complain): void {
  for (const fact of facts) {
    if (fact.type === 'died')
      complain('no crash', null, `process ${fact.victim} ended by itself: ${fact.how}`)
    if (fact.type === 'not_ended') complain('everything ends', null, String(fact.message))
    if (fact.type === 'call_failed' && !rules.allowedCodes.includes(String(fact.code))) {
      complain('clear answers', null, `${fact.call} failed: ${fact.message}`)
    }
  }
}

/** What was acknowledged is in the store, and as it was acknowledged. */
function auditAnswers(facts: readonly Fact[], byId: Map<string, TaskRecord>, complain: Complain): void {
  for (const fact of facts) {
    const { type, taskId } = fact
    if (taskId === undefined || !['scheduled', 'cancel_answered', 'result'].includes(type)) continue
    const record = byId.get(taskId)
    if (!record) {
      complain('nothing is lost', taskId, `${type} was acknowledged, but there is no such task`)
      continue
    }
    const { status, output } = record.view
    if (type === 'cancel_answered') {
      const answer = String(fact.answer)
      const cancelled = ['cancelled', 'pending_cancelled', 'already_cancelled'].includes(answer)
      if (cancelled !== (status === 'cancelled')) {
        complain('nothing is lost', taskId, `cancel was answered with ${answer}, but it is ${status}`)
      }
    }
    if (type === 'result') {
      if (fact.status !== status && fact.status !== `task_${status}`)
        complain('one outcome', taskId, `result() told ${fact.status}, but it is ${status}`)
      if (status === 'completed' && JSON.stringify(fact.output) !== JSON.stringify(output)) {
        const [told, kept] = [fact.output, output].map((value) => JSON.stringify(value))
        complain('one outcome', taskId, `result() told ${told}, but it is ${kept}`)
      }
    }
  }
}

/** What is in the store without an answer was at least asked for. */
function auditUnanswered(
  facts: readonly Fact[],
  records: readonly TaskRecord[],
  plans: Map<string, Plan>,
  complain: Complain,
): void {
  const answered = new Set(facts.filter(({ type }) => type === 'scheduled').map(({ ref }) => ref))
  const sent = facts.filter(({ type, ref }) => type === 'schedule_sent' && !answered.has(ref))
  for (const [name, ofName] of Map.groupBy(records, ({ view }) => view.name)) {
    const unanswered = ofName.filter(({ view }) => !plans.has(view.id)).length
    const asked = sent.filter(({ plan }) => (plan as Plan).task === name).length
    if (unanswered > asked) {
      complain('known work', null, `${unanswered} tasks ${name} nobody was told of, ${asked} asked for`)
    }
  }
}

/** One task per key, however often it was asked for. */
function auditKeys(facts: readonly Fact[], records: readonly TaskRecord[], complain: Complain): void {
  const ids = new Map<string, string>()
  for (const { view } of records) {
    if (view.key === null) continue
    const other = ids.get(view.key)
    if (other !== undefined) complain('one task per key', view.id, `${other} has the same key ${view.key}`)
    ids.set(view.key, view.id)
  }
  for (const { type, taskId, plan } of facts) {
    const key = (plan as Plan | undefined)?.key
    if (type === 'scheduled' && key !== undefined && ids.get(key) !== taskId) {
      complain('one task per key', taskId ?? null, `its key ${key} belongs to ${ids.get(key) ?? 'nobody'}`)
    }
  }
}

function auditEnd({ view, events, explanation }: TaskRecord, rules: AuditRules, complain: Complain): void {
  const { id, status } = view
  if (!ENDED.includes(status)) complain('everything ends', id, `it is still ${status}`)
  if (ENDED.includes(status) && !view.settled) complain('everything ends', id, 'it has not settled')
  if (view.parked !== null) complain('everything ends', id, `it is parked: ${view.parked}`)
  for (const attempt of explanation.attempts) {
    if (attempt.status === 'running' || attempt.status === 'stopping') {
      complain('everything ends', id, `attempt ${attempt.attempt} is still ${attempt.status}`)
    }
  }
  const outcomes = events.filter(({ type }) => OUTCOMES.includes(type))
  if (outcomes.length !== 1 || outcomes[0]?.type !== `task_${status}`) {
    const told = outcomes.map(({ type }) => type).join(', ') || 'none'
    complain('one outcome', id, `it is ${status}, and its events tell: ${told}`)
  }
  for (const [i, event] of events.entries()) {
    const before = events[i - 1]
    if (event.seq !== i + 1) complain('events in order', id, `event ${i + 1} has number ${event.seq}`)
    if (before && event.at < before.at - rules.clockSlackMs)
      complain('events in order', id, `${event.type} is older than the one before`)
  }
}

/** Numbers rise by one, in the store and as seen; each ran once; none ran that the store does not know. */
function auditAttempts({ view, events }: TaskRecord, seen: readonly Fact[], complain: Complain): void {
  const stored = events.filter(({ type }) => type === 'attempt_started')
  for (const [i, { attempt }] of stored.entries()) {
    if (attempt !== i + 1)
      complain('attempt numbers rise', view.id, `start ${i + 1} has the number ${attempt}`)
  }
  if (stored.length !== view.attempts) {
    complain(
      'attempt numbers rise',
      view.id,
      `${stored.length} starts on record, ${view.attempts} attempts counted`,
    )
  }
  let last = 0
  for (const { type, attempt = 0, wall } of seen) {
    if (type !== 'attempt_started') continue
    if (attempt <= last) complain('attempt numbers rise', view.id, `attempt ${attempt} started after ${last}`)
    last = attempt
    const claim = stored.find((event) => event.attempt === attempt)
    if (!claim) complain('attempt numbers rise', view.id, `attempt ${attempt} ran and is not on record`)
    else if (wall < claim.at - CLOCK_SLACK_MS) {
      complain('attempt numbers rise', view.id, `attempt ${attempt} ran before it was claimed`)
    }
    if (wall < view.startAt - CLOCK_SLACK_MS) complain('never early', view.id, 'it ran before its start time')
  }
}

/** No deadline early, none lost: each says of itself when it was due, and that is what the plan makes of it. */
function auditLimits({ view, events }: TaskRecord, plan: Plan, rules: AuditRules, complain: Complain): void {
  const { id, startAt } = view
  if (plan.delayMs !== undefined && startAt !== view.createdAt + plan.delayMs) {
    complain(
      'never early',
      id,
      `it starts ${startAt - view.createdAt} ms after its scheduling, not ${plan.delayMs}`,
    )
  }
  const totalAt = plan.timeoutMs === undefined ? Infinity : startAt + plan.timeoutMs
  const queueAt = plan.queueTimeoutMs === undefined ? Infinity : startAt + plan.queueTimeoutMs
  let startedAt: number | null = null
  let firstStartAt = Infinity
  for (const event of events) {
    if (event.type === 'attempt_started') {
      startedAt = event.at
      firstStartAt = Math.min(firstStartAt, event.at)
      if (event.at >= totalAt)
        complain('no deadline lost', id, `attempt ${event.attempt} began after the deadline`)
      if (event.attempt === 1 && event.at >= queueAt)
        complain('no deadline lost', id, 'it began after its queue limit')
    }
    if (event.type !== 'task_timed_out' && event.type !== 'attempt_timed_out') continue
    const { kind, at } = event
    const deadlineAt = event.deadlineAt as number
    if (at < deadlineAt) complain('never early', id, `${kind} fired ${deadlineAt - at} ms early`)
    const since = startedAt ?? Infinity
    const earliest = {
      total: totalAt,
      queue: queueAt,
      execution: since + (plan.attemptTimeoutMs ?? Infinity),
      heartbeat: since + (plan.heartbeatTimeoutMs ?? Infinity),
      stuck: since + (plan.stuckAfterMs ?? Infinity),
    }[kind as string]
    if (earliest === undefined || deadlineAt < earliest) {
      complain('never early', id, `${kind} was due at ${deadlineAt}, by the plan at ${earliest}`)
    }
    // A retry that could not be made ends the task later, with the same kind.
    if (['total', 'queue'].includes(kind as string) && deadlineAt !== earliest) {
      complain('never early', id, `${kind} was due at ${deadlineAt}, by the plan at ${earliest}`)
    }
  }
  const endedAt = view.endedAt ?? Infinity
  if (view.status !== 'timed_out' && endedAt > totalAt + rules.latestResultMs) {
    complain('no deadline lost', id, `it is ${view.status} ${endedAt - totalAt} ms after its deadline`)
  }
  if (firstStartAt === Infinity && view.status !== 'timed_out' && endedAt > queueAt + rules.latestResultMs) {
    complain('no deadline lost', id, `it is ${view.status} and never started, after its queue limit`)
  }
}

/** Which outcomes a piece of work can have at all. */
function auditOutcome(
  { view, events }: TaskRecord,
  plan: Plan,
  seen: readonly Fact[],
  complain: Complain,
): void {
  const { id, status } = view
  const count = (type: string) => events.filter((event) => event.type === type).length
  const hangs = ['hanging', 'beating', 'progressing', 'ignoring', 'unknown'].includes(plan.task)
  if (hangs && status === 'completed') complain('one outcome', id, 'it completed, though it never returns')
  const limits = [
    plan.timeoutMs,
    plan.attemptTimeoutMs,
    plan.queueTimeoutMs,
    plan.heartbeatTimeoutMs,
    plan.stuckAfterMs,
  ]
  if (status === 'timed_out' && limits.every((ms) => ms === undefined)) {
    complain('never early', id, 'it timed out and has no limit')
  }
  if (plan.task === 'unknown' && view.attempts > 0)
    complain('known work', id, 'it was started without its code')
  const { n } = plan.input
  if (status === 'completed' && !Number.isNaN(n) && JSON.stringify(view.output) !== JSON.stringify({ n })) {
    complain('one outcome', id, `its output is ${JSON.stringify(view.output)}`)
  }
  const used = count('attempt_failed') + count('attempt_timed_out')
  if (used > (plan.retries ?? 0)) complain('retries', id, `${used} retries of ${plan.retries ?? 0}`)
  const code = view.failure?.code
  if (status === 'failed' && plan.task !== 'failing' && code !== 'lost') {
    complain('one outcome', id, `it failed with ${code}: ${view.failure?.message}`)
  }
  if (status === 'failed' && code === 'lost') {
    const lost = count('attempt_lost')
    // Whether an unanswered one may be repeated is not shown.
    const once = plan.atMostOnce || Number.isNaN(plan.input.n)
    if (lost <= (once ? 0 : MOST_LOSSES))
      complain('lost attempts', id, `it was given up after ${lost} losses`)
  }
  const starts = seen.filter(({ type }) => type === 'attempt_started').length
  if (plan.atMostOnce && (starts > 1 || view.attempts > 1)) {
    complain('at most once', id, `it ran ${Math.max(starts, view.attempts)} times`)
  }
}

/** The signal of a limit never comes before the limit. */
function auditAbort(fact: Fact, complain: Complain): void {
  if (fact.type !== 'aborted' || fact.code !== 'timed_out') return
  const deadlineAt = fact.deadlineAt as number | null
  if (deadlineAt !== null && fact.wall < deadlineAt - CLOCK_SLACK_MS) {
    const earlyMs = deadlineAt - fact.wall
    complain(
      'never early',
      fact.taskId ?? null,
      `attempt ${fact.attempt} was told to stop ${earlyMs} ms early`,
    )
  }
}

/** Its caller was killed before the answer: the limits are known from what the store shows, the rest is not. */
function planAsShown({ view, explanation }: TaskRecord): Plan {
  const plan: Plan = { task: view.name, input: { n: Number.NaN }, retries: explanation.retries.allowed }
  const keys = {
    job: 'timeoutMs',
    workflow: 'timeoutMs',
    agent: 'timeoutMs',
    total: 'timeoutMs',
    queue: 'queueTimeoutMs',
    execution: 'attemptTimeoutMs',
    heartbeat: 'heartbeatTimeoutMs',
    stuck: 'stuckAfterMs',
  } as const
  for (const { kind, timeoutMs } of explanation.limits) plan[keys[kind]] = timeoutMs
  return plan
}
