// Every state a task can be in against everything that can happen to it.
import { describe, expect, test } from 'vitest'
import { isEnded } from '../core/states.ts'
import type { TaskRow } from '../store/task-row.ts'
import { claimedRow, newRow } from './fixtures/task-rows.ts'
import { decideTask } from './task-decide.ts'
import type { TaskDraft } from './task-draft.ts'
import type { TaskInput } from './task-input.ts'

const TOKEN = 'a_1'
const NODE = 'n_1'
const POLICY = { timeout: 100_000, attemptTimeout: 10_000, retries: 1, grace: 1_000, backoff: { jitter: 0 } }
const FAILURE = { code: 'failed', message: 'no', retryable: true }

function decided(row: TaskRow, input: TaskInput, now: number): TaskRow {
  return decideTask(row, input, now, 0.5).draft.row
}

const ready = newRow(POLICY)
const running = claimedRow(ready, { now: 1_000, nodeId: NODE, token: TOKEN })
const stopping = decided(running, { type: 'due' }, 11_000)
const stopped = (receipt: 'aborted' | 'abandoned'): TaskInput => ({
  type: 'stopped',
  token: TOKEN,
  receipt,
  reason: { code: 'timed_out', message: '' },
  late: null,
})
const letGo: TaskInput = { ...stopped('aborted'), reason: { code: 'closing', message: '' } } as TaskInput
const timedOutStopping = decided({ ...running, failures: 1 }, { type: 'due' }, 11_000)

/** Each with a moment at which nothing of it is due yet. */
const STATES = {
  ready: { row: ready, at: 2_000 },
  delayed: { row: newRow({ ...POLICY, delayMs: 5_000 }), at: 2_000 },
  running: { row: running, at: 2_000 },
  'stopping, then retried': { row: stopping, at: 11_500 },
  'waiting for its retry': { row: decided(stopping, stopped('aborted'), 11_600), at: 11_700 },
  'unreachable, then retried': { row: decided(stopping, { type: 'due' }, 14_000), at: 15_000 },
  'let go, still running': {
    row: decided(running, { ...letGo, receipt: 'abandoned' } as TaskInput, 2_000),
    at: 3_000,
  },
  'timed out, stopping': { row: timedOutStopping, at: 11_500 },
  'cancelled, stopping': { row: decided(running, { type: 'cancel' }, 2_000), at: 2_500 },
  'timed out, unreachable': { row: decided(timedOutStopping, { type: 'due' }, 14_000), at: 15_000 },
  'timed out, abandoned': { row: decided(timedOutStopping, stopped('abandoned'), 12_000), at: 15_000 },
  completed: { row: decided(running, { type: 'completed', token: TOKEN, output: '1' }, 2_000), at: 3_000 },
  failed: {
    row: decided({ ...running, failures: 1 }, { type: 'failed', token: TOKEN, failure: FAILURE }, 2_000),
    at: 3_000,
  },
  cancelled: { row: decided(ready, { type: 'cancel' }, 2_000), at: 3_000 },
  parked: { row: { ...ready, ready: 0, parked: 'unreadable', dueAt: null } as TaskRow, at: 2_000 },
} satisfies Record<string, { row: TaskRow; at: number }>
type StateName = keyof typeof STATES

const INPUTS = {
  due: { type: 'due' },
  completed: { type: 'completed', token: TOKEN, output: '2' },
  failed: { type: 'failed', token: TOKEN, failure: FAILURE },
  overdue: { type: 'overdue', token: TOKEN },
  beat: { type: 'beat', token: TOKEN, progress: { fraction: 0.5 }, details: '"d"', moved: true },
  extend: { type: 'extend', token: TOKEN, requestId: 'r', progress: {} },
  'stopped in time': stopped('aborted'),
  'let go': letGo,
  abandoned: stopped('abandoned'),
  returned: { type: 'returned', token: TOKEN, late: { output: '3' } },
  cancel: { type: 'cancel' },
  extend_by: { type: 'extend_by', byMs: 1_000 },
  resume: { type: 'resume' },
  lost: { type: 'lost', nodeId: NODE, receipt: 'killed' },
} satisfies Record<string, TaskInput>
type InputName = keyof typeof INPUTS

