/** How long records of agents, and of what is below them, are kept. */
import { expect, vi } from 'vitest'
import { onEachStoreAndResidence } from '../scripts/acceptance/residence.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import { agent, CurfewError, task } from './curfew.ts'

onEachStoreAndResidence('records of agents', (test, residents) => {
  test('row 38: an agent that goes on after all retentions are over does nothing twice', async ({
    world,
  }) => {
    const runs: string[] = []
    const work = task({
      name: 'work',
      retention: '1h',
      run: (name: string) => {
        runs.push(name)
        return name
      },
    })
    const child = agent({
      name: 'child',
      retention: '1h',
      run: async (_: null, ctx) => ctx.schedule(work, 'of child'),
    })
    const sleeps = agent({
      name: 'sleeps',
      run: async (_: null, ctx) => {
        const handles = [ctx.schedule(work, 'plain'), ctx.schedule(work, 'detached', { detached: true })]
        const ofChild = ctx.child(child, null)
        const once = await ctx.run('once', () => runs.push('run') > 0)
        for (let week = 0; week < 5; week++) await ctx.sleep('7d')
        return [...(await ctx.all(handles)), await ofChild, once]
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [sleeps, child], residents })
    const { id } = await curfew.start(sleeps, null, { key: 'k' })
    await world.clock.settle()
    // Day by day, so that the sweep takes place.
    for (let day = 0; day < 36; day++) await world.clock.advance('1d')
    expect(await curfew.agent(id).result()).toEqual(['plain', 'detached', 'of child', true])
    expect(runs.toSorted()).toEqual(['detached', 'of child', 'plain', 'run'])
    expect((await curfew.start(sleeps, null, { key: 'k' })).existing).toBe(true)
  })

  test('everything below an agent goes with it; what was detached has its own retention', async ({
    world,
  }) => {
    const work = task({ name: 'work', run: (n: number) => n })
    const child = agent({
      name: 'child',
      retention: '1h',
      run: async (_: null, ctx) => ctx.schedule(work, 2),
    })
    const parent = agent({
      name: 'parent',
      retention: '2d',
      run: async (_: null, ctx) => {
        const kept = ctx.schedule(work, 3, { detached: true, retention: '5d' })
        await ctx.all([ctx.schedule(work, 1, { retention: '1h' }), ctx.child(child, null)])
        return kept.id
      },
    })
    const curfew = await world.open({ tasks: [work], agents: [parent, child], residents })
    const handle = await curfew.start(parent, null)
    await world.clock.settle()
    await handle.signal('nobody asked').catch((error: unknown) => error)
    const keptId = await handle.result()
    for (let hour = 0; hour < 47; hour++) await world.clock.advance('1h')
    expect((await curfew.list()).tasks).toHaveLength(5)
    for (let hour = 0; hour < 3; hour++) await world.clock.advance('1h')
    expect((await curfew.list()).tasks.map(({ id }) => id)).toEqual([keptId])
    expect(await errorOf(handle.result(), CurfewError)).toMatchObject({ code: 'not_found' })
    for (let day = 0; day < 5; day++) await world.clock.advance('1d')
    expect((await curfew.list()).tasks).toEqual([])
  })
})

onEachStore(
  'rows of agents',
  (test) => {
    test('journal, signals and events are removed with their agent', async ({ world }) => {
      const work = task({ name: 'work', run: (n: number) => n })
      const takes = agent({
        name: 'takes',
        retention: '1h',
        run: async (_: null, ctx) => {
          await ctx.sleep('1s')
          await ctx.run('run', () => 1)
          await ctx.schedule(work, 1)
          return ctx.waitForSignal('go')
        },
      })
      const curfew = await world.open({ tasks: [work], agents: [takes] })
      const handle = await curfew.start(takes, null)
      await world.clock.settle()
      await handle.signal('never asked for', 1)
      await handle.signal('go', 1)
      await world.clock.advance('2s')
      expect(await handle.status()).toBe('completed')
      for (let hour = 0; hour < 3; hour++) await world.clock.advance('1h')
      await world.close(curfew)
      for (const table of ['tasks', 'journal', 'signals', 'events', 'attempts']) {
        const [row] = await world.sql(`select count(*) as count from curfew.${table}`)
        expect([table, Number(row?.count)]).toEqual([table, 0])
      }
    })
  },
  ['file', 'postgres'],
)

onEachStore(
  'the sweep',
  (test) => {
    test('does not go on at once where what is over has to stay', async ({ world }) => {
      const work = task({ name: 'work', retention: '1s', run: (n: number) => n })
      const waits = agent({
        name: 'waits',
        run: async (_: null, ctx) => {
          await ctx.schedule(work, 1, { detached: true })
          return ctx.waitForSignal('go')
        },
      })
      const curfew = await world.open({ tasks: [work], agents: [waits] })
      await curfew.start(waits, null)
      const setTimer = vi.spyOn(world.clock, 'setTimer')
      for (let minute = 0; minute < 5; minute++) await world.clock.advance('1m')
      const sweeps = setTimer.mock.calls.filter(([, , options]) => options?.background).map(([ms]) => ms)
      expect(sweeps).toEqual([60_000, 60_000, 60_000, 60_000, 60_000])
      expect((await curfew.list({ name: 'work' })).tasks).toHaveLength(1)
    })
  },
  ['memory', 'file'],
)
