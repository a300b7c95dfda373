/** X4: watching goes on over connections that fail, and says so when something of it is gone. */
import { expect } from 'vitest'
import type { AnyClient } from '../scripts/acceptance/both-ways.ts'
import { tcpProxy } from '../scripts/acceptance/tcp-proxy.ts'
import type { WireWorld } from '../scripts/acceptance/wire-world.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import type { Curfew, WatchView } from './curfew.ts'
import { agent, job, task } from './curfew.ts'

function worksOf(gates: Gates) {
  const hold = task({
    name: 'hold',
    grace: '1s',
    run: (name: string, { signal }) => gates.pass(name, signal),
  })
  const shaky = task({
    name: 'shaky',
    ...{ retries: 5, backoff: { initial: '1ms', max: '1ms' } },
    run: async (tries: number, { attempt, signal }) => {
      if (attempt <= tries) throw new Error(`attempt ${attempt}`)
      return gates.pass('shaky', signal)
    },
  })
  const asks = agent({ name: 'asks', run: (_: null, ctx) => ctx.waitForSignal('go') })
  return { tasks: [hold, shaky], agents: [asks], hold, shaky, asks }
}

async function setUp(wire: WireWorld) {
  const gates = new Gates()
  const works = worksOf(gates)
  const manager = await wire.manager()
  await wire.work(manager, { tasks: works.tasks, agents: works.agents })
  const proxy = await tcpProxy(manager.url as string)
  wire.atEnd(() => proxy.close())
  const client = await wire.connect(proxy.url)
  return { gates, manager, proxy, client, ...works }
}

/** What was seen, while somebody goes on looking. */
function watched(client: AnyClient, id: string, lastSequence = 0) {
  const views: WatchView[] = []
  const done = (async () => {
    for await (const view of client.watch(id, { lastSequence })) views.push(view)
  })()
  done.catch(String) // the test awaits it, unless it has failed before
  return { views, done }
}

const sequences = (views: WatchView[]) => views.flatMap(({ events }) => events.map(({ seq }) => seq))

/** Everything there is to be seen, each event once, in order, and one end. */
async function expectWhole(manager: Curfew, id: string, views: WatchView[]): Promise<void> {
  const events = await manager.task(id).events()
  expect(views.flatMap((view) => view.events)).toEqual(events)
  expect(views.filter(({ final }) => final)).toHaveLength(1)
  const last = views.at(-1)
  expect(last).toMatchObject({ final: true, lastSequence: events.at(-1)?.seq, truncated: false })
  expect(last?.work).toEqual(await manager.task(id).view())
}

