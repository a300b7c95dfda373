// Several engines over one PostgreSQL, on one virtual clock.

import { expect } from 'vitest'
import { metric, onEachStore } from '../scripts/acceptance/world.ts'
import { task } from './curfew.ts'

const elsewhere = task({ name: 'elsewhere', run: (_input: unknown) => 1 })

onEachStore(
  'engines beside each other',
  (test) => {
    test('row 10: two that sweep the same expired tasks fire each once', async ({ world }) => {
      const author = await world.open()
      const handles = await author.scheduleMany(
        elsewhere,
        Array.from({ length: 1_200 }, (_, i) => i),
        { timeout: '5s' },
      )
      await world.close(author)
      // The author is gone: the deadlines are nobody's, and both look for them at the same moment.
      const [first, second] = await Promise.all([world.open(), world.open()])
      await world.runFor(10)
      const counted = await Promise.all(
        [first, second].map((curfew) => metric(curfew, 'curfew_task_timeouts_total')),
      )
      expect(counted.reduce((sum, count) => sum + count)).toBe(1_200)
      const lines = world.log.filter(({ message }) => message === 'Task timed out')
      expect(new Set(lines.map(({ fields }) => fields.taskId)).size).toBe(1_200)
      expect(lines).toHaveLength(1_200)
      const rows = await world.sql(
        `select count(*)::int as events from curfew.events where body like '%task_timed_out%'`,
      )
      expect(rows).toEqual([{ events: 1_200 }])
      // Neither got in the other's way.
      expect(world.log.filter(({ level }) => level === 'warn' || level === 'error')).toEqual([])
      expect(await second.task(handles[600]!.id).status()).toBe('timed_out')
    })

    test('row 18: an expired task that nobody has swept yet is not handed out', async ({ world }) => {
      let starts = 0
      const work = task({ name: 'work', run: () => ++starts })
      const author = await world.open()
      // The author stands still from now on: it watches its deadline no more, and is not known to be dead yet.
      await world.crash()
      const { clock } = world
      const blocker = task({ name: 'blocker', run: () => clock.sleep('6500ms') })
      const worker = await world.open({ tasks: [blocker, work], concurrency: 1 })
      await worker.schedule(blocker, null)
      await world.runFor(1)
      const { id } = await author.schedule(work, null, { timeout: '5s' })
      await world.runFor(5)
      // The slot is free now, and the task has expired.
      await clock.advance('600ms')
      expect(await worker.task(id).view()).toMatchObject({ status: 'pending', attempts: 0 })
      await world.runFor(4)
      expect(await worker.task(id).view()).toMatchObject({ status: 'timed_out', attempts: 0 })
      expect(starts).toBe(0)
    })

    test('the limit of a queue holds over all of them, and all of it is used', async ({ world }) => {
      const { clock } = world
      let running = 0
      let most = 0
      const by: Record<string, number> = {}
      const narrow = (engine: string) =>
        task({
          name: 'narrow',
          queue: 'narrow',
          run: async () => {
            by[engine] = (by[engine] ?? 0) + 1
            most = Math.max(most, ++running)
            await clock.sleep('900ms')
            running--
          },
        })
      const queues = { narrow: { concurrency: 3 } }
      const a = await world.open({ tasks: [narrow('a')], concurrency: 2, queues })
      await world.open({ tasks: [narrow('b')], concurrency: 2, queues })
      const handles = await a.scheduleMany(
        narrow('a'),
        Array.from({ length: 20 }, (_, i) => i),
      )
      await world.runFor(15)
      expect(await Promise.all(handles.map((handle) => handle.status()))).toEqual(Array(20).fill('completed'))
      expect(most).toBe(3)
      expect(by.a).toBeGreaterThan(0)
      expect(by.b).toBeGreaterThan(0)
    })

    test('work goes to whoever has its code; results and cancels reach across', async ({ world }) => {
      const { clock } = world
      const reasons: unknown[] = []
      const work = task({
        name: 'work',
        run: async (what: string, { signal }) => {
          if (what === 'quick') return 'done'
          return clock.sleep('1h', signal).catch((reason) => {
            reasons.push(reason)
            throw reason
          })
        },
      })
      const client = await world.open()
      await world.open({ tasks: [work] })
      const quick = await client.schedule(work, 'quick')
      const slow = await client.schedule(work, 'slow')
      const result = quick.result()
      await world.runFor(3)
      expect(await result).toBe('done')
      expect(await slow.cancel()).toBe('cancelled')
      const stopped = slow.cancelled()
      await world.runFor(3)
      expect(await stopped).toMatchObject({
        success: true,
        ledger: [{ status: 'cancelled', receipt: 'aborted' }],
      })
      expect(reasons).toMatchObject([{ code: 'cancelled' }])
    })

    test('an operator extends what another engine runs: that one does not stop it early', async ({
      world,
    }) => {
      const { clock } = world
      const hang = task({
        name: 'hang',
        timeout: '5s',
        run: async (_, { signal }) => clock.sleep('20s', signal),
      })
      const client = await world.open()
      await world.open({ tasks: [hang] })
      const handle = await client.schedule(hang, null)
      await world.runFor(3)
      expect(await handle.status()).toBe('running')
      await handle.extend('1m')
      await world.runFor(25)
      expect(await handle.status()).toBe('completed')
    })

    test('a deadline is fired at its time by the engine that watches it, however many there are', async ({
      world,
    }) => {
      const { clock } = world
      const hang = task({ name: 'hang', run: async (_, { signal }) => clock.sleep('1h', signal) })
      const client = await world.open()
      await world.open({ tasks: [hang] })
      await world.open({ tasks: [hang] })
      const start = world.now
      const handles = await client.scheduleMany(
        hang,
        Array.from({ length: 15 }, (_, i) => i),
        { timeout: '7s' },
      )
      await world.runFor(12)
      for (const handle of handles) {
        expect(await handle.view()).toMatchObject({
          status: 'timed_out',
          endedAt: start + 7_000,
          receipt: 'aborted',
        })
      }
    })

    test('both may use the same key at the same moment: one task', async ({ world }) => {
      const engines = await Promise.all([world.open(), world.open()])
      const handles = await Promise.all(
        Array.from({ length: 40 }, (_, i) =>
          engines[i % 2]!.schedule(elsewhere, 'same', { key: `k${i % 5}` }),
        ),
      )
      expect(new Set(handles.map(({ id }) => id)).size).toBe(5)
      expect(handles.filter(({ existing }) => !existing)).toHaveLength(5)
    })

    test('one that closes hands its attempts over at once', async ({ world }) => {
      const { clock } = world
      const starts: string[] = []
      const work = (engine: string) =>
        task({
          name: 'work',
          run: async (_, { attempt, signal }) => {
            starts.push(`${engine}${attempt}`)
            if (attempt === 1) await clock.sleep('1h', signal)
            return engine
          },
        })
      const a = await world.open({ tasks: [work('a')] })
      const handle = await a.schedule(work('a'), null)
      await world.runFor(1)
      const b = await world.open({ tasks: [work('b')] })
      await world.close(a)
      await world.runFor(2)
      expect(await b.task(handle.id).result()).toBe('b')
      expect(starts).toEqual(['a1', 'b2'])
    })
  },
  ['postgres'],
)
