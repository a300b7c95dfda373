// Every state an agent can be in against everything that can happen to it.
import { describe, expect, test } from 'vitest'
import type { NewStep } from '../core/agent-journal.ts'
import type { TurnState } from '../core/reports.ts'
import { isEnded } from '../core/states.ts'
import type { TaskRow } from '../store/task-row.ts'
import { decideAgent } from './agent-decide.ts'
import type { AgentDraft } from './agent-draft.ts'
import type { AgentInput } from './agent-input.ts'
import { newAgentRow, settledChild, startedTurn, taskStep, turnOf } from './fixtures/agent-rows.ts'

const TOKEN = 'a_1'
const NODE = 'n_1'
const POLICY = { timeout: 100_000, cleanup: 10_000 }
const FAILURE = { code: 'failed', message: 'no', retryable: true }

/** What the store makes of a decision. */
function decided(row: TaskRow, input: AgentInput, now: number): TaskRow {
  const { draft } = decideAgent(row, input, now)
  return { ...draft.row, wokenAt: draft.wakes ? (draft.row.wokenAt ?? now) : draft.row.wokenAt }
}

function turn(row: TaskRow, state: TurnState, rest: { steps?: NewStep[] } = {}): AgentInput {
  return turnOf(row, TOKEN, { state, ...rest })
}

const returned: TurnState = { type: 'returned', output: '7' }
const threw: TurnState = { type: 'threw', failure: FAILURE, stopped: false }
const mismatch: TurnState = { type: 'parked', reason: 'another step', code: 'journal_mismatch', step: 0 }
/** It waits for a task, for a signal and for the time. */
const STEPS: NewStep[] = [
  taskStep(0),
  { no: 1, kind: 'signal', name: 'go', ms: null },
  { no: 2, kind: 'sleep', ms: 60_000 },
]
const suspends: TurnState = { type: 'suspended', waits: [{ mode: 'each', steps: [[0, 0]], left: 1 }] }

const pending = newAgentRow(POLICY)
const started = startedTurn(pending, { now: 1_000, nodeId: NODE, token: TOKEN })
const live = decided(started, turn(started, { type: 'open' }, { steps: STEPS }), 1_000)
const suspended = decided(started, turn(started, suspends, { steps: STEPS }), 1_000)
const cleaningUp = decided(live, { type: 'cancel' }, 2_000)
const timedOut = decided(suspended, { type: 'due' }, 100_000)
const parked = decided(live, turn(live, mismatch), 2_000)
const childEnded: AgentInput = { type: 'settled', children: [settledChild(0)] }
const returnedEarly = decided(live, turn(live, returned), 2_000)
const abandoned = decided(cleaningUp, { type: 'due' }, 12_000)

/** Each with a moment at which nothing of it is due yet. */
const STATES = {
  pending: { row: pending, at: 500 },
  live: { row: live, at: 1_500 },
  suspended: { row: suspended, at: 1_500 },
  woken: { row: decided(suspended, childEnded, 1_200), at: 1_500 },
  'cancelled, cleaning up': { row: cleaningUp, at: 2_500 },
  'cancelled while it waited': { row: decided(suspended, { type: 'cancel' }, 2_000), at: 2_500 },
  'timed out, to be cleaned up': { row: timedOut, at: 100_500 },
  'completed, with work below it': { row: returnedEarly, at: 2_500 },
  'abandoned, with work below it': { row: abandoned, at: 12_500 },
  parked: { row: parked, at: 2_500 },
  completed: { row: decided(returnedEarly, childEnded, 2_100), at: 2_500 },
  failed: { row: decided(decided(live, turn(live, threw), 2_000), childEnded, 2_100), at: 2_500 },
  'timed out': {
    row: decided(decided(timedOut, { type: 'due' }, 110_000), childEnded, 110_000),
    at: 110_500,
  },
  cancelled: { row: decided(abandoned, childEnded, 12_100), at: 12_500 },
} satisfies Record<string, { row: TaskRow; at: number }>
type StateName = keyof typeof STATES

