/**
 * The state machine of an agent. `decideAgent(row, input, now)` is pure and total, as that of a task.
 * Invariants: results are numbered in the order in which they are decided, and the code is given all of them in that
 * order; a suspended agent has seen every result there was; it settles once, when nothing below it is left.
 */

import type { Activity, NewStep, RunOutcome } from '../core/agent-journal.ts'
import { journalStep } from '../core/agent-journal.ts'
import { formatDuration } from '../core/duration.ts'
import { unreachable } from '../core/errors.ts'
import { MAX_WAITING_SIGNALS } from '../core/limits.ts'
import { ownLimit, WORKFLOW } from '../core/own-work.ts'
import type { TurnBody } from '../core/reports.ts'
import { isEnded } from '../core/states.ts'
import { encodePolicy } from '../definitions/policy-text.ts'
import type { TaskPolicy } from '../definitions/task-policy.ts'
import type { SignalRow } from '../store/agent-statements.ts'
import type { NewBelow } from '../store/hot-statements.ts'
import type { TaskRow } from '../store/task-row.ts'
import { AgentDraft } from './agent-draft.ts'
import { extendBy, follow, granted } from './agent-extensions.ts'
import type { AgentInput, SettledChild } from './agent-input.ts'
import {
  countEnd,
  encodeWaits,
  isWaiting,
  nextTimer,
  queuedSignals,
  queueSignal,
  takeDueTimers,
  withdraw,
} from './agent-waits.ts'
import { cancelChild } from './cancel-child.ts'
import { inheritedPolicy } from './inherited-policy.ts'
import { timeoutReason } from './task-draft.ts'
import type { TaskEventBody } from './task-event.ts'
import type { TaskAnswer } from './task-input.ts'
import { cleanupDeadline, newTaskLimits, nextDue } from './task-limits.ts'
import { lateResult, warn } from './task-outcome.ts'

/** Turns lost in a row; one more and something about the agent kills its workers. */
const MOST_LOSSES = 3

export interface AgentDecision {
  draft: AgentDraft
  answer: TaskAnswer
}

/** `signals`: those that wait for it, oldest first. `activity`: of what is below it, when that is due to be looked at. */
export function decideAgent(
  row: TaskRow,
  input: AgentInput,
  now: number,
  signals: readonly SignalRow[] = [],
  activity: Activity | null = null,
): AgentDecision {
  const draft = new AgentDraft(row, now)
  draft.activity = activity
  const answer = decide(draft, input, signals)
  draft.row.waits = encodeWaits(draft.waits)
  draft.row.dueAt = agentDue(draft)
  return { draft, answer }
}

function decide(draft: AgentDraft, input: AgentInput, signals: readonly SignalRow[]): TaskAnswer {
  const { row } = draft
  switch (input.type) {
    case 'turn':
      return turn(draft, input, signals)
    case 'settled':
      for (const child of input.children) childSettled(draft, child)
      draft.finish()
      return ACCEPTED
    case 'signal':
      return signal(draft, input.name, input.value)
    case 'granted':
      granted(draft, input)
      return ACCEPTED
    case 'wake':
      if (row.live === 0 && row.token === input.token) draft.wake()
      return ACCEPTED
    case 'due':
      due(draft)
      return ACCEPTED
    case 'cancel':
      return cancel(draft)
    case 'cancel_child':
      return cancelChild(draft, input, (event) => signal(draft, input.signal.name, input.signal.value, event))
    case 'extend_by':
      return extendBy(draft, input.byMs)
    case 'follow':
      follow(draft, input.deadlineAt)
      return ACCEPTED
    case 'resume':
      return resume(draft)
    case 'lost':
      return lost(draft, input)
    default:
      return unreachable(input)
  }
}

const ACCEPTED: TaskAnswer = { type: 'accepted' }

