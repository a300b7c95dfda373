/** Tasks over the wire are what they are in one process: the same calls, the same answers. */
import { expect } from 'vitest'
import { bothWays, expectSameReads, readAll, shapeOf } from '../scripts/acceptance/both-ways.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import { HandlerError, task } from './curfew.ts'

function worksOf(gates: Gates) {
  const echo = task({ name: 'echo', run: (value: unknown) => value })
  const hold = task({
    name: 'hold',
    timeout: '1m',
    grace: '1s',
    run: async (name: string, ctx) => {
      ctx.progress({ completed: 1, total: 4 }, { on: name, list: [1, null, 'x'] })
      return gates.pass(name, ctx.signal)
    },
  })
  const breaks = task({
    name: 'breaks',
    run: (code: string) => {
      throw new HandlerError(`it broke: ${code}`, {
        ...{ code, retryable: false, details: { why: [code, null] }, cause: new Error('below it') },
      })
    },
  })
  const shaky = task({
    name: 'shaky',
    retries: 2,
    backoff: { initial: '1ms', max: '1ms' },
    run: (_: null, { attempt }) => {
      if (attempt < 3) throw new Error(`attempt ${attempt} of three`)
      return attempt
    },
  })
  return { tasks: [echo, hold, breaks, shaky], echo, hold, breaks, shaky }
}