onEachWire('watching over the wire', (test, kind) => {
  test('X4: tells everything from the first event to the end, once', async ({ wire }) => {
    const { manager, client, gates, shaky } = await setUp(wire)
    const handle = await client.schedule(shaky, 3)
    const { views, done } = watched(client, handle.id)
    await until(() => gates.entered.includes('shaky'))
    gates.open('shaky')
    await done
    await expectWhole(manager, handle.id, views)
    expect(client.counters.reconnects).toBe(0)
    // Whoever comes later is told the same at once, and whoever knows it all only the end.
    const late = watched(client, handle.id)
    await late.done
    expect(late.views).toMatchObject([{ final: true, events: { length: sequences(views).length } }])
    const knows = watched(client, handle.id, views.at(-1)?.lastSequence)
    await knows.done
    expect(knows.views).toMatchObject([{ final: true, events: [], truncated: false }])
  })

  test('X4: tells of progress when it is made', async ({ wire }) => {
    const gates = new Gates()
    const steps = task({
      name: 'steps',
      run: async (name: string, { progress, signal }) => {
        await gates.pass('first', signal)
        progress({ completed: 1, total: 2 }, { on: name })
        return gates.pass('second', signal)
      },
    })
    const manager = await wire.manager()
    await wire.work(manager, { tasks: [steps] })
    const client = await wire.connect(manager.url as string)
    const { id } = await client.schedule(steps, 'a')
    const { views, done } = watched(client, id)
    await until(() => views.some(({ work }) => work.status === 'running'))
    const openedAt = performance.now()
    gates.open('first')
    await until(() => views.some(({ work }) => work.progress?.completed === 1))
    // Over a file it is looked for every ten seconds only: somebody said so.
    if (kind === 'file') expect(performance.now() - openedAt).toBeLessThan(8_000)
    expect(views.at(-1)?.work).toMatchObject({ status: 'running', details: { on: 'a' } })
    gates.open('second')
    await done
  })

  test('X4: goes on where it was when its connection is cut, and misses nothing', async ({ wire }) => {
    const { manager, client, proxy, gates, shaky } = await setUp(wire)
    const handle = await client.schedule(shaky, 1)
    const { views, done } = watched(client, handle.id)
    await until(() => gates.entered.includes('shaky'))
    await until(() => views.some(({ work }) => work.attempts === 2))
    const before = sequences(views)
    proxy.cut()
    await until(() => client.counters.reconnects === 1)
    await manager.task(handle.id).extend('1h')
    await until(() => sequences(views).length > before.length)
    proxy.cut()
    await until(() => client.counters.reconnects === 2)
    gates.open('shaky')
    await done
    await expectWhole(manager, handle.id, views)
  })

  test('X4: an end that came while nobody was connected is told once', async ({ wire }) => {
    const { manager, client, proxy, gates, hold } = await setUp(wire)
    const handle = await client.schedule(hold, 'a')
    const { views, done } = watched(client, handle.id)
    await until(() => views.some(({ work }) => work.status === 'running'))
    proxy.refuse(true)
    proxy.cut()
    gates.open('a')
    await manager.task(handle.id).result()
    await until(() => client.counters.retries > 0)
    expect(views.some(({ final }) => final)).toBe(false)
    proxy.refuse(false)
    await done
    await expectWhole(manager, handle.id, views)
    expect(client.counters.reconnects).toBeGreaterThan(0)
  })

  test('X4: a wait for the result survives cut connections too', async ({ wire }) => {
    const { client, proxy, gates, hold } = await setUp(wire)
    const handle = await client.schedule(hold, 'a')
    const result = handle.result()
    await until(() => gates.entered.includes('a'))
    proxy.cut()
    await until(() => client.counters.retries > 0)
    gates.open('a', { done: [1] })
    expect(await result).toEqual({ done: [1] })
  })

  test('X4: says so when events after the asked one are gone', async ({ wire }) => {
    const { manager, client, gates, shaky } = await setUp(wire)
    const handle = await client.schedule(shaky, 2)
    await until(() => gates.entered.includes('shaky'))
    gates.open('shaky')
    await handle.result()
    const all = await handle.events()
    const seen = watched(client, handle.id, 1)
    await seen.done
    expect(seen.views).toMatchObject([{ truncated: false, events: all.slice(1) }])
    // Beyond what there is: it was asked of another life of the store.
    const beyond = watched(client, handle.id, 1_000)
    await beyond.done
    expect(beyond.views).toMatchObject([{ truncated: true, final: true, events: [] }])
    const again = await reopened(wire, kind, manager, handle.id)
    const cut = watched(again, handle.id, 1)
    await cut.done
    expect(cut.views).toMatchObject([{ truncated: true, final: true }])
    expect(sequences(cut.views).length).toBeLessThan(all.length - 1)
    const knows = watched(again, handle.id, all.length)
    await knows.done
    expect(knows.views).toMatchObject([{ truncated: false, final: true, events: [] }])
  })

  test('X4: a job tells of what happens below it', async ({ wire }) => {
    const { manager, client, gates, hold, asks } = await setUp(wire)
    const handle = await client.submit(
      job({
        workflows: [
          { id: 'a', task: hold, input: 'a' },
          { id: 'b', agent: asks, input: null },
          { id: 'c', task: hold, input: 'c', dependsOn: 'a' },
        ],
      }),
    )
    const { views, done } = watched(client, handle.id)
    await until(() => gates.entered.includes('a'))
    await until(async () => (await handle.workflow('b').view()).runId !== null)
    const count = () => views.filter(({ below }) => below).length
    const before = count()
    gates.open('a')
    await until(() => gates.entered.includes('c'))
    await until(() => count() > before)
    const then = count()
    await client.agent((await handle.workflow('b').view()).runId as string).signal('go', 1)
    await handle.workflow('b').settled()
    await until(() => count() > then)
    gates.open('c')
    await done
    await expectWhole(manager, handle.id, views)
  })

  test('X4: ends with its signal, with its reader and with its client; others watch on', async ({ wire }) => {
    const { manager, client, gates, hold } = await setUp(wire)
    const handle = await client.schedule(hold, 'a')
    const stop = new AbortController()
    const seen: string[] = []
    const aborted = (async () => {
      for await (const view of client.watch(handle.id, { signal: stop.signal })) seen.push(view.work.status)
    })()
    await until(() => seen.includes('running'))
    stop.abort()
    await aborted
    for await (const view of client.watch(handle.id)) {
      expect(view.final).toBe(false)
      break
    }
    const other = await wire.connect(manager)
    const { done } = watched(other, handle.id)
    const rest = watched(client, handle.id)
    await until(() => rest.views.length > 0)
    await other.close()
    await expect(done).rejects.toMatchObject({ code: 'closed' })
    gates.open('a')
    await rest.done
    expect(rest.views.at(-1)).toMatchObject({ final: true, work: { output: 'a' } })
    await expect(watched(client, 't_nobody').done).rejects.toMatchObject({ code: 'not_found' })
  })
})

/** The same store without some of the events of this piece of work. */
async function reopened(wire: WireWorld, kind: string, manager: Curfew, id: string): Promise<AnyClient> {
  const text = 'delete from curfew.events where root_id = $1 and seq < 6'
  if (kind === 'postgres') {
    await wire.sql(text, id)
    return wire.connect(manager)
  }
  await manager.close()
  await wire.sql(text, id)
  return wire.connect(await wire.manager())
}
