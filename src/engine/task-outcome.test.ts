// What follows when a limit or an attempt is over, with the numbers worked out.
import { describe, expect, test } from 'vitest'
import type { Failure } from '../core/failure.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { RowOptions } from './fixtures/task-rows.ts'
import { claimedRow, newRow } from './fixtures/task-rows.ts'
import { decideTask } from './task-decide.ts'
import type { TaskInput } from './task-input.ts'

const TOKEN = 'a_1'
const FAILURE: Failure = { code: 'failed', message: 'no paper', retryable: true }

function started(options: RowOptions, at = 0): TaskRow {
  return claimedRow(newRow(options), { now: at, nodeId: 'n_1', token: TOKEN })
}

/** Applies one after the other; answers the last. */
function follow(row: TaskRow, ...inputs: [at: number, input: TaskInput, chance?: number][]) {
  let last: ReturnType<typeof decideTask> | undefined
  for (const [at, input, chance = 0.5] of inputs) last = decideTask(last?.draft.row ?? row, input, at, chance)
  if (!last) throw new Error('no input')
  return {
    row: last.draft.row,
    answer: last.answer,
    events: last.draft.events.map(({ body }) => body),
    effects: last.draft.effects,
    attempts: last.draft.attempts,
  }
}

const due: TaskInput = { type: 'due' }
const failed = (failure: Partial<Failure> = {}): TaskInput => {
  return { type: 'failed', token: TOKEN, failure: { ...FAILURE, ...failure } }
}
const stopped = (receipt: 'aborted' | 'abandoned' | 'killed' = 'aborted'): TaskInput => {
  return { type: 'stopped', token: TOKEN, reason: { code: 'timed_out', message: '' }, receipt, late: null }
}
const extend = (requestId: string, completed: number): TaskInput => {
  return { type: 'extend', token: TOKEN, requestId, progress: { completed } }
}

describe('a limit', () => {
  test.each<[string, TaskRow, number]>([
    ['total', newRow({ timeout: 5_000 }), 5_000],
    ['total', started({ timeout: 5_000 }, 1_000), 5_000],
    ['queue', newRow({ queueTimeout: 5_000 }), 5_000],
    ['execution', started({ attemptTimeout: 5_000 }, 1_000), 6_000],
    ['heartbeat', started({ heartbeatTimeout: 5_000 }, 1_000), 6_000],
    ['stuck', started({ stuckAfter: 5_000 }, 1_000), 6_000],
  ])('fires at its moment and not a millisecond before: %s', (kind, row, at) => {
    expect(follow(row, [at - 1, due]).row.status).toBe(row.status)
    const { row: ended, events } = follow(row, [at + 7, due])
    expect(ended).toMatchObject({ status: 'timed_out', timeoutKind: kind, endedAt: at + 7 })
    expect(events.at(-1)).toMatchObject({
      type: 'task_timed_out',
      kind,
      deadlineAt: at,
      timeoutMs: 5_000,
      lateMs: 7,
    })
  })

  test('counts from the start of a delayed task', () => {
    const row = newRow({ timeout: 5_000, queueTimeout: 3_000, delayMs: 10_000 })
    expect(row).toMatchObject({ deadlineAt: 15_000, queueDeadlineAt: 13_000, ready: 0, dueAt: 10_000 })
    const { row: ready, effects } = follow(row, [10_000, due])
    expect(ready).toMatchObject({ status: 'pending', ready: 1 })
    expect(effects).toEqual([{ type: 'ready', queue: 'default', name: 'resize' }])
  })

  test('of the total comes before all others, that of the queue holds only until the first start', () => {
    const all = {
      timeout: 5_000,
      queueTimeout: 5_000,
      attemptTimeout: 5_000,
      heartbeatTimeout: 5_000,
      stuckAfter: 5_000,
    }
    expect(follow(newRow(all), [9_000, due]).row.timeoutKind).toBe('total')
    expect(follow(started(all), [9_000, due]).row.timeoutKind).toBe('total')
    const { timeout: _total, ...others } = all
    expect(follow(newRow(others), [9_000, due]).row.timeoutKind).toBe('queue')
    expect(follow(started(others), [9_000, due]).row.timeoutKind).toBe('execution')
    const { attemptTimeout: _attempt, ...rest } = others
    expect(follow(started(rest), [9_000, due]).row.timeoutKind).toBe('heartbeat')
    expect(follow(started({ queueTimeout: 5_000 }), [9_000, due]).row.status).toBe('running')
  })

  test('of the total is never retried; those of an attempt are, while retries remain', () => {
    expect(follow(started({ timeout: 5_000, retries: 3 }), [5_000, due]).row.status).toBe('timed_out')
    const retried = follow(started({ attemptTimeout: 5_000, retries: 1 }), [5_000, due])
    expect(retried.row).toMatchObject({ status: 'pending', ready: 0, stopping: 1, failures: 1 })
    expect(retried.events.at(-1)).toMatchObject({ type: 'attempt_timed_out', attempt: 1, kind: 'execution' })
    const spent = { ...started({ attemptTimeout: 5_000, retries: 1 }), failures: 1 }
    expect(follow(spent, [5_000, due]).row.status).toBe('timed_out')
  })

  test('onTimeout: fail ends with the attempt limit, and leaves heartbeat and stuck retried', () => {
    const policy = { onTimeout: 'fail', retries: 3 } as const
    expect(follow(started({ ...policy, attemptTimeout: 5_000 }), [5_000, due]).row.status).toBe('timed_out')
    expect(follow(started({ ...policy, heartbeatTimeout: 5_000 }), [5_000, due]).row.status).toBe('pending')
    expect(follow(started({ ...policy, stuckAfter: 5_000 }), [5_000, due]).row.status).toBe('pending')
  })

  test('heartbeats and progress move their own limits and no other', () => {
    const row = started({
      timeout: 20_000,
      attemptTimeout: 10_000,
      heartbeatTimeout: 2_000,
      stuckAfter: 3_000,
    })
    const beat: TaskInput = { type: 'beat', token: TOKEN, progress: null, details: null, moved: false }
    expect(follow(row, [1_500, beat]).row).toMatchObject({
      deadlineAt: 20_000,
      attemptDeadlineAt: 10_000,
      heartbeatDeadlineAt: 3_500,
      stuckDeadlineAt: 3_000,
    })
    expect(follow(row, [1_500, { ...beat, moved: true }]).row).toMatchObject({ stuckDeadlineAt: 4_500 })
  })
})

