import { expect } from 'vitest'
import { metric, onEachStore } from '../scripts/acceptance/world.ts'
import { task } from './curfew.ts'

const elsewhere = task({ name: 'elsewhere', run: (_input: unknown) => 1 })

onEachStore(
  'many at once',
  (test) => {
    test('row 9: a backlog of expired tasks is drained at once, the longest overdue first', async ({
      world,
    }) => {
      const author = await world.open()
      const ids: string[] = []
      for (let i = 0; i < 25; i++) {
        // Later ones expire earlier.
        const handles = await author.scheduleMany(elsewhere, Array(50).fill(i), { timeout: `${60 - i}s` })
        ids.push(...handles.map(({ id }) => id))
      }
      await world.close(author)
      await world.clock.advance('1h')
      const start = world.now
      const curfew = await world.open()
      // Not a millisecond of the clock passes: nobody waits for an interval per batch.
      await world.clock.settle()
      expect(world.now).toBe(start)
      const fired = world.log.filter(({ message }) => message === 'Task timed out')
      expect(fired.map(({ fields }) => fields.taskId).toSorted()).toEqual(ids.toSorted())
      const deadlines = fired.map(({ fields }) => fields.deadline as number)
      expect(deadlines).toEqual(deadlines.toSorted((a, b) => a - b))
      expect(await metric(curfew, 'curfew_task_timeouts_total')).toBe(1_250)
    })

    test('row 57: 10,000 deadlines in the same second', async ({ world }) => {
      const curfew = await world.open()
      const start = world.now
      for (let i = 0; i < 10; i++) {
        await curfew.scheduleMany(elsewhere, Array(1_000).fill(i), { timeout: 10_000 + i * 100 })
      }
      await world.clock.advance('15s')
      const fired = world.log.filter(({ message }) => message === 'Task timed out')
      expect(fired).toHaveLength(10_000)
      expect(fired.every(({ fields }) => fields.lateMs === 0)).toBe(true)
      expect(await metric(curfew, 'curfew_deadline_lateness_seconds', { kind: 'total' }, 'count')).toBe(
        10_000,
      )
      expect(await metric(curfew, 'curfew_deadline_lateness_seconds', { kind: 'total' }, 'sum')).toBe(0)
      expect(world.log.filter(({ level }) => level === 'error' || level === 'warn')).toEqual([])
      const { tasks } = await curfew.list({ status: 'timed_out', limit: 1_000 })
      expect(tasks.every(({ endedAt, deadlineAt }) => endedAt === deadlineAt)).toBe(true)
      expect(world.now).toBe(start + 15_000)
      if (world.kind !== 'postgres') return
      // Every row was last written by the transaction that fired it: few of them, none too large.
      const [fires] = await world.sql(`select count(*)::int as transactions, max(rows)::int as largest
        from (select count(*) as rows from curfew.tasks group by xmin) as one`)
      expect(fires?.largest).toBeLessThanOrEqual(500)
      expect(fires?.transactions).toBeLessThanOrEqual(40)
    })

    test('hundreds of attempts run, fail, are retried and time out together', async ({ world }) => {
      const { clock } = world
      const mixed = task({
        name: 'mixed',
        timeout: '1m',
        attemptTimeout: '5s',
        retries: 1,
        backoff: { initial: '1s', jitter: 0 },
        run: async (n: number, { attempt, signal }) => {
          if (n % 4 === 1 && attempt === 1) throw new Error('once')
          if (n % 4 === 2) await clock.sleep('1h', signal)
          await clock.sleep('1s')
          return n
        },
      })
      const curfew = await world.open({ tasks: [mixed], concurrency: 100 })
      const handles = await curfew.scheduleMany(
        mixed,
        Array.from({ length: 400 }, (_, i) => i),
      )
      await handles[3]?.cancel()
      await clock.advance('5m')
      const outcomes = await Promise.all(handles.map((handle) => handle.status()))
      const count = (status: string) => outcomes.filter((one) => one === status).length
      expect({
        completed: count('completed'),
        timedOut: count('timed_out'),
        cancelled: count('cancelled'),
      }).toEqual({
        completed: 299,
        timedOut: 100,
        cancelled: 1,
      })
      expect(await metric(curfew, 'curfew_tasks_ended_total')).toBe(400)
      expect(await metric(curfew, 'curfew_task_retries_total')).toBe(200)
    })
  },
  ['file', 'postgres'],
)