const INPUTS = {
  'a turn that goes on': (row) => turn(row, { type: 'open' }),
  'a turn with steps': (row) =>
    turn(row, { type: 'open' }, { steps: [taskStep(3), { no: 4, kind: 'sleep', ms: 5 }] }),
  'a turn with a result': (row) => turnOf(row, TOKEN, { ran: [{ step: 3, outcome: { output: '1' } }] }),
  'a turn that waits': (row) => turn(row, suspends),
  'a turn that waits and has not seen all': (row) =>
    turnOf(row, TOKEN, { state: suspends, seen: row.results - 1 }),
  'a turn that is let go': (row) => turn(row, { type: 'released' }),
  'a turn that returns': (row) => turn(row, returned),
  'a turn that throws': (row) => turn(row, threw),
  'a turn that does not match': (row) => turn(row, mismatch),
  'the end of the task': () => childEnded,
  'the end of detached work': () => ({ type: 'settled', children: [settledChild(9, { detached: true })] }),
  'the signal': () => ({ type: 'signal', name: 'go', value: '1' }),
  'another signal': () => ({ type: 'signal', name: 'stay', value: '2' }),
  wake: () => ({ type: 'wake', token: TOKEN }),
  due: () => ({ type: 'due' }),
  cancel: () => ({ type: 'cancel' }),
  granted: () => ({ type: 'granted', totalMs: 5_000, until: 200_000, operator: false }),
  extend_by: () => ({ type: 'extend_by', byMs: 1_000 }),
  resume: () => ({ type: 'resume' }),
  lost: () => ({ type: 'lost', nodeId: NODE, receipt: 'killed' }),
} satisfies Record<string, (row: TaskRow) => AgentInput>
type InputName = keyof typeof INPUTS

/** Status, then what is true of it, then what was recorded, then what its code is given. */
function describeDraft({ row, events, results, wakes, cancelBelow, children }: AgentDraft): string {
  const flags = [
    row.live && 'live',
    row.stopping && 'stopping',
    row.parked && 'parked',
    row.settledAt !== null && 'settled',
    row.open && `open ${row.open}`,
    wakes && 'wakes',
    cancelBelow && 'stops below',
    children.length && `schedules ${children.length}`,
  ].filter(Boolean)
  const said = events.length ? `: ${events.map(({ body }) => body.type).join(', ')}` : ''
  const given = results.length ? ` > ${results.map(({ type }) => type).join(', ')}` : ''
  return [row.status, ...flags].join(' ') + said + given
}

