/** Workflows and jobs over the wire are what they are in one process. */
import { expect, expectTypeOf, test } from 'vitest'
import type { AnyClient } from '../scripts/acceptance/both-ways.ts'
import { bothWays, expectSameReads, readAll, shapeOf } from '../scripts/acceptance/both-ways.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import type { ConnectedCurfew, Curfew, JobHandle } from './curfew.ts'
import { job, loadWorkflow, task, workflow } from './curfew.ts'

function worksOf(gates: Gates) {
  const echo = task({ name: 'echo', run: (value: unknown) => value })
  const hold = task({
    name: 'hold',
    grace: '1s',
    run: (name: string, { signal }) => gates.pass(name, signal),
  })
  const late = task({
    name: 'late',
    grace: '1s',
    run: (name: string, { signal }) => gates.pass(name, signal),
  })
  const fans = loadWorkflow(`
name: fans
actions:
  read: { kind: task, task: echo }
nodes:
  - { id: start, output: { state.from: input.items } }
  - { id: read, action_id: read, input: branch.item }
  - { id: held, action_id: hold, input: "'held'", timeout_ms: 60000 }
  - { id: end }
transitions:
  - { id: fan, from: start, to: read, foreach: { collection: input.items } }
  - { id: join, from: read, to: held, synchronization: { strategy: all, sibling_group: fan, timeout_ms: 60000, merge: { target: state.all, strategy: collect } } }
  - { id: on, from: held, to: end }
output: { all: state.all, held: output }
`)
  const slow = workflow({
    ...{ name: 'slow', actions: { late } },
    nodes: [{ id: 'only', actionId: 'late', input: "'slow'", timeout: '2s' }],
  })
  return { tasks: [echo, hold, late], workflows: [fans, slow], echo, hold, fans, slow }
}

const statuses = async (handle: JobHandle) =>
  (await handle.workflows()).map(({ id, status }) => `${id}: ${status}`)

onEachWire('workflows over the wire', (test) => {
  test('show their tokens, joins and state while they run and after', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, gates, { fans }) => {
      const handle = await client.start(fans, { items: ['a', { b: null }, [3]] }, { key: 'k', timeout: '1h' })
      await until(() => gates.entered.includes('held'))
      await until(async () => (await handle.run()).tokens.some(({ status }) => status === 'executing'))
      await until(async () => (await handle.explain()).waits.length > 0)
      const during = [
        await handle.run(),
        (await handle.explain()).waits.map(({ what, name }) => [what, name]),
      ]
      const again = await client.start(fans, { items: ['a', { b: null }, [3]] }, { key: 'k' })
      const conflict = await shapeOf(client.start(fans, { items: [] }, { key: 'k' }))
      gates.open('held', { done: true })
      const result = await handle.result()
      return [
        ...[during, result, await handle.run(), again.existing, again.id === handle.id, conflict],
        ...[await handle.view(), handle.kind, (await handle.events()).map(({ type }) => type)],
        ...[
          await client.list({ kind: 'workflow' }),
          await shapeOf(client.start(fans, 1, { no: 1 } as never)),
        ],
      ]
    })
  })

  test('time out with the same errors and the same record', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, _gates, { slow }) => {
      const handle = await client.start(slow, null)
      const shape = await shapeOf(handle.result())
      return [shape, (await handle.run()).tokens.map(({ status, timeoutType }) => [status, timeoutType])]
    })
  })

  test('are refused by all their problems together', async ({ wire }) => {
    const gathered = await bothWays(wire, worksOf, async (client) => {
      const text = 'name: it has problems\nnodes: [{ id: a, action_id: eco }, { id: a }]\nwhat: 1\n'
      const unknown = {
        workflows: [
          { id: 'a', task: 'eco' },
          { id: 'b', task: 'echo', depends_on: 'c' },
        ],
      }
      return [
        await shapeOf(client.submitNamed({ definition: text })),
        await shapeOf(client.submitNamed({ definition: JSON.stringify(unknown) })),
        await shapeOf(client.submitNamed({ definition: 'nodes: [' })),
        await shapeOf(client.submitNamed({ workflow: 'fan' })),
      ]
    })
    const problems = expect.arrayContaining([expect.objectContaining({ severity: 'error' })])
    expect(gathered).toMatchObject([
      { class: 'DefinitionError', problems },
      { class: 'DefinitionError' },
      {},
      {},
    ])
  })
})