describe('an attempt that was told to stop', () => {
  const row = started({
    attemptTimeout: 5_000,
    timeout: 60_000,
    retries: 1,
    grace: 1_000,
    backoff: { jitter: 0 },
  })

  test('is waited for grace and two seconds, and the worker is told why', () => {
    const { row: stopping, effects } = follow(row, [5_000, due])
    expect(stopping).toMatchObject({ stopBoundAt: 8_000, dueAt: 8_000, live: 1 })
    expect(effects).toMatchObject([
      {
        type: 'stop',
        token: TOKEN,
        graceMs: 1_000,
        reason: { code: 'timed_out', kind: 'execution', deadlineAt: 5_000 },
      },
    ])
  })

  test('is retried after its receipt, by the backoff counted from there', () => {
    const { row: waiting, attempts, events } = follow(row, [5_000, due], [5_700, stopped()])
    expect(waiting).toMatchObject({ status: 'pending', ready: 0, live: 0, retryAt: 6_700, dueAt: 6_700 })
    expect(attempts).toMatchObject([
      { attempt: 1, status: 'timed_out', timeoutKind: 'execution', receipt: 'aborted' },
    ])
    expect(events).toMatchObject([
      { type: 'attempt_stopped', tookMs: 700 },
      { type: 'retry_scheduled', attempt: 2, retryAt: 6_700 },
    ])
    expect(follow(waiting, [6_699, due]).row.ready).toBe(0)
    expect(follow(waiting, [6_700, due]).row.ready).toBe(1)
  })

  test('and was abandoned is not retried: it still runs', () => {
    const { row: ended, events } = follow(row, [5_000, due], [7_000, stopped('abandoned')])
    expect(ended).toMatchObject({
      status: 'timed_out',
      timeoutKind: 'execution',
      live: 1,
      receipt: 'abandoned',
    })
    expect(ended.settledAt).toBe(7_000)
    expect(events.at(-1)).toMatchObject({ type: 'task_timed_out', kind: 'execution', timeoutMs: 5_000 })
  })

  test('and did not answer is retried only once its worker is gone', () => {
    const { row: silent } = follow(row, [5_000, due], [8_000, due])
    expect(silent).toMatchObject({
      status: 'pending',
      stopping: 1,
      live: 1,
      ready: 0,
      receipt: 'unreachable',
    })
    expect(silent.dueAt).toBe(48_000) // the warning of the total
    const lost: TaskInput = { type: 'lost', nodeId: 'n_1', receipt: 'unreachable' }
    expect(follow(silent, [20_000, lost]).row).toMatchObject({ live: 0, retryAt: 21_000 })
  })

  test('whose retry could not start before the total deadline ends with its timeout', () => {
    const tight = started({ attemptTimeout: 5_000, timeout: 6_000, retries: 1, backoff: { jitter: 0 } })
    expect(follow(tight, [5_000, due], [5_100, stopped()]).row).toMatchObject({
      status: 'timed_out',
      timeoutKind: 'execution',
      settledAt: 5_100,
    })
  })

  test('by its own timer is taken at its word when the limit is over by the store', () => {
    expect(follow(row, [5_000, stopped()]).row).toMatchObject({
      status: 'pending',
      live: 0,
      failures: 1,
      losses: 0,
    })
    // By the store's clock it is not: it is repeated, and no retry is used up.
    expect(follow(row, [4_999, stopped()]).row).toMatchObject({ ready: 1, failures: 0, losses: 0 })
  })
})