/** What each changes. Whatever is not named here changes nothing. */
const EXPECTED: Record<StateName, Partial<Record<InputName, string>>> = {
  pending: {
    'the signal': 'pending: signal_received',
    'another signal': 'pending: signal_received',
    cancel: 'cancelled settled stops below: agent_cancelled',
    granted: 'pending: deadlines_extended',
    extend_by: 'pending: deadlines_extended',
  },
  live: {
    'a turn with steps': 'running live open 2 schedules 1',
    'a turn with a result': 'running live open 1 > ran',
    'a turn that waits': 'running open 1',
    'a turn that waits and has not seen all': 'running live open 1',
    'a turn that is let go': 'running open 1 wakes',
    'a turn that returns': 'completed open 1 stops below',
    'a turn that throws': 'failed open 1 stops below: agent_failed',
    'a turn that does not match': 'running parked open 1: agent_parked',
    'the end of the task': 'running live > work',
    'the end of detached work': 'running live open 1 > work',
    'the signal': 'running live open 1: signal_received > signal',
    'another signal': 'running live open 1: signal_received',
    cancel: 'cancelling live stopping open 1 stops below: agent_cancelling > stop',
    granted: 'running live open 1: deadlines_extended',
    extend_by: 'running live open 1: deadlines_extended',
    lost: 'running open 1 wakes: turn_lost',
  },
  suspended: {
    'the end of the task': 'running wakes > work',
    // Nobody waits for it: it is seen with whatever comes next.
    'the end of detached work': 'running open 1 > work',
    'the signal': 'running open 1 wakes: signal_received > signal',
    'another signal': 'running open 1: signal_received',
    wake: 'running open 1 wakes',
    cancel: 'cancelling stopping open 1 wakes stops below: agent_cancelling > stop',
    granted: 'running open 1: deadlines_extended',
    extend_by: 'running open 1: deadlines_extended',
  },
  woken: {
    'the end of detached work': 'running > work',
    'the signal': 'running wakes: signal_received > signal',
    'another signal': 'running: signal_received',
    wake: 'running wakes',
    cancel: 'cancelling stopping wakes stops below: agent_cancelling > stop',
    granted: 'running: deadlines_extended',
    extend_by: 'running: deadlines_extended',
  },
  'cancelled, cleaning up': {
    'a turn that goes on': 'cancelling live stopping open 1',
    'a turn with steps': 'cancelling live stopping open 2 schedules 1',
    'a turn with a result': 'cancelling live stopping open 1 > ran',
    'a turn that waits': 'cancelling stopping open 1',
    'a turn that is let go': 'cancelling stopping open 1 wakes',
    // Its outcome was decided before: what it brings is kept.
    'a turn that returns': 'cancelling open 1 stops below: late_result',
    'a turn that throws': 'cancelling open 1 stops below: late_result',
    'a turn that does not match': 'cancelling stopping parked open 1: agent_parked',
    'the end of the task': 'cancelling live stopping > work',
    'the end of detached work': 'cancelling live stopping open 1 > work',
    // Its waits are over, so it is kept until its code asks for one again.
    'the signal': 'cancelling live stopping open 1: signal_received',
    'another signal': 'cancelling live stopping open 1: signal_received',
    granted: 'cancelling live stopping open 1: deadlines_extended',
    extend_by: 'cancelling live stopping open 1: deadlines_extended',
    lost: 'cancelling stopping open 1 wakes: turn_lost',
  },
  'cancelled while it waited': {
    'the end of the task': 'cancelling stopping wakes > work',
    'the end of detached work': 'cancelling stopping open 1 > work',
    'the signal': 'cancelling stopping open 1: signal_received',
    'another signal': 'cancelling stopping open 1: signal_received',
    wake: 'cancelling stopping open 1 wakes',
    granted: 'cancelling stopping open 1: deadlines_extended',
    extend_by: 'cancelling stopping open 1: deadlines_extended',
  },
  'timed out, to be cleaned up': {
    'the end of the task': 'timed_out stopping wakes > work',
    'the end of detached work': 'timed_out stopping open 1 > work',
    'the signal': 'timed_out stopping open 1: signal_received',
    'another signal': 'timed_out stopping open 1: signal_received',
    wake: 'timed_out stopping open 1 wakes',
    // More time to clean up; the outcome stays.
    extend_by: 'timed_out stopping open 1: deadlines_extended',
  },
  'completed, with work below it': {
    'the end of the task': 'completed settled',
    // Its place among the results, though nobody sees it.
    'the end of detached work': 'completed open 1',
  },
  'abandoned, with work below it': {
    'the end of the task': 'cancelled settled: agent_cancelled',
    'the end of detached work': 'cancelling open 1',
    granted: 'cancelling open 1: deadlines_extended',
  },
  parked: {
    'the end of the task': 'running parked > work',
    'the end of detached work': 'running parked open 1 > work',
    'the signal': 'running parked open 1: signal_received > signal',
    'another signal': 'running parked open 1: signal_received',
    // Its code cannot clean up.
    cancel: 'cancelling parked open 1 stops below: agent_cancelling',
    granted: 'running parked open 1: deadlines_extended',
    extend_by: 'running parked open 1: deadlines_extended',
    resume: 'running open 1 wakes: resumed',
  },
  completed: { 'the end of detached work': 'completed settled' },
  failed: { 'the end of detached work': 'failed settled' },
  'timed out': { 'the end of detached work': 'timed_out settled' },
  cancelled: { 'the end of detached work': 'cancelled settled' },
}

function expectNothing(draft: AgentDraft, row: TaskRow): void {
  expect(draft.row).toEqual(row)
  const { events, results, steps, children, cancels, queued, taken, effects, wakes, cancelBelow } = draft
  expect({ events, results, steps, children, cancels, queued, taken, effects }).toEqual(
    Object.fromEntries(
      ['events', 'results', 'steps', 'children', 'cancels', 'queued', 'taken', 'effects'].map((key) => [
        key,
        [],
      ]),
    ),
  )
  expect([wakes, cancelBelow]).toEqual([false, false])
}

/** The task cannot end twice, and nothing ends below an agent that has not begun. */
function isPossible(row: TaskRow, input: InputName): boolean {
  if (input === 'the end of detached work') return row.steps > 0
  return input !== 'the end of the task' || row.open > 0
}

