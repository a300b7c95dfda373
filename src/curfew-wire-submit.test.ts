/** Work that is started by its name: the names, limits and graphs are those that attached workers have announced. */
import { test as base, expect } from 'vitest'
import { z } from 'zod'
import type { WireWorld } from '../scripts/acceptance/wire-world.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import { agent, Curfew, task, workflow } from './curfew.ts'
import { VirtualClock } from './testing/virtual-clock.ts'

const TRACE = `00-${'ab'.repeat(16)}-${'cd'.repeat(8)}-01`

function worksOf(gates: Gates) {
  const traces: unknown[] = []
  const echo = task({
    name: 'echo',
    ...{ timeout: '90s', retries: 2, queue: 'quick' },
    run: (value: unknown, ctx) => {
      traces.push(ctx.trace)
      return value
    },
  })
  const checked = task({ name: 'checked', input: z.object({ n: z.number() }), run: ({ n }) => n + 1 })
  const hold = task({ name: 'hold', run: (name: string, { signal }) => gates.pass(name, signal) })
  const twice = agent({
    name: 'twice',
    timeout: '5m',
    run: async (value: unknown, ctx) => {
      traces.push(ctx.trace)
      return [await ctx.schedule(echo, value), await ctx.schedule(echo, value)]
    },
  })
  const graph = workflow({
    ...{ name: 'graph', timeout: '10m', actions: { echo } },
    nodes: [{ id: 'only', actionId: 'echo', input: 'input.value' }],
    output: 'result',
  })
  return { tasks: [echo, checked, hold], agents: [twice], workflows: [graph], traces }
}

