/** Looking at a store without an engine: nothing is written, nothing fires. */
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, inject, test as once } from 'vitest'
import type { World } from '../scripts/acceptance/world.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import { createDatabase, dropDatabase } from '../scripts/postgres/database.ts'
import { agent, Curfew, CurfewError, findHolder, job, TaskFailed, task, workflow } from './curfew.ts'
import { openReader } from './manager/open-reader.ts'
import { VirtualClock } from './testing/testing.ts'

const echo = task({ name: 'echo', run: (input: unknown) => input })
const broken = task({
  name: 'broken',
  run: () => {
    throw new Error('no luck')
  },
})
const elsewhere = task({ name: 'elsewhere', run: (_input: unknown) => 1 })
const waiting = agent({ name: 'waiting', run: (_input, ctx) => ctx.waitForSignal('go') })
const twice = workflow({
  name: 'twice',
  actions: { echo },
  nodes: [
    { id: 'first', actionId: 'echo', input: { n: '1' } },
    { id: 'second', actionId: 'echo', input: { n: '2' } },
  ],
  transitions: [{ from: 'first', to: 'second' }],
})
const nightly = job({
  name: 'nightly',
  workflows: [
    { id: 'a', workflow: twice },
    { id: 'b', task: broken, dependsOn: ['a'] },
    { id: 'c', task: echo, input: 3, dependsOn: ['b'] },
  ],
})
const ALL = { tasks: [echo, broken], agents: [waiting], workflows: [twice] }

/** Everything there is, byte by byte or row by row. */
async function everything(world: World): Promise<unknown> {
  if (world.kind === 'file') {
    const folder = path.dirname(world.store)
    return Object.fromEntries(
      readdirSync(folder).map((name) => [name, readFileSync(path.join(folder, name), 'base64')]),
    )
  }
  const tables = [
    'tasks',
    'attempts',
    'events',
    'journal',
    'signals',
    'nodes',
    'queues',
    'meta',
    'dead_letters',
  ]
  return Promise.all(tables.map((table) => world.sql(`select * from curfew.${table} order by 1, 2`)))
}

const read = (world: World) => Curfew.read(world.store, { clock: world.clock, logger: world.logger })