function turn(draft: AgentDraft, input: TurnBody, signals: readonly SignalRow[]): TaskAnswer {
  const { row, waits, now } = draft
  if (row.live === 0 || row.token !== input.token || !draft.codeAlive) {
    return {
      type: 'stale',
      reason: { code: 'stale', message: 'not the current turn of this agent any more' },
    }
  }
  // Its first commit was thought lost and was not: whoever replays it finds what is stored.
  if ((input.steps[0]?.no ?? row.steps) < row.steps) return released(draft)
  // Only a turn that came further than the one that was lost has outlived what killed it.
  if (input.state.type !== 'open' || input.steps.length > 0 || input.ran.length > 0) row.losses = 0
  const waiting = [...signals]
  for (const step of input.steps) newStep(draft, step, waiting)
  for (const { step, outcome } of input.ran) ran(draft, step, outcome)
  withdraw(waits, input.withdrawn)
  fireTimers(draft)
  row.seen = input.seen
  const { state } = input
  switch (state.type) {
    case 'open':
      return { type: 'turn', state: 'more' }
    case 'suspended':
      // What came meanwhile may be what it waits for: it looks at it first.
      if (row.results > row.seen) return { type: 'turn', state: 'more' }
      row.live = 0
      waits.steps = state.waits
      waits.since = now
      return { type: 'turn', state: 'suspended' }
    case 'released':
      return released(draft)
    case 'parked':
      row.live = 0
      row.token = null
      row.parked = state.reason
      draft.record({ type: 'agent_parked', reason: state.reason, code: state.code, step: state.step })
      return { type: 'turn', state: 'ended' }
    default:
      ended(draft, state)
      return { type: 'turn', state: 'ended' }
  }
}

/** Another process, or this one, replays it. */
function released(draft: AgentDraft): TaskAnswer {
  draft.row.live = 0
  draft.row.token = null
  draft.wake()
  return { type: 'turn', state: 'ended' }
}

function ended(draft: AgentDraft, state: Extract<TurnBody['state'], { type: 'returned' | 'threw' }>): void {
  const { row, now } = draft
  row.live = 0
  if (row.stopping === 1) {
    row.receipt = state.runsLeft ? 'abandoned' : 'aborted'
    // Its outcome was decided before. What it brings is kept, and changes nothing.
    if (state.type === 'returned' && state.output !== 'null') lateResult(draft, { output: state.output })
    if (state.type === 'threw' && !state.stopped) lateResult(draft, { failure: state.failure })
  } else if (state.type === 'returned') {
    row.status = 'completed'
    row.output = state.output
    row.endedAt = now
    row.endedSeq = ++row.seq
  } else {
    row.status = state.endsAs?.status ?? 'failed'
    row.timeoutKind = state.endsAs?.timeoutKind ?? null
    row.failure = JSON.stringify(state.failure)
    row.endedAt = now
    row.endedSeq = draft.record(endEvent(state))
  }
  draft.codeOver()
}

/** It may end as what ended it did. */
function endEvent({ failure, endsAs }: Extract<TurnBody['state'], { type: 'threw' }>): TaskEventBody {
  if (endsAs?.status === 'timed_out')
    return { type: 'agent_timed_out', kind: endsAs.timeoutKind ?? 'total', failure }
  return { type: endsAs?.status === 'cancelled' ? 'agent_cancelled' : 'agent_failed', failure }
}

function newStep(draft: AgentDraft, step: NewStep, signals: SignalRow[]): void {
  const { row, waits, now } = draft
  row.steps = Math.max(row.steps, step.no + 1)
  const beforeStop = waits.stop !== null && (step.seen ?? 0) < waits.stop
  if (step.kind === 'task' || step.kind === 'agent') {
    draft.children.push(newChild(draft, step))
    if (step.detached) return
    row.open++
    if (beforeStop || waits.cancelled.includes(step.title ?? '')) draft.cancels.push(step.id)
    return
  }
  draft.steps.push(journalStep(step))
  if (step.kind === 'event') return void draft.record(step.event as TaskEventBody)
  if (beforeStop && step.kind !== 'cancel') return // nobody waits for it any more
  switch (step.kind) {
    case 'sleep':
    case 'wait':
      waits.timers.push([step.no, now + step.ms])
      return
    case 'sleep_until':
      waits.timers.push([step.no, step.at])
      return
    case 'signal': {
      const at = signals.findIndex(({ name }) => name === step.name)
      const [taken] = at < 0 ? [] : signals.splice(at, 1)
      if (taken) return takeSignal(draft, step.no, taken)
      waits.signals.push([step.no, step.name])
      if (step.ms !== null) waits.timers.push([step.no, now + step.ms])
      return
    }
    case 'stuck':
      waits.stuck = [step.no, step.ms, now + step.ms]
      return
    case 'cancel':
      if (step.id !== null) draft.cancels.push(step.id)
      else if (isWaiting(waits, step.target)) {
        withdraw(waits, [step.target])
        draft.result({ type: 'withdrawn', step: step.target }, true)
      }
      return
    default: // `run` has its result later, the others have their value
  }
}

