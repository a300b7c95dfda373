/**
 * Checks a finished run of agents against a model of its own: the journal says what was asked for, answered and done,
 * the records say what the store made of it. Knows nothing of the engine but its promises. Pure.
 */
import type { TaskEventView, TaskView } from '../../src/curfew.ts'
import type { AuditRules, Complaint } from '../chaos/auditor.ts'
import type { Fact } from '../journal.ts'
import { auditEffects } from './effects.ts'
import type { AgentPlan, Op } from './plans.ts'
import { taskCount } from './plans.ts'

export interface AgentRecord {
  view: TaskView
  /** Of agents. */
  events: TaskEventView[]
}

type Complain = (rule: string, taskId: string | null, text: string) => void

const ENDED = ['completed', 'failed', 'timed_out', 'cancelled']
const OUTCOMES = ['agent_completed', 'agent_failed', 'agent_timed_out', 'agent_cancelled']
const ACCEPTED_CANCELS = ['cancelled', 'pending_cancelled', 'already_cancelled']

export function auditAgents(
  facts: readonly Fact[],
  records: readonly AgentRecord[],
  rules: AuditRules,
): Complaint[] {
  const complaints: Complaint[] = []
  const complain: Complain = (rule, taskId, text) => complaints.push({ rule, taskId, text })
  const byId = new Map(records.map((record) => [record.view.id, record]))
  if (byId.size !== records.length) complain('one record', null, 'a record is listed twice')
  const plans = new Map<string, AgentPlan>()
  for (const { type, key, plan } of facts) {
    if (type === 'start_sent') plans.set(key as string, plan as AgentPlan)
  }
  auditProcesses(facts, rules, complain)
  auditAnswers(facts, byId, complain)
  const below = Map.groupBy(records, ({ view }) => view.parentId ?? '')
  const factsByAgent = Map.groupBy(
    facts.filter(({ agentId }) => agentId !== undefined),
    ({ agentId }) => agentId as string,
  )
  for (const record of records) {
    const { view } = record
    auditEnd(record, complain)
    const parent = byId.get(view.parentId ?? '')?.view
    if (view.kind === 'task') {
      auditTask(view, parent, complain)
      continue
    }
    const ofAgent = factsByAgent.get(view.id) ?? []
    const children = (below.get(view.id) ?? []).map((child) => child.view)
    auditEvents(record, rules, complain)
    const undoPath = auditEffects(record, ofAgent, killedAt(facts), complain)
    auditWaits(view, ofAgent, complain)
    const plan = plans.get(view.key ?? '')
    if (view.parentId === null && plan === undefined) {
      complain('known work', view.id, `nobody asked for an agent with the key ${view.key}`)
    }
    if (plan === undefined) continue
    const path = view.status === 'completed' ? (view.output as unknown[]) : undoPath
    auditOutcome(record, plan, ofAgent, rules, complain)
    auditPath(view, plan, path, children, complain)
    auditSignals(view.id, plan, path, ofAgent, complain)
  }
  for (const agentId of factsByAgent.keys()) {
    if (!byId.has(agentId)) complain('nothing is lost', agentId, 'it was started and is not in the store')
  }
  return complaints
}

function auditProcesses(facts: readonly Fact[], rules: AuditRules, complain: Complain): void {
  for (const { type, victim, how, message, code, call } of facts) {
    if (type === 'died') complain('no crash', null, `process ${victim} ended by itself: ${how}`)
    if (type === 'not_ended') complain('everything ends', null, String(message))
    if (type === 'call_failed' && !rules.allowedCodes.includes(String(code))) {
      complain('clear answers', null, `${call} failed: ${message}`)
    }
  }
}

/** What was acknowledged is in the store, and as it was acknowledged. */
function auditAnswers(facts: readonly Fact[], byId: Map<string, AgentRecord>, complain: Complain): void {
  for (const { type, agentId, key, answer, status, output } of facts) {
    const view = byId.get(agentId as string)?.view
    if (!view) continue
    if (type === 'started' && view.key !== key) {
      complain('one agent per key', view.id, `it was answered for the key ${key} and has ${view.key}`)
    }
    if (type === 'cancel_answered') {
      const cancelled = ACCEPTED_CANCELS.includes(answer as string)
      if (cancelled !== (view.status === 'cancelled')) {
        complain('nothing is lost', view.id, `cancel was answered with ${answer}, but it is ${view.status}`)
      }
    }
    if (type !== 'result') continue
    const told = status === 'completed' ? 'completed' : String(status).replace('task_', '')
    if (told !== view.status) complain('one outcome', view.id, `result() told ${told}, it is ${view.status}`)
    else if (told === 'completed' && JSON.stringify(output) !== JSON.stringify(view.output)) {
      const [result, kept] = [output, view.output].map((value) => JSON.stringify(value))
      complain('one outcome', view.id, `result() told ${result}, it is ${kept}`)
    }
  }
}