describe('a failed attempt', () => {
  const policy = { retries: 2, backoff: { jitter: 0 } }

  test('is retried with growing waits, then the task fails with the last failure', () => {
    const first = follow(started(policy), [100, failed()])
    expect(first.row).toMatchObject({ status: 'pending', retryAt: 1_100, failures: 1, live: 0 })
    const second = { ...claimedRow(first.row, { now: 1_100, nodeId: 'n_1', token: TOKEN }) }
    expect(follow(second, [1_200, failed()]).row).toMatchObject({ retryAt: 3_200, failures: 2 })
    const third = { ...started(policy), failures: 2, attempt: 3 }
    const { row, events } = follow(third, [100, failed({ message: 'last' })])
    expect(row).toMatchObject({ status: 'failed', settledAt: 100, attempt: 3, failures: 2 })
    expect(events).toMatchObject([{ type: 'task_failed', attempts: 3, failure: { message: 'last' } }])
  })

  test('is not retried when it says that it is no use', () => {
    expect(follow(started(policy), [100, failed({ retryable: false })]).row.status).toBe('failed')
  })

  test('whose retry could not start before the deadline ends now, with the error as the cause', () => {
    const { row } = follow(started({ ...policy, timeout: 1_100 }), [100, failed()])
    expect(row).toMatchObject({ status: 'failed', settledAt: 100 })
    expect(JSON.parse(row.failure as string)).toMatchObject({
      code: 'no_time_to_retry',
      retryable: false,
      cause: FAILURE,
    })
    expect(follow(started({ ...policy, timeout: 1_101 }), [100, failed()]).row.status).toBe('pending')
  })
})

describe('a lost attempt', () => {
  const lost: TaskInput = { type: 'lost', nodeId: 'n_1', receipt: 'killed' }

  test('is repeated at once, outside of retries, three times in a row', () => {
    let row = newRow({ retries: 0 })
    for (const losses of [1, 2, 3]) {
      row = follow(claimedRow(row, { now: 0, nodeId: 'n_1', token: TOKEN }), [10, lost]).row
      expect(row).toMatchObject({ status: 'pending', ready: 1, live: 0, losses, failures: 0 })
    }
    row = follow(claimedRow(row, { now: 20, nodeId: 'n_1', token: TOKEN }), [30, lost]).row
    expect(row).toMatchObject({ status: 'failed', settledAt: 30, attempt: 4 })
    expect(JSON.parse(row.failure as string)).toMatchObject({ code: 'lost', retryable: false })
  })

  test('starts the count anew after one that ended by itself', () => {
    const row = { ...started({ retries: 1 }), losses: 3 }
    expect(follow(row, [10, failed()]).row.losses).toBe(0)
    expect(follow(row, [10, { type: 'completed', token: TOKEN, output: '1' }]).row.losses).toBe(0)
  })

  test('is never repeated with atMostOnce', () => {
    const { row } = follow(started({ atMostOnce: true, retries: 3 }), [10, lost])
    expect(row.status).toBe('failed')
    expect(JSON.parse(row.failure as string).code).toBe('lost')
  })

  test('whose limit was over by then ends with the limit', () => {
    const { row } = follow(started({ attemptTimeout: 5_000, retries: 0 }), [6_000, lost])
    expect(row).toMatchObject({ status: 'timed_out', timeoutKind: 'execution', settledAt: 6_000, live: 0 })
  })
})