type WorkStep = Extract<NewStep, { id: string; start: unknown }>

function newChild(draft: AgentDraft, step: WorkStep): NewBelow {
  const { row, now } = draft
  const startAt = startOf(step, now)
  const policy = inheritedPolicy(step.policy as TaskPolicy, { above: draft, step, startAt })
  const limits = newTaskLimits(policy, now, startAt)
  const isAgent = step.kind === 'agent'
  const hasTime = now < (limits.deadlineAt ?? Infinity)
  return {
    id: step.id,
    name: step.name,
    queue: policy.queue,
    priority: policy.priority,
    key: null,
    status: 'pending',
    input: step.input,
    policy: encodePolicy(policy),
    nodeId: row.nodeId,
    createdAt: now,
    ...limits,
    ...(isAgent && { ready: 0 }),
    kind: step.kind,
    title: step.title ?? null,
    parentId: row.id,
    rootId: row.rootId ?? row.id,
    step: step.no,
    detached: step.detached ? 1 : 0,
    wokenAt: isAgent && hasTime ? now : null,
  }
}

function startOf({ start }: Pick<WorkStep, 'start'>, now: number): number {
  return 'at' in start ? Math.max(start.at, now) : now + start.delayMs
}

function takeSignal(draft: AgentDraft, step: number, signal: SignalRow): void {
  draft.taken.push(signal)
  queueSignal(draft.waits, signal.name, -1)
  draft.result({ type: 'signal', step, value: signal.value }, true)
}

function ran(draft: AgentDraft, step: number, outcome: RunOutcome): void {
  draft.result({ type: 'ran', step, outcome }, true)
}

function childSettled(draft: AgentDraft, child: SettledChild): void {
  const { row, waits } = draft
  if (!child.detached) row.open--
  const over = countEnd(waits, child)
  // An agent whose code is over learns nothing any more; the place is kept with the child all the same.
  if (draft.codeAlive) draft.result({ type: 'work', step: child.step, outcome: child.outcome }, over)
  else row.results++
}

function signal(
  draft: AgentDraft,
  name: string,
  value: string,
  event: TaskEventBody = { type: 'signal_received', name },
): TaskAnswer {
  const { row, waits } = draft
  if (!draft.codeAlive)
    return { type: 'unchanged', reason: `it is ${row.status}: nobody would take the signal` }
  const waiting = waits.signals.find(([, waited]) => waited === name)
  if (!waiting && Object.values(waits.queued).reduce((sum, count) => sum + count, 0) >= MAX_WAITING_SIGNALS) {
    return { type: 'unchanged', reason: `${MAX_WAITING_SIGNALS} signals wait for it already` }
  }
  const no = draft.record(event)
  if (waiting) {
    withdraw(waits, [waiting[0]])
    draft.result({ type: 'signal', step: waiting[0], value }, true)
  } else {
    queueSignal(waits, name, 1)
    draft.queued.push({ agentId: row.id, no, name, value })
  }
  return ACCEPTED
}

/** Whether signals that wait have to be read before this turn can be decided. */
export function wantsSignals(row: TaskRow, input: AgentInput): boolean {
  if (input.type !== 'turn' || row.waits === null || !row.waits.includes('"queued"')) return false
  const draft = new AgentDraft(row, 0)
  return input.steps.some((step) => step.kind === 'signal' && queuedSignals(draft.waits, step.name) > 0)
}

function due(draft: AgentDraft): void {
  const { row, policy, now } = draft
  const { deadlineAt } = row
  if (deadlineAt !== null && deadlineAt <= now && draft.codeAlive) {
    if (row.status !== 'cancelling' && !isEnded(row.status)) timeOut(draft, deadlineAt)
    else if (cleanupDeadline(row, policy) !== null) abandonCleanup(draft)
  }
  if (row.stopBoundAt !== null && row.stopBoundAt <= now) abandonCleanup(draft)
  if (draft.codeAlive && row.parked === null) {
    fireTimers(draft)
    lookForStuck(draft)
    // Looked at because nothing moved it: whatever there is, its code sees it.
    if (row.results > row.seen && draft.waits.steps.length === 0) draft.wake()
  }
  warn(draft)
}

