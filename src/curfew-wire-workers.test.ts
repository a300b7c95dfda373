/** Several workers of one manager: who runs what, how it is shared, and how they come and go. */
import { createClient } from '@connectrpc/connect'
import { expect } from 'vitest'
import type { WireWorld } from '../scripts/acceptance/wire-world.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import type { Curfew } from './curfew.ts'
import { agent, task } from './curfew.ts'
import type { AttachRequest } from './wire/gen/curfew/v1/workers_pb.ts'
import { WorkerService } from './wire/gen/curfew/v1/workers_pb.ts'
import { endpointOf } from './wire/http-client.ts'
import { fromConnectError } from './wire/wire-error.ts'

/** A task of this name, held by its gates, that says who ran it. */
const heldBy = (who: string, gates: Gates, name = 'hold', queue = 'default') =>
  task({
    ...{ name, queue, grace: '1s' },
    run: async (key: string, { signal }) => {
      await gates.pass(`${who} ${key}`, signal)
      return who
    },
  })

const countOf = (gates: Gates, who: string) =>
  gates.entered.filter((name) => name.startsWith(`${who} `)).length

function rpcTo(wire: WireWorld, manager: Curfew) {
  const endpoint = endpointOf(manager.url as string)
  wire.atEnd(async () => endpoint.close())
  return createClient(WorkerService, endpoint.transport)
}