describe.each(Object.keys(STATES) as StateName[])('an agent that is %s', (name) => {
  const { row, at } = STATES[name]
  const possible = (Object.keys(INPUTS) as InputName[]).filter((input) => isPossible(row, input))

  test.each(possible)('when it meets: %s', (inputName) => {
    const { draft, answer } = decideAgent(row, INPUTS[inputName](row), at)
    const expected = EXPECTED[name][inputName]
    if (expected) return expect(describeDraft(draft)).toBe(expected)
    expectNothing(draft, row)
    if (inputName === 'cancel') {
      return expect(answer).toMatchObject({ type: 'cancel', answer: expect.stringMatching(/^already/) })
    }
    const silent = ['wake', 'due', 'granted'].includes(inputName)
    if (row.live === 1 && inputName.startsWith('a turn')) expect(answer).toMatchObject({ state: 'more' })
    else expect(answer.type).toMatch(silent ? /^accepted$/ : /^(stale|unchanged)$/)
  })

  test('a turn of before, or of another, changes nothing and is told so', () => {
    for (const inputName of possible) {
      const input = INPUTS[inputName](row)
      if (input.type !== 'turn' && input.type !== 'wake') continue
      const { draft, answer } = decideAgent(row, { ...input, token: 'a_0' }, at)
      expectNothing(draft, row)
      if (input.type === 'turn') expect(answer).toMatchObject({ type: 'stale', reason: { code: 'stale' } })
    }
    for (const lost of [{ nodeId: 'n_2' }, { nodeId: NODE, token: 'a_0' }]) {
      const { draft, answer } = decideAgent(row, { type: 'lost', receipt: 'killed', ...lost }, at)
      expectNothing(draft, row)
      expect(answer.type).toBe('unchanged')
    }
  })

  test('an outcome, once there, stays', () => {
    if (!isEnded(row.status)) return expect([row.endedAt, row.settledAt]).toEqual([null, null])
    for (const inputName of possible) {
      const after = decideAgent(row, INPUTS[inputName](row), at + 1_000_000).draft.row
      const outcome = ({ status, endedAt, endedSeq, output, failure, timeoutKind }: TaskRow) => ({
        ...{ status, endedAt, endedSeq, output, failure, timeoutKind },
      })
      expect(outcome(after)).toEqual(outcome(row))
    }
  })
})

const quick = newAgentRow({ timeout: 100_000, cleanup: 0 })
const quickly = startedTurn(quick, { now: 1_000, nodeId: NODE, token: TOKEN })

test.each<[string, TaskRow, number, string]>([
  ['its sleep is not quite over', suspended, 60_999, 'running open 1'],
  ['its sleep is over', suspended, 61_000, 'running open 1 wakes > time'],
  ['its sleep is over while it runs', live, 61_000, 'running live open 1 > time'],
  ['most of its time is over', suspended, 80_000, 'running open 1 wakes: limit_warning > time'],
  [
    'its time is over while it waits',
    suspended,
    100_000,
    'timed_out stopping open 1 wakes stops below: agent_timed_out > stop',
  ],
  [
    'its time is over while it runs',
    live,
    100_000,
    'timed_out live stopping open 1 stops below: agent_timed_out > stop',
  ],
  ['its time is over before it began', pending, 100_000, 'timed_out settled stops below: agent_timed_out'],
  [
    'its time is over while it is parked',
    parked,
    100_000,
    'timed_out parked open 1 stops below: agent_timed_out',
  ],
  [
    'its time is over and it may not clean up',
    quickly,
    100_000,
    'timed_out settled stops below: agent_timed_out',
  ],
  ['its clean-up takes too long', cleaningUp, 12_000, 'cancelling open 1 stops below: cleanup_abandoned'],
  [
    'its clean-up takes too long after its timeout',
    timedOut,
    110_000,
    'timed_out open 1 stops below: cleanup_abandoned',
  ],
  [
    'its deadline falls while it cleans up',
    { ...cleaningUp, deadlineAt: 5_000 },
    5_000,
    'cancelling open 1 stops below: cleanup_abandoned',
  ],
])('when %s', (_, row, now, expected) => {
  expect(describeDraft(decideAgent(row, { type: 'due' }, now).draft)).toBe(expected)
})

test('a turn that is lost three times in a row is repeated, a fourth time parks its agent', () => {
  let row = live
  for (const wakes of [true, true, true, false]) {
    const { draft } = decideAgent(row, { type: 'lost', nodeId: NODE, receipt: 'killed' }, 2_000)
    expect([draft.wakes, draft.row.parked === null]).toEqual([wakes, wakes])
    row = wakes ? startedTurn(draft.row, { now: 2_000, nodeId: NODE, token: TOKEN }) : draft.row
    // Coming back to where it was lost is not enough; a step further is.
    row = decided(row, turn(row, { type: 'open' }), 2_000)
  }
  expect(row.parked).toContain('4 times in a row')
  const further = { ...startedTurn(live, { now: 0, nodeId: NODE, token: TOKEN }), losses: 3 }
  expect(decided(further, turn(further, { type: 'open' }, { steps: [taskStep(3)] }), 2_000).losses).toBe(0)
})
