// What is left when a process dies: the world's crash() is a kill -9 on the virtual clock. (Real ones: faults/.)

import { expect } from 'vitest'
import { errorOf, metric, onEachStore } from '../scripts/acceptance/world.ts'
import { CurfewError, TaskFailed, TaskTimedOut, task } from './curfew.ts'

const elsewhere = task({ name: 'elsewhere', run: (_input: unknown) => 1 })

onEachStore(
  'recovery',
  (test, kind) => {
    /** An attempt's lease on PostgreSQL, with the default grace; over a file the lock proves the death at once. */
    const leaseMs = kind === 'postgres' ? 15_000 : 0

    test('row 31: a deadline that fell while nobody was there fires first thing after the restart', async ({
      world,
    }) => {
      const first = await world.open()
      const start = world.now
      const { id } = await first.schedule(elsewhere, null, { timeout: '5s' })
      await world.close(first)
      await world.clock.advance('1h')
      const second = await world.open()
      await world.clock.settle()
      expect(await second.task(id).view()).toMatchObject({
        status: 'timed_out',
        deadlineAt: start + 5_000,
        endedAt: start + 3_600_000,
      })
      const [event] = (await second.task(id).events()).filter(({ type }) => type === 'task_timed_out')
      expect(event).toMatchObject({ deadlineAt: start + 5_000, lateMs: 3_595_000 })
      expect(await metric(second, 'curfew_deadline_lateness_seconds', { kind: 'total' }, 'sum')).toBe(3_595)
    })

    test('row 31: a deadline in the future is kept over the restart, not started again', async ({
      world,
    }) => {
      const first = await world.open()
      const start = world.now
      const { id } = await first.schedule(elsewhere, null, { timeout: '10s', delay: '1s' })
      await world.clock.advance('4s')
      await world.crash()
      const second = await world.open()
      await world.clock.advance('3s')
      expect(await second.task(id).status()).toBe('pending')
      await world.clock.advance('30s')
      const view = await second.task(id).view()
      expect(view.deadlineAt).toBe(start + 11_000)
      expect(view.status).toBe('timed_out')
    })

    test('row 18: what expired while nobody was there is not handed out, though the claim comes first', async ({
      world,
    }) => {
      let starts = 0
      const work = task({ name: 'work', run: () => ++starts })
      const first = await world.open()
      const total = await first.schedule(work, null, { timeout: '5s' })
      const queued = await first.schedule(work, null, { queueTimeout: '5s' })
      const free = await first.schedule(work, null)
      await world.close(first)
      await world.clock.advance('1h')
      const second = await world.open({ tasks: [work] })
      await world.clock.settle()
      expect(await second.task(total.id).view()).toMatchObject({ status: 'timed_out', attempts: 0 })
      expect(await second.task(queued.id).view()).toMatchObject({ timeoutKind: 'queue', attempts: 0 })
      expect(await second.task(free.id).result()).toBe(1)
      expect(starts).toBe(1)
    })

    test('row 32: the worker is killed; the deadline fires without it', async ({ world }) => {
      const hang = task({ name: 'hang', timeout: '30s', run: () => new Promise(() => undefined) })
      const first = await world.open({ tasks: [hang] })
      const start = world.now
      const { id } = await first.schedule(hang, null)
      await world.clock.advance('2s')
      await world.crash()
      const second = await world.open()
      await world.runFor(60)
      const view = await second.task(id).view()
      expect(view).toMatchObject({ status: 'timed_out', timeoutKind: 'total', deadlineAt: start + 30_000 })
      expect(view.endedAt).toBe(start + 30_000)
      expect(await errorOf(second.task(id).result(), TaskTimedOut)).toMatchObject({ attempts: 1 })
    })

    test('an attempt whose process died is repeated once its lease is over, outside its retries', async ({
      world,
    }) => {
      const starts: string[] = []
      const work = task({
        name: 'work',
        run: (_, { attempt }) => {
          starts.push(`${attempt} at ${world.now - start}`)
          return attempt === 1 ? new Promise(() => undefined) : 'well'
        },
      })
      const first = await world.open({ tasks: [work] })
      const start = world.now
      const { id } = await first.schedule(work, null)
      await world.clock.advance('2s')
      await world.crash()
      const second = await world.open({ tasks: [work] })
      if (leaseMs) {
        await world.runFor(leaseMs / 1_000 - 3)
        expect(starts).toEqual(['1 at 0'])
      }
      await world.runFor(8)
      expect(starts).toHaveLength(2)
      expect(await second.task(id).result()).toBe('well')
      expect((await second.task(id).explain()).attempts).toMatchObject([
        { attempt: 1, status: 'lost', receipt: kind === 'file' ? 'killed' : 'unreachable' },
        { attempt: 2, status: 'completed' },
      ])
      expect(await metric(second, 'curfew_attempts_lost_total', { name: 'work' })).toBe(1)
    })

    test('row 17: killed, the attempt ends at its heartbeat limit and is repeated within the deadline', async ({
      world,
    }) => {
      let attempts = 0
      const beating = task({
        name: 'beating',
        timeout: '1m',
        heartbeatTimeout: '2s',
        retries: 1,
        backoff: { initial: '1s', jitter: 0 },
        run: (_, { attempt }) => {
          attempts = attempt
          return attempt === 1 ? new Promise(() => undefined) : 'well'
        },
      })
      const first = await world.open({ tasks: [beating] })
      const start = world.now
      const { id } = await first.schedule(beating, null)
      await world.clock.advance('1s')
      await world.crash()
      const second = await world.open({ tasks: [beating] })
      for (let i = 0; i < 30 && attempts < 2; i++) await world.clock.advance('1s')
      expect(await second.task(id).result()).toBe('well')
      const [ended] = (await second.task(id).explain()).attempts
      if (kind === 'postgres') {
        expect(ended).toMatchObject({ status: 'timed_out', timeoutKind: 'heartbeat', receipt: 'unreachable' })
        const [event] = (await second.task(id).events()).filter(({ type }) => type === 'attempt_timed_out')
        expect(event).toMatchObject({ kind: 'heartbeat', deadlineAt: start + 2_000 })
        // Somebody else's deadline: fired once it is overdue by a leadership lease.
        expect(event?.lateMs).toBeLessThanOrEqual(5_000)
      } else expect(ended).toMatchObject({ status: 'lost' })
      expect(world.now - start).toBeLessThan(60_000)
    })

    test('three losses in a row are repeated, the fourth fails the task; atMostOnce fails at the first', async ({
      world,
    }) => {
      const dies = task({ name: 'dies', run: () => new Promise(() => undefined) })
      let curfew = await world.open({ tasks: [dies] })
      const { id } = await curfew.schedule(dies, null)
      const once = await curfew.schedule(dies, null, { atMostOnce: true })
      for (let i = 1; i <= 4; i++) {
        await world.clock.settle()
        expect(await curfew.task(id).view()).toMatchObject({ status: 'running', attempts: i })
        await world.crash()
        curfew = await world.open({ tasks: [dies] })
        await world.runFor(leaseMs / 1_000 + 4)
      }
      expect(await errorOf(curfew.task(id).result(), TaskFailed)).toMatchObject({
        attempts: 4,
        failure: { code: 'lost' },
      })
      expect(await errorOf(curfew.task(once.id).result(), TaskFailed)).toMatchObject({
        attempts: 1,
        failure: { code: 'lost' },
      })
    })

    test('a warning is given once per limit and attempt, and not again after a restart', async ({
      world,
    }) => {
      const { clock } = world
      const hang = task({
        name: 'hang',
        timeout: '100s',
        attemptTimeout: '50s',
        retries: 1,
        backoff: { initial: '1s', jitter: 0 },
        run: async (_, { signal }) => clock.sleep('1h', signal),
      })
      const first = await world.open({ tasks: [hang] })
      const start = world.now
      const { id } = await first.schedule(hang, null)
      const waiting = await first.schedule(elsewhere, null, { timeout: '100s', queueTimeout: '1h' })
      await clock.advance('90s')
      const warnings = async (curfew: typeof first, of: string) =>
        (await curfew.task(of).events())
          .filter(({ type }) => type === 'limit_warning')
          .map(({ kind: limit, at, percent }) => `${limit} ${percent} % at ${at - start}`)
      const expected = ['execution 80 % at 40000', 'total 80 % at 80000']
      expect(await warnings(first, id)).toEqual(expected)
      await world.close(first)
      const second = await world.open()
      await clock.advance('5s')
      expect(await warnings(second, waiting.id)).toEqual(['total 80 % at 80000'])
      await clock.advance('1m')
      expect(await warnings(second, waiting.id)).toEqual(['total 80 % at 80000'])
      expect(await warnings(second, id)).toEqual(expected)
      expect(await second.task(waiting.id).status()).toBe('timed_out')
    })

    test('row 34: a record that cannot be read is parked and does not hold up the others', async ({
      world,
    }) => {
      const first = await world.open()
      const handles = await first.scheduleMany(elsewhere, [1, 2, 3], { timeout: '5s' })
      const bad = handles[1]!.id
      const [before] = await (async () => {
        await world.close(first)
        return world.sql('select policy from curfew.tasks where id = $1'.replace('$1', `'${bad}'`))
      })()
      await world.sql(`update curfew.tasks set policy = '{"timeoutMs": ' where id = '${bad}'`)
      const second = await world.open()
      await world.clock.advance('10s')
      for (const { id } of [handles[0]!, handles[2]!])
        expect(await second.task(id).status()).toBe('timed_out')
      // It can be seen, and it holds nothing up from now on.
      const listed = (await second.list()).tasks.find(({ id }) => id === bad)
      expect(listed).toMatchObject({ status: 'pending', parked: expect.stringContaining('cannot be read') })
      await world.clock.advance('1m')
      const later = await second.schedule(elsewhere, 4, { timeout: '5s' })
      await world.clock.advance('5s')
      expect(await later.status()).toBe('timed_out')
      // Repaired, it goes on where it was.
      await world.close(second)
      await world.sql(`update curfew.tasks set policy = '${String(before?.policy)}' where id = '${bad}'`)
      const third = await world.open()
      await third.task(bad).resume()
      await world.clock.settle()
      expect(await third.task(bad).status()).toBe('timed_out')
      expect(await errorOf(third.task(bad).resume(), CurfewError)).toMatchObject({ code: 'refused' })
    })

    test('row 34: a record that cannot be read does not hold up the claims of others either', async ({
      world,
    }) => {
      const first = await world.open()
      const work = task({ name: 'work', run: (n: number) => (n === 2 ? Promise.reject(new Error('no')) : n) })
      const handles = await first.scheduleMany(work, [1, 2, 3])
      await world.close(first)
      await world.sql(`update curfew.tasks set policy = 'nonsense' where id = '${handles[1]!.id}'`)
      const second = await world.open({ tasks: [work] })
      await world.clock.settle()
      expect(await second.task(handles[0]!.id).result()).toBe(1)
      expect(await second.task(handles[2]!.id).result()).toBe(3)
      // It ran, and when it failed nobody could tell what its policy wants.
      expect(await second.task(handles[1]!.id).view()).toMatchObject({
        parked: expect.any(String),
        output: null,
      })
      expect(await (await second.schedule(work, 4)).result()).toBe(4)
    })

    test('the limit of a queue is kept over a restart, until it is taken away', async ({ world }) => {
      const { clock } = world
      const work = task({
        name: 'work',
        queue: 'narrow',
        run: async (_, { signal }) => clock.sleep('1h', signal),
      })
      const running = async (curfew: typeof first) => (await curfew.list({ status: 'running' })).tasks.length
      const first = await world.open({ tasks: [work], queues: { narrow: { concurrency: 2 } } })
      await first.scheduleMany(work, [1, 2, 3, 4, 5])
      await clock.settle()
      expect(await running(first)).toBe(2)
      await world.close(first)
      const second = await world.open({ tasks: [work] })
      await clock.settle()
      expect(await running(second)).toBe(2)
      await world.close(second)
      const third = await world.open({ tasks: [work], queues: { narrow: { concurrency: null } } })
      await clock.settle()
      expect(await running(third)).toBe(5)
    })

    test('row 4: opening an older store keeps its rows, and what is due is found by a partial index', async ({
      world,
    }) => {
      const first = await world.open()
      const plain = await first.schedule(elsewhere, null)
      const due = await first.schedule(elsewhere, null, { timeout: '5s' })
      await world.close(first)
      const second = await world.open()
      expect(await second.task(plain.id).view()).toMatchObject({ status: 'pending', deadlineAt: null })
      expect(await second.task(due.id).view()).toMatchObject({
        status: 'pending',
        deadlineAt: world.now + 5_000,
      })
      await world.close(second)
      if (kind === 'file') {
        const [index] = await world.sql(`select sql from sqlite_schema where name = 'tasks_due'`)
        expect(index?.sql).toContain('where due_at is not null')
        const plan = await world.sql(
          'explain query plan select * from tasks where due_at <= 5 order by due_at limit 500',
        )
        expect(JSON.stringify(plan)).toContain('USING INDEX tasks_due')
      } else {
        const [index] = await world.sql(`select indexdef from pg_indexes where indexname = 'tasks_due'`)
        expect(index?.indexdef).toContain('WHERE (due_at IS NOT NULL)')
      }
    })
  },
  ['file', 'postgres'],
)
