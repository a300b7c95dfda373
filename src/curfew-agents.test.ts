/** Agents through the public API on the virtual clock: how they are started, found, and how they end. */
import { expect, expectTypeOf } from 'vitest'
import { z } from 'zod'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { AgentDefinition, AgentHandle, WorkHandle } from './curfew.ts'
import { agent, CurfewError, HandlerError, TaskCancelled, TaskFailed, TaskTimedOut, task } from './curfew.ts'

const add = task({ name: 'add', run: ({ a, b }: { a: number; b: number }) => a + b })
const echo = agent({ name: 'echo', run: (input: unknown) => input })

onEachStore('agents', (test) => {
  test('an agent schedules tasks one after the other and ends with what they gave', async ({ world }) => {
    const sum = agent({
      name: 'sum',
      run: async (numbers: number[], ctx) => {
        let total = 0
        for (const n of numbers) {
          const handle = ctx.schedule(add, { a: total, b: n })
          expectTypeOf(handle).toEqualTypeOf<WorkHandle<number>>()
          total = await handle
        }
        return total
      },
    })
    expectTypeOf(sum).toEqualTypeOf<AgentDefinition<number[], number>>()
    const curfew = await world.open({ tasks: [add], agents: [sum] })
    const handle = await curfew.start(sum, [1, 2, 3, 4])
    expectTypeOf(handle).toEqualTypeOf<AgentHandle<number>>()
    await world.clock.settle()
    expect(await handle.result()).toBe(10)
  })

  test('one that takes nothing is started, and called as a child, without an input', async ({ world }) => {
    const seven = agent({ name: 'seven', run: async () => 7 })
    const twice = agent({ name: 'twice', run: async (_: undefined, ctx) => 2 * (await ctx.child(seven)) })
    const curfew = await world.open({ agents: [seven, twice] })
    const handle = await curfew.start(twice)
    expectTypeOf(handle).toEqualTypeOf<AgentHandle<number>>()
    await world.clock.settle()
    expect(await handle.result()).toBe(14)
  })

  test('an input is checked against its schema when it is given, and transformed where it runs', async ({
    world,
  }) => {
    const days = z.object({ days: z.int().positive().default(3) }).transform(({ days }) => days * 24)
    const hours = task({ name: 'hours', input: days, run: (h) => h })
    const part = agent({ name: 'part', input: days, run: (h) => h })
    const plan = agent({
      name: 'plan',
      input: days,
      run: async (h, ctx) => {
        const codes: unknown[] = []
        for (const call of [() => ctx.schedule(hours, { days: -1 }), () => ctx.child(part, { days: 0.5 })]) {
          try {
            call()
          } catch (error) {
            codes.push((error as CurfewError).code)
          }
        }
        return { h, ofTask: await ctx.schedule(hours, {}), codes }
      },
    })
    expectTypeOf(part).toEqualTypeOf<AgentDefinition<{ days?: number | undefined }, number>>()
    const curfew = await world.open({ tasks: [hours], agents: [plan, part] })
    const error = await errorOf(curfew.start(plan, { days: -1 }), CurfewError)
    expect(error).toMatchObject({ code: 'invalid_input', fields: { issues: [{ path: 'days' }] } })
    expect((await curfew.list()).tasks).toEqual([])
    const handle = await curfew.start(plan, { days: 2 })
    await world.clock.settle()
    const codes = ['invalid_input', 'invalid_input']
    expect(await handle.result()).toEqual({ h: 48, ofTask: 72, codes })
    expect((await curfew.list()).tasks.map(({ name }) => name).toSorted()).toEqual(['hours', 'plan'])
  })

  test('a key starts one run; the same key for another input is a conflict', async ({ world }) => {
    const curfew = await world.open({ agents: [echo] })
    const first = await curfew.start(echo, { order: 1 }, { key: 'order-1' })
    const again = await curfew.start(echo, { order: 1 }, { key: 'order-1', timeout: '1s' })
    expect([first.existing, again.existing]).toEqual([false, true])
    expect(again.id).toBe(first.id)
    const error = await errorOf(curfew.start(echo, { order: 2 }, { key: 'order-1' }), CurfewError)
    expect(error.code).toBe('key_conflict')
    await world.clock.settle()
    expect((await curfew.start(echo, { order: 1 }, { key: 'order-1' })).existing).toBe(true)
    expect(await again.result()).toEqual({ order: 1 })
    expect((await curfew.list({ kind: 'agent' })).tasks).toHaveLength(1)
  })

  test('an agent is found by its id, and what there is not is not found', async ({ world }) => {
    const curfew = await world.open({ agents: [echo] })
    const { id } = await curfew.start(echo, 'hello')
    await world.clock.settle()
    expect(await curfew.agent<string>(id).result()).toBe('hello')
    expect(await curfew.agent(id).view()).toMatchObject({ kind: 'agent', name: 'echo', status: 'completed' })
    const none = curfew.agent('g_none')
    expect(await none.cancel()).toBe('not_found')
    for (const ask of ['result', 'view', 'cancelled', 'resume', 'explain', 'events'] as const) {
      expect(await errorOf(none[ask](), CurfewError)).toMatchObject({ code: 'not_found' })
    }
    expect(await errorOf(none.signal('x'), CurfewError)).toMatchObject({ code: 'not_found' })
  })

  test('list tells agents from tasks, and what an agent scheduled', async ({ world }) => {
    const child = agent({ name: 'child', run: async (n: number, ctx) => ctx.schedule(add, { a: n, b: 1 }) })
    const parent = agent({
      name: 'parent',
      run: async (n: number, ctx) => {
        const [a, b] = [ctx.child(child, n), ctx.schedule(add, { a: n, b: n })]
        return { ids: [a.id, b.id], sum: (await a) + (await b) }
      },
    })
    const curfew = await world.open({ tasks: [add], agents: [parent, child] })
    const { id } = await curfew.start(parent, 5)
    await curfew.schedule(add, { a: 0, b: 0 })
    await world.clock.settle()
    const { ids, sum } = await curfew.agent<{ ids: string[]; sum: number }>(id).result()
    expect(sum).toBe(16)
    const agents = (await curfew.list({ kind: 'agent' })).tasks
    expect(agents.map(({ name, parentId }) => [name, parentId]).toSorted()).toEqual([
      ['child', id],
      ['parent', null],
    ])
    expect((await curfew.list({ kind: 'task' })).tasks).toHaveLength(3)
    const below = (await curfew.list({ parent: id })).tasks
    expect(below.map((view) => view.id).toSorted()).toEqual(ids.toSorted())
    const ofChild = await curfew.list({ parent: ids[0] as string, kind: 'task', status: 'completed' })
    expect(ofChild.tasks).toMatchObject([{ name: 'add', parentId: ids[0] }])
  })

  test('how it ended is told by typed errors, as of a task', async ({ world }) => {
    const bad = agent({
      name: 'bad',
      run: () => {
        throw new HandlerError('no paper', { code: 'no_paper', details: { tray: 2 } })
      },
    })
    const waits = agent({ name: 'waits', run: async (_: null, ctx) => ctx.waitForSignal('never') })
    const curfew = await world.open({ agents: [bad, waits] })
    const start = world.now
    const failed = await curfew.start(bad)
    const timedOut = await curfew.start(waits, null, { timeout: '5s' })
    const cancelled = await curfew.start(waits, null)
    await world.clock.advance('5s')
    expect(await cancelled.cancel()).toBe('cancelled')
    await world.clock.settle()
    const failure = { code: 'no_paper', message: 'no paper', details: { tray: 2 } }
    expect(await errorOf(failed.result(), TaskFailed)).toMatchObject({ taskName: 'bad', failure })
    expect(await errorOf(timedOut.result(), TaskTimedOut)).toMatchObject({
      taskId: timedOut.id,
      kind: 'agent',
      timeoutMs: 5_000,
      deadlineAt: start + 5_000,
      startedAt: start,
    })
    expect(await errorOf(cancelled.result(), TaskCancelled)).toMatchObject({ taskId: cancelled.id })
    expect((await errorOf(cancelled.result(), TaskCancelled)).message).toMatch(/^agent waits \(g_/)
  })

  test('without a timeout an agent waits as long as it takes', async ({ world }) => {
    const waits = agent({ name: 'waits', run: async (_: null, ctx) => ctx.waitForSignal<string>('go') })
    const curfew = await world.open({ agents: [waits] })
    const handle = await curfew.start(waits, null)
    for (let month = 0; month < 12; month++) await world.clock.advance('31d')
    expect(await handle.view()).toMatchObject({ status: 'running', deadlineAt: null })
    await handle.signal('go', 'at last')
    await world.clock.settle()
    expect(await handle.result()).toBe('at last')
  })

  test('a suspended agent holds no slot: one turn at a time is enough for many', async ({ world }) => {
    const naps = agent({
      name: 'naps',
      run: async (n: number, ctx) => {
        await ctx.sleep('1m')
        return ctx.schedule(add, { a: n, b: 1 })
      },
    })
    const curfew = await world.open({ tasks: [add], agents: [naps], turns: 1, concurrency: 1 })
    const handles = await Promise.all(Array.from({ length: 20 }, (_, n) => curfew.start(naps, n)))
    await world.clock.advance('1m')
    const sums = await Promise.all(handles.map((handle) => handle.result()))
    expect(sums).toEqual(Array.from({ length: 20 }, (_, n) => n + 1))
  })

  test('children of children run where there is one turn at a time, and none stays in memory', async ({
    world,
  }) => {
    const nest = agent({
      name: 'nest',
      run: async (depth: number, ctx): Promise<number> => {
        if (depth === 0) return ctx.schedule(add, { a: 0, b: 1 })
        const both = await ctx.all([ctx.child(nestAgain(), depth - 1), ctx.child(nestAgain(), depth - 1)])
        return both[0] + both[1]
      },
    })
    const nestAgain = (): AgentDefinition<number, number> => nest
    const curfew = await world.open({ tasks: [add], agents: [nest], turns: 1, residents: { bytes: 0 } })
    const handle = await curfew.start(nest, 4)
    await world.clock.settle()
    expect(await handle.result()).toBe(16)
    expect((await curfew.list({ kind: 'agent', status: 'completed' })).tasks).toHaveLength(31)
  })

  test('row 36: after a timeout the same task with the same input is a new one', async ({ world }) => {
    const runs: string[] = []
    const slow = task({
      name: 'slow',
      run: async (input: string, { signal }) => {
        runs.push(input)
        await world.clock.sleep('20s', signal)
        return 'done'
      },
    })
    const insists = agent({
      name: 'insists',
      run: async (_: null, ctx) => {
        const first = ctx.schedule(slow, 'page', { timeout: '10s' })
        const error = await first.catch((reason: unknown) => reason)
        if (!(error instanceof TaskTimedOut)) return null
        const second = ctx.schedule(slow, 'page', { timeout: '30s' })
        return { told: error.taskId === first.id, same: second.id === first.id, value: await second }
      },
    })
    const curfew = await world.open({ tasks: [slow], agents: [insists] })
    const handle = await curfew.start(insists, null)
    await world.clock.advance('1m')
    expect(await handle.result()).toEqual({ told: true, same: false, value: 'done' })
    expect(runs).toEqual(['page', 'page'])
  })

  test('row 37: two identical schedules on purpose are two tasks', async ({ world }) => {
    const twice = agent({
      name: 'twice',
      run: async (_: null, ctx) => {
        const handles = [ctx.schedule(add, { a: 1, b: 1 }), ctx.schedule(add, { a: 1, b: 1 })] as const
        await ctx.all(handles)
        return handles.map(({ id }) => id)
      },
    })
    const curfew = await world.open({ tasks: [add], agents: [twice] })
    const handle = await curfew.start(twice, null)
    await world.clock.settle()
    expect(new Set(await handle.result()).size).toBe(2)
    expect((await curfew.list({ parent: handle.id, status: 'completed' })).tasks).toHaveLength(2)
  })

  test('an agent waits for a process that has its code, and open refuses what cannot be', async ({
    world,
  }) => {
    const client = await world.open()
    const handle = await client.start(echo, 'hello')
    await world.clock.advance('1h')
    expect(await handle.view()).toMatchObject({ status: 'pending', attempts: 0, startedAt: null })
    expect((await handle.explain()).summary).toBe('waits for a worker; it has no timeout')
    if (world.kind === 'postgres') {
      await world.open({ agents: [echo] })
      await world.clock.advance('2s')
      expect(await handle.result()).toBe('hello')
    }
    for (const options of [
      { agents: [echo, echo] },
      { agents: [agent({ name: 'add', run: () => 1 })], tasks: [add] },
      { agents: [add as never] },
      { turns: 0 },
      { residents: { count: -1 } },
    ]) {
      expect(await errorOf(world.open(options), CurfewError)).toMatchObject({ code: 'invalid_option' })
    }
  })

  test('time granted to an attempt moves the deadlines of the agents above it', async ({ world }) => {
    const slow = task({
      name: 'slow',
      run: async (_: null, ctx) => {
        await world.clock.sleep('9s')
        const { granted } = await ctx.extend()
        await world.clock.sleep('10s', ctx.signal)
        return granted
      },
    })
    const inner = agent({ name: 'inner', run: (_: null, ctx) => ctx.schedule(slow, null) })
    const outer = agent({ name: 'outer', timeout: '10s', run: (_: null, ctx) => ctx.child(inner, null) })
    const curfew = await world.open({ tasks: [slow], agents: [inner, outer] })
    const start = world.now
    const handle = await curfew.start(outer, null)
    await world.clock.advance('20s')
    expect(await handle.result()).toBe(true)
    // 15 s were granted; never more than its own length again.
    expect((await handle.view()).deadlineAt).toBe(start + 20_000)
  })
})
