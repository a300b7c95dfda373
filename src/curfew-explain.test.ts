import { expect } from 'vitest'
import { errorOf, metric, onEachStore } from '../scripts/acceptance/world.ts'
import type { TaskEventView, TaskHandle } from './curfew.ts'
import { CurfewError, TaskCancelled, TaskFailed, TaskTimedOut, task, WaitTimedOut } from './curfew.ts'

const elsewhere = task({ name: 'elsewhere', run: (_input: unknown) => 1 })

/** Numbered from 1 without a gap, and never back in time. */
function expectWhole(events: TaskEventView[]): void {
  expect(events.map(({ seq }) => seq)).toEqual(events.map((_, i) => i + 1))
  expect(events.map(({ at }) => at)).toEqual(events.map(({ at }) => at).toSorted((a, b) => a - b))
}

onEachStore('what a task tells about itself', (test) => {
  test('explain: every limit with its origin, which one binds and what is left', async ({ world }) => {
    const { clock } = world
    const hang = task({
      name: 'hang',
      timeout: '10m',
      attemptTimeout: '1m',
      heartbeatTimeout: '20s',
      queueTimeout: '5m',
      run: async (_, { signal }) => clock.sleep('1h', signal),
    })
    const curfew = await world.open({ tasks: [hang], concurrency: 1 })
    const start = world.now
    const running = await curfew.schedule(hang, null, { attemptTimeout: '15s', stuckAfter: '2m' })
    const waiting = await curfew.schedule(hang, null, { attemptTimeout: null })
    await clock.advance('5s')
    const explained = await running.explain()
    expect(explained.limits).toEqual([
      limit('total', 'timeout', 600_000, 'definition', start + 600_000, 595_000),
      { ...limit('queue', 'queueTimeout', 300_000, 'definition', null, null), active: false },
      { ...limit('execution', 'attemptTimeout', 15_000, 'call', start + 15_000, 10_000), binding: true },
      limit('heartbeat', 'heartbeatTimeout', 20_000, 'definition', start + 20_000, 15_000),
      limit('stuck', 'stuckAfter', 120_000, 'call', start + 120_000, 115_000),
    ])
    expect(explained.summary).toBe('attempt 1 runs since 5s; its execution limit ends in 10s')
    expect(explained.attempts).toMatchObject([
      { attempt: 1, status: 'running', startedAt: start, endedAt: null },
    ])
    const pending = await waiting.explain()
    expect(pending.summary).toBe('waits for a worker; its queue limit ends in 4m55s')
    expect(pending.limits.map(({ kind, active, binding }) => ({ kind, active, binding }))).toEqual([
      { kind: 'total', active: true, binding: false },
      { kind: 'queue', active: true, binding: true },
      { kind: 'heartbeat', active: false, binding: false },
    ])
    await clock.advance('10s')
    expect((await running.explain()).summary).toBe(
      'timed out: its attemptTimeout of 15s was over (the attempt was stopped by its signal)',
    )
    expect((await running.explain()).limits.filter(({ active }) => active)).toEqual([])
  })

  test('explain: one sentence for each way to end', async ({ world }) => {
    const { clock } = world
    const work = task({
      name: 'work',
      run: async (ms: number) => {
        await clock.sleep(ms)
        if (ms > 1_500) throw new Error('no paper')
      },
    })
    const curfew = await world.open({ tasks: [work] })
    const done = await curfew.schedule(work, 1_500)
    const failed = await curfew.schedule(work, 2_000)
    const cancelled = await curfew.schedule(elsewhere, null)
    await cancelled.cancel()
    const queued = await curfew.schedule(elsewhere, null, { queueTimeout: '2s' })
    await clock.advance('5s')
    const said = await Promise.all(
      [done, failed, cancelled, queued].map(async (one) => (await one.explain()).summary),
    )
    expect(said).toEqual([
      'completed by attempt 1 in 1.5s',
      'failed: no paper',
      'cancelled before it started',
      'timed out: its queueTimeout of 2s was over',
    ])
  })

  test('events tell the whole story, numbered without gaps', async ({ world }) => {
    const { clock } = world
    const story = task({
      name: 'story',
      timeout: '100s',
      attemptTimeout: '10s',
      retries: 2,
      backoff: { initial: '1s', jitter: 0, factor: 1 },
      run: async (_, { attempt, signal, extend }) => {
        if (attempt === 1) throw new Error('first')
        if (attempt === 2) await clock.sleep('1h', signal)
        await extend()
        return 'end'
      },
    })
    const curfew = await world.open({ tasks: [story] })
    const start = world.now
    const handle = await curfew.schedule(story, null)
    await clock.advance('20s')
    expect(await handle.result()).toBe('end')
    const events = await handle.events()
    expectWhole(events)
    expect(events.map(({ at, type }) => `${at - start} ${type}`)).toEqual([
      '0 task_scheduled',
      '0 attempt_started',
      '0 attempt_failed',
      '0 retry_scheduled',
      '1000 attempt_started',
      '9000 limit_warning',
      '11000 attempt_timed_out',
      '11000 attempt_stopped',
      '11000 retry_scheduled',
      '12000 attempt_started',
      '12000 extension_answered',
      '12000 task_completed',
    ])
    expect(events[3]).toMatchObject({ attempt: 2, retryAt: start + 1_000 })
    expect(events[6]).toMatchObject({ attempt: 2, kind: 'execution', deadlineAt: start + 11_000, lateMs: 0 })
    expect(events[7]).toMatchObject({ receipt: 'aborted', tookMs: 0 })
  })

  test('row 51: one task_timed_out with its fields; startedAt is null if nobody started it', async ({
    world,
  }) => {
    const { clock } = world
    const hang = task({ name: 'hang', run: async (_, { signal }) => clock.sleep('1h', signal) })
    const curfew = await world.open({ tasks: [hang] })
    const start = world.now
    const running = await curfew.schedule(hang, null, { timeout: '5s', delay: '1s' })
    const pending = await curfew.schedule(elsewhere, null, { timeout: '5s' })
    await clock.advance('1h')
    const timeouts = async (handle: TaskHandle) =>
      (await handle.events()).filter(({ type }) => type === 'task_timed_out')
    expect(await timeouts(running)).toEqual([
      {
        type: 'task_timed_out',
        taskId: running.id,
        seq: expect.any(Number),
        at: start + 6_000,
        kind: 'total',
        deadlineAt: start + 6_000,
        timeoutMs: 5_000,
        lateMs: 0,
        startedAt: start + 1_000,
        attempts: 1,
      },
    ])
    expect(await timeouts(pending)).toMatchObject([
      { deadlineAt: start + 5_000, startedAt: null, attempts: 0 },
    ])
    expectWhole(await running.events())
    expectWhole(await pending.events())
  })

  test('row 52: metrics of a timeout, counted once', async ({ world }) => {
    const { clock } = world
    const hang = task({
      name: 'hang',
      queue: 'slow',
      run: async (_, { signal }) => clock.sleep('1h', signal),
    })
    const curfew = await world.open({ tasks: [hang] })
    await curfew.schedule(hang, null, { timeout: '5s' })
    await curfew.schedule(hang, null, { heartbeatTimeout: '3s' })
    await curfew.schedule(elsewhere, null, { queueTimeout: '5s' })
    for (let i = 0; i < 4; i++) await clock.advance('30s')
    const timeouts = (labels: Record<string, string>) => metric(curfew, 'curfew_task_timeouts_total', labels)
    expect(await timeouts({})).toBe(3)
    expect(await timeouts({ queue: 'slow', kind: 'total' })).toBe(1)
    expect(await timeouts({ queue: 'slow', kind: 'heartbeat' })).toBe(1)
    expect(await timeouts({ queue: 'default', kind: 'queue' })).toBe(1)
    const durations = { outcome: 'timeout', name: 'hang' }
    expect(await metric(curfew, 'curfew_task_duration_seconds', durations, 'count')).toBe(2)
    expect(await metric(curfew, 'curfew_task_duration_seconds', durations, 'sum')).toBe(8)
    expect(await metric(curfew, 'curfew_tasks_ended_total', { outcome: 'timeout' })).toBe(3)
    expect(await metric(curfew, 'curfew_deadline_lateness_seconds', {}, 'count')).toBe(3)
    expect(await metric(curfew, 'curfew_receipts_total', { receipt: 'aborted' })).toBe(2)
  })

  test('metrics of what went well, how long it waited and how long it took', async ({ world }) => {
    const { clock } = world
    const work = task({ name: 'work', run: () => clock.sleep('2s') })
    const curfew = await world.open({ tasks: [work], concurrency: 1 })
    await curfew.scheduleMany(work, [1, 2])
    await clock.advance('1s')
    expect(await metric(curfew, 'curfew_slots', { state: 'taken' })).toBe(1)
    await clock.advance('5s')
    expect(await metric(curfew, 'curfew_tasks_ended_total', { name: 'work', outcome: 'completed' })).toBe(2)
    expect(await metric(curfew, 'curfew_task_duration_seconds', { outcome: 'completed' }, 'sum')).toBe(4)
    expect(await metric(curfew, 'curfew_task_queue_wait_seconds', { name: 'work' }, 'sum')).toBe(2)
  })

  test('row 53: the log line of a timeout', async ({ world }) => {
    const curfew = await world.open()
    const handle = await curfew.schedule(elsewhere, null, { timeout: '5s' })
    await world.clock.advance('1h')
    const lines = world.log.filter(({ message }) => message === 'Task timed out')
    expect(lines).toMatchObject([
      {
        level: 'info',
        fields: { taskId: handle.id, deadline: (await handle.view()).deadlineAt, kind: 'total' },
      },
    ])
    expect(world.log.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([])
  })

  test('row 49: typed errors with everything a caller needs', async ({ world }) => {
    const { clock } = world
    const work = task({
      name: 'work',
      retries: 1,
      backoff: { initial: '1s', jitter: 0 },
      run: async (how: string, { attempt, signal, progress }) => {
        if (how === 'fail')
          throw Object.assign(new TypeError(`number ${attempt}`), { code: 'ODD', cause: 'x' })
        progress({ completed: 3, total: 9 }, { page: 'three' })
        await clock.sleep('1h', signal)
      },
    })
    const curfew = await world.open({ tasks: [work] })
    const start = world.now
    const slow = await curfew.schedule(work, 'hang', { timeout: '5s' })
    const failing = await curfew.schedule(work, 'fail', { timeout: '30s' })
    const stopped = await curfew.schedule(work, 'hang')
    const waited = errorOf(stopped.result({ timeout: '2s' }), WaitTimedOut)
    await clock.advance('2s')
    expect(await waited).toMatchObject({ code: 'wait_timed_out' })
    expect(await stopped.status()).toBe('running')
    await stopped.cancel()
    await clock.advance('5s')
    const timedOut = await errorOf(slow.result(), TaskTimedOut)
    expect(timedOut).toBeInstanceOf(CurfewError)
    expect(timedOut).toMatchObject({
      name: 'TaskTimedOut',
      code: 'task_timed_out',
      taskId: slow.id,
      taskName: 'work',
      kind: 'total',
      deadlineAt: start + 5_000,
      timeoutMs: 5_000,
      startedAt: start,
      attempts: 1,
      receipt: 'aborted',
      progress: { completed: 3, total: 9 },
      details: { page: 'three' },
      failure: null,
    })
    const failed = await errorOf(failing.result(), TaskFailed)
    expect(failed).toMatchObject({
      code: 'task_failed',
      taskId: failing.id,
      attempts: 2,
      deadlineAt: start + 30_000,
      failure: { code: 'ODD', message: 'number 2', cause: { message: 'x' } },
    })
    const cancelled = await errorOf(stopped.result(), TaskCancelled)
    expect(cancelled).toMatchObject({ code: 'task_cancelled', attempts: 1, progress: { completed: 3 } })
  })

  test('row 54: list by status, name, queue and kind of timeout, newest first, in pages', async ({
    world,
  }) => {
    const { clock } = world
    const bad = task({ name: 'bad', queue: 'b', run: () => Promise.reject(new Error('no')) })
    const good = task({ name: 'good', run: () => 1 })
    const curfew = await world.open({ tasks: [bad, good] })
    await curfew.scheduleMany(bad, [1, 2])
    await curfew.scheduleMany(good, [1, 2, 3])
    await curfew.schedule(elsewhere, null, { timeout: '5s' })
    await curfew.schedule(elsewhere, null, { queueTimeout: '5s', queue: 'b' })
    await clock.advance('10s')
    await curfew.schedule(elsewhere, null)
    const count = async (options: Parameters<typeof curfew.list>[0]) =>
      (await curfew.list(options)).tasks.length
    expect(await count({ status: 'timed_out' })).toBe(2)
    expect(await count({ status: 'failed' })).toBe(2)
    expect(await count({ status: ['failed', 'timed_out'] })).toBe(4)
    expect(await count({ timeoutKind: 'queue' })).toBe(1)
    expect(await count({ name: 'elsewhere' })).toBe(3)
    expect(await count({ queue: 'b', status: 'timed_out' })).toBe(1)
    expect(await count({ status: 'running' })).toBe(0)
    const all = (await curfew.list()).tasks.map(({ id }) => id)
    expect(all).toHaveLength(8)
    expect(all).toEqual(all.toSorted().reverse())
    const paged: string[] = []
    let cursor: string | null = null
    do {
      const page: Awaited<ReturnType<typeof curfew.list>> = await curfew.list({
        limit: 3,
        ...(cursor && { cursor }),
      })
      paged.push(...page.tasks.map(({ id }) => id))
      cursor = page.cursor
    } while (cursor)
    expect(paged).toEqual(all)
    for (const wrong of [{ limit: 0 }, { limit: 5_000 }, { status: 'lost' as 'failed' }]) {
      expect(await errorOf(curfew.list(wrong), CurfewError)).toMatchObject({ code: 'invalid_option' })
    }
  })

  test('explain: a task that waits for slots that are all abandoned says so', async ({ world }) => {
    const free = Promise.withResolvers<void>()
    const deaf = task({ name: 'deaf', attemptTimeout: '1s', grace: '1s', run: () => free.promise })
    const curfew = await world.open({ tasks: [deaf], concurrency: 1 })
    const first = await curfew.schedule(deaf, null)
    const second = await curfew.schedule(deaf, null)
    expect((await second.explain()).warnings).toEqual([])
    await world.clock.advance('3s')
    expect((await first.view()).receipt).toBe('abandoned')
    expect((await second.explain()).warnings).toEqual([
      'every slot of this process is held by a handler that ignored its signal: it starts nothing',
    ])
    free.resolve()
    await world.clock.settle()
    expect(await second.status()).toBe('completed')
    expect((await first.explain()).summary).toContain('abandoned, and ended later')
  })

  test('a task nobody knows', async ({ world }) => {
    const curfew = await world.open()
    const nobody = curfew.task('t_nobody')
    for (const method of ['status', 'result', 'explain', 'events', 'cancelled', 'resume'] as const) {
      const error = await errorOf(nobody[method](), CurfewError)
      expect(error, method).toMatchObject({ code: 'not_found', fields: { id: 't_nobody' } })
    }
  })
})

// Only there a record can be damaged beside a running engine.
onEachStore(
  'damage',
  (test) => {
    test('a record that is damaged in one place is still shown', async ({ world }) => {
      const curfew = await world.open()
      const handle = await curfew.schedule(task({ name: 'work', run: () => 1 }), null)
      await world.sql(`update curfew.tasks set failure = '{', progress = '[', details = 'x', extension = '"'`)
      expect((await curfew.list()).tasks).toMatchObject([
        { id: handle.id, failure: null, progress: null, details: null },
      ])
      expect((await handle.explain()).extensions.granted).toBe(0)
    })
  },
  ['postgres'],
)

function limit(
  kind: string,
  option: string,
  timeoutMs: number,
  setBy: string,
  deadlineAt: number | null,
  remainingMs: number | null,
) {
  return { kind, option, timeoutMs, setBy, deadlineAt, remainingMs, active: true, binding: false }
}
