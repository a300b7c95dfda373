import { expect } from 'vitest'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { ExtensionAnswer } from './curfew.ts'
import { CurfewError, TaskTimedOut, task } from './curfew.ts'

onEachStore('extensions', (test) => {
  test('E1: 15, 7.5, 3.75, 1.875, 1 s, then denied; the warning on the grant that leaves one', async ({
    world,
  }) => {
    const { clock } = world
    const start = world.now
    const answers: ExtensionAnswer[] = []
    const deadlines: number[] = []
    const eager = task({
      name: 'eager',
      attemptTimeout: '40s',
      run: async (_, context) => {
        for (let completed = 0; completed < 6; completed++) {
          answers.push(await context.extend({ progress: { completed, total: 10 } }))
          deadlines.push((context.deadline ?? 0) - start)
        }
        return context.remaining()
      },
    })
    const curfew = await world.open({ tasks: [eager] })
    const handle = await curfew.schedule(eager, null)
    expect(await handle.result()).toBe(69_125)
    expect(answers.slice(0, 5)).toEqual([
      { granted: true, ms: 15_000, remaining: 4, warning: false },
      { granted: true, ms: 7_500, remaining: 3, warning: false },
      { granted: true, ms: 3_750, remaining: 2, warning: false },
      { granted: true, ms: 1_875, remaining: 1, warning: true },
      { granted: true, ms: 1_000, remaining: 0, warning: false },
    ])
    expect(answers[5]).toMatchObject({
      granted: false,
      reason: 'exhausted',
      remaining: 0,
      stopAt: start + 10_000,
    })
    expect(deadlines).toEqual([55_000, 62_500, 66_250, 68_125, 69_125, 69_125])
    const events = (await handle.events()).filter(({ type }) => type === 'extension_answered')
    expect(events).toHaveLength(6)
    await clock.settle()
  })

  test('E2: later ones need more completed items; a better ratio alone is not more', async ({ world }) => {
    const { clock } = world
    const results: string[] = []
    const picky = task({
      name: 'picky',
      attemptTimeout: '1m',
      run: async (_, { extend }) => {
        for (const progress of [
          { completed: 0 },
          { completed: 0 },
          { completed: 3, total: 100 },
          { completed: 3, total: 4 },
          { completed: 2, total: 4 },
          { completed: 4, total: 100 },
        ]) {
          const answer = await extend({ progress })
          results.push(answer.granted ? 'granted' : answer.reason)
        }
      },
    })
    const curfew = await world.open({ tasks: [picky] })
    await (await curfew.schedule(picky, null)).result()
    expect(results).toEqual(['granted', 'no_progress', 'granted', 'no_progress', 'no_progress', 'granted'])
    await clock.settle()
  })

  test('E3: the numbers can be set', async ({ world }) => {
    const answers: Record<string, unknown[]> = {}
    const asks = task({
      name: 'asks',
      attemptTimeout: '1m',
      run: async (name: string, { extend }) => {
        answers[name] = []
        for (let completed = 1; completed <= 2; completed++) {
          const answer = await extend({ progress: { completed } })
          answers[name]?.push(answer.granted ? [answer.ms, answer.warning] : answer.reason)
        }
      },
    })
    const curfew = await world.open({ tasks: [asks] })
    await Promise.all([
      curfew.schedule(asks, 'none', { extensions: { max: 0 } }).then((handle) => handle.result()),
      curfew.schedule(asks, 'one', { extensions: { max: 1 } }).then((handle) => handle.result()),
      curfew.schedule(asks, 'short', { extensions: { base: '100ms' } }).then((handle) => handle.result()),
      curfew
        .schedule(asks, 'wary', { extensions: { base: '8s', warnAtRemaining: 9 } })
        .then((handle) => handle.result()),
    ])
    expect(answers).toEqual({
      none: ['exhausted', 'exhausted'],
      one: [[15_000, true], 'exhausted'],
      short: [
        [1_000, false],
        [1_000, false],
      ],
      wary: [
        [4_000, true],
        [2_000, false],
      ],
    })
  })

  test('E4: after exhaustion ten seconds of grace, then stopped as stuck and retried', async ({ world }) => {
    const { clock } = world
    const start = world.now
    const greedy = task({
      name: 'greedy',
      attemptTimeout: '5m',
      retries: 1,
      backoff: { initial: '1s', jitter: 0 },
      extensions: { max: 1 },
      run: async (_, { attempt, extend, signal }) => {
        if (attempt === 2) return (await extend()).granted
        await extend()
        expect(await extend({ progress: 0.5 })).toMatchObject({ reason: 'exhausted', stopAt: start + 10_000 })
        await clock.sleep('1h', signal)
        return null
      },
    })
    const curfew = await world.open({ tasks: [greedy] })
    const handle = await curfew.schedule(greedy, null)
    await clock.advance(9_999)
    expect(await handle.view()).toMatchObject({ status: 'running', attempts: 1 })
    await clock.advance('5s')
    // E5: a new attempt has the full budget again.
    expect(await handle.result()).toBe(true)
    const [first] = (await handle.explain()).attempts
    expect(first).toMatchObject({ status: 'timed_out', timeoutKind: 'stuck', endedAt: start + 10_000 })
  })

  test('E4: three denials in a row stop it at once; a grant between them clears the count', async ({
    world,
  }) => {
    const { clock } = world
    const start = world.now
    const asks = task({
      name: 'asks',
      attemptTimeout: '5m',
      run: async (steps: number[], { extend, signal }) => {
        for (const completed of steps) {
          await clock.sleep('1s', signal)
          await extend({ progress: { completed } })
        }
        await clock.sleep('30s', signal)
        return 'through'
      },
    })
    const curfew = await world.open({ tasks: [asks] })
    const evicted = await curfew.schedule(asks, [1, 1, 1, 1])
    const cleared = await curfew.schedule(asks, [1, 1, 1, 2, 2, 2])
    await clock.advance('1h')
    expect(await errorOf(evicted.result(), TaskTimedOut)).toMatchObject({ kind: 'stuck', attempts: 1 })
    expect(await evicted.view()).toMatchObject({ endedAt: start + 4_000 })
    expect((await evicted.explain()).summary).toBe(
      'timed out: it was given no more time (the attempt was stopped by its signal)',
    )
    expect(await cleared.result()).toBe('through')
  })

  test('a request id grants once', async ({ world }) => {
    const asks = task({
      name: 'asks',
      attemptTimeout: '1m',
      run: async (_, { extend }) => {
        const first = await extend({ requestId: 'r1' })
        expect(await extend({ requestId: 'r1', progress: 0.9 })).toEqual(first)
        return (await extend({ requestId: 'r2', progress: 0.9 })).granted
      },
    })
    const curfew = await world.open({ tasks: [asks] })
    const handle = await curfew.schedule(asks, null)
    expect(await handle.result()).toBe(true)
    expect((await handle.explain()).extensions).toEqual({ granted: 2, grantedMs: 22_500, left: 3 })
  })

  test('granted time moves the total deadline where it would cut it short, by no more than itself', async ({
    world,
  }) => {
    const { clock } = world
    const start = world.now
    const hang = task({
      name: 'hang',
      run: async (_, { extend, signal }) => {
        await extend()
        await clock.sleep('1h', signal)
      },
    })
    const curfew = await world.open({ tasks: [hang] })
    const total = await curfew.schedule(hang, null, { timeout: '20s' })
    const short = await curfew.schedule(hang, null, { timeout: '4s' })
    const roomy = await curfew.schedule(hang, null, { timeout: '1h', attemptTimeout: '20s' })
    await clock.advance('1m')
    expect(await total.view()).toMatchObject({ endedAt: start + 35_000, deadlineAt: start + 35_000 })
    // Never by more than its own timeout again.
    expect(await short.view()).toMatchObject({ endedAt: start + 8_000 })
    expect(await roomy.view()).toMatchObject({
      endedAt: start + 35_000,
      timeoutKind: 'execution',
      deadlineAt: start + 3_600_000,
    })
  })

  test('E5: the total moves by the largest grant to one attempt, not by the sum', async ({ world }) => {
    const { clock } = world
    const start = world.now
    const flaky = task({
      name: 'flaky',
      timeout: '30s',
      retries: 1,
      backoff: { initial: '1s', jitter: 0 },
      run: async (_, { attempt, extend, signal }) => {
        await extend()
        if (attempt === 1) throw new Error('again')
        await clock.sleep('1h', signal)
      },
    })
    const curfew = await world.open({ tasks: [flaky] })
    const handle = await curfew.schedule(flaky, null)
    await clock.advance('2m')
    expect(await handle.view()).toMatchObject({ attempts: 2, endedAt: start + 45_000 })
  })

  test('an extension counts as progress and as a heartbeat', async ({ world }) => {
    const { clock } = world
    const start = world.now
    const quiet = task({
      name: 'quiet',
      run: async (_, { extend, signal }) => {
        await clock.sleep('8s', signal)
        await extend()
        await clock.sleep('1h', signal)
      },
    })
    const curfew = await world.open({ tasks: [quiet] })
    const stuck = await curfew.schedule(quiet, null, { stuckAfter: '10s' })
    const silent = await curfew.schedule(quiet, null, { heartbeatTimeout: '10s' })
    await clock.advance('1m')
    // The time granted is not cut short by these limits either.
    expect(((await stuck.view()).endedAt ?? 0) - start).toBeGreaterThanOrEqual(18_000)
    expect(((await silent.view()).endedAt ?? 0) - start).toBeGreaterThanOrEqual(18_000)
    expect([(await stuck.view()).timeoutKind, (await silent.view()).timeoutKind]).toEqual([
      'stuck',
      'heartbeat',
    ])
  })

  test('an operator extends every limit that holds, by any amount', async ({ world }) => {
    const { clock } = world
    const start = world.now
    let left = 0
    const hang = task({
      name: 'hang',
      timeout: '10s',
      attemptTimeout: '5s',
      run: async (_, { signal, remaining }) => {
        await clock.sleep('4s', signal)
        left = remaining()
        await clock.sleep('2h', signal)
      },
    })
    const elsewhere = task({ name: 'elsewhere', queueTimeout: '5s', run: () => 1 })
    const curfew = await world.open({ tasks: [hang] })
    const running = await curfew.schedule(hang, null)
    const pending = await curfew.schedule(elsewhere, null)
    await clock.advance('3s')
    expect(await running.extend('1h')).toEqual({ deadlineAt: start + 3_605_000 })
    await pending.extend('1h')
    await clock.advance('30m')
    expect(left).toBe(3_601_000)
    expect(await running.status()).toBe('running')
    expect(await pending.status()).toBe('pending')
    await clock.advance('40m')
    expect(await running.view()).toMatchObject({ timeoutKind: 'execution', endedAt: start + 3_605_000 })
    expect(await pending.view()).toMatchObject({ timeoutKind: 'queue', endedAt: start + 3_605_000 })
    const extended = (await running.events()).filter(({ type }) => type === 'deadlines_extended')
    expect(extended).toMatchObject([{ byMs: 3_600_000, deadlineAt: start + 3_605_000 }])
    expect(await errorOf(running.extend('1h'), CurfewError)).toMatchObject({ code: 'refused' })
    expect(await errorOf(running.extend(0), CurfewError)).toMatchObject({ code: 'invalid_duration' })
    expect(await errorOf(curfew.task('t_nobody').extend('1h'), CurfewError)).toMatchObject({
      code: 'not_found',
    })
  })

  test('progress that is held back a moment is told although a limit is moved meanwhile', async ({
    world,
  }) => {
    const { clock } = world
    const counting = task({
      name: 'counting',
      timeout: '1m',
      run: async (_, { progress, signal }) => {
        progress({ completed: 1 })
        await clock.sleep(200, signal)
        progress({ completed: 2 })
        await clock.sleep('2h', signal)
      },
    })
    const curfew = await world.open({ tasks: [counting] })
    const handle = await curfew.schedule(counting, null)
    await clock.advance(500)
    await handle.extend('1h')
    await clock.advance('2s')
    expect((await handle.view()).progress).toEqual({ completed: 2 })
  })

  test('an attempt that followed its soft stop is begun again when there is time after all', async ({
    world,
  }) => {
    const { clock } = world
    const known: unknown[] = []
    const soft = task({
      name: 'soft',
      timeout: '30s',
      softStop: '5s',
      run: async (_, { signal, progress, previousDetails }) => {
        known.push(previousDetails)
        await clock.sleep('24900ms', signal)
        progress({ completed: 1 })
        progress({ completed: 2 }, 'so far')
        await clock.sleep('1m', signal)
        return known.length
      },
    })
    const curfew = await world.open({ tasks: [soft] })
    const handle = await curfew.schedule(soft, null)
    await clock.advance('26s')
    await handle.extend('500ms') // its deadline is still as near as the soft stop says
    await clock.advance('1s')
    expect(await handle.view()).toMatchObject({ status: 'running', attempts: 1 })
    await handle.extend('10m')
    await clock.advance('1s')
    expect(await handle.view()).toMatchObject({ status: 'running', attempts: 2 })
    await clock.advance('2m')
    expect(await handle.result()).toBe(2)
    expect(known).toEqual([undefined, 'so far'])
  })

  test('E4: the limit that ends it is the one that is shown and told, of the two of its kind', async ({
    world,
  }) => {
    const { clock } = world
    const start = world.now
    const deaf = task({
      name: 'deaf',
      attemptTimeout: '10m',
      stuckAfter: '2m',
      retries: 1,
      grace: '1s',
      extensions: { max: 1 },
      run: async (_, { extend }) => {
        await extend()
        await extend()
        await clock.sleep('30s') // it does not hear its signal
      },
    })
    const curfew = await world.open({ tasks: [deaf] })
    const handle = await curfew.schedule(deaf, null)
    await clock.advance('1s')
    const stuck = (await handle.explain()).limits.find(({ kind }) => kind === 'stuck')
    expect(stuck).toMatchObject({ binding: true, deadlineAt: start + 10_000 })
    await clock.advance('40s')
    const end = (await handle.events()).find(({ type }) => type === 'task_timed_out')
    expect(end).toMatchObject({ kind: 'stuck', deadlineAt: start + 10_000, timeoutMs: 10_000 })
    expect((await handle.explain()).summary).toMatch(/^timed out: it was given no more time/)
  })

  test('what an operator gave is not taken back by the next sign of life', async ({ world }) => {
    const { clock } = world
    const quiet = task({
      name: 'quiet',
      heartbeatTimeout: '10s',
      stuckAfter: '20s',
      run: async (_, { extend, progress, signal }) => {
        await clock.sleep('2s', signal)
        progress({ completed: 1 })
        await clock.sleep('2s', signal)
        await extend()
        await clock.sleep('30m', signal)
        return 'done'
      },
    })
    const curfew = await world.open({ tasks: [quiet] })
    const handle = await curfew.schedule(quiet, null)
    await clock.advance('1s')
    await handle.extend('1h')
    await clock.advance('2s')
    const left = async () =>
      (await handle.explain()).limits.map(({ kind, remainingMs }) => [kind, remainingMs])
    expect(await left()).toEqual([
      ['heartbeat', 3_607_000],
      ['stuck', 3_617_000],
    ])
    await clock.advance('31m')
    expect(await handle.result()).toBe('done')
  })

  test('the last progress of an attempt is told with its end', async ({ world }) => {
    const { clock } = world
    const quick = task({
      name: 'quick',
      run: async (_, { progress }) => {
        progress(0.5)
        await clock.sleep(10)
        progress(1)
      },
    })
    const curfew = await world.open({ tasks: [quick] })
    const handle = await curfew.schedule(quick, null)
    await clock.advance(20)
    expect(await handle.view()).toMatchObject({ status: 'completed', progress: { fraction: 1 } })
  })
})
