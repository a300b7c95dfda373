// Agents and workflows together: an agent that runs a workflow, and time that is given to work far below.
import { expect } from 'vitest'
import { onEachStore } from '../scripts/acceptance/world.ts'
import { agent, job, loadWorkflow, task, workflow } from './curfew.ts'

const double = task({ name: 'double', run: (n: number) => 2 * n })
const slow = task({
  name: 'slow',
  run: (_: null, context) =>
    new Promise<never>((_, reject) =>
      context.signal.addEventListener('abort', () => reject(context.signal.reason as Error)),
    ),
})
const twice = workflow({
  name: 'twice',
  actions: { double },
  nodes: [
    { id: 'one', actionId: 'double', output: { 'state.n': 'result' } },
    { id: 'two', actionId: 'double', input: 'state.n' },
  ],
  transitions: [{ from: 'one', to: 'two' }],
})

onEachStore('workflows and what is around them', (test) => {
  test('an agent runs a workflow as a child, also one that names its tasks', async ({ world }) => {
    const named = loadWorkflow('name: named\nnodes: [{ id: one, action_id: double }]')
    const caller = agent({
      name: 'caller',
      run: async (n: number, ctx) => [await ctx.child(twice, n), await ctx.child(named, n)],
    })
    const curfew = await world.open({ tasks: [double], agents: [caller] })
    expect(await (await curfew.start(caller, 3)).result()).toEqual([12, 6])
  })

  test("a child workflow has a limit of its own, which reaches the agent's code as a timeout", async ({
    world,
  }) => {
    const endless = workflow({ name: 'endless', nodes: [{ id: 'a', actionId: 'slow' }], actions: { slow } })
    const caller = agent({
      name: 'caller',
      run: async (_: null, ctx) => {
        try {
          return await ctx.child(endless, null, { timeout: '5s' })
        } catch (error) {
          return (error as { kind: string }).kind
        }
      },
    })
    const curfew = await world.open({ tasks: [slow], agents: [caller] })
    const handle = await curfew.start(caller, null)
    await world.clock.advance('5001ms')
    expect(await handle.result()).toBe('workflow')
  })

  test('an operator who gives an attempt more time gives it to everything above that would cut it short', async ({
    world,
  }) => {
    const graph = workflow({
      name: 'graph',
      timeout: '20s',
      nodes: [{ id: 'a', actionId: 'slow', timeout: '10s' }],
      actions: { slow },
    })
    const curfew = await world.open({ tasks: [slow], workflows: [graph] })
    const handle = await curfew.submit(job({ timeout: '1h', workflows: [{ id: 'only', workflow: graph }] }))
    const startedAt = world.now
    await world.clock.advance('1s')
    const [member] = await handle.workflows()
    const [attempt] = (await curfew.list({ parent: member?.runId ?? '' })).tasks
    await curfew.task(attempt?.id ?? '').extend('5m')
    const until = async (id: string) => ((await curfew.task(id).view()).deadlineAt ?? 0) - startedAt
    expect(await until(member?.runId ?? '')).toBe(320_000)
    expect(await until(handle.id)).toBe(3_600_000)
    await world.clock.advance('5m')
    expect(await handle.status()).toBe('running')
    await world.clock.advance('15s')
    expect(await handle.status()).toBe('failed')
  })

  test('a node says when the limit of its agent or child is warned of', async ({ world }) => {
    const waits = agent({ name: 'waits', run: async (_: null, ctx) => ctx.waitForSignal('never') })
    const endless = workflow({ name: 'endless', nodes: [{ id: 'a', actionId: 'slow' }], actions: { slow } })
    const graph = workflow({
      name: 'graph',
      actions: { waits, endless },
      nodes: [
        { id: 'start' },
        { id: 'agent', actionId: 'waits', input: { value: 'null' }, timeout: '10s', warnAt: 0.5 },
        { id: 'child', actionId: 'endless', timeout: '10s', warnAt: 0.5 },
      ],
      transitions: [
        { from: 'start', to: 'agent' },
        { from: 'start', to: 'child' },
      ],
    })
    const curfew = await world.open({ tasks: [slow], agents: [waits], workflows: [graph, endless] })
    const handle = await curfew.start(graph, null)
    await world.clock.advance('5s')
    const { tasks } = await curfew.list({ parent: handle.id })
    for (const { id } of tasks) {
      const warned = (await curfew.task(id).events()).filter(({ type }) => type === 'limit_warning')
      expect(warned).toMatchObject([{ percent: 50, remainingMs: 5_000 }])
    }
    expect(tasks).toHaveLength(2)
  })

  test('runs are listed by their kind and by the name of their definition', async ({ world }) => {
    const curfew = await world.open({ workflows: [twice] })
    const run = await curfew.start(twice, 1)
    const batch = await curfew.submit(
      job({ name: 'batch', workflows: [{ id: 'a', workflow: twice, input: 1 }] }),
    )
    await Promise.all([run.result(), batch.result()])
    const listed = async (options: Parameters<typeof curfew.list>[0]) =>
      (await curfew.list(options)).tasks.map(({ kind, name, title }) => [kind, name, title])
    expect(await listed({ kind: 'job' })).toEqual([['job', 'batch', 'batch']])
    expect(await listed({ name: 'twice' })).toEqual([['workflow', 'twice', 'twice']])
    expect(await listed({ kind: 'workflow', parent: batch.id })).toEqual([['workflow', 'twice', 'a']])
    expect(await listed({ kind: 'agent' })).toEqual([])
    expect(await listed({ kind: 'task', parent: run.id })).toEqual([
      ['task', 'double', 'two'],
      ['task', 'double', 'one'],
    ])
  })
})
