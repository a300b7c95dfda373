import { expect } from 'vitest'
import { errorOf, metric, onEachStore } from '../scripts/acceptance/world.ts'
import { HandlerError, TaskFailed, TaskTimedOut, task } from './curfew.ts'

onEachStore('retries', (test) => {
  test('row 13: a task past its total deadline is never retried', async ({ world }) => {
    const { clock } = world
    let starts = 0
    const hang = task({
      name: 'hang',
      timeout: '5s',
      retries: 3,
      run: async (_, { signal }) => {
        starts++
        await clock.sleep('1h', signal)
      },
    })
    const curfew = await world.open({ tasks: [hang] })
    const handle = await curfew.schedule(hang, null)
    await clock.advance('5s')
    expect(await handle.view()).toMatchObject({ status: 'timed_out', timeoutKind: 'total', attempts: 1 })
    await clock.advance('1h')
    expect(starts).toBe(1)
    expect(await handle.view()).toMatchObject({ status: 'timed_out', attempts: 1 })
  })

  test('row 14: retries: 3 is four attempts; the deadline stays where it was', async ({ world }) => {
    const { clock } = world
    const seen: { attempt: number; at: number; deadline: number | null }[] = []
    const start = world.now
    const flaky = task({
      name: 'flaky',
      timeout: '1m',
      retries: 3,
      backoff: { initial: '1s', factor: 3, max: '5s', jitter: 0 },
      run: (_, { attempt, deadline }) => {
        seen.push({ attempt, at: world.now - start, deadline })
        throw new Error(`attempt ${attempt}`)
      },
    })
    const curfew = await world.open({ tasks: [flaky] })
    const handle = await curfew.schedule(flaky, null)
    await clock.advance('1h')
    const deadline = start + 60_000
    // After 1, 3 and 5 seconds: the third power is cut at the maximum.
    expect(seen).toEqual([
      { attempt: 1, at: 0, deadline },
      { attempt: 2, at: 1_000, deadline },
      { attempt: 3, at: 4_000, deadline },
      { attempt: 4, at: 9_000, deadline },
    ])
    const error = await errorOf(handle.result(), TaskFailed)
    expect(error).toMatchObject({ attempts: 4, deadlineAt: deadline })
    expect(error.failure).toMatchObject({ code: 'failed', message: 'attempt 4', retryable: true })
    const { attempts, retries } = await handle.explain()
    expect(attempts.map(({ status, failure }) => `${status} ${failure?.message}`)).toEqual([
      'failed attempt 1',
      'failed attempt 2',
      'failed attempt 3',
      'failed attempt 4',
    ])
    expect(retries).toMatchObject({ used: 3, allowed: 3 })
    expect(await metric(curfew, 'curfew_task_retries_total', { name: 'flaky' })).toBe(3)
  })

  test('the jitter of the default backoff keeps a retry within its delay', async ({ world }) => {
    const { clock } = world
    const startedAt: number[] = []
    const start = world.now
    const flaky = task({
      name: 'flaky',
      retries: 1,
      run: (_, { attempt }) => {
        startedAt.push(world.now - start)
        if (attempt === 1) throw new Error('once')
        return 'well'
      },
    })
    const curfew = await world.open({ tasks: [flaky], concurrency: 50 })
    const handles = await curfew.scheduleMany(flaky, Array(50).fill(null))
    await clock.advance('2s')
    expect(await Promise.all(handles.map((handle) => handle.result()))).toEqual(Array(50).fill('well'))
    const delays = startedAt.filter((at) => at > 0)
    expect(Math.max(...delays)).toBeLessThanOrEqual(1_000)
    // Fifty draws from [0, 1 s) that all fall into one half: once in 10^15 runs.
    expect(Math.max(...delays) - Math.min(...delays)).toBeGreaterThan(250)
  })

  test('row 15: a retry that could not start before the deadline ends the task now', async ({ world }) => {
    const { clock } = world
    const flaky = task({
      name: 'flaky',
      timeout: '10s',
      retries: 3,
      backoff: { initial: '9s', jitter: 0 },
      run: async () => {
        await clock.sleep('2s')
        throw new HandlerError('no luck', { code: 'luck', details: { at: 'noon' } })
      },
    })
    const curfew = await world.open({ tasks: [flaky] })
    const start = world.now
    const handle = await curfew.schedule(flaky, null)
    await clock.advance('2s')
    const error = await errorOf(handle.result(), TaskFailed)
    expect(error.failure).toMatchObject({
      code: 'no_time_to_retry',
      cause: { code: 'luck', message: 'no luck', details: { at: 'noon' } },
    })
    expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 2_000, attempts: 1 })
  })

  test('row 15: the same for a timed-out attempt', async ({ world }) => {
    const { clock } = world
    const hang = task({
      name: 'hang',
      timeout: '10s',
      attemptTimeout: '2s',
      retries: 3,
      backoff: { initial: '9s', jitter: 0 },
      run: async (_, { signal }) => clock.sleep('1h', signal),
    })
    const curfew = await world.open({ tasks: [hang] })
    const start = world.now
    const handle = await curfew.schedule(hang, null)
    await clock.advance('3s')
    expect(await errorOf(handle.result(), TaskTimedOut)).toMatchObject({ kind: 'execution', attempts: 1 })
    expect(await handle.view()).toMatchObject({ endedAt: start + 2_000 })
  })

  test('row 50: which timeouts are retried', async ({ world }) => {
    const { clock } = world
    const hang = task({
      name: 'hang',
      retries: 1,
      backoff: { initial: '1s', jitter: 0 },
      run: async (_, { signal }) => clock.sleep('1h', signal),
    })
    const curfew = await world.open({ tasks: [hang] })
    const elsewhere = task({ name: 'elsewhere', retries: 1, run: () => 1 })
    const cases = {
      total: await curfew.schedule(hang, null, { timeout: '2s' }),
      queue: await curfew.schedule(elsewhere, null, { queueTimeout: '2s' }),
      execution: await curfew.schedule(hang, null, { attemptTimeout: '2s' }),
      'execution, onTimeout: fail': await curfew.schedule(hang, null, {
        attemptTimeout: '2s',
        onTimeout: 'fail',
      }),
      heartbeat: await curfew.schedule(hang, null, { heartbeatTimeout: '2s' }),
      stuck: await curfew.schedule(hang, null, { stuckAfter: '2s' }),
    }
    await clock.advance('1m')
    const attempts: Record<string, number> = {}
    for (const [name, handle] of Object.entries(cases)) {
      const view = await handle.view()
      expect(view).toMatchObject({ status: 'timed_out', timeoutKind: name.split(',')[0] })
      attempts[name] = view.attempts
    }
    expect(attempts).toEqual({
      total: 1,
      queue: 0,
      execution: 2,
      'execution, onTimeout: fail': 1,
      heartbeat: 2,
      stuck: 2,
    })
  })

  test('failures and timeouts of attempts draw on the same retries', async ({ world }) => {
    const { clock } = world
    const mixed = task({
      name: 'mixed',
      attemptTimeout: '2s',
      retries: 2,
      backoff: { initial: '1s', jitter: 0, factor: 1 },
      run: async (_, { attempt, signal }) => {
        if (attempt === 2) throw new Error('second')
        await clock.sleep('1h', signal)
      },
    })
    const curfew = await world.open({ tasks: [mixed] })
    const handle = await curfew.schedule(mixed, null)
    await clock.advance('1m')
    const error = await errorOf(handle.result(), TaskTimedOut)
    expect(error).toMatchObject({ attempts: 3, failure: { message: 'second' } })
  })

  test('a failure that says it is permanent is not retried', async ({ world }) => {
    const wrong = task({
      name: 'wrong',
      retries: 5,
      run: () => Promise.reject(new HandlerError('never', { code: 'bad_card', retryable: false })),
    })
    const curfew = await world.open({ tasks: [wrong] })
    const handle = await curfew.schedule(wrong, null)
    await world.clock.advance('1h')
    expect(await errorOf(handle.result(), TaskFailed)).toMatchObject({
      attempts: 1,
      failure: { code: 'bad_card', retryable: false },
    })
  })

  test('a retry waits for the receipt of the attempt before it', async ({ world }) => {
    const { clock } = world
    const running = new Set<number>()
    const slow = task({
      name: 'slow',
      attemptTimeout: '2s',
      grace: '5s',
      retries: 2,
      backoff: { initial: '1ms', jitter: 0, factor: 1 },
      run: async (_, { attempt, signal }) => {
        running.add(attempt)
        expect(running.size, 'an attempt ran beside another').toBe(1)
        if (attempt === 3) return running.delete(3)
        await clock.sleep('1h', signal).catch(() => clock.sleep('4s'))
        return running.delete(attempt)
      },
    })
    const curfew = await world.open({ tasks: [slow] })
    const start = world.now
    const handle = await curfew.schedule(slow, null)
    await clock.advance('3s')
    expect(await handle.view()).toMatchObject({ status: 'pending', attempts: 1 })
    expect((await handle.explain()).summary).toMatch(/^waits until attempt 1 has stopped, then it is retried/)
    await clock.advance('1m')
    expect(await handle.result()).toBe(true)
    expect((await handle.explain()).attempts.map(({ startedAt }) => startedAt - start)).toEqual([
      0, 6_001, 12_002,
    ])
  })

  test('the last details reach the next attempt', async ({ world }) => {
    const { clock } = world
    const seen: unknown[] = []
    const resuming = task({
      name: 'resuming',
      retries: 2,
      backoff: { initial: '1s', jitter: 0 },
      run: async (_, { attempt, previousDetails, progress }) => {
        seen.push(previousDetails)
        if (attempt === 1) progress({ completed: 7, total: 10 }, { page: 7 })
        await clock.sleep('2s')
        if (attempt < 3) throw new Error('again')
      },
    })
    const curfew = await world.open({ tasks: [resuming] })
    const handle = await curfew.schedule(resuming, null)
    await clock.advance('1m')
    await handle.result()
    expect(seen).toEqual([undefined, { page: 7 }, { page: 7 }])
  })

  test('a cancel between two attempts ends the task at once', async ({ world }) => {
    const { clock } = world
    const flaky = task({
      name: 'flaky',
      retries: 3,
      backoff: { initial: '1m', jitter: 0 },
      run: () => Promise.reject(new Error('no')),
    })
    const curfew = await world.open({ tasks: [flaky] })
    const handle = await curfew.schedule(flaky, null)
    await clock.advance('1s')
    expect((await handle.explain()).summary).toMatch(/^is retried \(attempt 2\) in 59s/)
    expect(await handle.cancel()).toBe('pending_cancelled')
    await clock.advance('1h')
    expect(await handle.view()).toMatchObject({ status: 'cancelled', attempts: 1, settled: true })
  })
})