/** Its budget is over, or a deadline fell while it was cancelled: nobody waits for its code any longer. */
function abandonCleanup(draft: AgentDraft): void {
  draft.row.receipt = 'abandoned'
  draft.record({ type: 'cleanup_abandoned', cleanupMs: draft.policy.cleanupMs })
  draft.codeOver()
}

/** What is bounded ends by itself; what starts later has all of its time. */
function lookForStuck(draft: AgentDraft): void {
  const { waits, activity, now } = draft
  if (waits.stuck === null || waits.stuck[2] > now || !activity) return
  const [step, ms] = waits.stuck
  const { unbounded, lastAt } = activity
  const at = unbounded > 0 ? (lastAt ?? now) + ms : now + ms
  if (at > now) waits.stuck = [step, ms, at]
  else {
    waits.stuck = null
    draft.result({ type: 'stuck', step, activity }, true)
  }
}

function fireTimers(draft: AgentDraft): void {
  for (const step of takeDueTimers(draft.waits, draft.now)) {
    withdraw(draft.waits, [step])
    draft.result({ type: 'time', step, at: draft.now }, true)
  }
}

function timeOut(draft: AgentDraft, deadlineAt: number): void {
  const { row, policy, now } = draft
  const { timeoutMs } = policy
  const kind = policy.boundBy ?? ownLimit(row)
  row.status = 'timed_out'
  row.timeoutKind = kind
  if (policy.failsOnTimeout) {
    row.status = 'failed'
    const message = `Workflow exceeded timeout${timeoutMs === null ? '' : ` of ${formatDuration(timeoutMs)}`}`
    row.failure = JSON.stringify({ code: 'workflow_timeout', message, retryable: false })
  }
  row.endedAt = now
  // What a workflow tells of its tokens stands before its end.
  if (row.name !== WORKFLOW) draft.recordTimeout()
  const reason = timeoutReason(kind, deadlineAt, timeoutMs)
  draft.stopCode(timeoutMs === null ? reason : { ...reason, timeoutMs })
}

function cancel(draft: AgentDraft): TaskAnswer {
  const { row } = draft
  if (row.status === 'cancelled' || row.status === 'cancelling')
    return { type: 'cancel', answer: 'already_cancelled' }
  if (isEnded(row.status)) return { type: 'cancel', answer: 'already_completed' }
  const neverRan = row.attempt === 0
  row.status = 'cancelling'
  if (!neverRan) draft.record({ type: 'agent_cancelling' })
  draft.stopCode({ code: 'cancelled', message: 'it was cancelled' })
  return { type: 'cancel', answer: neverRan ? 'pending_cancelled' : 'cancelled' }
}

function resume(draft: AgentDraft): TaskAnswer {
  const { row } = draft
  if (row.parked === null || !draft.codeAlive) return { type: 'unchanged', reason: 'it is not parked' }
  row.parked = null
  row.losses = 0
  draft.record({ type: 'resumed' })
  draft.wake()
  return ACCEPTED
}

/** The process that ran its turn is gone: another one replays it. */
function lost(draft: AgentDraft, input: Extract<AgentInput, { type: 'lost' }>): TaskAnswer {
  const { row } = draft
  if (row.live === 0 || row.nodeId !== input.nodeId || (input.token ?? row.token) !== row.token) {
    return { type: 'unchanged', reason: 'not its turn' }
  }
  draft.record({ type: 'turn_lost', turn: row.attempt, nodeId: row.nodeId })
  row.live = 0
  row.token = null
  // One that never got there killed nobody.
  if (input.receipt !== 'exited') row.losses++
  if (row.losses > MOST_LOSSES) {
    const reason = `its worker died while it ran, ${row.losses} times in a row`
    row.parked = reason
    draft.record({ type: 'agent_parked', reason, code: 'lost', step: null })
  } else draft.wake()
  return ACCEPTED
}

/** A limit that moves later leaves `dueAt` where it is, as a task's does. */
function agentDue({ row, policy, waits, codeAlive }: AgentDraft): number | null {
  if (row.settledAt !== null) return null
  const timer = codeAlive && row.parked === null ? nextTimer(waits) : null
  const cancelling = codeAlive ? cleanupDeadline(row, policy) : null
  const first = Math.min(nextDue(row, policy) ?? Infinity, timer ?? Infinity, cancelling ?? Infinity)
  return first === Infinity ? null : first
}