function auditEnd({ view }: AgentRecord, complain: Complain): void {
  const { id, status, settled, parked } = view
  if (!ENDED.includes(status)) complain('everything ends', id, `it is still ${status}`)
  else if (!settled) complain('everything ends', id, 'it has not settled')
  if (parked !== null) complain('everything ends', id, `it is parked: ${parked}`)
}

/** What an agent scheduled ends as it was told to, and with its agent. */
function auditTask(view: TaskView, parent: TaskView | undefined, complain: Complain): void {
  const { id, status, failure } = view
  if (!parent) return complain('known work', id, 'its agent is not in the store')
  if (status === 'failed' && failure?.code !== 'planned' && failure?.code !== 'lost') {
    complain('one outcome', id, `it failed with ${failure?.code}: ${failure?.message}`)
  }
  if (status === 'timed_out') complain('never early', id, 'it timed out and has no limit')
}

function auditEvents({ view, events }: AgentRecord, rules: AuditRules, complain: Complain): void {
  const { id, status } = view
  const outcomes = events.filter(({ type }) => OUTCOMES.includes(type))
  if (outcomes.length !== 1 || outcomes[0]?.type !== `agent_${status}`) {
    const told = outcomes.map(({ type }) => type).join(', ') || 'none'
    complain('one outcome', id, `it is ${status}, and its events tell: ${told}`)
  }
  for (const [i, event] of events.entries()) {
    const before = events[i - 1]
    if (event.seq !== i + 1) complain('events in order', id, `event ${i + 1} has number ${event.seq}`)
    if (before && event.at < before.at - rules.clockSlackMs)
      complain('events in order', id, `${event.type} is older than the one before`)
    // Who is killed again and again while it runs is set aside, and the run resumes it. Nothing else may park it.
    if (event.type === 'agent_parked' && event.code !== 'lost')
      complain('same path again', id, `it was parked: ${event.reason}`)
    if (event.type === 'cleanup_abandoned' && !isCutShort(view, event))
      complain('clean-up', id, 'its clean-up was abandoned')
  }
}

/** A deadline that falls while it is cancelled ends the wait for its clean-up. */
function isCutShort({ status, deadlineAt }: TaskView, { at }: TaskEventView): boolean {
  return status === 'cancelled' && deadlineAt !== null && at >= deadlineAt
}

/** A limit never moves: not over a restart, not by being looked at. */
function auditWaits(view: TaskView, facts: readonly Fact[], complain: Complain): void {
  const looks = facts.filter(({ type }) => type === 'looked')
  for (const { deadlineAt } of looks) {
    if (deadlineAt !== view.deadlineAt)
      complain('no limit moves', view.id, `its deadline was ${deadlineAt}, then ${view.deadlineAt}`)
  }
  // Between two steps nothing begins to wait: what is seen is the first look or a part of it.
  for (const [steps, ofStep] of Map.groupBy(looks, (look) => look.steps)) {
    const seen = ofStep.map(({ times }) => times as number[])
    const all = new Set(seen.flat())
    const most = Math.max(...seen.map((times) => new Set(times).size))
    if (all.size > most) {
      complain('no limit moves', view.id, `after step ${steps} it waited until ${[...all].join(', then ')}`)
    }
  }
}

/** Which outcomes a script can have at all. */
function auditOutcome(
  { view, events }: AgentRecord,
  { end, timeoutMs }: AgentPlan,
  facts: readonly Fact[],
  rules: AuditRules,
  complain: Complain,
): void {
  const { id, status, createdAt, endedAt, failure } = view
  const deadlineAt = timeoutMs === undefined ? null : createdAt + timeoutMs
  if (view.deadlineAt !== deadlineAt)
    complain('no limit moves', id, `its deadline is ${view.deadlineAt}, by the plan ${deadlineAt}`)
  if (status === 'completed' && end !== 'return')
    complain('one outcome', id, `it completed, though it ends with ${end}`)
  if (status === 'failed' && (end !== 'throw' || failure?.code !== 'planned'))
    complain('one outcome', id, `it failed with ${failure?.code}: ${failure?.message}`)
  if (status === 'cancelled' && !facts.some(({ type }) => type === 'cancel_sent'))
    complain('one outcome', id, 'it was cancelled, and nobody asked for it')
  if (status === 'timed_out') {
    const fired = events.find(({ type }) => type === 'agent_timed_out')
    if (deadlineAt === null || (fired && (fired.at < deadlineAt || fired.deadlineAt !== deadlineAt)))
      complain('never early', id, `it timed out at ${fired?.at}, due at ${deadlineAt}`)
  } else if (
    // One that is cancelled ends when everything below it has stopped.
    status !== 'cancelled' &&
    deadlineAt !== null &&
    (endedAt ?? Infinity) > deadlineAt + rules.latestResultMs
  ) {
    complain('no deadline lost', id, `it is ${status} ${(endedAt ?? Infinity) - deadlineAt} ms too late`)
  }
}

