// Tasks whose rows PostgreSQL writes when they are stored and when they have ended, and not in between: nobody may see
// a difference. The statements themselves: store/postgres/postgres-light.test.ts.

import { expect } from 'vitest'
import { onEachStore } from '../scripts/acceptance/world.ts'
import type { Curfew } from './curfew.ts'
import { task } from './curfew.ts'
import { VirtualClock } from './testing/testing.ts'

/** As they are stored: what readers are told hides it. */
const STORED = 'select status, light, live, attempt from curfew.tasks order by id'
const LIGHT = { status: 'pending', light: 1, live: 0, attempt: 0 }

onEachStore(
  'light tasks',
  (test) => {
    test('a task that goes on is written out after a moment, and its claim is forgotten', async ({
      world,
    }) => {
      const { clock } = world
      const work = task({ name: 'work', run: () => clock.sleep('1m') })
      const handle = await (await world.open()).schedule(work)
      const curfew = await world.open({ tasks: [work] })
      await clock.settle()
      expect(await world.sql(STORED)).toEqual([LIGHT])
      expect(await handle.view()).toMatchObject({ status: 'running', attempts: 1, startedAt: world.now })
      expect(await curfew.list({ status: 'running' })).toMatchObject({ tasks: [{ id: handle.id }] })
      expect(await curfew.list({ status: 'pending' })).toMatchObject({ tasks: [] })
      await clock.advance('500ms')
      expect(await world.sql(STORED)).toEqual([{ status: 'running', light: 0, live: 1, attempt: 1 }])
      expect(await world.sql('select token from curfew.light_claims')).toEqual([])
      await clock.advance('1m')
      expect(await handle.status()).toBe('completed')
    })

    test('one that finds a free slot is stored with its claim, and never waits', async ({ world }) => {
      const { clock } = world
      const short = task({ name: 'short', run: (n: number) => n })
      const long = task({ name: 'long', timeout: '1m', run: (_: number) => clock.sleep('10s') })
      // With a limit that falls soon, it is a row like any other from the beginning.
      const bounded = task({ name: 'bounded', attemptTimeout: '5s', run: () => clock.sleep('10s') })
      const curfew = await world.open({ tasks: [short, long, bounded] })
      await clock.settle()
      const handles = await Promise.all([curfew.schedule(long, 1), curfew.schedule(long, 2)])
      const limited = await curfew.schedule(bounded)
      expect(await world.sql(STORED)).toEqual([
        LIGHT,
        LIGHT,
        { status: 'running', light: 0, live: 1, attempt: 1 },
      ])
      expect(await world.sql('select id from curfew.light_ready')).toEqual([])
      const ids = await world.sql('select unnest(ids) as id from curfew.light_claims order by id')
      expect(ids).toEqual(handles.map(({ id }) => ({ id })))
      expect(await handles[0]!.view()).toMatchObject({ status: 'running', attempts: 1, startedAt: world.now })
      const quick = await curfew.schedule(short, 7)
      await clock.settle()
      expect(await quick.view()).toMatchObject({ status: 'completed', output: 7, startedAt: world.now })
      await clock.advance('500ms')
      expect(await world.sql(STORED)).toMatchObject([{ live: 1 }, { live: 1 }, { live: 1 }, { live: 0 }])
      expect(await world.sql('select token from curfew.light_claims')).toEqual([])
      await clock.advance('10s')
      for (const handle of handles) expect(await handle.status()).toBe('completed')
      expect(await limited.view()).toMatchObject({ status: 'timed_out', timeoutKind: 'execution' })
    })

    const stops: [string, (curfew: Curfew, id: string) => Promise<unknown>, string][] = [
      ['is cancelled', (curfew, id) => curfew.task(id).cancel(), 'cancelled'],
      ['runs out of time', async () => undefined, 'timed_out'],
    ]
    for (const [what, stop, status] of stops) {
      test(`one that ${what} is stopped, also by another process`, async ({ world }) => {
        const { clock } = world
        let stopped = false
        const work = task({
          name: 'work',
          timeout: '30s',
          run: async (_, { signal }) => {
            signal.addEventListener('abort', () => {
              stopped = true
            })
            await clock.sleep('1h', signal)
          },
        })
        const other = await world.open()
        const { id } = await other.schedule(work)
        await world.open({ tasks: [work] })
        await clock.settle()
        expect(await world.sql(STORED)).toEqual([LIGHT])
        await stop(other, id)
        await world.runFor(40)
        expect(await other.task(id).view()).toMatchObject({ status, attempts: 1, receipt: 'aborted' })
        expect(stopped).toBe(true)
      })
    }

    test('what one says of itself, and that it failed, is kept from its first moment on', async ({
      world,
    }) => {
      let runs = 0
      const work = task({
        name: 'work',
        retries: 1,
        backoff: { initial: '1s', jitter: 0 },
        run: async (_, ctx) => {
          ctx.progress({ completed: ++runs, total: 2 })
          if (runs === 1) throw new Error('once')
          return runs
        },
      })
      const curfew = await world.open()
      const handle = await curfew.schedule(work)
      await world.open({ tasks: [work] })
      await world.runFor(3)
      expect(await handle.result()).toBe(2)
      expect(await handle.view()).toMatchObject({ attempts: 2, progress: { completed: 2, total: 2 } })
      const events = await curfew.task(handle.id).events()
      expect(events.filter(({ type }) => type === 'attempt_failed')).toMatchObject([{ attempt: 1 }])
    })

    test('what a process had just begun when it was killed is run elsewhere after its lease', async ({
      world,
    }) => {
      let starts = 0
      const work = (hangs: boolean) =>
        task({
          name: 'work',
          run: async () => {
            starts++
            if (hangs) await new Promise(() => undefined)
            return 'done'
          },
        })
      const author = await world.open()
      const handles = await author.scheduleMany(work(true), [1, 2, 3])
      await world.close(author)
      await world.open({ tasks: [work(true)] })
      await world.clock.settle()
      expect(await world.sql(STORED)).toEqual([LIGHT, LIGHT, LIGHT])
      await world.crash()
      const second = await world.open({ tasks: [work(false)] })
      await world.runFor(5)
      expect(starts).toBe(3)
      expect(await second.task(handles[0]!.id).status()).toBe('running')
      await world.runFor(30)
      for (const { id } of handles)
        expect(await second.task(id).view()).toMatchObject({
          status: 'completed',
          attempts: 2,
          output: 'done',
        })
      expect(starts).toBe(6)
      expect(await world.sql('select token from curfew.light_claims')).toEqual([])
    })

    test('limits of one whose process renews its leases and does nothing else are kept by another', async ({
      world,
    }) => {
      const { clock } = world
      const hangs = task({ name: 'hangs', attemptTimeout: '25s', run: () => new Promise(() => undefined) })
      const author = await world.open()
      const { id } = await author.schedule(hangs)
      // This one's clock stands still: it never writes out what it has begun.
      world.clock = new VirtualClock(world.now)
      await world.open({ tasks: [hangs] })
      await world.clock.settle()
      world.clock = clock
      expect(await world.sql(STORED)).toEqual([LIGHT])
      const seconds = async (count: number) => {
        for (let i = 0; i < count; i++) {
          await world.sql('update curfew.nodes set renewed_at = $1 where gone_at is null', world.now)
          await world.clock.advance('1s')
        }
      }
      await seconds(20)
      expect(await author.task(id).status()).toBe('running')
      await seconds(12)
      expect(await author.task(id).view()).toMatchObject({ status: 'timed_out', timeoutKind: 'execution' })
    })

    test('a limit that a queue is given later holds for them', async ({ world }) => {
      const { clock } = world
      let running = 0
      let most = 0
      const work = task({
        name: 'work',
        queue: 'narrow',
        run: async () => {
          most = Math.max(most, ++running)
          await clock.sleep('5s')
          running--
        },
      })
      const curfew = await world.open()
      const handles = await curfew.scheduleMany(
        work,
        Array.from({ length: 20 }, (_, n) => n),
      )
      // Stored as light tasks, claimed as any others.
      expect(await world.sql('select count(*)::int as count from curfew.light_ready')).toEqual([
        { count: 20 },
      ])
      await world.open({ tasks: [work], concurrency: 10, queues: { narrow: { concurrency: 3 } } })
      await world.runFor(60)
      expect(most).toBe(3)
      for (const handle of handles) expect(await handle.status()).toBe('completed')
    })
  },
  ['postgres'],
)