/** Status, then what is true of it, then what was recorded. */
function describeRow(row: TaskRow, events: { body: { type: string } }[]): string {
  const flags = [
    row.ready && 'ready',
    row.live && 'live',
    row.stopping && 'stopping',
    row.settledAt !== null && 'settled',
  ].filter(Boolean)
  const recorded = events.map(({ body }) => body.type)
  return `${[row.status, ...flags].join(' ')}${recorded.length ? `: ${recorded.join(', ')}` : ''}`
}

/** What each changes. Whatever is not named here changes nothing. */
const EXPECTED: Record<StateName, Partial<Record<InputName, string>>> = {
  ready: {
    cancel: 'cancelled settled: task_cancelled',
    extend_by: 'pending ready: deadlines_extended',
  },
  delayed: {
    cancel: 'cancelled settled: task_cancelled',
    extend_by: 'pending: deadlines_extended',
  },
  running: {
    completed: 'completed settled',
    failed: 'pending: attempt_failed, retry_scheduled',
    beat: 'running live',
    overdue: 'running live',
    extend: 'running live: extension_answered',
    // No limit is over at this moment, whatever the worker's timer says: it is repeated outside its retries.
    'stopped in time': 'pending ready: attempt_lost',
    'let go': 'pending ready: attempt_lost',
    abandoned: 'pending live stopping: attempt_lost',
    returned: 'completed settled',
    cancel: 'cancelled live stopping: task_cancelled',
    extend_by: 'running live: deadlines_extended',
    lost: 'pending ready: attempt_lost',
  },
  'stopping, then retried': {
    // What it says of itself is kept, and it is told to stop.
    beat: 'pending live stopping',
    completed: 'pending: late_result, attempt_stopped, retry_scheduled',
    failed: 'pending: late_result, attempt_stopped, retry_scheduled',
    'stopped in time': 'pending: attempt_stopped, retry_scheduled',
    'let go': 'pending: attempt_stopped, retry_scheduled',
    abandoned: 'timed_out live settled: attempt_stopped, task_timed_out',
    returned: 'pending: late_result, attempt_stopped, retry_scheduled',
    cancel: 'cancelled live stopping: task_cancelled',
    extend_by: 'pending live stopping: deadlines_extended',
    lost: 'pending: attempt_stopped, retry_scheduled',
  },
  'waiting for its retry': {
    cancel: 'cancelled settled: task_cancelled',
    extend_by: 'pending: deadlines_extended',
  },
  'unreachable, then retried': {
    // What it says of itself is kept, and it is told to stop.
    beat: 'pending live stopping',
    completed: 'pending: late_result, attempt_stopped, retry_scheduled',
    failed: 'pending: late_result, attempt_stopped, retry_scheduled',
    'stopped in time': 'pending: attempt_stopped, retry_scheduled',
    'let go': 'pending: attempt_stopped, retry_scheduled',
    abandoned: 'timed_out live settled: attempt_stopped, task_timed_out',
    returned: 'pending: late_result, attempt_stopped, retry_scheduled',
    // Nobody answers for its attempt, so nobody is waited for.
    cancel: 'cancelled live stopping settled: task_cancelled',
    extend_by: 'pending live stopping: deadlines_extended',
    lost: 'pending: attempt_stopped, retry_scheduled',
  },
  'let go, still running': {
    // What it says of itself is kept, and it is told to stop.
    beat: 'pending live stopping',
    completed: 'pending ready: late_result',
    failed: 'pending ready: late_result',
    'stopped in time': 'pending ready',
    'let go': 'pending ready',
    returned: 'pending ready: late_result',
    cancel: 'cancelled live stopping settled: task_cancelled',
    extend_by: 'pending live stopping: deadlines_extended',
    lost: 'pending ready',
  },
  'timed out, stopping': {
    // What it says of itself is kept, and it is told to stop.
    beat: 'timed_out live stopping',
    completed: 'timed_out settled: late_result, attempt_stopped',
    failed: 'timed_out settled: late_result, attempt_stopped',
    'stopped in time': 'timed_out settled: attempt_stopped',
    'let go': 'timed_out settled: attempt_stopped',
    abandoned: 'timed_out live settled: attempt_stopped',
    returned: 'timed_out settled: late_result, attempt_stopped',
    lost: 'timed_out settled: attempt_stopped',
  },
  'cancelled, stopping': {
    // What it says of itself is kept, and it is told to stop.
    beat: 'cancelled live stopping',
    completed: 'cancelled settled: late_result, attempt_stopped',
    failed: 'cancelled settled: late_result, attempt_stopped',
    'stopped in time': 'cancelled settled: attempt_stopped',
    'let go': 'cancelled settled: attempt_stopped',
    abandoned: 'cancelled live settled: attempt_stopped',
    returned: 'cancelled settled: late_result, attempt_stopped',
    lost: 'cancelled settled: attempt_stopped',
  },
  'timed out, unreachable': {
    completed: 'timed_out settled: late_result, attempt_stopped',
    failed: 'timed_out settled: late_result, attempt_stopped',
    'stopped in time': 'timed_out settled: attempt_stopped',
    'let go': 'timed_out settled: attempt_stopped',
    returned: 'timed_out settled: late_result, attempt_stopped',
    lost: 'timed_out settled',
  },
  'timed out, abandoned': {
    completed: 'timed_out settled: late_result, attempt_stopped',
    failed: 'timed_out settled: late_result, attempt_stopped',
    'stopped in time': 'timed_out settled: attempt_stopped',
    'let go': 'timed_out settled: attempt_stopped',
    returned: 'timed_out settled: late_result, attempt_stopped',
    lost: 'timed_out settled',
  },
  completed: {},
  failed: {},
  cancelled: {},
  parked: {
    cancel: 'cancelled settled: task_cancelled',
    extend_by: 'pending: deadlines_extended',
    resume: 'pending ready: resumed',
  },
}

