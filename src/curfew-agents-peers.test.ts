// Agents of several engines over one PostgreSQL, on one virtual clock.

import pg from 'pg'
import { expect } from 'vitest'
import type { World } from '../scripts/acceptance/world.ts'
import { onEachStore } from '../scripts/acceptance/world.ts'
import type { AgentHandle } from './curfew.ts'
import { agent, task } from './curfew.ts'

/** A promise that the test settles. */
const gate = <T = void>() => Promise.withResolvers<T>()
const turnsOf = async (handle: AgentHandle) => (await handle.explain()).journal?.turns

/** Holds the row of an agent, so that everything about it has to wait, in the order in which it comes. */
async function holdRow(world: World, id: string) {
  const client = new pg.Client({ connectionString: world.store })
  await client.connect()
  await client.query('begin')
  await client.query('select 1 from curfew.tasks where id = $1 for update', [id])
  return {
    /** So many transactions wait for it. */
    async waitedForBy(count: number): Promise<void> {
      const text = `select count(*)::int as count from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`
      for (;;) {
        const { rows } = await client.query(text)
        if (rows[0].count >= count) return
      }
    },
    /** Ends the connections that wait for it, as if their process had died. */
    async endWaiting(): Promise<void> {
      await client.query(`select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`)
    },
    async letGo(): Promise<void> {
      await client.query('commit')
      await client.end()
    },
  }
}

/** Everything that is stored of an agent. */
async function recordsOf(world: World, id: string): Promise<unknown> {
  const rows = await world.sql('select * from curfew.tasks where id = $1 or root_id = $1 order by id', id)
  const journal = await world.sql('select * from curfew.journal where agent_id = $1 order by part, no', id)
  const events = await world.sql('select * from curfew.events where root_id = $1 order by seq', id)
  return { rows, journal, events }
}