onEachStore(
  'reading',
  (test, kind) => {
    test('what is overdue is shown as it stands; nothing fires and nothing is written', async ({ world }) => {
      const first = await world.open()
      const start = world.now
      const { id } = await first.schedule(elsewhere, null, { timeout: '5s' })
      const delayed = await first.schedule(elsewhere, null, { delay: '10s' })
      await world.close(first)
      await world.clock.advance('1h')
      const before = await everything(world)

      const reader = await read(world)
      const overdue = { status: 'pending', deadlineAt: start + 5_000, endedAt: null }
      expect(await reader.task(id).view()).toMatchObject(overdue)
      const { binding, limits } = await reader.task(id).explain()
      expect(binding).toMatchObject({ kind: 'total', remainingMs: 0 })
      expect(limits).toMatchObject([{ kind: 'total', active: true, remainingMs: 5_000 - 3_600_000 }])
      await world.clock.advance('1h')
      expect(await reader.task(id).view()).toMatchObject(overdue)
      expect(await reader.task(delayed.id).status()).toBe('pending')
      expect((await reader.task(id).events()).map(({ type }) => type)).toEqual(['task_scheduled'])
      expect((await reader.list({ status: 'pending' })).tasks).toHaveLength(2)
      await reader.close()
      expect(await everything(world)).toEqual(before)

      const second = await world.open()
      await world.clock.settle()
      expect(await second.task(id).view()).toMatchObject({
        status: 'timed_out',
        endedAt: start + 7_200_000,
      })
    })

    test('a reader answers what the engine did', async ({ world }) => {
      const curfew = await world.open(ALL)
      const { id: jobId } = await curfew.submit(nightly)
      const { id: agentId } = await curfew.start(waiting, null)
      const { id: failedId } = await curfew.schedule(broken)
      const { id: doneId } = await curfew.schedule(echo, { n: 7 })
      await world.clock.settle()
      const ask = async (of: Pick<Curfew, 'list' | 'task' | 'agent' | 'job' | 'workflow'>) => {
        const members = await of.job(jobId).workflows()
        const runId = members[0]?.runId as string
        const handles = [
          ...[of.job(jobId), of.workflow(runId), of.agent(agentId)],
          ...[of.task(failedId), of.task(doneId)],
        ]
        return {
          members,
          run: await of.workflow(runId).run(),
          list: await of.list(),
          page: await of.list({ kind: 'task', limit: 2 }),
          views: await Promise.all(handles.map((one) => one.view())),
          explanations: await Promise.all(handles.map((one) => one.explain())),
          events: await Promise.all(handles.map((one) => one.events())),
          outcome: await of.task(doneId).result(),
          failure: (await errorOf(of.task(failedId).result(), TaskFailed)).message,
          ledger: (await of.task(failedId).cancelled()).ledger,
        }
      }
      const answers = await ask(curfew)
      expect(answers.members.map(({ status }) => status)).toEqual(['completed', 'failed', 'cancelled'])
      expect(answers.run.tokens).toHaveLength(2)
      await world.close(curfew)
      const reader = await read(world)
      expect(await ask(reader)).toEqual(answers)
      expect(await errorOf(reader.task('t_none').view(), CurfewError)).toMatchObject({ code: 'not_found' })
      await reader.close()
      expect(await errorOf(reader.list(), CurfewError)).toMatchObject({ code: 'closed' })
    })

    test('whatever would change something, or needs somebody who works, is refused', async ({ world }) => {
      const curfew = await world.open(ALL)
      const { id } = await curfew.start(waiting, null)
      const { id: jobId } = await curfew.submit(nightly)
      await world.clock.settle()
      await world.close(curfew)
      const before = await everything(world)
      const reader = await read(world)
      const service = await openReader(world.store, { clock: world.clock, logger: world.logger })
      const request = {
        what: { task: 'echo' },
        input: 1,
        key: null,
        timeout: null,
        delay: null,
        trace: null,
        requestId: null,
      }
      const refusals = [
        () => reader.schedule(echo, 1),
        () => reader.start(waiting, null),
        () => reader.submit(nightly),
        () => service.submit(request),
        () => reader.resume(id),
        () => reader.agent(id).cancel(),
        () => reader.agent(id).extend('1m'),
        () => reader.agent(id).signal('go', 1),
        () => reader.agent(id).result(),
        () => reader.agent(id).result({ timeout: '1ms' }),
        () => reader.job(jobId).workflow('a').cancel(),
        () => reader.metrics(),
        () => service.workers(),
        () => service.serverStatus(),
      ]
      for (const [i, refused] of refusals.entries()) {
        const error = await errorOf(refused(), CurfewError)
        expect(error, `${i}`).toMatchObject({ code: 'read_only' })
        expect(error.message, `${i}`).toContain(
          kind === 'file' ? `nobody works on ${world.store}` : 'the database is only read here',
        )
        expect(error.message).not.toContain('postgres://')
      }
      const { hint } = await errorOf(reader.resume(id), CurfewError)
      expect(hint).toContain(
        kind === 'file' ? `curfew manager --store ${world.store}` : 'Connect to a manager',
      )
      await reader.close()
      await service.close()
      expect(await everything(world)).toEqual(before)
    })

    test('what has settled is answered; what has not is not waited for', async ({ world }) => {
      const curfew = await world.open(ALL)
      const { id: jobId } = await curfew.submit(nightly)
      const { id } = await curfew.start(waiting, null)
      const open = await curfew.submit(job({ name: 'open', workflows: [{ id: 'one', agent: waiting }] }))
      await world.clock.settle()
      await world.close(curfew)
      const service = await openReader(world.store, { clock: world.clock, logger: world.logger })
      expect(await service.settled(jobId)).toMatchObject({ status: 'not_completed', task: { id: jobId } })
      expect(await service.memberSettled(jobId, 'a')).toMatchObject({ id: 'a', status: 'completed' })
      expect(await service.memberSettled(jobId, 'c')).toMatchObject({ status: 'cancelled', runId: null })
      for (const one of [service.settled(id), service.memberSettled(open.id, 'one')]) {
        expect(await errorOf(one, CurfewError)).toMatchObject({ code: 'read_only' })
      }
      expect(await errorOf(service.settled('t_none'), CurfewError)).toMatchObject({ code: 'not_found' })
      expect(await errorOf(service.memberSettled(jobId, 'z'), CurfewError)).toMatchObject({
        code: 'not_found',
      })

      const watched = async (of: string) => {
        const views = []
        let code: string | null = null
        try {
          for await (const view of service.watch(of, 1, new AbortController().signal)) views.push(view)
        } catch (error) {
          code = (error as CurfewError).code
        }
        return { views, code }
      }
      const settled = await watched(jobId)
      expect(settled).toMatchObject({ views: [{ final: true, truncated: false }], code: null })
      expect(settled.views[0]?.events[0]?.seq).toBe(2)
      expect(await watched(id)).toMatchObject({ views: [{ final: false, work: { id } }], code: 'read_only' })
      expect(await watched('t_none')).toEqual({ views: [], code: 'not_found' })
      await service.close()
    })
  },
  ['file', 'postgres'],
)