describe('extensions', () => {
  test('move the attempt and the total that would cut it short, and count as progress', () => {
    const row = started({
      timeout: 20_000,
      attemptTimeout: 15_000,
      stuckAfter: 5_000,
      heartbeatTimeout: 5_000,
    })
    const { row: granted, effects, answer } = follow(row, [4_000, extend('a', 1)])
    expect(granted).toMatchObject({
      attemptDeadlineAt: 30_000,
      deadlineAt: 35_000,
      stuckDeadlineAt: 9_000,
      heartbeatDeadlineAt: 9_000,
      extendedMs: 15_000,
    })
    expect(answer).toMatchObject({
      type: 'extension',
      answer: { granted: true, ms: 15_000 },
      deadlineAt: 30_000,
    })
    expect(effects).toMatchObject([{ type: 'limits', deadlineAt: 35_000, attemptDeadlineAt: 30_000 }])
  })

  test('leave a total alone that does not cut it short', () => {
    const row = started({ timeout: 300_000, attemptTimeout: 30_000 })
    expect(follow(row, [1_000, extend('a', 1)]).row).toMatchObject({
      attemptDeadlineAt: 45_000,
      deadlineAt: 300_000,
    })
  })

  test('never move a limit by more than its own length again', () => {
    const row = started({ timeout: 9_000, attemptTimeout: 8_000 })
    const { row: granted } = follow(row, [1, extend('a', 1)], [2, extend('b', 2)], [3, extend('c', 3)])
    expect(granted).toMatchObject({ attemptDeadlineAt: 16_000, deadlineAt: 18_000 })
  })

  test('E5: another attempt has the full budget, and the total moves by the largest only', () => {
    const policy = { timeout: 60_000, retries: 3, backoff: { initial: 0 } }
    const first = follow(started(policy), [1, extend('a', 1)], [2, extend('b', 2)], [3, failed()]).row
    expect(first).toMatchObject({ deadlineAt: 82_500, extendedMs: 22_500 })
    const second = claimedRow({ ...first, ready: 1 }, { now: 10, nodeId: 'n_1', token: TOKEN })
    const once = follow(second, [11, extend('a', 1)])
    expect(once.answer).toMatchObject({ answer: { granted: true, ms: 15_000, remaining: 4 } })
    expect(once.row).toMatchObject({ deadlineAt: 82_500, extendedMs: 22_500 })
    const more = follow(once.row, [12, extend('b', 2)], [13, extend('c', 3)]).row
    expect(more).toMatchObject({ deadlineAt: 60_000 + 26_250, extendedMs: 26_250 })
  })

  test('asked for again with the same id grant once', () => {
    const row = started({ timeout: 60_000 })
    const once = follow(row, [1, extend('a', 1)])
    const twice = follow(row, [1, extend('a', 1)], [2, extend('a', 9)])
    expect(twice.row).toEqual(once.row)
    expect(twice.events).toEqual([])
    expect(twice.answer).toEqual(once.answer)
  })

  test('used up: ten seconds later it is stopped as stuck, and repeated', () => {
    const asks = [1, 2, 3, 4, 5, 6].map((i): [number, TaskInput] => [i, extend(`r${i}`, i)])
    const { row } = follow(started({ retries: 1 }), ...asks)
    expect(row).toMatchObject({ exhaustedDeadlineAt: 10_006, dueAt: 10_006 })
    expect(follow(row, [10_005, due]).row.status).toBe('running')
    expect(follow(row, [10_006, due]).row).toMatchObject({
      status: 'pending',
      timeoutKind: 'stuck',
      stopping: 1,
    })
  })

  test('three denials in a row stop it as stuck at once', () => {
    const asks = [1, 2, 3, 4].map((i): [number, TaskInput] => [i, extend(`r${i}`, 0)])
    const { row } = follow(started({}), ...asks)
    expect(row).toMatchObject({ exhaustedDeadlineAt: 4, dueAt: 4 })
    expect(follow(row, [4, due]).row).toMatchObject({ status: 'timed_out', timeoutKind: 'stuck' })
  })

  test('by an operator move every limit that holds, by any amount', () => {
    const row = started({ timeout: 9_000, attemptTimeout: 8_000, heartbeatTimeout: 2_000, stuckAfter: 3_000 })
    const extended = follow(row, [1, { type: 'extend_by', byMs: 100_000 }])
    expect(extended.row).toMatchObject({
      deadlineAt: 109_000,
      attemptDeadlineAt: 108_000,
      heartbeatDeadlineAt: 102_000,
      stuckDeadlineAt: 103_000,
      dueAt: row.dueAt,
    })
    expect(extended.answer).toEqual({ type: 'extended', deadlineAt: 108_000 })
    expect(follow(extended.row, [9_000, due]).row.status).toBe('running')
  })
})