/** What it has seen is what its script brings, and each of its steps was taken once. */
function auditPath(
  view: TaskView,
  { ops }: AgentPlan,
  path: readonly unknown[] | null,
  children: readonly TaskView[],
  complain: Complain,
): void {
  const lost = children.some(({ failure }) => failure?.code === 'lost')
  const whole = view.status === 'completed'
  const ids = new Set(children.map((child) => child.id))
  const wrong = path && mismatch(ops, path, { whole, lost, ids })
  if (wrong) complain('as planned', view.id, wrong)
  const tasks = children.filter(({ kind }) => kind === 'task').length
  const agents = children.length - tasks
  const plannedAgents = ops.filter(({ op }) => op === 'child').length
  if (tasks > taskCount(ops) || agents > plannedAgents)
    complain('each step once', view.id, `it scheduled ${tasks} tasks and ${agents} agents`)
  if (whole && (tasks !== taskCount(ops) || agents !== plannedAgents))
    complain('each step once', view.id, `it completed with ${tasks} tasks and ${agents} agents`)
}

interface Matching {
  /** Not only its beginning. */
  whole: boolean
  /** Some work of it was given up: its workers were killed too often. */
  lost: boolean
  /** Of its tasks, where they are known. */
  ids: ReadonlySet<string> | null
}

function mismatch(ops: readonly Op[], path: readonly unknown[], how: Matching): string | null {
  if (path.length > ops.length || (how.whole && path.length < ops.length))
    return `it has ${path.length} results of ${ops.length}`
  for (const [i, op] of ops.slice(0, path.length).entries()) {
    const got = path[i]
    if (!isResultOf(op, got, how)) return `${JSON.stringify(op)} brought ${JSON.stringify(got)}`
  }
  return null
}

function isResultOf(op: Op, got: unknown, { lost, ids }: Matching): boolean {
  const matches = (ops: readonly Op[], path: unknown) =>
    Array.isArray(path) && mismatch(ops, path, { whole: true, lost, ids }) === null
  switch (op.op) {
    case 'effect':
    case 'signal':
      return typeof got === 'string'
    case 'sleep': {
      const [before, after] = got as [number, number]
      return after - before >= op.ms
    }
    case 'values': {
      const [now, random, uuid] = got as [number, number, string]
      return now > 0 && random >= 0 && random < 1 && uuid.length === 36
    }
    case 'task': {
      const [id, value] = got as [string, unknown]
      if (ids && !ids.has(id)) return false
      return value === (op.fails ? 'task_failed' : op.ms) || (lost && value === 'task_failed')
    }
    case 'all':
      return JSON.stringify(got) === JSON.stringify(op.ms) || (lost && got === 'task_failed')
    case 'any':
    case 'race': {
      const { index, value } = got as { index: number; value: number }
      return op.ms[index] === value || (lost && typeof got === 'string')
    }
    case 'settled':
      return (
        (got as string[]).every((status) => ENDED.includes(status)) && Object(got).length === op.ms.length
      )
    case 'child':
      // What its own tasks met is not looked at from here.
      return Array.isArray(got) && mismatch(op.ops, got, { whole: true, lost: true, ids: null }) === null
    case 'both': {
      const [left, right] = got as [unknown, unknown]
      return matches(op.left, left) && matches(op.right, right)
    }
  }
}

/** Each once, in the order in which they were sent. */
function auditSignals(
  id: string,
  { ops }: AgentPlan,
  path: readonly unknown[] | null,
  facts: readonly Fact[],
  complain: Complain,
): void {
  const taken = (path ?? []).filter((_, i) => ops[i]?.op === 'signal') as string[]
  if (new Set(taken).size !== taken.length) complain('signals once', id, `it took ${taken.join(', ')}`)
  const moments = (type: string) =>
    new Map(facts.flatMap((fact) => (fact.type === type ? [[fact.value as string, fact.mono]] : [])))
  const [sent, answered, refused] = [
    moments('signal_sent'),
    moments('signal_answered'),
    moments('signal_refused'),
  ]
  for (const value of taken) {
    if (!sent.has(value) || refused.has(value)) complain('signals once', id, `it took ${value}, never sent`)
  }
  for (const [place, value] of taken.entries()) {
    for (const [earlier, answeredAt] of answered) {
      if (answeredAt >= (sent.get(value) ?? 0)) continue
      const earlierPlace = taken.indexOf(earlier)
      if (earlierPlace < 0 || earlierPlace > place)
        complain('signals in order', id, `it took ${value} and not before it ${earlier}`)
    }
  }
}

function killedAt(facts: readonly Fact[]): Map<number, number> {
  return new Map(
    facts.flatMap(({ type, victim, mono }) => (type === 'killed' ? [[victim as number, mono]] : [])),
  )
}