onEachStore(
  'agents of engines beside each other',
  (test) => {
    test('row 29: the last two of an `all` end in transactions at the same moment: one turn', async ({
      world,
    }) => {
      const gates = [gate<number>(), gate<number>()] as const
      const first = task({ name: 'first', run: () => 0 })
      const left = task({ name: 'left', run: () => gates[0].promise })
      const right = task({ name: 'right', run: () => gates[1].promise })
      let resumed = 0
      const three = agent({
        name: 'three',
        run: async (_: null, ctx) => {
          const values = await ctx.all([ctx.schedule(first), ctx.schedule(left), ctx.schedule(right)])
          resumed++
          return values
        },
      })
      const curfew = await world.open({ agents: [three] })
      await world.open({ tasks: [first, left] })
      await world.open({ tasks: [right] })
      const handle = await curfew.start(three, null)
      await world.runFor(3)
      expect((await handle.explain()).journal).toMatchObject({ turns: 1, results: 1, open: 2 })
      const row = await holdRow(world, handle.id)
      gates[0].resolve(1)
      gates[1].resolve(2)
      await row.waitedForBy(2)
      await row.letGo()
      await world.runFor(2)
      expect(await handle.result()).toEqual([0, 1, 2])
      expect([resumed, await turnsOf(handle)]).toEqual([1, 2])
    })

    for (const first of ['the end', 'the wait'] as const) {
      test(`row 28: an agent begins to wait for a task just as that ends elsewhere, ${first} first`, async ({
        world,
      }) => {
        const [end, wait] = [gate(), gate()]
        const work = task({ name: 'work', run: () => end.promise.then(() => 'done') })
        const waits = agent({
          name: 'waits',
          run: async (_: null, ctx) => {
            const handle = ctx.schedule(work)
            await wait.promise
            return [await handle]
          },
        })
        const curfew = await world.open({ agents: [waits] })
        await world.open({ tasks: [work] })
        const handle = await curfew.start(waits, null)
        await world.runFor(2)
        expect(await handle.explain()).toMatchObject({ summary: expect.stringContaining('turn 1 runs') })
        const row = await holdRow(world, handle.id)
        for (const [i, move] of (first === 'the end' ? [end, wait] : [wait, end]).entries()) {
          move.resolve()
          await row.waitedForBy(i + 1)
        }
        await row.letGo()
        await world.runFor(2)
        expect(await handle.result()).toEqual(['done'])
        expect(await turnsOf(handle)).toBe(first === 'the end' ? 1 : 2)
      })

      test(`row 28: the same for a signal, ${first} first`, async ({ world }) => {
        const wait = gate()
        const waits = agent({
          name: 'waits',
          run: async (_: null, ctx) => {
            ctx.now()
            await wait.promise
            const one = await ctx.waitForSignal('go')
            return [one, await ctx.waitForSignal('go')]
          },
        })
        const curfew = await world.open({ agents: [waits] })
        const sender = await world.open()
        const handle = await curfew.start(waits, null)
        await world.runFor(2)
        const row = await holdRow(world, handle.id)
        const sent: Promise<void>[] = []
        const moves = [() => sent.push(sender.agent(handle.id).signal('go', 1)), () => wait.resolve()]
        for (const [i, move] of (first === 'the end' ? moves : moves.reverse()).entries()) {
          move()
          await row.waitedForBy(i + 1)
        }
        await row.letGo()
        await Promise.all(sent)
        await world.runFor(2)
        await sender.agent(handle.id).signal('go', 2)
        await world.runFor(2)
        expect(await handle.result()).toEqual([1, 2])
      })
    }

    for (const other of ['runs', 'waits'] as const) {
      test(`a turn whose process was taken for dead is refused while another ${other}, and changes nothing`, async ({
        world,
      }) => {
        const before = world.clock
        const [slow, quick] = [gate<string>(), gate<string>()]
        const held = [slow, quick]
        const effect = task({ name: 'effect', run: (_: string) => 1 })
        const steps = agent({
          name: 'steps',
          run: async (_: null, ctx) => {
            const which = await ctx.run('which', () => held.shift()?.promise ?? 'nobody')
            ctx.schedule(effect, which)
            await ctx.sleep('1h')
            return which
          },
        })
        const stale = await world.open({ tasks: [effect], agents: [steps] })
        const { id } = await stale.start(steps, null)
        await before.settle()
        // It stands still from now on, in the middle of a step; its lease ends by the clock of the others.
        await world.crash()
        const curfew = await world.open({ tasks: [effect], agents: [steps] })
        await world.runFor(15)
        if (other === 'waits') quick.resolve('the other')
        await world.runFor(2)
        const events = await curfew.agent(id).events()
        expect(events.filter(({ type }) => type === 'turn_lost')).toMatchObject([{ turn: 1 }])
        const records = await recordsOf(world, id)
        // It goes on as if nothing had happened: first with its old lease, then with a new one.
        slow.resolve('the stale one')
        await before.advanceTo(world.now)
        await before.advance('5s')
        expect(await recordsOf(world, id)).toEqual(records)
        quick.resolve('the other')
        await world.clock.advance('1h')
        await world.clock.advance('1h')
        expect(await curfew.agent(id).result()).toBe('the other')
        expect((await curfew.list({ kind: 'task' })).tasks).toHaveLength(1)
      })
    }

    test('what a run is given is on record before it begins: tried again it is given the same', async ({
      world,
    }) => {
      const outside = gate()
      const given: string[] = []
      const pays = agent({
        name: 'pays',
        run: async (_: null, ctx) => {
          ctx.now()
          await outside.promise
          const id = ctx.uuid()
          return ctx.run('pay', () => given.push(id) && id)
        },
      })
      const doomed = await world.open({ agents: [pays] })
      const { id } = await doomed.start(pays, null)
      await world.clock.settle()
      // Its process dies just before the commit.
      const row = await holdRow(world, id)
      outside.resolve()
      await row.waitedForBy(1)
      await world.crash()
      await row.endWaiting()
      await row.letGo()
      const curfew = await world.open({ agents: [pays] })
      await world.runFor(20)
      expect(given).toEqual([await curfew.agent(id).result()])
    })

    test('however many engines have its code, each step of an agent is run once, by one at a time', async ({
      world,
    }) => {
      const { clock } = world
      const running = new Map<string, number>()
      const ran: string[] = []
      let most = 0
      const quick = task({ name: 'quick', run: (n: number) => n })
      const steps = agent({
        name: 'steps',
        run: async (n: number, ctx) => {
          let sum = 0
          for (let step = 0; step < 4; step++) {
            await ctx.run(`step ${step}`, async () => {
              const now = (running.get(ctx.agentId) ?? 0) + 1
              most = Math.max(most, now)
              running.set(ctx.agentId, now)
              await clock.sleep('300ms')
              running.set(ctx.agentId, now - 1)
              ran.push(`${ctx.agentId} ${step}`)
            })
            sum += await ctx.schedule(quick, n)
          }
          return sum
        },
      })
      const options = { tasks: [quick], agents: [steps], turns: 5, residents: { count: 2 } }
      const engines = await Promise.all([world.open(options), world.open(options), world.open(options)])
      const handles = await Promise.all(Array.from({ length: 30 }, (_, n) => engines[n % 3]!.start(steps, n)))
      await world.runFor(40)
      expect(await Promise.all(handles.map((handle) => handle.result()))).toEqual(
        handles.map((_, n) => 4 * n),
      )
      expect(most).toBe(1)
      expect(ran).toHaveLength(120)
      expect(new Set(ran).size).toBe(120)
      const warnings = world.log.filter(({ level }) => level === 'warn' || level === 'error')
      expect(warnings).toEqual([])
    })

    /** Waits for a task that runs elsewhere, again and again; says which engine began to run it. */
    const resident = (engine: string, started: string[]) =>
      agent({
        name: 'resident',
        run: async (rounds: number, ctx) => {
          started.push(engine)
          for (let i = 0; i < rounds; i++) await ctx.schedule(remote, i)
          return engine
        },
      })
    const remote = task({ name: 'remote', run: (n: number) => n })

    test('an agent stays with the engine that has it in memory, whoever ends what it waits for', async ({
      world,
    }) => {
      const started: string[] = []
      await world.open({ agents: [resident('b', started)], tasks: [remote] })
      // They renew, and look for work, at different moments.
      await world.clock.advance('500ms')
      const a = await world.open({ agents: [resident('a', started)] })
      for (let i = 0; i < 8; i++) await world.clock.advance('250ms')
      const handle = await a.start(resident('a', started), 5)
      for (let i = 0; i < 48; i++) await world.clock.advance('250ms')
      expect(await handle.result()).toBe('a')
      expect([started, await turnsOf(handle)]).toEqual([['a'], 6])
    })

    test('when that engine has died another one replays it', async ({ world }) => {
      const started: string[] = []
      const a = await world.open({ agents: [resident('a', started)] })
      const { id } = await a.start(resident('a', started), 3)
      await world.runFor(1)
      await world.crash()
      const b = await world.open({ agents: [resident('b', started)], tasks: [remote] })
      // It is not known yet that the other one is dead: it is not waited for.
      await world.runFor(8)
      expect(await b.agent(id).result()).toBe('b')
      expect(started).toEqual(['a', 'b'])
    })

    test('when that engine has no free turn another one replays it', async ({ world }) => {
      const { clock } = world
      const started: string[] = []
      const busy = agent({ name: 'busy', run: (_: null, ctx) => ctx.run('long', () => clock.sleep('1h')) })
      const a = await world.open({ agents: [resident('a', started), busy], turns: 1 })
      const handle = await a.start(resident('a', started), 3)
      await world.runFor(1)
      await a.start(busy, null)
      await world.runFor(1)
      await world.open({ agents: [resident('b', started)], tasks: [remote] })
      await world.runFor(8)
      expect(await handle.result()).toBe('b')
      expect(started).toEqual(['a', 'b'])
    })

    test('what an engine remembers of an agent that another has run since is of no use', async ({
      world,
    }) => {
      const busyUntil = gate()
      const started: string[] = []
      const waits = (engine: string) =>
        agent({
          name: 'waits',
          run: async (_: null, ctx) => {
            started.push(engine)
            const seen: unknown[] = []
            for (let i = 0; i < 4; i++) seen.push(await ctx.waitForSignal('go'))
            return seen
          },
        })
      const busy = agent({ name: 'busy', run: (_: null, ctx) => ctx.run('long', () => busyUntil.promise) })
      const a = await world.open({ agents: [waits('a'), busy], turns: 1 })
      const handle = await a.start(waits('a'), null)
      await handle.signal('go', 1)
      await world.runFor(1)
      await a.start(busy, null)
      await world.runFor(1)
      const b = await world.open({ agents: [waits('b')] })
      for (const value of [2, 3]) {
        await handle.signal('go', value)
        await world.runFor(3)
      }
      await world.close(b)
      busyUntil.resolve()
      await world.runFor(1)
      await handle.signal('go', 4)
      await world.runFor(3)
      expect(await handle.result()).toEqual([1, 2, 3, 4])
      expect(started).toEqual(['a', 'b', 'a'])
    })

    test('one that closes lets go of its agents at once, in the middle of a turn too', async ({ world }) => {
      const { clock } = world
      const started: string[] = []
      const two = (engine: string) =>
        agent({
          name: 'two',
          run: async (_: null, ctx) => {
            started.push(engine)
            const first = await ctx.run('first', () => engine)
            if (engine === 'a') await ctx.run('second', () => clock.sleep('1h'))
            else await ctx.run('second', () => undefined)
            return first
          },
        })
      const a = await world.open({ agents: [two('a')] })
      const { id } = await a.start(two('a'), null)
      await world.runFor(1)
      const b = await world.open({ agents: [two('b')] })
      await world.close(a)
      await world.runFor(3)
      expect(await b.agent(id).result()).toBe('a')
      expect(started).toEqual(['a', 'b'])
      expect((await b.agent(id).events()).filter(({ type }) => type === 'turn_lost')).toEqual([])
    })

    test('an engine without the code of an agent never takes its turn', async ({ world }) => {
      const started: string[] = []
      const other = agent({ name: 'other', run: () => 1 })
      const client = await world.open({ agents: [other], tasks: [remote] })
      const handle = await client.start(resident('client', started), 2)
      await world.runFor(5)
      expect(await handle.explain()).toMatchObject({ status: 'pending', journal: { turns: 0 } })
      const a = await world.open({ agents: [resident('a', started)] })
      await world.runFor(2)
      await world.close(a)
      await world.runFor(70)
      expect(await handle.explain()).toMatchObject({ status: 'running', journal: { open: 0 } })
      expect((await handle.explain()).summary).toContain('waits for a worker')
      await world.open({ agents: [resident('b', started)] })
      await world.runFor(5)
      expect(await handle.result()).toBe('b')
      expect(started).toEqual(['a', 'b'])
    })

    test('signals and cancels reach an agent across engines; its clean-up runs where it is', async ({
      world,
    }) => {
      const { clock } = world
      const seen: unknown[] = []
      const hang = task({ name: 'hang', run: (_: null, { signal }) => clock.sleep('1h', signal) })
      const waits = agent({
        name: 'waits',
        run: async (_: null, ctx) => {
          try {
            for (let i = 0; i < 3; i++) seen.push(await ctx.waitForSignal('go'))
            await ctx.schedule(hang, null)
          } finally {
            seen.push(await ctx.run('undo', () => 'undone'))
          }
        },
      })
      const sender = await world.open()
      await world.open({ agents: [waits] })
      await world.open({ tasks: [hang] })
      const handle = await sender.start(waits, null)
      await handle.signal('go', 1)
      await world.runFor(2)
      await handle.signal('go', 2)
      await handle.signal('go', 3)
      await world.runFor(3)
      expect(await sender.list({ kind: 'task', status: 'running' })).toMatchObject({
        tasks: [{ name: 'hang' }],
      })
      expect(await handle.cancel()).toBe('cancelled')
      const cancelled = handle.cancelled()
      await world.runFor(5)
      expect(await cancelled).toMatchObject({
        success: true,
        ledger: [{ status: 'cancelled', receipt: 'aborted' }],
      })
      expect(seen).toEqual([1, 2, 3, 'undone'])
    })
  },
  ['postgres'],
)
