/** Waits for several: their own limits, what becomes of the rest, who wins, and native promises over handles. */
import { expect, expectTypeOf } from 'vitest'
import { onEachStoreAndResidence } from '../scripts/acceptance/residence.ts'
import type { World } from '../scripts/acceptance/world.ts'
import type { SettledOutcomes, StepHandle, Stopped } from './curfew.ts'
import { agent, TaskCancelled, TaskFailed, TaskTimedOut, task, WaitTimedOut } from './curfew.ts'

/** Takes so long, then gives it back, or fails; tells why it was stopped. */
const workOn = (world: World, stopped: string[] = []) =>
  task({
    name: 'work',
    run: async ({ ms = 0, fail = false }: { ms?: number; fail?: boolean }, { signal }) => {
      signal.addEventListener('abort', () => stopped.push(`${ms} ${(signal.reason as Stopped).code}`))
      if (ms > 0) await world.clock.sleep(ms, signal)
      if (fail) throw new Error(`no after ${ms}`)
      return ms
    },
  })

onEachStoreAndResidence('limits of waits', (test, residents) => {
  test('row 47: allSettled with a limit answers what is there, lists the rest and cancels it', async ({
    world,
  }) => {
    const stopped: string[] = []
    const work = workOn(world, stopped)
    const settles = agent({
      name: 'settles',
      run: async (_: null, ctx) => {
        const handles = [ctx.schedule(work, { ms: 1_000 }), ctx.schedule(work, { ms: 10_000 })]
        const { completed, timedOut, outcomes } = await ctx.allSettled(handles, { timeout: '2s' })
        const at = ctx.now()
        const error = await handles[1]?.catch((reason: unknown) => reason)
        return {
          completed,
          timedOut: timedOut.map(({ index, error }) => [index, error instanceof WaitTimedOut]),
          statuses: outcomes.map(({ status }) => status),
          at,
          cancelled: error instanceof TaskCancelled && error.receipt,
        }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [settles], residents })
    const start = world.now
    const handle = await curfew.start(settles, null)
    await world.clock.advance('2s')
    expect(await handle.result()).toEqual({
      completed: [{ index: 0, value: 1_000 }],
      timedOut: [[1, true]],
      statuses: ['completed', 'timed_out'],
      at: start + 2_000,
      cancelled: 'aborted',
    })
    expect(stopped).toEqual(['10000 cancelled'])
  })

  test('all, any and race with a limit throw WaitTimedOut, which carries what was there', async ({
    world,
  }) => {
    const work = workOn(world)
    type Kind = 'all' | 'any' | 'race'
    const waits = agent({
      name: 'waits',
      run: async (kind: Kind, ctx) => {
        const first = kind === 'all' ? { ms: 1_000 } : { ms: kind === 'any' ? 1_000 : 60_000, fail: true }
        const error = await ctx[kind]([ctx.schedule(work, first), ctx.schedule(work, { ms: 10_000 })], {
          timeout: '2s',
        }).then(
          () => null,
          (reason: unknown) => reason,
        )
        if (!(error instanceof WaitTimedOut)) throw new Error(`got ${error}`)
        const { timeoutMs, settled } = error
        return { timeoutMs, statuses: settled?.outcomes.map(({ status }) => status), at: ctx.now() }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [waits], residents })
    const start = world.now
    const handles = [
      await curfew.start(waits, 'all'),
      await curfew.start(waits, 'any'),
      await curfew.start(waits, 'race'),
    ]
    await world.clock.advance('2s')
    const told = { timeoutMs: 2_000, at: start + 2_000 }
    expect(await Promise.all(handles.map((handle) => handle.result()))).toEqual([
      { ...told, statuses: ['completed', 'timed_out'] },
      { ...told, statuses: ['failed', 'timed_out'] },
      { ...told, statuses: ['timed_out', 'timed_out'] },
    ])
    // What the limit cut off was cancelled, in each of them.
    const open = await curfew.list({ kind: 'task', status: ['running', 'pending'] })
    expect(open.tasks).toEqual([])
    expect((await curfew.list({ kind: 'task', status: 'cancelled' })).tasks).toHaveLength(4)
  })

  test('a limit that is not reached leaves nothing behind', async ({ world }) => {
    const work = workOn(world)
    const quick = agent({
      name: 'quick',
      run: async (_: null, ctx) => {
        const all = await ctx.all([ctx.schedule(work, { ms: 1_000 })], { timeout: '2s' })
        return { all, word: await ctx.waitForSignal('go') }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [quick], residents })
    const handle = await curfew.start(quick, null)
    await world.clock.advance('1m')
    expect((await handle.explain()).waits).toMatchObject([{ what: 'signal', until: null }])
    expect((await handle.explain()).journal?.turns).toBe(2)
    await handle.signal('go', 'on')
    await world.clock.settle()
    expect(await handle.result()).toEqual({ all: [1_000], word: 'on' })
  })

  test('cancelRest: false lets the rest go on although the limit ended the wait', async ({ world }) => {
    const work = workOn(world)
    const patient = agent({
      name: 'patient',
      run: async (_: null, ctx) => {
        const handle = ctx.schedule(work, { ms: 5_000 })
        const first = await ctx.allSettled([handle], { timeout: '2s', cancelRest: false })
        return { first: first.timedOut.length, later: await handle, at: ctx.now() }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [patient], residents })
    const start = world.now
    const handle = await curfew.start(patient, null)
    await world.clock.advance('5s')
    expect(await handle.result()).toEqual({ first: 1, later: 5_000, at: start + 5_000 })
  })

  for (const kind of ['any', 'race', 'all'] as const) {
    test(`row 46: ${kind} with cancelRest cancels what is pending or runs, and nothing else`, async ({
      world,
    }) => {
      const stopped: string[] = []
      const work = workOn(world, stopped)
      const races = agent({
        name: 'races',
        run: async (_: null, ctx) => {
          const ended = ctx.schedule(work, { ms: 500 })
          await ended
          const handles = [
            ctx.schedule(work, { ms: 1_000, fail: kind === 'all' }),
            ctx.schedule(work, { ms: 10_000 }),
            ctx.schedule(work, { ms: 20_000 }, { delay: '1h' }),
          ]
          const list = kind === 'all' ? [ended, ...handles] : handles
          const outcome = await ctx[kind](list, { cancelRest: true }).catch(
            (reason: unknown) => reason instanceof TaskFailed,
          )
          await ctx.waitForSignal('go')
          return outcome
        },
      })
      const curfew = await world.open({ tasks: [work], agents: [races], residents })
      const handle = await curfew.start(races, null)
      await world.clock.advance('2s')
      const { tasks } = await curfew.list({ parent: handle.id })
      await handle.signal('go')
      await world.clock.settle()
      expect(await handle.result()).toEqual(kind === 'all' ? true : { index: 0, value: 1_000 })
      expect(stopped).toEqual(['10000 cancelled'])
      const told = tasks.map(({ status, attempts, receipt }) => [status, attempts, receipt]).toReversed()
      const first = kind === 'all' ? ['failed', 1, null] : ['completed', 1, null]
      expect(told).toEqual([
        ['completed', 1, null],
        first,
        ['cancelled', 1, 'aborted'],
        ['cancelled', 0, null],
      ])
    })
  }

  test('the rest goes on unless it is said', async ({ world }) => {
    const work = workOn(world)
    const races = agent({
      name: 'races',
      run: async (_: null, ctx) => {
        const handles = [ctx.schedule(work, { ms: 1_000 }), ctx.schedule(work, { ms: 2_000 })]
        const won = await ctx.race(handles)
        return [won.index, await ctx.all(handles)]
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [races], residents })
    const handle = await curfew.start(races, null)
    await world.clock.advance('2s')
    expect(await handle.result()).toEqual([0, [1_000, 2_000]])
    expect((await curfew.list({ parent: handle.id, status: 'completed' })).tasks).toHaveLength(2)
  })

  test('row 45: of those that have ended before, the one that ended first decides', async ({ world }) => {
    const work = workOn(world)
    const late = agent({
      name: 'late',
      run: async (_: null, ctx) => {
        const slow = ctx.schedule(work, { ms: 3_000 })
        const fast = ctx.schedule(work, { ms: 1_000 })
        const bad = ctx.schedule(work, { ms: 4_000, fail: true })
        const worse = ctx.schedule(work, { ms: 2_000, fail: true })
        await ctx.sleep('5s')
        const any = await ctx.any([slow, bad, fast])
        const race = await ctx.race([slow, bad, fast])
        const all = await ctx
          .all([slow, bad, worse])
          .catch((reason: unknown) => (reason as TaskFailed).failure.message)
        const twins = [ctx.schedule(work, { ms: 1_000 }), ctx.schedule(work, { ms: 1_000 })]
        await ctx.sleep('5s')
        return { any, race, all, tie: (await ctx.any(twins)).index }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [late], residents })
    const handle = await curfew.start(late, null)
    await world.clock.advance('10s')
    expect(await handle.result()).toEqual({
      any: { index: 2, value: 1_000 },
      race: { index: 2, value: 1_000 },
      all: 'no after 2000',
      tie: 0,
    })
  })

  test('row 48: nothing that is thrown tells of a suspension: try, catch, finally see only outcomes', async ({
    world,
  }) => {
    const work = workOn(world)
    const careful = agent({
      name: 'careful',
      run: async (_: null, ctx) => {
        const seen: unknown[] = []
        try {
          seen.push(await ctx.all([ctx.schedule(work, { ms: 1_000 })]))
        } catch (error) {
          seen.push(['caught', String(error)])
        } finally {
          seen.push('finally')
        }
        const native = await Promise.allSettled([
          ctx.any([ctx.schedule(work, { ms: 2_000 })]),
          ctx.sleep('1s'),
          ctx.schedule(work, { ms: 1_000, fail: true }),
        ])
        seen.push(native.map(({ status }) => status))
        try {
          await ctx.schedule(work, { ms: 60_000 }, { timeout: '1s' })
        } catch (error) {
          seen.push(error instanceof TaskTimedOut)
        }
        return seen
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [careful], residents })
    const handle = await curfew.start(careful, null)
    await world.clock.advance('10s')
    const seen = [[1_000], 'finally', ['fulfilled', 'fulfilled', 'rejected'], true]
    expect(await handle.result()).toEqual(seen)
  })

  test('native Promise.all, race, any and allSettled take handles, and take the same path again', async ({
    world,
  }) => {
    const work = workOn(world)
    const native = agent({
      name: 'native',
      run: async (_: null, ctx) => {
        const [a, b] = [ctx.schedule(work, { ms: 1_000 }), ctx.schedule(work, { ms: 2_000 })]
        const bad = ctx.schedule(work, { ms: 500, fail: true })
        const race = await Promise.race([b, a])
        const any = await Promise.any([bad, b, a])
        const lost = await Promise.race([bad, b]).catch((reason: unknown) => reason instanceof TaskFailed)
        const branches = await Promise.all([
          (async () => [await a, await ctx.schedule(work, { ms: 3_000 })])(),
          (async () => [await b, await ctx.schedule(work, { ms: 1_000 }), ctx.now()])(),
        ])
        const settled = await Promise.allSettled([a, bad])
        return { race, any, lost, branches, settled: settled.map(({ status }) => status) }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [native], residents })
    const start = world.now
    const handle = await curfew.start(native, null)
    await world.clock.advance('10s')
    expect(await handle.result()).toEqual({
      race: 1_000,
      any: 1_000,
      lost: true,
      branches: [
        [1_000, 3_000],
        [2_000, 1_000, start + 3_000],
      ],
      settled: ['fulfilled', 'rejected'],
    })
    expect((await curfew.list({ parent: handle.id })).tasks).toHaveLength(5)
  })

  test('the values of a list keep their places, and their types', async ({ world }) => {
    const work = workOn(world)
    const upper = task({ name: 'upper', run: (text: string) => text.toUpperCase() })
    const typed = agent({
      name: 'typed',
      run: async (_: null, ctx) => {
        const both = [ctx.schedule(work, {}), ctx.schedule(upper, 'four')] as const
        const all = ctx.all([ctx.schedule(work, {}), ctx.schedule(upper, 'four')])
        expectTypeOf(all).toEqualTypeOf<StepHandle<[number, string]>>()
        expectTypeOf(ctx.any(both)).toEqualTypeOf<StepHandle<{ index: number; value: number | string }>>()
        expectTypeOf(ctx.race(both)).toEqualTypeOf<StepHandle<{ index: number; value: number | string }>>()
        expectTypeOf(ctx.allSettled(both)).toEqualTypeOf<StepHandle<SettledOutcomes<[number, string]>>>()
        expectTypeOf(ctx.all(['a'].map((text) => ctx.schedule(upper, text)))).toEqualTypeOf<
          StepHandle<string[]>
        >()
        const native = await Promise.all(both)
        expectTypeOf(native).toEqualTypeOf<[number, string]>()
        return [await all, native, (await ctx.allSettled(both)).outcomes[1]]
      },
    })
    const curfew = await world.open({ tasks: [work, upper], agents: [typed], residents })
    const handle = await curfew.start(typed, null)
    await world.clock.settle()
    const values = [0, 'FOUR']
    expect(await handle.result()).toEqual([values, values, { index: 1, status: 'completed', value: 'FOUR' }])
  })

  test('one handle twice, waits within waits, and a wait beside one of its own', async ({ world }) => {
    const work = workOn(world)
    const nested = agent({
      name: 'nested',
      run: async (_: null, ctx) => {
        const a = ctx.schedule(work, { ms: 1_000 })
        const b = ctx.schedule(work, { ms: 2_000 })
        const twice = await ctx.all([a, a])
        const within = ctx.race([ctx.all([a, b]), ctx.sleep('10s')])
        const short = ctx.all([b], { timeout: '500ms', cancelRest: false })
        const settled = await ctx.allSettled([within, short, b])
        return { twice, statuses: settled.outcomes.map(({ status }) => status), first: await within }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [nested], residents })
    const handle = await curfew.start(nested, null)
    await world.clock.advance('2s')
    expect(await handle.result()).toEqual({
      twice: [1_000, 1_000],
      statuses: ['completed', 'timed_out', 'completed'],
      first: { index: 0, value: [1_000, 2_000] },
    })
  })
})
