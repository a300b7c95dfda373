/**
 * Turns of agents, as the text of another process. One that is no turn is refused; one that makes no sense parks its
 * agent, whose worker could not tell anything else about it either.
 */
import type { NewStep, WaitMode } from '../core/agent-journal.ts'
import { CurfewError } from '../core/errors.ts'
import { boundFailure } from '../core/failure.ts'
import { isWorkId } from '../core/id.ts'
import { checkJsonText } from '../core/json.ts'
import { MAX_NAME_LENGTH, MAX_STEPS } from '../core/limits.ts'
import { JOB, WORKFLOW } from '../core/own-work.ts'
import type { EndsAs, TimeoutKind } from '../core/states.ts'
import { TASK_TIMEOUT_KINDS } from '../core/states.ts'
import { checkPolicy } from '../definitions/policy-check.ts'
import { LAST_TIME } from '../definitions/start-time.ts'
import { checkName } from '../definitions/task-policy.ts'
import type { GraphEvent } from '../graph/graph-types.ts'
import type { TurnReport } from '../wire/worker-port.ts'
import { checkRunStart } from './run-check.ts'

type Plain = Record<string, unknown>

export function readTurn(text: string, at: string): TurnReport {
  const turn = parsed(text, at)
  const { type, agentId, rootId, token } = turn
  if (type !== 'turn' || !isName(agentId) || !isName(rootId) || !isName(token))
    throw new CurfewError('invalid_request', `${at} is no turn`)
  try {
    checkTurn(turn)
    return turn as unknown as TurnReport
  } catch (error) {
    const reason = `its worker reported what makes no sense: ${(error as Error).message.slice(0, 500)}`
    const seen = Number.isInteger(turn.seen) ? (turn.seen as number) : 0
    return {
      ...{ type, agentId, rootId, token, seen, steps: [], ran: [], withdrawn: [] },
      state: { type: 'parked', reason, code: 'turn_refused', step: null },
    }
  }
}

function parsed(text: string, at: string): Plain {
  try {
    const value = JSON.parse(text) as unknown
    if (isObject(value)) return value
  } catch (error) {
    throw new CurfewError('invalid_request', `${at} is no JSON: ${(error as Error).message.slice(0, 200)}`)
  }
  throw new CurfewError('invalid_request', `${at} is no turn`)
}

function checkTurn({ seen, steps, ran, withdrawn, state }: Plain): void {
  expect(isCount(seen), 'seen')
  expect(Array.isArray(steps) && steps.length <= MAX_STEPS, 'steps')
  for (const step of steps as unknown[]) {
    expect(isObject(step), 'a step')
    checkStep(step as Plain)
  }
  expect(Array.isArray(ran), 'ran')
  for (const one of ran as unknown[]) {
    expect(isObject(one) && isCount(one.step) && isObject(one.outcome), 'what was run')
    checkOutcome((one as { outcome: Plain }).outcome)
  }
  expect(Array.isArray(withdrawn) && withdrawn.every(isCount), 'withdrawn')
  expect(isObject(state), 'its state')
  checkState(state as Plain)
}

function checkStep(step: Plain): void {
  expect(isCount(step.no), 'the number of a step')
  expect(step.seen === undefined || isCount(step.seen), 'what a step has seen')
  const kind = step.kind as NewStep['kind']
  switch (kind) {
    case 'task':
    case 'agent':
      return checkWork(step, kind)
    case 'sleep':
    case 'stuck':
      return expect(isTime(step.ms), `${kind}.ms`)
    case 'wait':
      return expect(isTime(step.ms) && typeof step.waits === 'string', kind)
    case 'sleep_until':
      return expect(isTime(step.at), `${kind}.at`)
    case 'signal':
      checkName('signal name', step.name)
      return expect(step.ms === null || isTime(step.ms), `${kind}.ms`)
    case 'run':
      return void checkName('run name', step.name)
    case 'event':
      return expect(isObject(step.event) && isGraphEvent(step.event), kind)
    case 'cancel':
      return expect(isCount(step.target) && (step.id === null || isName(step.id)), kind)
    case 'now':
    case 'random':
    case 'uuid':
      return
    default:
      return expect(false, `the kind of a step '${String(kind).slice(0, 50)}'`)
  }
}