describe('warnings', () => {
  test('come at 80 % of each limit, once', () => {
    const row = started({ timeout: 10_000, attemptTimeout: 5_000 })
    expect(row.dueAt).toBe(4_000)
    const first = follow(row, [4_000, due])
    expect(first.events).toEqual([
      { type: 'limit_warning', kind: 'execution', percent: 80, deadlineAt: 5_000, remainingMs: 1_000 },
    ])
    expect(first.row.dueAt).toBe(5_000)
    expect(follow(first.row, [4_500, due]).events).toEqual([])
    expect(follow(row, [3_999, due]).events).toEqual([])
  })

  test('of an attempt come again for the next one, that of the total does not', () => {
    const row = { ...started({ timeout: 10_000, attemptTimeout: 9_000, retries: 1 }), warned: 1 | 4 }
    const again = claimedRow({ ...row, ready: 1 }, { now: 0, nodeId: 'n_1', token: TOKEN })
    expect(follow(again, [8_500, due]).events).toMatchObject([{ type: 'limit_warning', kind: 'execution' }])
  })
})

describe('an attempt that was stopped when another one had been started', () => {
  const LEASE_MS = 10_000
  const GRACE_MS = 1_000
  const lost: TaskInput = { type: 'lost', nodeId: 'n_1', receipt: 'unreachable' }
  const first = follow(started({ grace: GRACE_MS }), [12_000, lost]).row
  const second = claimedRow(first, { now: 12_100, nodeId: 'n_1', token: 'a_2' })
  const letGo = (timeoutMs: number, receipt: 'aborted' | 'abandoned' = 'aborted'): TaskInput => ({
    ...{ type: 'stopped', token: TOKEN, receipt, late: null },
    reason: { code: 'lease_over', message: '', timeoutMs },
  })

  test('past its lease: that is kept, and changes nothing', () => {
    const { row, events, answer } = follow(second, [13_000, letGo(LEASE_MS + GRACE_MS + 1)])
    expect(events).toEqual([
      { type: 'attempt_overlapped', attempt: 2, receipt: 'aborted', silentMs: LEASE_MS + GRACE_MS + 1 },
    ])
    expect({ ...row, seq: second.seq }).toEqual(second)
    expect(answer.type).toBe('stale')
  })

  test('within its lease: only its report is late', () => {
    expect(follow(second, [13_000, letGo(LEASE_MS + GRACE_MS)]).events).toEqual([])
    expect(follow(second, [13_000, { ...stopped(), token: TOKEN } as TaskInput]).events).toEqual([])
  })

  test('one that could not be stopped runs beside it, whenever it was told to', () => {
    expect(follow(second, [13_000, letGo(5_100, 'abandoned')]).events).toMatchObject([
      { type: 'attempt_overlapped', receipt: 'abandoned' },
    ])
  })

  test('without another attempt there is nothing to run beside', () => {
    expect(follow(first, [13_000, letGo(20_000)]).events).toEqual([])
  })
})

test('a late result is that of its own attempt, where it is known which that was', () => {
  const first = { ...started({}), token: 'a_1' }
  const late: TaskInput = { type: 'completed', token: 'a_1', output: '1' }
  const attempts = [1, 2, 3].map((attempt) => {
    const row = attempt === 1 ? { ...first, live: 0 as const } : { ...first, token: `a_${attempt}`, attempt }
    const [event] = follow(row, [5_000, late]).events
    expect(event).toMatchObject({ type: 'late_result', output: '1' })
    return (event as { attempt?: number }).attempt
  })
  expect(attempts).toEqual([1, 1, undefined])
})

test('a late result is kept beside the outcome, cut to a size a person can look at', () => {
  const ended = follow(started({ attemptTimeout: 5_000 }), [5_000, due]).row
  const output = JSON.stringify('x'.repeat(100_000))
  const { events } = follow(ended, [5_100, { type: 'completed', token: TOKEN, output }])
  expect(events[0]).toMatchObject({ type: 'late_result', attempt: 1, status: 'timed_out' })
  expect((events[0] as { output: string }).output.length).toBe(16 * 1024 + 1)
})