onEachStore(
  'reading a file',
  (test) => {
    test('what a killed process had committed is seen, and what it ran is shown as running', async ({
      world,
    }) => {
      const hang = task({ name: 'hang', run: () => new Promise(() => undefined) })
      const curfew = await world.open({ tasks: [hang] })
      const { id } = await curfew.schedule(hang)
      await world.clock.settle()
      await world.crash()
      const reader = await read(world)
      expect(await reader.task(id).view()).toMatchObject({ status: 'running', attempts: 1 })
      await reader.close()
      const second = await world.open({ tasks: [echo] })
      expect(await second.task(id).view()).toMatchObject({ status: 'pending' })
    })

    test('time goes on from the highest that was written, though the clock stands before it', async ({
      world,
    }) => {
      world.clock = new VirtualClock(Date.UTC(2100, 0, 1))
      const curfew = await world.open()
      const { id } = await curfew.schedule(elsewhere, null, { timeout: '1h' })
      await world.clock.advance('10m')
      await world.close(curfew)
      const reader = await Curfew.read(world.store, { logger: world.logger })
      const { binding } = await reader.task(id).explain()
      await reader.close()
      expect(binding?.remainingMs).toBeLessThanOrEqual(50 * 60_000)
      expect(binding?.remainingMs).toBeGreaterThan(49 * 60_000)
    })

    test('that an engine works on is refused with its pid; its socket is where the engine says', async ({
      world,
    }) => {
      expect(findHolder(world.store)).toBeNull()
      const curfew = await world.open()
      expect(findHolder(world.store)).toMatchObject({ pid: process.pid })
      expect(await errorOf(read(world), CurfewError)).toMatchObject({
        code: 'store_unavailable',
        fields: { pid: process.pid },
      })
      await world.close(curfew)
      expect(findHolder(world.store)).toBeNull()
      await (await read(world)).close()
    })

    test('that is not there is told, and not made', async ({ world }) => {
      expect(await errorOf(read(world), CurfewError)).toMatchObject({ code: 'store_missing' })
      expect(readdirSync(path.dirname(world.store))).toEqual([])
    })
  },
  ['file'],
)

onEachStore(
  'reading a database',
  (test) => {
    test('others work on it meanwhile, and do not know of it', async ({ world }) => {
      const curfew = await world.open(ALL)
      const reader = await read(world)
      const { id } = await curfew.schedule(echo, 1)
      await curfew.task(id).result()
      expect(await reader.task(id).view()).toMatchObject({ status: 'completed', output: 1 })
      expect(await world.sql('select id from curfew.nodes')).toHaveLength(1)
      await reader.close()
    })

    test('of another version is told with both versions, and left alone', async ({ world }) => {
      await world.close(await world.open())
      const setVersion = (value: string) =>
        world.sql(`update curfew.meta set value = $1 where key = 'schema_version'`, value)
      const [{ value: ours } = { value: '' }] = await world.sql(
        `select value from curfew.meta where key = 'schema_version'`,
      )
      try {
        for (const [version, said] of [
          ['99', `the database has schema version 99; this version of curfew knows up to ${ours}`],
          ['0', `the database has schema version 0; this version of curfew reads ${ours}`],
        ] as const) {
          await setVersion(version)
          const error = await errorOf(read(world), CurfewError)
          expect(error.code).toBe('store_refused')
          expect(error.message).toContain(said)
        }
      } finally {
        await setVersion(ours as string)
      }
    })
  },
  ['postgres'],
)

once('a database without a store is told, and none is made', async () => {
  const url = await createDatabase(inject('postgresUrl'))
  try {
    for (let tries = 0; tries < 2; tries++) {
      expect(await errorOf(Curfew.read(url), CurfewError)).toMatchObject({ code: 'store_missing' })
    }
  } finally {
    await dropDatabase(url)
  }
})
