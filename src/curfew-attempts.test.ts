import { expect } from 'vitest'
import { errorOf, metric, onEachStore } from '../scripts/acceptance/world.ts'
import type { TaskContext } from './curfew.ts'
import { Stopped, TaskCancelled, TaskFailed, TaskTimedOut, task } from './curfew.ts'

onEachStore('attempts', (test) => {
  test('row 23: at a timeout the signal aborts with the reason, and the slot is free', async ({ world }) => {
    const { clock } = world
    const reasons: unknown[] = []
    const hang = task({
      name: 'hang',
      run: async (_, { signal }) => {
        await clock.sleep('1h', signal).catch((reason) => {
          reasons.push(reason)
          throw reason
        })
      },
    })
    const curfew = await world.open({ tasks: [hang], concurrency: 1 })
    const start = world.now
    const first = await curfew.schedule(hang, null, { timeout: '5s' })
    const second = await curfew.schedule(hang, null)
    await clock.advance('5s')
    expect(reasons).toHaveLength(1)
    expect(reasons[0]).toBeInstanceOf(Stopped)
    expect(reasons[0]).toMatchObject({ code: 'timed_out', kind: 'total', deadlineAt: start + 5_000 })
    expect(await first.status()).toBe('timed_out')
    expect(await second.status()).toBe('running')
  })

  test('row 23: at a cancel the signal aborts with the reason, and the ledger tells how it went', async ({
    world,
  }) => {
    const { clock } = world
    const reasons: unknown[] = []
    const hang = task({
      name: 'hang',
      grace: '10s',
      run: async (_, { signal }) => {
        await clock.sleep('1h', signal).catch((reason) => {
          reasons.push(reason)
          return clock.sleep('3s')
        })
      },
    })
    const curfew = await world.open({ tasks: [hang] })
    const handle = await curfew.schedule(hang, null)
    await clock.advance('1s')
    expect(await handle.cancel()).toBe('cancelled')
    const stopped = handle.cancelled()
    await clock.settle()
    expect(reasons).toMatchObject([{ code: 'cancelled' }])
    expect(await handle.view()).toMatchObject({ status: 'cancelled', settled: false })
    expect(await handle.cancel()).toBe('already_cancelled')
    await clock.advance('3s')
    expect(await stopped).toMatchObject({
      success: true,
      errors: [],
      ledger: [{ attempt: 1, status: 'cancelled', receipt: 'aborted' }],
    })
    const error = await errorOf(handle.result(), TaskCancelled)
    expect(error).toMatchObject({
      code: 'task_cancelled',
      taskId: handle.id,
      taskName: 'hang',
      receipt: 'aborted',
    })
  })

  test('cancel answers what it found', async ({ world }) => {
    const quick = task({ name: 'quick', run: () => 1 })
    const elsewhere = task({ name: 'elsewhere', run: () => 1 })
    const curfew = await world.open({ tasks: [quick] })
    const done = await curfew.schedule(quick, null)
    await done.result()
    expect(await done.cancel()).toBe('already_completed')
    expect(await done.status()).toBe('completed')
    expect(await done.cancelled()).toMatchObject({
      success: false,
      errors: ['it was not cancelled: it is completed'],
    })
    const pending = await curfew.schedule(elsewhere, null)
    expect(await pending.cancel()).toBe('pending_cancelled')
    expect(await pending.cancelled()).toEqual({ success: true, errors: [], ledger: [] })
    expect(await curfew.task('t_00000000000000000000000000').cancel()).toBe('not_found')
  })

  test('row 19: a result after the timeout is kept as a late event and changes nothing', async ({
    world,
  }) => {
    const { clock } = world
    const late = task({
      name: 'late',
      timeout: '5s',
      grace: '10s',
      run: async () => {
        await clock.sleep('8s')
        return { much: 'too late' }
      },
    })
    const curfew = await world.open({ tasks: [late] })
    const handle = await curfew.schedule(late, null)
    await clock.advance('5s')
    const before = await handle.view()
    expect(before).toMatchObject({ status: 'timed_out', output: null })
    await clock.advance('1m')
    expect(await handle.view()).toEqual({ ...before, settled: true, receipt: 'aborted' })
    await errorOf(handle.result(), TaskTimedOut)
    const events = await handle.events()
    expect(events.filter(({ type }) => type === 'late_result')).toMatchObject([
      { attempt: 1, status: 'timed_out', output: '{"much":"too late"}' },
    ])
    expect(await metric(curfew, 'curfew_late_results_total', { name: 'late' })).toBe(1)
    expect(await metric(curfew, 'curfew_tasks_ended_total', { name: 'late' })).toBe(1)
  })

  test('row 20: a failure after the timeout is late too and starts no retry', async ({ world }) => {
    const { clock } = world
    let starts = 0
    const late = task({
      name: 'late',
      timeout: '5s',
      grace: '10s',
      retries: 3,
      run: async () => {
        starts++
        await clock.sleep('8s')
        throw new Error('broke afterwards')
      },
    })
    const curfew = await world.open({ tasks: [late] })
    const handle = await curfew.schedule(late, null)
    await clock.advance('1h')
    expect(await handle.view()).toMatchObject({ status: 'timed_out', attempts: 1, failure: null })
    expect(starts).toBe(1)
    const events = await handle.events()
    expect(events.filter(({ type }) => type === 'late_result')).toMatchObject([
      { failure: { message: 'broke afterwards' } },
    ])
  })

  test('row 22: of a result and a deadline in the same millisecond exactly one decides', async ({
    world,
  }) => {
    const { clock } = world
    const even = task({
      name: 'even',
      timeout: '5s',
      run: async (ms: number) => {
        await clock.sleep(ms)
        return 'made it'
      },
    })
    const curfew = await world.open({ tasks: [even], concurrency: 20 })
    const handles = await curfew.scheduleMany(even, [4_999, ...Array(10).fill(5_000), 5_001])
    await clock.advance('1m')
    for (const [i, handle] of handles.entries()) {
      const { status } = await handle.view()
      if (i === 0) expect(status).toBe('completed')
      if (i === 11) expect(status).toBe('timed_out')
      const ends = (await handle.events()).filter(({ type }) => /^task_(completed|timed_out)$/.test(type))
      expect(ends.map(({ type }) => type)).toEqual([`task_${status}`])
      const outcome = await handle.result().catch((error: TaskTimedOut) => error.code)
      expect(outcome).toBe(status === 'completed' ? 'made it' : 'task_timed_out')
    }
    expect(await metric(curfew, 'curfew_tasks_ended_total')).toBe(12)
  })

  test('soft stop: the signal comes before the deadline, and what is returned until then counts', async ({
    world,
  }) => {
    const { clock } = world
    const start = world.now
    const signalledAt: number[] = []
    const soft = task({
      name: 'soft',
      timeout: '10s',
      softStop: '3s',
      run: async (tidyMs: number, { signal }) => {
        await clock.sleep('1h', signal).catch((reason) => {
          expect(reason).toMatchObject({ code: 'soft_stop' })
          signalledAt.push(world.now - start)
        })
        await clock.sleep(tidyMs)
        return 'half of it'
      },
    })
    const curfew = await world.open({ tasks: [soft] })
    const tidy = await curfew.schedule(soft, 2_000)
    const slow = await curfew.schedule(soft, 4_000)
    await clock.advance('1m')
    expect(signalledAt).toEqual([7_000, 7_000])
    expect(await tidy.result()).toBe('half of it')
    expect(await slow.view()).toMatchObject({
      status: 'timed_out',
      timeoutKind: 'total',
      endedAt: start + 10_000,
    })
  })

  test('soft stop: a handler that just follows its signal has timed out, at its deadline', async ({
    world,
  }) => {
    const { clock } = world
    const start = world.now
    const follows = task({
      name: 'follows',
      attemptTimeout: '10s',
      softStop: '3s',
      retries: 1,
      backoff: { initial: '1s', jitter: 0 },
      run: (_: null, { signal }) => clock.sleep('1h', signal),
    })
    const curfew = await world.open({ tasks: [follows] })
    const handle = await curfew.schedule(follows, null)
    await clock.advance('9s')
    expect(await handle.status()).toBe('running')
    await clock.advance('1m')
    const attempts = (await handle.explain()).attempts
    expect(attempts.map(({ status, timeoutKind, receipt }) => [status, timeoutKind, receipt])).toEqual([
      ['timed_out', 'execution', 'aborted'],
      ['timed_out', 'execution', 'aborted'],
    ])
    expect(await handle.view()).toMatchObject({ status: 'timed_out', endedAt: start + 21_000 })
  })

  test('soft stop follows a deadline that was moved', async ({ world }) => {
    const { clock } = world
    const start = world.now
    let signalledAt = 0
    const soft = task({
      name: 'soft',
      timeout: '10s',
      softStop: '3s',
      run: async (_, { signal }) => {
        await clock.sleep('1h', signal).catch(() => {
          signalledAt = world.now - start
        })
      },
    })
    const curfew = await world.open({ tasks: [soft] })
    const handle = await curfew.schedule(soft, null)
    await clock.advance('5s')
    await handle.extend('20s')
    await clock.advance('1m')
    expect(signalledAt).toBe(27_000)
    expect(await handle.status()).toBe('completed')
  })

  test('an output that cannot be stored fails the attempt clearly, and is not tried again', async ({
    world,
  }) => {
    const cyclic: Record<string, unknown> = {}
    cyclic.self = cyclic
    const outputs: Record<string, [unknown, string]> = {
      nan: [{ a: [1, Number.NaN] }, 'invalid_json'],
      cyclic: [cyclic, 'invalid_json'],
      bigint: [{ n: 1n }, 'invalid_json'],
      function: [() => 1, 'invalid_json'],
      big: ['x'.repeat(1024 * 1024 + 1), 'too_big'],
      deep: [JSON.parse('['.repeat(200) + ']'.repeat(200)), 'invalid_json'],
    }
    const odd = task({ name: 'odd', retries: 3, run: (which: string) => outputs[which]?.[0] })
    const plain = task({ name: 'plain', run: () => undefined })
    const curfew = await world.open({ tasks: [odd, plain] })
    expect(await (await curfew.schedule(plain, null)).result()).toBe(null)
    for (const [which, [, code]] of Object.entries(outputs)) {
      const handle = await curfew.schedule(odd, which)
      const error = await errorOf(handle.result(), TaskFailed)
      expect(error.failure.code, which).toBe(code)
      expect(error.failure.message).toContain('output of task odd')
      expect(error.attempts).toBe(1)
    }
  })

  test('a handler that ignores its signal is abandoned: its slot stays taken until it returns', async ({
    world,
  }) => {
    const { clock } = world
    const gate = Promise.withResolvers<string>()
    const deaf = task({ name: 'deaf', timeout: '5s', grace: '2s', retries: 3, run: () => gate.promise })
    const quick = task({ name: 'quick', run: () => 'ran' })
    const curfew = await world.open({ tasks: [deaf, quick], concurrency: 1 })
    const handle = await curfew.schedule(deaf, null)
    const behind = await curfew.schedule(quick, null)
    await clock.advance('1m')
    expect(await handle.view()).toMatchObject({ status: 'timed_out', receipt: 'abandoned', settled: true })
    const error = await errorOf(handle.result(), TaskTimedOut)
    expect(error.hint).toContain("isolation: 'process'")
    expect((await handle.explain()).summary).toContain("isolation: 'process'")
    expect(await handle.cancelled()).toMatchObject({
      success: false,
      errors: ['it was not cancelled: it is timed_out', 'attempt 1 ignored its signal and still runs'],
    })
    expect(await behind.status()).toBe('pending')
    expect(await metric(curfew, 'curfew_slots', { state: 'abandoned' })).toBe(1)
    expect(await metric(curfew, 'curfew_slots', { state: 'free' })).toBe(0)
    expect(world.log).toContainEqual(
      expect.objectContaining({
        level: 'error',
        message: 'every slot is held by a handler that ignored its signal',
      }),
    )
    const before = await handle.view()
    gate.resolve('after all')
    await clock.settle()
    expect(await behind.result()).toBe('ran')
    expect(await handle.view()).toEqual(before)
    const late = (await handle.events()).filter(({ type }) => type === 'late_result')
    expect(late).toMatchObject([{ attempt: 1, output: '"after all"' }])
    expect(await metric(curfew, 'curfew_slots', { state: 'abandoned' })).toBe(0)
  })

  test('after an abandoned attempt there is no retry', async ({ world }) => {
    const { clock } = world
    let starts = 0
    const deaf = task({
      name: 'deaf',
      attemptTimeout: '5s',
      grace: '2s',
      retries: 3,
      run: () => {
        starts++
        return new Promise(() => undefined)
      },
    })
    const curfew = await world.open({ tasks: [deaf] })
    const start = world.now
    const handle = await curfew.schedule(deaf, null)
    await clock.advance('1h')
    expect(starts).toBe(1)
    expect(await errorOf(handle.result(), TaskTimedOut)).toMatchObject({
      kind: 'execution',
      receipt: 'abandoned',
    })
    const ends = (await handle.events()).filter(({ type }) => type === 'task_timed_out')
    expect(ends).toMatchObject([
      { kind: 'execution', deadlineAt: start + 5_000, timeoutMs: 5_000, attempts: 1 },
    ])
  })

  test('the context tells attempt, deadline and what is left', async ({ world }) => {
    const { clock } = world
    const start = world.now
    const seen: unknown[] = []
    const look = ({ taskId, attempt, deadline, remaining }: TaskContext) =>
      seen.push({ taskId, attempt, deadline: deadline === null ? null : deadline - start, left: remaining() })
    const curious = task({
      name: 'curious',
      run: async (_, context) => {
        look(context)
        await clock.sleep('3s')
        look(context)
      },
    })
    const curfew = await world.open({ tasks: [curious] })
    const handle = await curfew.schedule(curious, null, { timeout: '1m', attemptTimeout: '10s' })
    await clock.advance('5s')
    const free = await curfew.schedule(curious, null)
    await clock.advance('5s')
    const { id: taskId } = handle
    expect(seen).toEqual([
      { taskId, attempt: 1, deadline: 10_000, left: 10_000 },
      { taskId, attempt: 1, deadline: 10_000, left: 7_000 },
      { taskId: free.id, attempt: 1, deadline: null, left: Infinity },
      { taskId: free.id, attempt: 1, deadline: null, left: Infinity },
    ])
  })
})