onEachWire('workers over the wire', (test) => {
  test('run what they know, of the queues they work', async ({ wire }) => {
    const manager = await wire.manager()
    const say = (who: string, name: string, queue = 'default') => task({ name, queue, run: () => who })
    await wire.work(manager, { tasks: [say('a', 'red'), say('a', 'blue')] })
    await wire.work(manager, { tasks: [say('b', 'green')] })
    await wire.work(manager, { tasks: [say('c', 'any', 'fast')], queues: ['fast'] })
    await wire.work(manager, { tasks: [say('d', 'any', 'slow')], queues: ['slow'] })
    const client = await wire.connect(manager)
    const run = async (name: string, queue = 'default') =>
      (await client.schedule(say('', name), undefined, { queue })).result({ timeout: '20s' })
    expect([await run('red'), await run('blue'), await run('green')]).toEqual(['a', 'a', 'b'])
    expect([await run('any', 'fast'), await run('any', 'slow')]).toEqual(['c', 'd'])
    // Nobody: it waits for one that does.
    const waits = await client.schedule(say('', 'any'), undefined, { queue: 'other' })
    const unknown = await client.schedule(say('', 'purple'))
    await wire.work(manager, {
      tasks: [say('e', 'any', 'other'), say('e', 'purple')],
      queues: ['default', 'other'],
    })
    expect([await waits.result({ timeout: '20s' }), await unknown.result({ timeout: '20s' })]).toEqual([
      'e',
      'e',
    ])
  })

  test('of several kinds get work that comes at once, each its own', async ({ wire }) => {
    const manager = await wire.manager()
    const names = ['red', 'green', 'blue', 'grey']
    const say = (name: string) => task({ name, queue: name, run: (round: number) => `${name} ${round}` })
    for (const name of names) await wire.work(manager, { tasks: [say(name)], queues: [name], concurrency: 1 })
    const client = await wire.connect(manager)
    for (let round = 0; round < 30; round++) {
      const handles = await Promise.all(names.map((name) => client.schedule(say(name), round)))
      const said = await Promise.all(handles.map((handle) => handle.result({ timeout: '10s' })))
      expect(said).toEqual(names.map((name) => `${name} ${round}`))
    }
  })

  test('that are alike get equal shares, and never more than they have slots', async ({ wire }) => {
    const manager = await wire.manager()
    const gates = new Gates()
    for (const who of ['a', 'b']) await wire.work(manager, { tasks: [heldBy(who, gates)], concurrency: 5 })
    const client = await wire.connect(manager)
    const first = await client.scheduleMany(heldBy('', gates), ['1', '2', '3', '4', '5', '6'])
    await until(() => gates.entered.length === 6)
    expect([countOf(gates, 'a'), countOf(gates, 'b')]).toEqual([3, 3])
    const rest = await client.scheduleMany(heldBy('', gates), ['7', '8', '9', '10', '11', '12', '13'])
    await until(() => gates.entered.length === 10)
    const workers = await until(async () => {
      const all = await client.workers()
      return all.every(({ running }) => running === 5) ? all : null
    })
    expect(workers).toHaveLength(2)
    expect([countOf(gates, 'a'), countOf(gates, 'b')]).toEqual([5, 5])
    for (const who of ['a', 'b']) for (let key = 1; key <= 13; key++) gates.open(`${who} ${key}`)
    const ran = await Promise.all([...first, ...rest].map((handle) => handle.result({ timeout: '20s' })))
    expect(new Set(ran)).toEqual(new Set(['a', 'b']))
  })

  test('hold the limit of a queue together', async ({ wire }) => {
    const manager = await wire.manager({ queues: { narrow: { concurrency: 2 } } })
    let now = 0
    let most = 0
    let done = 0
    const narrow = task({
      ...{ name: 'narrow', queue: 'narrow' },
      run: async (_: number) => {
        most = Math.max(most, ++now)
        await new Promise((resolve) => setImmediate(resolve))
        now--
        return ++done
      },
    })
    for (const _ of [1, 2, 3]) await wire.work(manager, { tasks: [narrow], concurrency: 10 })
    const client = await wire.connect(manager)
    const handles = await client.scheduleMany(
      narrow,
      Array.from({ length: 30 }, (_, i) => i),
    )
    await Promise.all(handles.map((handle) => handle.result({ timeout: '25s' })))
    expect([most, done]).toEqual([2, 30])
  })

  test('keep the agents they have in memory: a run is never begun anew while its worker lives', async ({
    wire,
  }) => {
    const manager = await wire.manager()
    const begun: string[] = []
    const counts = (who: string) =>
      agent({
        name: 'counts',
        run: async (signals: number, ctx) => {
          begun.push(who)
          for (let i = 0; i < signals; i++) await ctx.waitForSignal('next')
          return who
        },
      })
    for (const who of ['a', 'b']) await wire.work(manager, { agents: [counts(who)] })
    const client = await wire.connect(manager)
    const handles = []
    for (let i = 0; i < 10; i++) handles.push(await client.start(counts(''), 5))
    for (let i = 0; i < 5; i++) {
      for (const handle of handles) await handle.signal('next', i)
      await until(async () => {
        const { tasks } = await client.list({ name: 'counts' })
        const views = await Promise.all(tasks.map(({ id }) => client.agent(id).explain()))
        return views.every(({ journal, status }) => status === 'completed' || (journal?.results ?? 0) > i)
      })
    }
    const results = await Promise.all(handles.map((handle) => handle.result({ timeout: '20s' })))
    expect(begun).toHaveLength(10)
    expect(begun.toSorted()).toEqual(results.toSorted())
    expect(new Set(results)).toEqual(new Set(['a', 'b']))
  })

  test('that drain take nothing more, end what they have, and are gone', async ({ wire }) => {
    const manager = await wire.manager()
    const gates = new Gates()
    const leaves = await wire.work(manager, { tasks: [heldBy('a', gates)], concurrency: 5 })
    const client = await wire.connect(manager)
    const running = await client.schedule(heldBy('', gates), '1')
    await until(() => gates.entered.length === 1)
    const closed = leaves.close({ drain: true })
    // It has said so when it gets nothing of what the other one gets.
    await until(async () =>
      (await client.metrics()).some(
        ({ name, values }) =>
          name === 'curfew_slots' &&
          values.some(({ labels, value }) => labels.state === 'free' && value === 0),
      ),
    )
    await wire.work(manager, { tasks: [heldBy('b', gates)], concurrency: 5 })
    const next = await client.scheduleMany(heldBy('', gates), ['2', '3', '4'])
    await until(() => gates.entered.length === 4)
    expect([countOf(gates, 'a'), countOf(gates, 'b')]).toEqual([1, 3])
    gates.open('a 1')
    expect(await running.result()).toBe('a')
    await closed
    expect((await client.workers()).map(({ id }) => id)).not.toContain(leaves.workerId)
    for (const key of ['2', '3', '4']) gates.open(`b ${key}`)
    expect(await Promise.all(next.map((handle) => handle.result()))).toEqual(['b', 'b', 'b'])
  })

  test('that close give back what they run, without using up a try', async ({ wire }) => {
    const manager = await wire.manager()
    const gates = new Gates()
    const leaves = await wire.work(manager, { tasks: [heldBy('a', gates)] })
    const client = await wire.connect(manager)
    const handle = await client.schedule(heldBy('', gates), '1')
    await until(() => gates.entered.length === 1)
    await leaves.close()
    expect(await client.workers()).toEqual([])
    await wire.work(manager, { tasks: [heldBy('b', gates)] })
    await until(() => gates.entered.includes('b 1'))
    gates.open('b 1')
    expect(await handle.result()).toBe('b')
    expect(await handle.view()).toMatchObject({ status: 'completed', failure: null })
  })

  test('are listed with what they can do, where they are and what they are called', async ({ wire }) => {
    const manager = await wire.manager()
    const gates = new Gates()
    const asks = agent({ name: 'asks', run: (_: null, ctx) => ctx.waitForSignal('x') })
    const works = {
      tasks: [heldBy('a', gates)],
      agents: [asks],
      queues: ['default', 'other'],
      concurrency: 3,
    }
    const worker = await wire.work(manager, { ...works, labels: { zone: 'eu-1', 'with space': 'ü' } })
    const client = await wire.connect(manager)
    await client.schedule(heldBy('', gates), '1')
    await until(() => gates.entered.length === 1)
    const [view, ...others] = await client.workers()
    expect(others).toEqual([])
    expect(view).toMatchObject({
      ...{
        id: worker.workerId,
        status: 'attached',
        labels: { zone: 'eu-1', 'with space': 'ü' },
        pid: process.pid,
      },
      ...{ queues: ['default', 'other'], allQueues: false, concurrency: 3, running: 1 },
      ...{ abandoned: 0, managerId: manager.nodeId, version: expect.stringMatching(/^\d+\.\d+\.\d+/) },
    })
    expect([view?.tasks, view?.agents]).toEqual([expect.arrayContaining(['hold']), ['asks']])
    expect(Math.abs((view?.heardAt as number) - Date.now())).toBeLessThan(10_000)
    expect((await client.serverStatus()).workers).toBe(1)
    gates.open('a 1')
    await expect(wire.work(manager, { labels: { a: 1 } as never })).rejects.toMatchObject({
      code: 'invalid_option',
    })
  })

  test('of another protocol are refused, and told which side to update', async ({ wire }) => {
    const manager = await wire.manager()
    const rpc = rpcTo(wire, manager)
    const machine = { host: 'h', bootId: 'b', pidSpace: 'p', pid: 1, pidStarted: '1' }
    const hello = { workerId: 'n_new', session: 1, version: '9.9.9', machine } satisfies
      | Partial<AttachRequest>
      | object
    const refused = async (protocolMin: number, protocolMax: number) => {
      try {
        for await (const _ of rpc.attach({ ...hello, protocolMin, protocolMax })) break
      } catch (error) {
        return fromConnectError(error)
      }
      return null
    }
    expect(await refused(2, 3)).toMatchObject({
      ...{ code: 'version_mismatch', hint: 'Update the manager.', fields: { worker: { min: 2, max: 3 } } },
      message: expect.stringMatching(/worker \(Curfew 9\.9\.9\) speaks protocol 2 to 3/),
    })
    expect(await refused(0, 0)).toMatchObject({ code: 'version_mismatch', hint: 'Update the worker.' })
    expect(await manager.workers()).toEqual([])
    // One that speaks ours too is welcome.
    expect(await refused(1, 7)).toBeNull()
  })
})
