// A job explained: the whole tree with its limits, where each was set, and the one that ends first.
import { expect } from 'vitest'
import { onEachStore } from '../scripts/acceptance/world.ts'
import type { Explanation } from './curfew.ts'
import { job, task, workflow } from './curfew.ts'

const slow = task({
  name: 'slow',
  run: (input: { ms: number }, context) =>
    new Promise<string>((resolve, reject) => {
      context.signal.addEventListener('abort', () => reject(context.signal.reason as Error))
      if (input.ms === 0) resolve('done')
    }),
})
const graph = workflow({
  name: 'pages',
  timeout: '10m',
  actions: { slow: { kind: 'task', task: 'slow', execution: { timeout: '4m' } } },
  nodes: [
    { id: 'plan' },
    { id: 'read', actionId: 'slow', input: { ms: 'branch.item' } },
    { id: 'write', actionId: 'slow', timeout: '1m' },
  ],
  transitions: [
    { id: 'fan', from: 'plan', to: 'read', foreach: { collection: '[0, 1]' } },
    {
      id: 'join',
      from: 'read',
      to: 'write',
      synchronization: { strategy: 'all', siblingGroup: 'fan', timeout: '3m' },
    },
  ],
})

const find = (tree: Explanation, title: string): Explanation | undefined =>
  tree.title === title ? tree : tree.below.map((one) => find(one, title)).find((one) => one)

onEachStore('a job explained', (test) => {
  test('calls a request or command by its node', async ({ world }) => {
    const asks = workflow({
      name: 'asks',
      actions: { get: { kind: 'http_request', url: "'https://example.org'", execution: { timeout: '1m' } } },
      nodes: [{ id: 'ask', actionId: 'get' }],
    })
    const curfew = await world.open({ workflows: [asks], concurrency: 0 })
    const handle = await curfew.start(asks, null)
    await world.clock.settle()
    const { summary, waits } = await handle.explain()
    expect(waits).toMatchObject([{ what: 'task', name: 'ask', status: 'pending' }])
    expect(summary).toMatch(/^waits since 0ms for task ask \(t_\w+\)/)
  })

  test('shows everything below it with its limits, and which one binds', async ({ world }) => {
    const curfew = await world.open({ tasks: [slow], workflows: [graph] })
    const handle = await curfew.submit(
      job({ name: 'nightly', timeout: '30m', workflows: [{ id: 'first', workflow: graph }] }),
    )
    await world.clock.advance('1s')
    const tree = await handle.explain()
    expect(tree).toMatchObject({
      kind: 'job',
      name: 'nightly',
      limits: [{ kind: 'job', timeoutMs: 1_800_000, setBy: 'definition', active: true }],
      binding: { id: handle.id, kind: 'job', remainingMs: 1_799_000 },
    })
    expect(tree.waits).toMatchObject([{ what: 'workflow', name: 'pages' }])
    expect(tree.summary).toMatch(
      /^waits since 1s for workflow pages \(w_\w+\), at most 9m59s more; its timeout/,
    )
    const run = find(tree, 'first')
    expect(run).toMatchObject({
      kind: 'workflow',
      status: 'running',
      limits: [{ kind: 'workflow', timeoutMs: 600_000 }],
      binding: { kind: 'workflow', remainingMs: 599_000 },
    })
    const [, second] = run?.below ?? []
    expect(second).toMatchObject({ kind: 'task', name: 'slow', title: 'read', status: 'running' })
    expect(second?.limits.map(({ kind, setBy, active }) => [kind, setBy, active])).toEqual([
      ['queue', 'action', false],
      ['execution', 'action', true],
    ])
    expect(second?.binding).toMatchObject({ id: second?.id, kind: 'execution', remainingMs: 239_000 })
  })

  test('shows what a workflow waits for, and the limit of a join; above a task, the limit that binds it', async ({
    world,
  }) => {
    const curfew = await world.open({ tasks: [slow], workflows: [graph] })
    const handle = await curfew.start(graph, null, { timeout: '2m' })
    await world.clock.advance('1s')
    const { waits, below, limits } = await handle.explain()
    expect(limits).toMatchObject([{ kind: 'workflow', timeoutMs: 120_000, setBy: 'call' }])
    expect(waits).toMatchObject([
      { what: 'task', name: 'slow' },
      { what: 'join', name: 'join', until: world.now + 179_000 },
    ])
    const running = below.find(({ status }) => status === 'running')
    const task = await curfew.task(running?.id ?? '').explain()
    expect(task.binding).toMatchObject({ id: handle.id, name: 'pages', kind: 'workflow' })
  })

  test('says where the timeout of a child was set: at its node, its action, or in its own definition', async ({
    world,
  }) => {
    const parent = workflow({
      name: 'parent',
      actions: { graph, called: { kind: 'workflow_call', workflow: 'pages', execution: { timeout: '20m' } } },
      nodes: [
        { id: 'start' },
        { id: 'own', actionId: 'graph' },
        { id: 'by-action', actionId: 'called' },
        { id: 'by-node', actionId: 'called', timeout: '5m' },
      ],
      transitions: [
        { from: 'start', to: 'own' },
        { from: 'start', to: 'by-action' },
        { from: 'start', to: 'by-node' },
      ],
    })
    const curfew = await world.open({ tasks: [slow], workflows: [parent] })
    const handle = await curfew.start(parent)
    await world.clock.advance('1s')
    const { below } = await handle.explain()
    expect(below.map(({ title, limits: [limit] }) => [title, limit?.timeoutMs, limit?.setBy])).toEqual([
      ['own', 600_000, 'definition'],
      ['by-action', 1_200_000, 'action'],
      ['by-node', 300_000, 'node'],
    ])
    await handle.cancel()
    await world.clock.settle()
  })
})
