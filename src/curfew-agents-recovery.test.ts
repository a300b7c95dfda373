/** Agents whose process dies or closes: replayed by the next one, with nothing done twice and no deadline reset. */
import { expect } from 'vitest'
import { metric, onEachStore } from '../scripts/acceptance/world.ts'
import type { Curfew } from './curfew.ts'
import { agent, TaskTimedOut, task } from './curfew.ts'

const elsewhere = task({ name: 'elsewhere', run: (_: unknown) => 1 })

const eventsOf = async (curfew: Curfew, id: string, type: string) =>
  (await curfew.agent(id).events()).filter((event) => event.type === type)

onEachStore(
  'recovery of agents',
  (test, kind) => {
    /** Until what a dead process ran is given to another: its lease on PostgreSQL, nothing over a file. */
    const leaseSeconds = kind === 'postgres' ? 16 : 1

    test('row 33: killed while it waits, it goes on with the same tasks and the same deadlines', async ({
      world,
    }) => {
      const values: unknown[][] = []
      const waits = agent({
        name: 'waits',
        timeout: '10m',
        run: async (_: null, ctx) => {
          const handles = [1, 2].map((n) => ctx.schedule(elsewhere, n, { timeout: `${n}m` }))
          values.push([ctx.now(), ctx.random(), ctx.uuid(), ...handles.map(({ id }) => id)])
          const nap = ctx.sleep('90s')
          const word = ctx.waitForSignal('never', { timeout: '3m' })
          const ends: unknown[] = []
          const note = (what: string) => () => ends.push([what, ctx.now()])
          await Promise.all([
            handles[0]?.catch(note('first')),
            handles[1]?.catch(note('second')),
            nap.then(note('slept')),
            word.catch(note('no signal')),
          ])
          return ends
        },
      })
      const first = await world.open({ agents: [waits] })
      const start = world.now
      const { id } = await first.start(waits, null)
      await world.clock.advance('20s')
      const before = (await first.list({ parent: id })).tasks
      for (let crashes = 0; crashes < 2; crashes++) {
        await world.crash()
        await world.clock.advance('10s')
        const next = await world.open({ agents: [waits] })
        await world.runFor(10)
        const after = (await next.list({ parent: id })).tasks
        expect(after.map((view) => [view.id, view.deadlineAt])).toEqual(
          before.map((view) => [view.id, view.deadlineAt]),
        )
      }
      await world.crash()
      const last = await world.open({ agents: [waits] })
      await world.runFor(180)
      expect(await last.agent(id).result()).toEqual([
        ['first', start + 60_000],
        ['slept', start + 90_000],
        ['second', start + 120_000],
        ['no signal', start + 180_000],
      ])
      expect((await last.agent(id).view()).deadlineAt).toBe(start + 600_000)
      expect((await last.list({ parent: id })).tasks).toHaveLength(2)
      expect(values.length).toBeGreaterThan(1)
      for (const drawn of values) expect(drawn).toEqual(values[0])
    })

    test('row 33: tasks that ran on through it give their results; those that died with it are repeated', async ({
      world,
    }) => {
      const runs: string[] = []
      const work = task({
        name: 'work',
        run: async (name: string, { signal }) => {
          runs.push(name)
          if (name === 'long') await world.clock.sleep('30s', signal)
          return name
        },
      })
      const joins = agent({
        name: 'joins',
        run: async (_: null, ctx) => ctx.all(['quick', 'long'].map((name) => ctx.schedule(work, name))),
      })
      const first = await world.open({ tasks: [work], agents: [joins] })
      const { id } = await first.start(joins, null)
      await world.clock.advance('10s')
      await world.crash()
      const second = await world.open({ tasks: [work], agents: [joins] })
      await world.runFor(leaseSeconds + 31)
      expect(await second.agent(id).result()).toEqual(['quick', 'long'])
      expect(runs).toEqual(['quick', 'long', 'long'])
      expect((await second.list({ parent: id })).tasks).toHaveLength(2)
    })

    test('a run whose result is on record is not called again; one that was under way is', async ({
      world,
    }) => {
      const calls: string[] = []
      const runs = agent({
        name: 'runs',
        run: async (_: null, ctx) => {
          ctx.log.info({ n: 1 }, 'once')
          const one = await ctx.run('one', () => calls.push('one'))
          const two = await ctx.run('two', async () => {
            calls.push('two')
            await world.clock.sleep('10s')
            return 'done'
          })
          return [one, two, ctx.now()]
        },
      })
      const first = await world.open({ agents: [runs] })
      const { id } = await first.start(runs, null)
      await world.clock.advance('5s')
      expect(calls).toEqual(['one', 'two'])
      await world.crash()
      const second = await world.open({ agents: [runs] })
      await world.runFor(leaseSeconds + 12)
      expect(calls).toEqual(['one', 'two', 'two'])
      expect((await second.agent<unknown[]>(id).result()).slice(0, 2)).toEqual([1, 'done'])
      expect(await eventsOf(second, id, 'turn_lost')).toMatchObject([{ turn: 1 }])
      expect(world.log.filter(({ message }) => message === 'once')).toHaveLength(1)
    })

    test('a run that was stopped is not called again by the clean-up, however often its process dies', async ({
      world,
    }) => {
      const calls: string[] = []
      const charges = agent({
        name: 'charges',
        cleanup: '1h',
        run: async (_: null, ctx) => {
          try {
            await ctx.run('charge', async ({ signal }) => {
              calls.push('charge')
              await world.clock.sleep('1h', signal)
            })
          } finally {
            await ctx.sleep('2m')
            await ctx.run('refund', () => calls.push('refund'))
          }
        },
      })
      const first = await world.open({ agents: [charges] })
      const { id } = await first.start(charges, null)
      await world.clock.advance('5s')
      await first.agent(id).cancel()
      await world.clock.advance('5s')
      await world.crash()
      const second = await world.open({ agents: [charges] })
      await world.runFor(leaseSeconds + 120)
      expect(await second.agent(id).status()).toBe('cancelled')
      expect(calls).toEqual(['charge', 'refund'])
    })

    test('row 30: killed after the timeout of a task and before its agent ran, it is still told, once', async ({
      world,
    }) => {
      const waits = agent({
        name: 'waits',
        run: async (_: null, ctx) => {
          const error = await ctx
            .schedule(elsewhere, null, { timeout: '5s' })
            .catch((reason: unknown) => reason)
          return error instanceof TaskTimedOut && [error.taskId, error.deadlineAt]
        },
      })
      const first = await world.open({ agents: [waits] })
      const deadlineAt = world.now + 5_000
      const { id } = await first.start(waits, null)
      await world.clock.settle()
      const [child] = (await first.list({ parent: id })).tasks
      await world.close(first)
      const second = await world.open() // has not its code
      await world.clock.advance('5s')
      expect(await second.agent(id).explain()).toMatchObject({
        summary: expect.stringMatching(/^woken 0ms ago/),
      })
      await world.crash()
      await world.clock.advance('1m')
      const third = await world.open({ agents: [waits] })
      await world.runFor(leaseSeconds)
      expect(await third.agent(id).result()).toEqual([child?.id, deadlineAt])
      expect(await eventsOf(third, child?.id ?? '', 'task_timed_out')).toMatchObject([
        { agentId: id, deadlineAt },
      ])
      expect(await metric(third, 'curfew_task_timeouts_total')).toBe(0)
    })

    test('row 45: the winner is the same before and after', async ({ world }) => {
      const work = task({
        name: 'work',
        run: async (ms: number, { signal }) => {
          await world.clock.sleep(ms, signal)
          return ms
        },
      })
      const winners: unknown[] = []
      const races = agent({
        name: 'races',
        run: async (_: null, ctx) => {
          const handles = [3_000, 1_000, 2_000].map((ms) => ctx.schedule(work, ms))
          await ctx.sleep('5s')
          const first = await ctx.any(handles)
          const native = await Promise.race([...handles].reverse())
          const beside = await Promise.race([ctx.waitForSignal('never'), ctx.any(handles)])
          winners.push([first, native, beside])
          await ctx.waitForSignal('go')
          return [first, native, beside]
        },
      })
      const first = await world.open({ tasks: [work], agents: [races] })
      const { id } = await first.start(races, null)
      await world.clock.advance('10s')
      await world.crash()
      const second = await world.open({ tasks: [work], agents: [races] })
      await second.agent(id).signal('go')
      await world.runFor(leaseSeconds)
      expect(await second.agent<unknown[]>(id).result()).toEqual(winners[0])
      expect(winners).toHaveLength(2)
      expect(winners[1]).toEqual(winners[0])
      expect(winners[0]).toMatchObject([{ index: 1, value: 1_000 }, 2_000, { index: 1 }])
    })

    test('row 46: killed while the losers are stopped, they end cancelled all the same', async ({
      world,
    }) => {
      const { clock } = world
      const work = task({
        name: 'work',
        run: async (ms: number, { signal }) => {
          // The losers follow their signal late.
          await world.clock.sleep(ms, signal).catch(() => clock.sleep('3s'))
          return ms
        },
      })
      const races = agent({
        name: 'races',
        run: async (_: null, ctx) => {
          const handles = [1_000, 60_000, 90_000].map((ms) => ctx.schedule(work, ms))
          const pending = ctx.schedule(elsewhere, null)
          const { index } = await ctx.race([...handles, pending], { cancelRest: true })
          const { cancelled } = await ctx.allSettled([...handles, pending])
          return { index, cancelled: cancelled.map((one) => one.index) }
        },
      })
      const first = await world.open({ tasks: [work], agents: [races] })
      const { id } = await first.start(races, null)
      await world.clock.advance('2s')
      expect(await first.agent(id).status()).toBe('running')
      await world.crash()
      const second = await world.open({ tasks: [work], agents: [races] })
      await world.runFor(leaseSeconds + 5)
      expect(await second.agent(id).result()).toEqual({ index: 0, cancelled: [1, 2, 3] })
      expect((await second.list({ parent: id, status: 'cancelled' })).tasks).toHaveLength(3)
    })

    test('row 47: the limit of a wait counts over a crash', async ({ world }) => {
      const settles = agent({
        name: 'settles',
        run: async (_: null, ctx) => {
          const handles = [ctx.sleep('30s'), ctx.schedule(elsewhere, null)]
          const { completed, timedOut } = await ctx.allSettled(handles, { timeout: '60s' })
          return [completed.map(({ index }) => index), timedOut.map(({ index }) => index), ctx.now()]
        },
      })
      const first = await world.open({ agents: [settles] })
      const start = world.now
      const { id } = await first.start(settles, null)
      await world.clock.advance('40s')
      await world.crash()
      await world.clock.advance('10s')
      const second = await world.open({ agents: [settles] })
      await world.runFor(9)
      expect(await second.agent(id).status()).toBe('running')
      await world.runFor(1)
      expect(await second.agent(id).result()).toEqual([[0], [1], start + 60_000])
      expect((await second.list({ parent: id })).tasks).toMatchObject([{ status: 'cancelled' }])
    })

    test('row 58: killed after the first of three signals was taken: each once, in order', async ({
      world,
    }) => {
      const takes = agent({
        name: 'takes',
        run: async (_: null, ctx) => {
          await ctx.sleep('1s')
          const taken = [await ctx.waitForSignal('n')]
          await ctx.sleep('10s')
          taken.push(await ctx.waitForSignal('n'))
          await ctx.waitForSignal('go')
          taken.push(await ctx.waitForSignal('n'))
          return taken
        },
      })
      const first = await world.open({ agents: [takes] })
      const { id } = await first.start(takes, null)
      await world.clock.settle()
      for (const n of [1, 2, 3]) await first.agent(id).signal('n', n)
      await world.clock.advance('5s')
      await world.crash()
      await world.open({ agents: [takes] })
      await world.runFor(10)
      await world.crash()
      const third = await world.open({ agents: [takes] })
      await third.agent(id).signal('go')
      await world.runFor(leaseSeconds)
      expect(await third.agent(id).result()).toEqual([1, 2, 3])
      expect((await third.agent(id).explain()).warnings).toEqual([])
    })

    test('children are resumed beside their parent', async ({ world }) => {
      const child = agent({
        name: 'child',
        run: async (n: number, ctx) => {
          await ctx.sleep('30s')
          return n
        },
      })
      const parent = agent({
        name: 'parent',
        run: async (_: null, ctx) => ctx.all([1, 2, 3].map((n) => ctx.child(child, n))),
      })
      const first = await world.open({ agents: [parent, child] })
      const { id } = await first.start(parent, null)
      await world.clock.advance('10s')
      await world.crash()
      const second = await world.open({ agents: [parent, child] })
      await world.runFor(leaseSeconds + 30)
      expect(await second.agent(id).result()).toEqual([1, 2, 3])
      expect((await second.list({ parent: id, status: 'completed' })).tasks).toHaveLength(3)
    })

    test('an agent whose process dies four times in a row while it runs is parked', async ({ world }) => {
      const deadly = agent({
        name: 'deadly',
        run: async (_: null, ctx) =>
          ctx.run('dies', () => (crashes < 4 ? new Promise(() => undefined) : 'lives')),
      })
      let crashes = 0
      let curfew = await world.open({ agents: [deadly] })
      const { id } = await curfew.start(deadly, null)
      for (; crashes < 4; crashes++) {
        await world.runFor(1)
        await world.crash()
        curfew = await world.open({ agents: [deadly] })
        await world.runFor(leaseSeconds)
      }
      expect((await curfew.agent(id).view()).parked).toBe('its worker died while it ran, 4 times in a row')
      expect(await eventsOf(curfew, id, 'agent_parked')).toMatchObject([{ code: 'lost', step: null }])
      await curfew.resume(id)
      await world.clock.settle()
      expect(await curfew.agent(id).result()).toBe('lives')
    })

    test('a process that closes lets go of its agents: the next one goes on with them', async ({ world }) => {
      const calls: string[] = []
      const runs = agent({
        name: 'runs',
        run: async (_: null, ctx) => {
          await ctx.run('one', () => calls.push('one'))
          await ctx.run('two', async ({ signal }) => {
            calls.push('two')
            await world.clock.sleep('10s', signal)
          })
          return calls.length
        },
      })
      const first = await world.open({ agents: [runs] })
      const { id } = await first.start(runs, null)
      await world.clock.settle()
      await world.close(first)
      const second = await world.open({ agents: [runs] })
      await world.clock.advance('10s')
      expect(await second.agent(id).result()).toBe(3)
      expect(calls).toEqual(['one', 'two', 'two'])
      expect(await eventsOf(second, id, 'turn_lost')).toEqual([])
    })

    test('a cancel where nobody has its code ends with its clean-up budget', async ({ world }) => {
      const waits = agent({
        name: 'waits',
        cleanup: '20s',
        run: async (_: null, ctx) => ctx.schedule(elsewhere, null),
      })
      const first = await world.open({ agents: [waits] })
      const { id } = await first.start(waits, null)
      await world.clock.settle()
      await world.close(first)
      const second = await world.open()
      const start = world.now
      expect(await second.agent(id).cancel()).toBe('cancelled')
      await world.clock.advance('19s')
      expect(await second.agent(id).status()).toBe('cancelling')
      await world.clock.advance('1s')
      expect(await second.agent(id).view()).toMatchObject({ status: 'cancelled', endedAt: start + 20_000 })
      expect((await second.list({ parent: id })).tasks).toMatchObject([{ status: 'cancelled' }])
    })
  },
  ['file', 'postgres'],
)