/** As any other language would do it. */
async function post(manager: Curfew, method: string, body: unknown, headers: Record<string, string> = {}) {
  const response = await fetch(`${manager.url}/curfew.v1.JobService/${method}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
  return {
    status: response.status,
    body: (await response.json()) as Record<string, unknown> & { id: string },
  }
}

async function setUp(wire: WireWorld) {
  const gates = new Gates()
  const { traces, ...works } = worksOf(gates)
  const manager = await wire.manager()
  const worker = await wire.work(manager, works)
  const client = await wire.connect(manager)
  return { manager, worker, client, traces, gates }
}

onEachWire('work by its name', (test) => {
  test('is started with the limits that its worker has announced', async ({ wire }) => {
    const { client } = await setUp(wire)
    const started = await client.submitNamed({ task: 'echo', input: { a: [1] } })
    expect(started).toEqual({ id: expect.stringMatching(/^t_/), kind: 'task', existing: false })
    expect(await client.task(started.id).result()).toEqual({ a: [1] })
    const { limits, retries } = await client.task(started.id).explain()
    expect(limits).toMatchObject([{ option: 'timeout', timeoutMs: 90_000, setBy: 'definition' }])
    expect(retries.allowed).toBe(2)
    expect((await client.task(started.id).view()).queue).toBe('quick')

    const agents = await client.submitNamed({ agent: 'twice', input: 'x', key: 'k' })
    expect(agents.kind).toBe('agent')
    expect(await client.agent(agents.id).result()).toEqual(['x', 'x'])
    const again = await client.submitNamed({ agent: 'twice', input: 'x', key: 'k' })
    expect(again).toEqual({ ...agents, existing: true })

    const run = await client.submitNamed({ workflow: 'graph', input: { value: 7 }, timeout: '30s' })
    expect(run.kind).toBe('workflow')
    expect(await client.workflow(run.id).result()).toBe(7)
    const { limits: runLimits } = await client.workflow(run.id).explain()
    expect(runLimits[0]).toMatchObject({ timeoutMs: 30_000, setBy: 'call' })

    const text =
      'name: night\nworkflows:\n  - { id: a, task: echo, input: 1 }\n  - { id: b, agent: twice, input: 2, depends_on: a }\n  - { id: c, workflow: graph, input: { value: 3 } }\n'
    const submitted = await client.submitNamed({ definition: text })
    expect(submitted.kind).toBe('job')
    expect(await client.job(submitted.id).result()).toEqual({ a: 1, b: [2, 2], c: 3 })
    const inline = 'name: own\nnodes: [{ id: n, action_id: echo, input: input }]\noutput: result\n'
    const own = await client.submitNamed({ definition: inline, input: [5] })
    expect([own.kind, await client.workflow(own.id).result()]).toEqual(['workflow', [5]])
  })

  test('takes a timeout and a delay, where they fit', async ({ wire }) => {
    const { client, manager } = await setUp(wire)
    const delayed = await client.submitNamed({ task: 'echo', input: 1, delay: '10m', timeout: '1h' })
    const { createdAt, startAt, deadlineAt, status } = await client.task(delayed.id).view()
    expect([status, startAt - createdAt, (deadlineAt as number) - startAt]).toEqual([
      'pending',
      600_000,
      3_600_000,
    ])
    const late = await client.submitNamed({ task: 'hold', input: 'x', timeout: '20ms' })
    await expect(client.task(late.id).result()).rejects.toMatchObject({
      code: 'task_timed_out',
      kind: 'total',
    })
    const codes = async (work: object) => (await post(manager, 'Submit', work)).body
    expect(await codes({ task: 'echo', timeout: 'soon' })).toMatchObject({ code: 'invalid_argument' })
    expect(await codes({ task: 'echo', delay: '-5s' })).toMatchObject({ code: 'invalid_argument' })
    expect(await codes({ agent: 'twice', delay: '5s' })).toMatchObject({ code: 'invalid_argument' })
    const job = 'workflows: [{ id: a, task: echo }]'
    expect(await codes({ definition: job, timeout: '5s' })).toMatchObject({ code: 'invalid_argument' })
    expect(await codes({ definition: job, input: 1 })).toMatchObject({ code: 'invalid_argument' })
    expect(await codes({})).toMatchObject({ code: 'invalid_argument' })
    expect((await manager.list({ kind: 'job' })).tasks).toEqual([])
  })

  test('is refused by a name that nobody knows, with the one that was meant', async ({ wire }) => {
    const { client, manager, worker } = await setUp(wire)
    const hints: [object, RegExp][] = [
      [{ task: 'ecko' }, /Did you mean 'echo'/],
      [{ task: 'something else' }, /Known are .*echo/],
      [{ task: '$http_request', input: {} }, /Known are .*echo/],
      [{ agent: 'twise' }, /Did you mean 'twice'/],
      [{ workflow: 'grahp' }, /Did you mean 'graph'/],
    ]
    for (const [work, hint] of hints) {
      await expect(client.submitNamed(work)).rejects.toMatchObject({
        ...{ code: 'unknown_task', hint: expect.stringMatching(hint) },
      })
    }
    const wrong = await post(manager, 'Submit', { definition: 'workflows: [{ id: a, task: ecko }]' })
    expect(wrong.body).toMatchObject({ code: 'invalid_argument', message: expect.stringMatching(/echo/) })
    await worker.close()
    await expect(client.submitNamed({ task: 'echo' })).rejects.toMatchObject({
      ...{ code: 'unknown_task', hint: expect.stringContaining('No worker that knows any is attached.') },
    })
  })

  test('is known by what several workers know together', async ({ wire }) => {
    const manager = await wire.manager()
    const { tasks, agents } = worksOf(new Gates())
    await wire.work(manager, { tasks })
    await wire.work(manager, { agents })
    const client = await wire.connect(manager)
    const { id } = await client.submitNamed({ agent: 'twice', input: 'y' })
    expect(await client.agent(id).result()).toEqual(['y', 'y'])
    // What the input must look like only the worker can tell.
    const checked = await client.submitNamed({ task: 'checked', input: { n: 'one' } })
    await expect(client.task(checked.id).result()).rejects.toMatchObject({ code: 'task_failed' })
  })

  test('carries a trace to the handler, from the message or from the header', async ({ wire }) => {
    const { client, manager, traces } = await setUp(wire)
    const named = await client.submitNamed({ task: 'echo', input: 1, traceparent: TRACE, tracestate: 'a=1' })
    await client.task(named.id).result()
    expect(traces.splice(0)).toEqual([{ traceparent: TRACE, tracestate: 'a=1' }])
    expect((await client.task(named.id).view()).trace).toBe(TRACE)

    const submit = { agent: 'twice', input: 2 }
    const headed = await post(manager, 'Submit', submit, { traceparent: TRACE, tracestate: 'b=2' })
    await client.agent(headed.body.id).result()
    const trace = { traceparent: TRACE, tracestate: 'b=2' }
    expect(traces.splice(0)).toEqual([trace, trace, trace])

    const broken = await post(manager, 'Submit', submit, { traceparent: 'not-a-trace' })
    await client.agent(broken.body.id).result()
    expect(traces.splice(0)).toEqual([null, null, null])
    const said = await post(manager, 'Submit', { ...submit, trace: { traceparent: 'not-a-trace' } })
    expect(said).toMatchObject({ status: 400, body: { code: 'invalid_argument' } })

    const text = 'workflows: [{ id: a, task: echo, input: 1 }]'
    const job = await post(manager, 'Submit', { definition: text }, { traceparent: TRACE })
    await client.job(job.body.id).result()
    expect(traces.splice(0)).toEqual([{ traceparent: TRACE }])
  })

  test('of a worker that came later is known at once', async ({ wire }) => {
    const manager = await wire.manager()
    const client = await wire.connect(manager)
    await expect(client.submitNamed({ task: 'echo' })).rejects.toMatchObject({ code: 'unknown_task' })
    const { tasks } = worksOf(new Gates())
    await wire.work(manager, { tasks })
    const { id } = await client.submitNamed({ task: 'echo', input: 'now' })
    expect(await client.task(id).result()).toBe('now')
    await until(async () => (await client.workers()).length === 1)
  })
})

onEachWire(
  'work by its name, of several managers',
  (test) => {
    test('is started by the one whose workers know it, whichever is asked', async ({ wire }) => {
      const [first, second] = [await wire.manager(), await wire.manager()]
      const { tasks, agents } = worksOf(new Gates())
      await wire.work(second, { tasks, agents })
      const client = await Curfew.connect([first.url as string, second.url as string])
      wire.atEnd(() => client.close())
      const { id } = await client.submitNamed({ task: 'echo', input: 'x', requestId: 'q' })
      expect(await client.task(id).result()).toBe('x')
      expect(await client.submitNamed({ task: 'echo', input: 'x', requestId: 'q' })).toMatchObject({ id })
      const run = await client.submitNamed({ definition: 'workflows: [{ id: a, agent: twice, input: 1 }]' })
      expect(await client.job(run.id).result()).toEqual({ a: [1, 1] })
      // The first is there, and is asked first.
      expect((await client.serverStatus()).nodeId).toBe(first.nodeId)
      await expect(client.submitNamed({ task: 'ecko' })).rejects.toMatchObject({
        ...{ code: 'unknown_task', hint: expect.stringMatching(/Did you mean 'echo'/) },
      })
    })
  },
  ['postgres'],
)

base('a manager that has just started says of a name that its workers may not be back yet', async () => {
  const clock = new VirtualClock()
  const hint = (curfew: Curfew) => curfew.submitNamed({ task: 'eko' }).catch((error) => error.hint as string)
  await using manager = await Curfew.open({ store: ':memory:', clock, concurrency: 0 })
  expect(await hint(manager)).toMatch(/No worker .* attached\. This manager has just started: workers may/)
  await clock.advance('10s')
  expect(await hint(manager)).toBe('No worker that knows any is attached.')
  // One that has its own has them at once.
  const { tasks } = worksOf(new Gates())
  await using engine = await Curfew.open({ store: ':memory:', clock, tasks })
  expect(await hint(engine)).toBe('Known are echo, checked, hold.')
})