/** A result that comes too late is kept as an event, unless it is the outcome itself told twice. */
function lateOf(input: TaskInput, row: TaskRow, token = TOKEN): string[] {
  if (input.type === 'completed' && row.status === 'completed' && row.token === token) return []
  return ['completed', 'failed', 'returned'].includes(input.type) ? ['late_result'] : []
}

/** The indexed moment is the earliest of the others and may be looked at again. */
function expectNothingBut(events: string[], draft: TaskDraft, row: TaskRow): void {
  expect({ ...draft.row, dueAt: row.dueAt }).toEqual({ ...row, seq: row.seq + events.length })
  expect(draft.events.map(({ body }) => body.type)).toEqual(events)
  expect([draft.attempts, draft.effects, draft.receipts]).toEqual([[], [], []])
}

const ATTEMPT_INPUTS = ['completed', 'failed', 'beat', 'extend', 'overdue', 'stopped', 'returned']

describe.each(Object.keys(STATES) as StateName[])('a task that is %s', (name) => {
  const { row, at } = STATES[name]

  test.each(Object.keys(INPUTS) as InputName[])('when it meets: %s', (inputName) => {
    const input: TaskInput = INPUTS[inputName]
    const { draft, answer } = decideTask(row, input, at, 0.5)
    const expected = EXPECTED[name][inputName]
    if (expected) return expect(describeRow(draft.row, draft.events)).toBe(expected)
    expectNothingBut(lateOf(input, row), draft, row)
    if (inputName === 'due' || inputName === 'abandoned') return
    if (inputName === 'cancel')
      expect(answer).toMatchObject({ type: 'cancel', answer: expect.stringMatching(/^already/) })
    else expect(answer.type).toMatch(/^(stale|unchanged)$/)
  })

  test('an attempt of before, or of another, changes nothing and is told to stop', () => {
    for (const input of Object.values(INPUTS) as TaskInput[]) {
      if (!ATTEMPT_INPUTS.includes(input.type)) continue
      const { draft, answer } = decideTask(row, { ...input, token: 'a_0' } as TaskInput, at, 0.5)
      expectNothingBut(lateOf(input, row, 'a_0'), draft, row)
      expect(answer).toMatchObject({ type: 'stale', reason: { code: 'stale' } })
    }
    for (const lost of [{ nodeId: 'n_2' }, { nodeId: NODE, token: 'a_0' }]) {
      const { draft, answer } = decideTask(row, { type: 'lost', receipt: 'killed', ...lost }, at, 0.5)
      expect({ ...draft.row, dueAt: row.dueAt }).toEqual(row)
      expect(answer.type).toBe('unchanged')
    }
  })

  test('an outcome, once there, stays', () => {
    if (!isEnded(row.status)) return expect(row.endedAt).toBeNull()
    for (const input of Object.values(INPUTS)) {
      const after = decideTask(row, input, at + 1_000_000, 0.5).draft.row
      const outcome = ({ status, endedAt, endedSeq, output, failure, timeoutKind }: TaskRow) => ({
        ...{ status, endedAt, endedSeq, output, failure, timeoutKind },
      })
      expect(outcome(after)).toEqual(outcome(row))
    }
  })
})