onEachWire('tasks over the wire', (test) => {
  test('are scheduled with every option, and read the same', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, _gates, { echo }) => {
      const value = {
        text: 'ü\u0000\ud83d\ude00',
        list: [1, -0.5, 1e21, null, true, [], {}],
        deep: { a: { b: [{}] } },
      }
      const plain = await client.schedule(echo, value)
      const keyed = await client.schedule(echo, 'k', { key: 'one', priority: -3 })
      const again = await client.schedule(echo, 'k', { key: 'one', priority: 7 })
      const limited = await client.schedule(echo, null, {
        ...{ timeout: '1h', attemptTimeout: '30m', queueTimeout: '20m', heartbeatTimeout: '5m' },
        ...{ stuckAfter: '6m', retries: 3, grace: '2s', softStop: '1s', warnAt: 0.5, atMostOnce: true },
        ...{ onTimeout: 'fail', retention: '1d', extensions: { base: '4s', max: 2 } },
        backoff: { initial: '1s', factor: 3, max: '9s', jitter: 0 },
      })
      const outputs = [await plain.result(), await keyed.result(), await limited.result()]
      const many = await client.scheduleMany(echo, ['a', 'b', 'c'], { keys: ['ka', 'kb', 'kc'] })
      const results = await Promise.all(many.map((handle) => handle.result()))
      const none = await client.scheduleMany(echo, [])
      const delayed = await client.schedule(echo, 'later', { delay: '1h', timeout: '2h', queue: 'other' })
      const dated = await client.schedule(echo, 'then', { startAt: Date.UTC(2100, 0, 1) })
      const { startAt } = await dated.view()
      const delay = await delayed.view()
      return [
        ...[outputs, results, none, startAt === Date.UTC(2100, 0, 1), delay.startAt - delay.createdAt],
        ...[plain.kind, plain.existing, keyed.existing, again.existing, again.id === keyed.id],
        ...[await readAll(client, plain.id), await readAll(client, keyed.id)],
        ...[
          await readAll(client, limited.id),
          await readAll(client, delayed.id),
          await readAll(client, dated.id),
        ],
      ]
    })
  })

  test('are cancelled with the same ledger, extended, and counted', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, gates, { echo, hold }) => {
      const pending = await client.schedule(echo, 1, { delay: '1h' })
      const answers = [await pending.cancel(), await pending.cancel(), await pending.cancelled()]
      const running = await client.schedule(hold, 'a')
      await until(() => gates.entered.includes('a'))
      await until(async () => (await running.view()).progress !== null)
      const seen = await readAll(client, running.id)
      const before = (await running.view()).deadlineAt as number
      const extended = (await running.extend('1h')).deadlineAt as number
      const cancelled = [await running.cancel(), await running.cancelled(), await running.cancel()]
      const done = await client.schedule(echo, 2)
      await done.result()
      const metrics = await client.metrics()
      const ended = metrics.find(({ name }) => name === 'curfew_tasks_ended_total')
      return [
        ...[answers, seen, extended - before, cancelled, await readAll(client, running.id)],
        ...[await done.cancel(), await done.cancelled(), await client.task('t_nobody').cancel()],
        ...[metrics.map(({ name, help, type }) => [name, help, type]), ended],
        metrics
          .find(({ name }) => name === 'curfew_task_duration_seconds')
          ?.values.map(({ labels, metricName }) => ({
            labels,
            metricName,
          })),
      ]
    })
  })

  test('fail with errors of the same class, code, message and fields', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, gates, { breaks, hold, shaky, echo }) => {
      const failed = await client.schedule(breaks, 'no_luck')
      const tried = await client.schedule(shaky, null)
      const total = await client.schedule(hold, 'total', { timeout: '2s', warnAt: 1 })
      const attempt = await client.schedule(hold, 'attempt', {
        ...{ timeout: null, attemptTimeout: '20ms', warnAt: 1 },
      })
      const queue = await client.schedule(echo, 1, { queue: 'nobody', queueTimeout: '20ms', warnAt: 1 })
      const stopped = await client.schedule(hold, 'stopped')
      await until(() => gates.entered.includes('stopped'))
      const waited = await shapeOf(stopped.result({ timeout: '5ms' }))
      await stopped.cancel()
      const shapes = []
      for (const { id } of [failed, total, attempt, queue, stopped]) {
        shapes.push(await shapeOf(client.task(id).result()), await readAll(client, id))
      }
      return [...shapes, waited, await tried.result(), await readAll(client, tried.id)]
    })
  })

  test('are refused with errors of the same class, code, message, hint and fields', async ({ wire }) => {
    const gathered = await bothWays(wire, worksOf, async (client, _gates, { echo, hold }) => {
      const handle = await client.schedule(echo, 1, { key: 'mine' })
      await handle.result()
      const nobody = client.task('t_00000000000000000000000000')
      const cycle: unknown[] = []
      cycle.push(cycle)
      const calls: [string, () => Promise<unknown>][] = [
        ['key_conflict', () => client.schedule(echo, 2, { key: 'mine' })],
        ['not_found', () => nobody.view()],
        ['not_found', () => nobody.result()],
        ['not_found', () => nobody.extend('1s')],
        ['not_found', () => nobody.events()],
        ['not_found', () => nobody.explain()],
        ['not_found', () => nobody.resume()],
        ['not_found', () => nobody.cancelled()],
        ['refused', () => handle.extend('1s')],
        ['refused', () => handle.resume()],
        ['refused', () => client.agent(handle.id).signal('x', 1)],
        ['refused', () => client.workflow(handle.id).run()],
        ['refused', () => client.job(handle.id).workflows()],
        ['too_big', () => client.schedule(echo, 'x'.repeat(1024 * 1024))],
        ['invalid_json', () => client.schedule(echo, cycle)],
        ['invalid_json', () => client.schedule(echo, { n: Number.NaN })],
        ['invalid_duration', () => client.schedule(hold, 'a', { timeout: -1 })],
        ['invalid_option', () => client.schedule(hold, 'a', { priority: 1e9 })],
        ['invalid_option', () => client.list({ limit: 0 })],
        ['invalid_option', () => client.list({ status: 'gone' as never })],
        ['invalid_option', () => client.list({ status: [] })],
        ['invalid_option', () => client.list({ kind: 'flow' as never })],
        ['invalid_option', () => client.list({ timeoutKind: 'late' as never })],
        ['invalid_option', () => client.list({ parked: 'no' as never })],
        ['invalid_option', () => client.list({ state: 'running' } as object)],
        ['invalid_name', () => client.list({ name: '' })],
        ['invalid_name', () => client.list({ parent: 5 as never })],
        ['invalid_option', () => client.scheduleMany(echo, [1, 2], { keys: ['a'] })],
        ['invalid_name', () => client.schedule(echo, 1, { key: '' })],
        ['invalid_option', () => client.submitNamed({})],
        ['unknown_task', () => client.submitNamed({ task: 'eco' })],
        [
          'not_found',
          async () => {
            for await (const _ of client.watch('t_nobody')) break
          },
        ],
      ]
      const shapes = []
      for (const [code, call] of calls) {
        const shape = (await shapeOf(Promise.resolve().then(call))) as { code: string }
        expect([code, shape]).toMatchObject([code, { code }])
        shapes.push(shape)
      }
      return shapes
    })
    expect(gathered).toContainEqual(expect.objectContaining({ class: 'CurfewError', code: 'key_conflict' }))
  })

  test('are listed with every filter, page by page', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, _gates, { echo, hold, breaks }) => {
      await Promise.all((await client.scheduleMany(echo, [1, 2, 3])).map((handle) => handle.result()))
      await shapeOf((await client.schedule(breaks, 'x')).result())
      await shapeOf((await client.schedule(hold, 'late', { timeout: '2s', warnAt: 1 })).result())
      await client.schedule(echo, 4, { delay: '1h', queue: 'other' })
      const lists = []
      for (const filter of [
        ...[
          {},
          { status: 'completed' },
          { status: ['failed', 'timed_out'] },
          { name: 'echo' },
          { name: 'nobody' },
        ],
        ...[{ queue: 'other' }, { timeoutKind: 'total' }, { timeoutKind: 'queue' }, { kind: 'task' }],
        ...[{ kind: 'agent' }, { parked: true }, { parked: false }, { parent: 'g_nobody' }],
      ] as const) {
        lists.push([filter, await client.list(filter)])
      }
      const pages = []
      for (let cursor: string | null = null, more = true; more; more = cursor !== null) {
        const page: Awaited<ReturnType<typeof client.list>> = await client.list({
          limit: 4,
          ...(cursor !== null && { cursor }),
        })
        pages.push(page)
        cursor = page.cursor
      }
      expect(pages.map(({ tasks }) => tasks.length)).toEqual([4, 2])
      return [lists, pages]
    })
  })

  test('read the same through the engine and through a client of it, to the last field', async ({ wire }) => {
    const gates = new Gates()
    const works = worksOf(gates)
    const manager = await wire.manager()
    await wire.work(manager, { tasks: works.tasks })
    const client = await wire.connect(manager)
    const trace = { traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`, tracestate: 'x=1' }
    const running = await client.schedule(works.hold, 'a', { trace, key: 'k' })
    const handles = [
      await client.schedule(works.echo, { deep: [{ a: null }] }),
      await client.schedule(works.breaks, 'code'),
      await client.schedule(works.shaky, null),
      await client.schedule(works.hold, 'b', { timeout: '10ms' }),
    ]
    for (const handle of handles) await shapeOf(handle.result())
    await until(async () => (await running.view()).progress !== null)
    for (const { id } of [running, ...handles]) await expectSameReads(manager, client, id)
    expect(await client.metrics()).toStrictEqual(await manager.metrics())
    expect(await client.list()).toStrictEqual(await manager.list())
    const [seen] = await client.workers()
    expect({ ...seen, heardAt: 0 }).toStrictEqual({ ...(await manager.workers())[0], heardAt: 0 })
    const { now: _, ...status } = await client.serverStatus()
    expect(await manager.serverStatus()).toMatchObject(status)
    gates.open('a')
    expect(await running.result()).toBe('a')
  })
})