function checkWork(step: Plain, kind: 'task' | 'agent'): void {
  const { id, name, input, policy, start, detached, title, reserveMs } = step
  expect(typeof id === 'string' && isWorkId(id), `${kind}.id`)
  checkName(`${kind} name`, name)
  expect(typeof input === 'string', `${kind}.input`)
  checkJsonText(input as string, `${kind}.input`)
  if (name === WORKFLOW || name === JOB)
    checkRunStart(name, input as string, `${kind}.input`, { below: true })
  checkPolicy(`${kind} ${String(name)}`, policy)
  expect(isObject(start) && (isTime(start.delayMs) || isTime(start.at)), `${kind}.start`)
  expect(typeof detached === 'boolean', `${kind}.detached`)
  if (title !== undefined) checkName(`${kind} title`, title)
  expect(reserveMs === undefined || reserveMs === null || isTime(reserveMs), `${kind}.reserveMs`)
}

/** All others are for the engine to record, which counts and tells what they say. */
const GRAPH_EVENTS: readonly GraphEvent['type'][] = [
  'token_timed_out',
  'token_failed',
  'join_fired',
  'join_failed',
  'join_warning',
]

function isGraphEvent({ type, timeoutType, policyApplied }: Plain): boolean {
  if (!GRAPH_EVENTS.includes(type as GraphEvent['type'])) return false
  return type !== 'token_timed_out' || (isName(timeoutType) && isName(policyApplied))
}

function checkOutcome(outcome: Plain): void {
  if (typeof outcome.output === 'string') return checkJsonText(outcome.output, 'what was run')
  checkFailure(outcome)
}

function checkState(state: Plain): void {
  switch (state.type) {
    case 'open':
    case 'released':
      return
    case 'suspended':
      return expect(Array.isArray(state.waits) && state.waits.every(isWait), 'its waits')
    case 'returned':
      expect(typeof state.output === 'string', 'its output')
      return checkJsonText(state.output as string, 'its output')
    case 'threw':
      expect(state.endsAs === undefined || isEnd(state.endsAs), 'how it ends')
      return checkFailure(state)
    case 'parked':
      expect(typeof state.reason === 'string' && typeof state.code === 'string', 'why it is parked')
      return expect(state.step === null || isCount(state.step), 'where it is parked')
    default:
      return expect(false, `its state '${String(state.type).slice(0, 50)}'`)
  }
}

/** Texts of failures are cut in place. */
function checkFailure(holder: Plain): void {
  const { failure } = holder
  expect(
    isObject(failure) && typeof failure.code === 'string' && typeof failure.message === 'string',
    'a failure',
  )
  holder.failure = boundFailure(failure as never)
}

const ENDS: readonly EndsAs['status'][] = ['failed', 'timed_out', 'cancelled']

function isEnd(end: unknown): boolean {
  if (!isObject(end) || !ENDS.includes(end.status as EndsAs['status'])) return false
  return (end.timeoutKind ?? null) === null || TASK_TIMEOUT_KINDS.includes(end.timeoutKind as TimeoutKind)
}

const WAIT_MODES: readonly WaitMode[] = ['each', 'settled', 'all', 'any']

function isWait(wait: unknown): boolean {
  const isRange = (range: unknown) => Array.isArray(range) && range.length === 2 && range.every(isCount)
  if (!isObject(wait) || !WAIT_MODES.includes(wait.mode as WaitMode)) return false
  return isCount(wait.left) && Array.isArray(wait.steps) && wait.steps.every(isRange)
}

function expect(condition: boolean, what: string): void {
  if (!condition) throw new CurfewError('invalid_request', `${what} is not what it should be`)
}

function isObject(value: unknown): value is Plain {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function isCount(value: unknown): value is number {
  return Number.isInteger(value) && (value as number) >= 0
}

function isTime(value: unknown): value is number {
  return typeof value === 'number' && Math.abs(value) <= LAST_TIME
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && value.length <= MAX_NAME_LENGTH && !value.includes('\u0000')
}
