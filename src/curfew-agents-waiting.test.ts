/** What wakes an agent and what it is told: waits for one, for all, for the first; their limits and their rest. */
import { expect } from 'vitest'
import { onEachStoreAndResidence } from '../scripts/acceptance/residence.ts'
import type { World } from '../scripts/acceptance/world.ts'
import type { AgentHandle } from './curfew.ts'
import { AllTasksFailed, agent, TaskCancelled, TaskFailed, TaskTimedOut, task } from './curfew.ts'

/** Takes so long, then gives its name back, or fails. */
const workOn = (world: World) =>
  task({
    name: 'work',
    run: async ({ ms = 0, fail = false }: { ms?: number; fail?: boolean }, { signal }) => {
      if (ms > 0) await world.clock.sleep(ms, signal)
      if (fail) throw new Error(`no after ${ms}`)
      return `after ${ms}`
    },
  })

const turns = async (handle: AgentHandle) => (await handle.explain()).journal?.turns

onEachStoreAndResidence('waits of agents', (test, residents) => {
  test('row 24: a task that times out reaches its agent as TaskTimedOut', async ({ world }) => {
    const work = workOn(world)
    const waits = agent({
      name: 'waits',
      run: async (_: null, ctx) => {
        const handle = ctx.schedule(work, { ms: 60_000 }, { timeout: '30s' })
        const error = await handle.catch((reason: unknown) => reason)
        if (!(error instanceof TaskTimedOut)) throw new Error(`got ${error}`)
        const { kind, deadlineAt, timeoutMs, receipt, attempts } = error
        return {
          kind,
          deadlineAt,
          timeoutMs,
          receipt,
          attempts,
          same: error.taskId === handle.id,
          at: ctx.now(),
        }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [waits], residents })
    const deadlineAt = world.now + 30_000
    const handle = await curfew.start(waits, null)
    await world.clock.advance(29_999)
    expect(await handle.status()).toBe('running')
    await world.clock.advance(1)
    const told = { kind: 'total', deadlineAt, timeoutMs: 30_000, receipt: 'aborted', attempts: 1 }
    expect(await handle.result()).toEqual({ ...told, same: true, at: deadlineAt })
    expect(await turns(handle)).toBe(2)
  })

  test('row 25: a wait for every outcome goes on when one times out, and is woken once', async ({
    world,
  }) => {
    const work = workOn(world)
    const settles = agent({
      name: 'settles',
      run: async (_: null, ctx) => {
        const handles = [5_000, 10_000, 20_000].map((ms) =>
          ctx.schedule(work, { ms }, { timeout: ms + 1_000 }),
        )
        handles[0] = ctx.schedule(work, { ms: 60_000 }, { timeout: '5s' })
        const { completed, timedOut } = await ctx.allSettled(handles.slice(0, 3))
        return {
          completed: completed.map(({ index }) => index),
          timedOut: timedOut.map(({ index }) => index),
        }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [settles], residents })
    const handle = await curfew.start(settles, null)
    await world.clock.advance('19s')
    expect(await handle.status()).toBe('running')
    expect(await turns(handle)).toBe(1)
    await world.clock.advance('1s')
    expect(await handle.result()).toEqual({ completed: [1, 2], timedOut: [0] })
    expect(await turns(handle)).toBe(2)
  })

  test('row 25: a wait for all ends at the first that times out', async ({ world }) => {
    const work = workOn(world)
    const joins = agent({
      name: 'joins',
      run: async (_: null, ctx) => {
        const handles = [10_000, 60_000, 20_000].map((ms) => ctx.schedule(work, { ms }, { timeout: '5s' }))
        handles[1] = ctx.schedule(work, { ms: 60_000 }, { timeout: '3s' })
        const error = await ctx.all(handles).catch((reason: unknown) => reason)
        return { isTimeout: error instanceof TaskTimedOut, id: handles[1]?.id, error, at: ctx.now() }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [joins], residents })
    const start = world.now
    const handle = await curfew.start(joins, null)
    await world.clock.advance('3s')
    const { isTimeout, id, error, at } = await handle.result()
    expect({ isTimeout, at }).toEqual({ isTimeout: true, at: start + 3_000 })
    expect(error).toMatchObject({ code: 'task_timed_out', taskId: id })
  })

  test('row 26: a wait for a success goes on with the others, at most one turn per end', async ({
    world,
  }) => {
    const work = workOn(world)
    const tries = agent({
      name: 'tries',
      run: async (_: null, ctx) =>
        ctx.any([
          ctx.schedule(work, { ms: 60_000 }, { timeout: '5s' }),
          ctx.schedule(work, { ms: 10_000, fail: true }),
          ctx.schedule(work, { ms: 20_000 }),
        ]),
    })
    const curfew = await world.open({ tasks: [work], agents: [tries], residents })
    const handle = await curfew.start(tries, null)
    await world.clock.advance('5s')
    expect(await turns(handle)).toBeLessThanOrEqual(2)
    expect((await handle.explain()).waits).toMatchObject([{ what: 'task' }, { what: 'task' }])
    await world.clock.advance('14s')
    expect(await turns(handle)).toBeLessThanOrEqual(3)
    expect(await handle.status()).toBe('running')
    await world.clock.advance('1s')
    expect(await handle.result()).toEqual({ index: 2, value: 'after 20000' })
    expect(await turns(handle)).toBeLessThanOrEqual(4)
  })

  test('row 27: what nobody waits for wakes nobody, and is there when it is awaited later', async ({
    world,
  }) => {
    const work = workOn(world)
    const later = agent({
      name: 'later',
      run: async (_: null, ctx) => {
        const handle = ctx.schedule(work, { ms: 60_000 }, { timeout: '5s' })
        const word = await ctx.waitForSignal<string>('go')
        const error = await handle.catch((reason: unknown) => reason)
        return { word, timedOut: error instanceof TaskTimedOut }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [later], residents })
    const handle = await curfew.start(later, null)
    await world.clock.advance('1m')
    expect(await turns(handle)).toBe(1)
    expect((await handle.explain()).waits).toMatchObject([{ what: 'signal', name: 'go' }])
    await handle.signal('go', 'now')
    await world.clock.settle()
    expect(await handle.result()).toEqual({ word: 'now', timedOut: true })
    expect(await turns(handle)).toBe(2)
  })

  test('row 28: what happens while its code runs is there at once when it waits for it', async ({
    world,
  }) => {
    const work = workOn(world)
    const busy = agent({
      name: 'busy',
      run: async (_: null, ctx) => {
        const handle = ctx.schedule(work, { ms: 60_000 }, { timeout: '5s' })
        await ctx.run('busy', ({ signal }) => world.clock.sleep('10s', signal))
        const error = await handle.catch((reason: unknown) => reason)
        const word = await ctx.waitForSignal<string>('go')
        return { timedOut: error instanceof TaskTimedOut, word, at: ctx.now() }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [busy], residents })
    const start = world.now
    const handle = await curfew.start(busy, null)
    await world.clock.advance('6s')
    await handle.signal('go', 'early')
    await world.clock.advance('4s')
    expect(await handle.result()).toEqual({ timedOut: true, word: 'early', at: start + 10_000 })
  })

  test('row 28: a signal that comes while an agent goes to wait for it is never lost', async ({ world }) => {
    const waits = agent({
      name: 'waits',
      run: async (turns: number, ctx) => {
        await ctx.run('signal later', () => {
          sent = signalLater(ctx.agentId, turns)
        })
        return ctx.waitForSignal<number>('go')
      },
    })
    const curfew = await world.open({ agents: [waits], residents })
    let sent: Promise<void> | null = null
    // At every point between the end of the run and the suspension.
    const signalLater = async (id: string, turns: number) => {
      for (let i = 0; i < turns; i++) await new Promise((resolve) => setImmediate(resolve))
      await curfew.agent(id).signal('go', turns)
    }
    for (let turns = 0; turns < 25; turns++) {
      const handle = await curfew.start(waits, turns)
      await world.clock.settle()
      await sent
      await world.clock.settle()
      expect(await handle.view()).toMatchObject({ status: 'completed', output: turns })
    }
  })

  test('row 28: a task that ends while its agent goes to wait for it wakes it', async ({ world }) => {
    const gates: (() => void)[] = []
    const gated = task({
      name: 'gated',
      run: (turns: number) => new Promise<number>((resolve) => (gates[turns] = () => resolve(turns))),
    })
    let released: Promise<void> | null = null
    const openLater = async (turns: number) => {
      for (let i = 0; i < turns; i++) await new Promise((resolve) => setImmediate(resolve))
      gates[turns]?.()
    }
    const waits = agent({
      name: 'waits',
      run: async (turns: number, ctx) => {
        const handle = ctx.schedule(gated, turns)
        await ctx.sleep('1s')
        await ctx.run('open later', () => {
          released = openLater(turns)
        })
        return handle
      },
    })
    const curfew = await world.open({ tasks: [gated], agents: [waits], residents })
    for (let turns = 0; turns < 15; turns++) {
      const handle = await curfew.start(waits, turns)
      await world.clock.advance('1s')
      await released
      await world.clock.settle()
      expect(await handle.view()).toMatchObject({ status: 'completed', output: turns })
    }
  })

  test('row 29: the last two ends at the same moment wake it once', async ({ world }) => {
    const work = workOn(world)
    const joins = agent({
      name: 'joins',
      run: async (_: null, ctx) => {
        const handles = [1_000, 5_000, 5_000].map((ms) => ctx.schedule(work, { ms }))
        return ctx.all(handles)
      },
    })
    // Over PostgreSQL each task ends in a transaction of another process.
    const processes = world.kind === 'postgres' ? 3 : 1
    for (let i = 1; i < processes; i++) await world.open({ tasks: [work], concurrency: 1 })
    const curfew = await world.open({
      tasks: [work],
      agents: [joins],
      concurrency: processes > 1 ? 1 : 3,
      residents,
    })
    const handle = await curfew.start(joins, null)
    await world.runFor(10)
    expect(await handle.result()).toEqual(['after 1000', 'after 5000', 'after 5000'])
    expect(await turns(handle)).toBe(2)
  })

  test('row 39: every outcome with its index, each kind told apart', async ({ world }) => {
    const work = workOn(world)
    const settles = agent({
      name: 'settles',
      run: async (_: null, ctx) => {
        const cancelled = ctx.schedule(work, { ms: 60_000 })
        ctx.cancel(cancelled)
        const all = await ctx.allSettled([
          ctx.schedule(work, { ms: 60_000 }, { timeout: '2s' }),
          ctx.schedule(work, { ms: 1_000, fail: true }),
          ctx.schedule(work, { ms: 3_000 }),
          cancelled,
        ])
        const errors = all.outcomes.map((one) => ('error' in one ? one.error.constructor.name : one.value))
        return { all, errors }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [settles], residents })
    const handle = await curfew.start(settles, null)
    await world.clock.advance('5s')
    const { all, errors } = await handle.result()
    expect(errors).toEqual([TaskTimedOut.name, TaskFailed.name, 'after 3000', TaskCancelled.name])
    expect(all.outcomes).toMatchObject([
      { index: 0, status: 'timed_out' },
      { index: 1, status: 'failed' },
      { index: 2, status: 'completed', value: 'after 3000' },
      { index: 3, status: 'cancelled' },
    ])
    expect(all.completed).toEqual([{ index: 2, value: 'after 3000' }])
    expect([all.timedOut, all.failed, all.cancelled]).toMatchObject([
      [{ index: 0 }],
      [{ index: 1 }],
      [{ index: 3 }],
    ])
  })

  test('row 40: all well, all failed, and none at all', async ({ world }) => {
    const work = workOn(world)
    const settles = agent({
      name: 'settles',
      run: async (fails: boolean[], ctx) => {
        const before = ctx.now()
        const none = await ctx.all([], { timeout: '1s' })
        const { outcomes, completed, failed, timedOut, cancelled } = await ctx.allSettled(
          fails.map((fail) => ctx.schedule(work, { fail })),
        )
        const counts = [completed, failed, timedOut, cancelled].map((list) => list.length)
        return { none, outcomes: outcomes.length, counts, tookMs: ctx.now() - before }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [settles], residents })
    const expected = [
      { fails: [false, false], counts: [2, 0, 0, 0] },
      { fails: [true, true, true], counts: [0, 3, 0, 0] },
      { fails: [], counts: [0, 0, 0, 0] },
    ]
    for (const { fails, counts } of expected) {
      const handle = await curfew.start(settles, fails)
      await world.clock.settle()
      expect(await handle.result()).toEqual({ none: [], outcomes: fails.length, counts, tookMs: 0 })
    }
  })

  test('sleeps and signals that were cancelled are told as cancelled, like tasks', async ({ world }) => {
    const work = workOn(world)
    const settles = agent({
      name: 'settles',
      run: async (_: null, ctx) => {
        const both = ctx.allSettled([
          ctx.schedule(work, { ms: 60_000 }),
          ctx.sleep('1h'),
          ctx.waitForSignal('never'),
        ])
        await ctx.sleep('1s')
        ctx.cancel(both)
        const { outcomes, failed, cancelled } = await both
        return { statuses: outcomes.map(({ status }) => status), counts: [failed.length, cancelled.length] }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [settles], residents })
    const handle = await curfew.start(settles, null)
    await world.clock.advance('1s')
    expect(await handle.result()).toEqual({
      statuses: ['cancelled', 'cancelled', 'cancelled'],
      counts: [0, 3],
    })
  })

  test('row 41: the first success, although others ended before it', async ({ world }) => {
    const work = workOn(world)
    const first = agent({
      name: 'first',
      run: async (_: null, ctx) => {
        const won = await ctx.any([
          ctx.schedule(work, { ms: 100, fail: true }),
          ctx.schedule(work, { ms: 200, fail: true }),
          ctx.schedule(work, { ms: 300 }),
          ctx.schedule(work, { ms: 60_000 }),
        ])
        return { ...won, at: ctx.now() }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [first], residents })
    const start = world.now
    const handle = await curfew.start(first, null)
    await world.clock.advance('1s')
    expect(await handle.result()).toEqual({ index: 2, value: 'after 300', at: start + 300 })
  })

  test('rows 42 and 43: none succeeds: AllTasksFailed with every error in the order of the list', async ({
    world,
  }) => {
    const work = workOn(world)
    const none = agent({
      name: 'none',
      run: async (_: null, ctx) => {
        const cancelled = ctx.schedule(work, { ms: 60_000 })
        ctx.cancel(cancelled)
        const hangs = () => ctx.schedule(work, { ms: 60_000 }, { timeout: '2s' })
        const lists = [
          [ctx.schedule(work, { ms: 500, fail: true }), ctx.schedule(work, { ms: 100, fail: true })],
          [ctx.schedule(work, { ms: 300, fail: true }), cancelled],
          [hangs(), hangs()],
        ]
        const codes: unknown[] = []
        for (const list of lists) {
          const error = await ctx.any(list).catch((reason: unknown) => reason)
          codes.push(
            error instanceof AllTasksFailed &&
              error.errors.map((one) =>
                one instanceof TaskFailed ? one.failure.message : one.constructor.name,
              ),
          )
        }
        return codes
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [none], residents })
    const handle = await curfew.start(none, null)
    await world.clock.advance('3s')
    expect(await handle.result()).toEqual([
      ['no after 500', 'no after 100'],
      ['no after 300', TaskCancelled.name],
      [TaskTimedOut.name, TaskTimedOut.name],
    ])
  })

  test('race: the first that ends, well or badly', async ({ world }) => {
    const work = workOn(world)
    const races = agent({
      name: 'races',
      run: async (_: null, ctx) => {
        const a = ctx.schedule(work, { ms: 2_000 })
        const b = ctx.schedule(work, { ms: 1_000, fail: true })
        const c = ctx.schedule(work, { ms: 3_000 })
        const lost = await ctx.race([a, b, c]).catch((reason: unknown) => reason instanceof TaskFailed)
        const won = await ctx.race([a, c])
        return { lost, won, slept: await ctx.race([c, ctx.sleep('10ms')]) }
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [races], residents })
    const handle = await curfew.start(races, null)
    await world.clock.advance('5s')
    const won = { index: 0, value: 'after 2000' }
    expect(await handle.result()).toEqual({ lost: true, won, slept: { index: 1 } })
  })
})
