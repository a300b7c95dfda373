import { expect } from 'vitest'
import { errorOf, metric, onEachStore } from '../scripts/acceptance/world.ts'
import { TaskTimedOut, task } from './curfew.ts'

onEachStore('limits of tasks', (test) => {
  test('row 1: a timeout becomes a deadline on the store clock when the task is scheduled', async ({
    world,
  }) => {
    const curfew = await world.open()
    const unknown = task({ name: 'unknown', run: () => 1 })
    await world.clock.advance('3s')
    const handle = await curfew.schedule(unknown, null, { timeout: '30s' })
    expect(await handle.view()).toMatchObject({ status: 'pending', deadlineAt: world.now + 30_000 })
  })

  test('row 2: without a timeout there is no deadline, however long it takes', async ({ world }) => {
    const { clock } = world
    const slow = task({ name: 'slow', run: async (_, { signal }) => clock.sleep('390d', signal) })
    const curfew = await world.open({ tasks: [slow], concurrency: 1 })
    const running = await curfew.schedule(slow, null)
    const waiting = await curfew.schedule(slow, null)
    await clock.advance('389d')
    expect(await running.view()).toMatchObject({
      status: 'running',
      deadlineAt: null,
      attemptDeadlineAt: null,
    })
    expect(await waiting.view()).toMatchObject({ status: 'pending', deadlineAt: null })
    expect(await metric(curfew, 'curfew_task_timeouts_total')).toBe(0)
  })

  test('row 5: a running task past its deadline has ended, with its attempt', async ({ world }) => {
    const { clock } = world
    const hang = task({
      name: 'hang',
      timeout: '5s',
      run: async (_, { signal }) => clock.sleep('1h', signal),
    })
    const curfew = await world.open({ tasks: [hang] })
    const scheduledAt = world.now
    const handle = await curfew.schedule(hang, null)
    await clock.advance('5s')
    const view = await handle.view()
    expect(view).toMatchObject({
      status: 'timed_out',
      settled: true,
      timeoutKind: 'total',
      timeoutMs: 5_000,
      endedAt: scheduledAt + 5_000,
      receipt: 'aborted',
      attempts: 1,
    })
    const { attempts } = await handle.explain()
    expect(attempts).toMatchObject([
      {
        attempt: 1,
        status: 'timed_out',
        timeoutKind: 'total',
        receipt: 'aborted',
        endedAt: scheduledAt + 5_000,
      },
    ])
    const error = await errorOf(handle.result(), TaskTimedOut)
    expect(error).toMatchObject({ code: 'task_timed_out', kind: 'total', attempts: 1 })
  })

  test('row 6: one that nobody ever claimed times out the same, never started', async ({ world }) => {
    const curfew = await world.open()
    const handle = await curfew.schedule(task({ name: 'elsewhere', run: () => 1 }), null, { timeout: '5s' })
    await world.clock.advance('5s')
    const view = await handle.view()
    expect(view).toMatchObject({ status: 'timed_out', timeoutKind: 'total', settled: true })
    expect(view).toMatchObject({ attempts: 0, startedAt: null, receipt: null })
    expect((await handle.explain()).attempts).toEqual([])
  })

  test('row 7: a deadline in the future is left alone until its very millisecond', async ({ world }) => {
    const curfew = await world.open()
    const handle = await curfew.schedule(task({ name: 'elsewhere', run: () => 1 }), null, { timeout: '5s' })
    await world.clock.advance(4_999)
    expect(await handle.status()).toBe('pending')
    await world.clock.advance(1)
    expect(await handle.status()).toBe('timed_out')
  })

  test('row 8: a deadline after the end changes nothing and leaves no event', async ({ world }) => {
    const { clock } = world
    const quick = task({ name: 'quick', timeout: '5s', run: () => 'done' })
    const bad = task({ name: 'bad', timeout: '5s', run: () => Promise.reject(new Error('no')) })
    const elsewhere = task({ name: 'elsewhere', timeout: '5s', run: () => 1 })
    const curfew = await world.open({ tasks: [quick, bad] })
    const handles = [
      await curfew.schedule(quick, null),
      await curfew.schedule(bad, null),
      await curfew.schedule(elsewhere, null),
    ]
    await handles[2]?.cancel()
    await clock.settle()
    const before = await Promise.all(handles.map((handle) => handle.view()))
    expect(before.map(({ status }) => status)).toEqual(['completed', 'failed', 'cancelled'])
    const events = await Promise.all(handles.map((handle) => handle.events()))
    await clock.advance('1h')
    expect(await Promise.all(handles.map((handle) => handle.view()))).toEqual(before)
    expect(await Promise.all(handles.map((handle) => handle.events()))).toEqual(events)
    expect(await metric(curfew, 'curfew_task_timeouts_total')).toBe(0)
  })

  test('row 12: decided at the deadline, told with the receipt', async ({ world }) => {
    const { clock } = world
    const stubborn = task({
      name: 'stubborn',
      timeout: '5s',
      grace: '3s',
      // Follows its signal two seconds late.
      run: async (_, { signal }) => {
        await clock.sleep('1h', signal).catch(() => clock.sleep('2s'))
      },
    })
    const curfew = await world.open({ tasks: [stubborn] })
    const start = world.now
    const handle = await curfew.schedule(stubborn, null)
    let toldAt = 0
    const told = errorOf(handle.result(), TaskTimedOut).finally(() => {
      toldAt = world.now
    })
    await clock.advance(4_999)
    expect(await handle.status()).toBe('running')
    await clock.advance(1)
    expect(await handle.view()).toMatchObject({ status: 'timed_out', settled: false, endedAt: start + 5_000 })
    expect((await handle.explain()).attempts).toMatchObject([{ status: 'stopping', receipt: null }])
    expect(toldAt).toBe(0)
    await clock.advance('2s')
    expect(toldAt).toBe(start + 7_000)
    expect(await told).toMatchObject({ receipt: 'aborted' })
    expect(await handle.view()).toMatchObject({ settled: true, endedAt: start + 5_000 })
  })

  test('row 12: at most grace and two seconds after, also for a handler that never stops', async ({
    world,
  }) => {
    const { clock } = world
    const deaf = task({ name: 'deaf', timeout: '5s', grace: '3s', run: () => new Promise(() => undefined) })
    const curfew = await world.open({ tasks: [deaf] })
    const start = world.now
    const handle = await curfew.schedule(deaf, null)
    let toldAt = 0
    const told = errorOf(handle.result(), TaskTimedOut).finally(() => {
      toldAt = world.now
    })
    await clock.advance('20s')
    expect(await told).toMatchObject({ receipt: 'abandoned' })
    expect(toldAt).toBeGreaterThanOrEqual(start + 8_000)
    expect(toldAt).toBeLessThanOrEqual(start + 10_000)
  })

  test('row 16: heartbeats do not move the total deadline', async ({ world }) => {
    const { clock } = world
    const beating = task({
      name: 'beating',
      timeout: '5s',
      heartbeatTimeout: '3s',
      run: async (_, { signal, heartbeat }) => {
        for (;;) {
          await clock.sleep('1s', signal)
          heartbeat()
        }
      },
    })
    const curfew = await world.open({ tasks: [beating] })
    const start = world.now
    const handle = await curfew.schedule(beating, null)
    await clock.advance('1m')
    expect(await handle.view()).toMatchObject({ timeoutKind: 'total', endedAt: start + 5_000 })
  })

  test('a handler that beats lives; one that stops beating ends at its heartbeat limit', async ({
    world,
  }) => {
    const { clock } = world
    const beating = task({
      name: 'beating',
      heartbeatTimeout: '3s',
      run: async (beats: number, { signal, heartbeat }) => {
        for (let i = 0; i < beats; i++) {
          await clock.sleep('2s', signal)
          heartbeat({ i })
        }
        await clock.sleep('1h', signal)
      },
    })
    const curfew = await world.open({ tasks: [beating] })
    const start = world.now
    const handle = await curfew.schedule(beating, 5)
    await clock.advance(12_999)
    expect(await handle.status()).toBe('running')
    await clock.advance(1)
    const error = await errorOf(handle.result(), TaskTimedOut)
    expect(error).toMatchObject({ kind: 'heartbeat', timeoutMs: 3_000, details: { i: 4 } })
    expect(await handle.view()).toMatchObject({ endedAt: start + 13_000 })
  })

  test('a timer that beats is not progress: stuckAfter counts from the last that moved', async ({
    world,
  }) => {
    const { clock } = world
    const stuck = task({
      name: 'stuck',
      stuckAfter: '10s',
      run: async (_, { signal, heartbeat, progress }) => {
        for (let i = 1; ; i++) {
          await clock.sleep('2s', signal)
          progress({ completed: Math.min(i, 4), total: 100 })
          heartbeat()
        }
      },
    })
    const curfew = await world.open({ tasks: [stuck] })
    const start = world.now
    const handle = await curfew.schedule(stuck, null)
    await clock.advance('17s')
    expect(await handle.status()).toBe('running')
    await clock.advance('1m')
    const error = await errorOf(handle.result(), TaskTimedOut)
    expect(error).toMatchObject({ kind: 'stuck', progress: { completed: 4, total: 100 } })
    // The fourth step was reported at 8 s.
    expect(await handle.view()).toMatchObject({ endedAt: start + 18_000 })
  })

  test('queueTimeout ends what nobody started in time, and not what was started', async ({ world }) => {
    const { clock } = world
    const slow = task({
      name: 'slow',
      queueTimeout: '5s',
      run: async (_, { signal }) => clock.sleep('20s', signal),
    })
    const curfew = await world.open({ tasks: [slow], concurrency: 1 })
    const [first, second] = await curfew.scheduleMany(slow, [1, 2])
    await clock.advance('30s')
    expect(await first?.status()).toBe('completed')
    const error = await errorOf(second!.result(), TaskTimedOut)
    expect(error).toMatchObject({
      kind: 'queue',
      timeoutMs: 5_000,
      attempts: 0,
      startedAt: null,
      receipt: null,
    })
  })

  test('attemptTimeout counts from the start of each attempt', async ({ world }) => {
    const { clock } = world
    const hang = task({
      name: 'hang',
      attemptTimeout: '5s',
      retries: 1,
      backoff: { initial: '1s', jitter: 0 },
      run: async (_, { signal }) => clock.sleep('1h', signal),
    })
    const curfew = await world.open({ tasks: [hang] })
    const start = world.now
    const handle = await curfew.schedule(hang, null)
    await clock.advance('1m')
    expect(await errorOf(handle.result(), TaskTimedOut)).toMatchObject({ kind: 'execution', attempts: 2 })
    expect((await handle.explain()).attempts).toMatchObject([
      { attempt: 1, status: 'timed_out', startedAt: start, endedAt: start + 5_000, receipt: 'aborted' },
      { attempt: 2, status: 'timed_out', startedAt: start + 6_000, endedAt: start + 11_000 },
    ])
  })

  test('row 11: a deadline that came up fires once, however often it is looked at', async ({ world }) => {
    const curfew = await world.open()
    const other = world.kind === 'postgres' ? await world.open() : curfew
    const handle = await curfew.schedule(task({ name: 'elsewhere', run: () => 1 }), null, { timeout: '5s' })
    for (let i = 0; i < 10; i++) await world.clock.advance('3s')
    const events = await handle.events()
    expect(events.filter(({ type }) => type === 'task_timed_out')).toHaveLength(1)
    const counted =
      (await metric(curfew, 'curfew_task_timeouts_total')) +
      (other === curfew ? 0 : await metric(other, 'curfew_task_timeouts_total'))
    expect(counted).toBe(1)
  })

  test('row 18: an expired task is not handed out, also when nobody has swept it yet', async ({ world }) => {
    const { clock } = world
    let started = 0
    const late = task({
      name: 'late',
      timeout: '5s',
      run: async (_, { signal }) => {
        started++
        await clock.sleep('5s', signal)
      },
    })
    // The slot becomes free at the very moment at which the second one expires.
    const curfew = await world.open({ tasks: [late], concurrency: 1 })
    await curfew.schedule(late, null, { timeout: null })
    const expired = await curfew.schedule(late, null)
    await clock.advance('10s')
    expect(started).toBe(1)
    expect(await expired.view()).toMatchObject({ status: 'timed_out', attempts: 0 })
  })

  test('at 80 % of each limit one warning, once per attempt', async ({ world }) => {
    const { clock } = world
    const work = task({
      name: 'work',
      timeout: '100s',
      attemptTimeout: '50s',
      heartbeatTimeout: '10s',
      stuckAfter: '20s',
      retries: 1,
      backoff: { initial: '1s', jitter: 0 },
      // Each beat comes after the warning and before the limit; progress moves once.
      run: async (_, { signal, heartbeat, progress }) => {
        await clock.sleep('9s', signal)
        progress(0.5)
        await clock.sleep('9s', signal)
        heartbeat()
        await clock.sleep('9s', signal)
        heartbeat()
        await clock.sleep('1h', signal)
      },
    })
    const elsewhere = task({ name: 'elsewhere', run: () => 1 })
    const curfew = await world.open({ tasks: [work] })
    const start = world.now
    const handle = await curfew.schedule(work, null)
    const queued = await curfew.schedule(elsewhere, null, { queueTimeout: '10s', warnAt: 0.5 })
    await clock.advance('2m')
    const warnings = async (id: string) =>
      (await curfew.task(id).events())
        .filter(({ type }) => type === 'limit_warning')
        .map(({ kind, percent, at, deadlineAt }) => [kind, percent, at - start, Number(deadlineAt) - start])
    // Stuck at 29 s, retried at 30 s, stuck again at 59 s; the total limit does not come to its 80 s.
    expect(await warnings(handle.id)).toEqual([
      ['heartbeat', 80, 8_000, 10_000],
      ['stuck', 80, 25_000, 29_000],
      ['heartbeat', 80, 38_000, 40_000],
      ['stuck', 80, 55_000, 59_000],
    ])
    expect(await handle.view()).toMatchObject({ timeoutKind: 'stuck', endedAt: start + 59_000 })
    expect(await warnings(queued.id)).toEqual([['queue', 50, 5_000, 10_000]])
  })
})