onEachWire('jobs over the wire', (test) => {
  test('run their workflows, and read the same', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, gates, { echo, fans }) => {
      const handle = await client.submit(
        job({
          name: 'book',
          workflows: [
            { id: 'last', task: echo, input: 'last', dependsOn: ['graph'] },
            { id: 'graph', workflow: fans, input: { items: [1, 2] } },
          ],
        }),
        { key: 'k' },
      )
      await until(() => gates.entered.includes('held'))
      const waited = await shapeOf(handle.workflow('last').settled({ timeout: '5ms' }))
      const unknown = await shapeOf(handle.workflow('nobody').view())
      const unsettled = await shapeOf(handle.workflow('nobody').settled())
      gates.open('held')
      const result = await handle.result()
      return [
        ...[
          result,
          waited,
          unknown,
          unsettled,
          await handle.workflows(),
          await handle.workflow('last').result(),
        ],
        ...[await handle.workflow('graph').view(), await readAll(client, handle.id)],
        ...[await shapeOf(client.job('j_00000000000000000000000000').workflows())],
        ...[await (await client.submit(echo, 'alone')).result(), handle.kind],
      ]
    })
  })

  test('are looked at without outputs by whoever asks for that', async ({ wire }) => {
    const echo = task({ name: 'echo', run: (value: unknown) => value })
    const manager = await wire.open({ tasks: [echo] })
    const workflows = [{ id: 'a', task: echo, input: 'said' }]
    const { id } = await manager.submit(job({ name: 'one', workflows }))
    await manager.job(id).result()
    const ask = async (more: object) => {
      const response = await fetch(`${manager.url}/curfew.v1.JobService/ListWorkflows`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ jobId: id, ...more }),
      })
      return ((await response.json()) as { workflows: object[] }).workflows
    }
    expect(await ask({})).toMatchObject([{ id: 'a', status: 'completed', output: 'said' }])
    const [bare] = await ask({ withoutOutputs: true })
    expect(bare).toMatchObject({ id: 'a', status: 'completed' })
    expect(bare).not.toHaveProperty('output')
  })

  test('cancel one workflow with those that wait for it, once for a request id', async ({ wire }) => {
    await bothWays(wire, worksOf, async (client, gates, { echo, hold }) => {
      const handle = await client.submit(
        job({
          name: 'night',
          workflows: [
            { id: 'a', task: hold, input: 'a' },
            { id: 'b', task: echo, input: 'b', dependsOn: 'a' },
            { id: 'c', task: hold, input: 'c' },
            { id: 'd', task: echo, input: 'd', dependsOn: 'c' },
          ],
        }),
      )
      await until(() => gates.entered.length === 2)
      const first = await handle.workflow('a').cancel({ requestId: 'one' })
      const outcome = await handle.workflow('a').cancelled({ timeout: '20s' })
      const again = await handle.workflow('a').cancel({ requestId: 'one' })
      const anew = await handle.workflow('a').cancel()
      const nobody = await handle.workflow('nobody').cancel()
      const alone = await handle.workflow('c').cancel({ dependents: false })
      await handle.workflow('c').settled({ timeout: '20s' })
      const shape = await shapeOf(handle.result())
      const events = (await handle.events()).map(({ type, workflow: of, dependents }) => [
        type,
        of,
        dependents,
      ])
      return [
        ...[first, outcome, again, anew, nobody, alone, shape, events, await statuses(handle)],
        ...[await shapeOf(handle.workflow('b').result()), await handle.workflow('b').cancelled()],
        ...[await handle.workflows(), await handle.workflow('a').cancel(), await handle.cancel()],
        await shapeOf(handle.workflow('a').cancel({ requestId: '' })),
      ]
    })
  })

  test('read the same through the engine and through a client of it, to the last field', async ({ wire }) => {
    const gates = new Gates()
    const { tasks, workflows, fans, hold, echo } = worksOf(gates)
    const manager = await wire.manager()
    await wire.work(manager, { tasks, workflows })
    const client = await wire.connect(manager)
    const handle = await client.submit(
      job({
        workflows: [
          { id: 'graph', workflow: fans, input: { items: [1, [2]] } },
          { id: 'b', task: echo, input: null, dependsOn: 'graph' },
          { id: 'c', task: hold, input: 'c' },
        ],
      }),
    )
    await until(() => gates.entered.length === 2)
    const same = async () => {
      expect(await handle.workflows()).toStrictEqual(await manager.job(handle.id).workflows())
      const runId = (await handle.workflow('graph').view()).runId as string
      expect(await client.workflow(runId).run()).toStrictEqual(await manager.workflow(runId).run())
      for (const id of [handle.id, runId]) await expectSameReads(manager, client, id)
    }
    await until(async () => {
      const view = await handle.workflow('graph').view()
      const run = await client.workflow(view.runId as string).run()
      return run.tokens.some(({ status }) => status === 'executing')
    })
    await same()
    await handle.workflow('c').cancel()
    gates.open('held')
    await shapeOf(handle.result())
    await same()
  })
})

test('a connected client may stand wherever the methods of an engine are used', () => {
  type Own = 'close' | 'counters' | 'addresses' | 'url' | 'nodeId' | 'closed' | symbol
  expectTypeOf<Omit<ConnectedCurfew, Own>>().toEqualTypeOf<Omit<Curfew, Own>>()
  expectTypeOf<ConnectedCurfew>().toExtend<AnyClient>()
  expectTypeOf<ConnectedCurfew>().toExtend<Omit<Curfew, Own>>()
})
