/** Workflows that call others: whose timeout holds for the child, what its end means above, what a deadline leaves it. */
import { expect } from 'vitest'
import { timeoutsOf, tokensOf } from '../scripts/acceptance/workflow-runs.ts'
import type { World } from '../scripts/acceptance/world.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { Curfew, TaskDefinition, WorkflowDefinition, WorkflowHandle, WorkflowOptions } from './curfew.ts'
import { agent, TaskFailed, task, workflow } from './curfew.ts'

const MINUTE = 60_000

/** Takes as long as its input says; follows its signal. One for all workflows of a world. */
const works = new WeakMap<World, TaskDefinition<number, number>>()
function workFor(world: World): TaskDefinition<number, number> {
  const work =
    works.get(world) ??
    task({
      name: 'work',
      run: async (ms: number, { signal }) => {
        await world.clock.sleep(ms, signal)
        return ms
      },
    })
  works.set(world, work)
  return work
}

type Limits = Pick<WorkflowOptions, 'timeout' | 'onTimeout' | 'inherit' | 'reserve'>
type NodeLimits = Omit<WorkflowOptions['nodes'][number], 'id' | 'actionId' | 'input'>

/** A child of one node, which runs for a day. */
const child = (world: World, limits: Limits = {}) =>
  workflow({
    name: 'child',
    ...limits,
    actions: { work: workFor(world) },
    nodes: [{ id: 'inner', actionId: 'work', input: '86400000' }],
  })

/** Waits as long as its input says, then calls another one. */
const calling = (
  world: World,
  called: WorkflowDefinition,
  { action, node, ...limits }: Limits & { action?: NodeLimits; node?: NodeLimits } = {},
) =>
  workflow({
    name: `calls ${called.name}`,
    timeout: '10h',
    ...limits,
    actions: {
      work: workFor(world),
      call: {
        kind: 'workflow_call',
        workflow: called.name,
        ...(action && { execution: action as object }),
      },
    },
    nodes: [
      { id: 'before', actionId: 'work', input: 'input' },
      { id: 'call', actionId: 'call', ...node },
    ],
    transitions: [{ from: 'before', to: 'call' }],
  })

/** The runs it has called, oldest first. */
const childrenOf = async (curfew: Curfew, handle: { id: string }): Promise<WorkflowHandle[]> => {
  const { tasks } = await curfew.list({ parent: handle.id, kind: 'workflow' })
  return tasks.toReversed().map(({ id }) => curfew.workflow(id))
}

onEachStore('child workflows', (test) => {
  for (const [row, given, limits, endsAfter] of [
    ['C1', 'the node', { node: { timeout: '1800s' }, action: { timeout: '600s' }, child: '300s' }, 1_800_000],
    ['C2', 'the action', { action: { timeout: '600s' }, child: '300s' }, 600_000],
    ['C3', 'its definition', { child: '300s' }, 300_000],
    ['C3', 'nobody', {}, 3_600_000],
  ] as const) {
    test(`${row}: a child has the timeout that ${given} sets`, async ({ world }) => {
      const { clock } = world
      const { child: timeout, ...above } = { child: undefined, ...limits }
      const called = child(world, timeout === undefined ? {} : { timeout })
      const definition = calling(world, called, above)
      const curfew = await world.open({ workflows: [definition, called] })
      const start = world.now
      const handle = await curfew.start(definition, 1)
      await clock.advanceTo(start + endsAfter)
      const [run] = await childrenOf(curfew, handle)
      // One millisecond of it is left.
      expect(await run!.view()).toMatchObject({ status: 'running', deadlineAt: start + 1 + endsAfter })
      expect(await tokensOf(run!)).toEqual([['inner', 'executing']])
      expect((await handle.run()).tokens[1]).toMatchObject({
        node: 'call',
        status: 'waiting_for_subworkflow',
        deadlineAt: start + 1 + endsAfter,
        workId: run!.id,
      })
      await clock.advance(1)
      expect(await run!.view()).toMatchObject({ status: 'timed_out', timeoutKind: 'workflow' })
      expect(await timeoutsOf(run!)).toEqual([['inner', 1, 'workflow', endsAfter, 'cancel_all']])
      expect((await handle.run()).tokens[1]).toMatchObject({
        status: 'timed_out',
        timeoutType: 'execution',
        deadlineAt: start + 1 + endsAfter,
      })
      expect(await timeoutsOf(handle)).toEqual([['call', 1, 'execution', endsAfter, 'fail']])
    })
  }

  for (const onTimeout of ['cancel_all', 'fail'] as const) {
    test(`C4: a child that ends by ${onTimeout} has timed out for the node that called it`, async ({
      world,
    }) => {
      const called = child(world, { timeout: '10s', onTimeout })
      const definition = calling(world, called)
      const curfew = await world.open({ workflows: [definition, called] })
      const start = world.now
      const handle = await curfew.start(definition, 1)
      await world.clock.advance('1m')
      const [run] = await childrenOf(curfew, handle)
      expect(await run!.status()).toBe(onTimeout === 'fail' ? 'failed' : 'timed_out')
      expect(await tokensOf(run!)).toEqual([['inner', 'timed_out']])
      expect(await timeoutsOf(run!)).toEqual([['inner', 1, 'workflow', 10_000, onTimeout]])
      expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 10_001 })
      expect(await tokensOf(handle)).toEqual([
        ['before', 'completed'],
        ['call', 'timed_out'],
      ])
      expect(await timeoutsOf(handle)).toEqual([['call', 1, 'execution', 10_000, 'fail']])
      expect((await errorOf(handle.result(), TaskFailed)).failure.code).toBe('workflow_timeout')
    })

    test(`C4: with retry, one that ends by ${onTimeout} is followed by a new run`, async ({ world }) => {
      const { clock } = world
      const called = child(world, { timeout: '10s', onTimeout })
      const definition = calling(world, called, { node: { onTimeout: 'retry', retryLimit: 2 } })
      const curfew = await world.open({ workflows: [definition, called] })
      const start = world.now
      const handle = await curfew.start(definition, 1)
      await clock.advance('15s')
      expect((await handle.run()).tokens[1]).toMatchObject({ status: 'waiting_for_subworkflow', retries: 1 })
      await clock.advance('1m')
      const runs = await childrenOf(curfew, handle)
      const views = await Promise.all(runs.map((run) => run.view()))
      expect(views.map(({ createdAt }) => createdAt - start)).toEqual([1, 10_001, 20_001])
      for (const run of runs) expect(await tokensOf(run)).toEqual([['inner', 'timed_out']])
      expect((await handle.run()).tokens[1]).toMatchObject({ status: 'timed_out', retries: 2 })
      expect(await timeoutsOf(handle)).toEqual([
        ['call', 1, 'execution', 10_000, 'retry'],
        ['call', 2, 'execution', 10_000, 'retry'],
        ['call', 3, 'execution', 10_000, 'fail'],
      ])
      expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 30_001 })
    })
  }

  test('C4: a child that failed because something in it timed out has failed, and is not tried again', async ({
    world,
  }) => {
    const inmost = child(world, { timeout: '10s' })
    const middle = calling(world, inmost)
    const definition = calling(world, middle, { node: { onTimeout: 'retry' } })
    const curfew = await world.open({ workflows: [definition, middle, inmost] })
    const handle = await curfew.start(definition, 1)
    await world.clock.advance('1h')
    // The middle one is given the whole input, and so is what it calls.
    const [run, ...others] = await childrenOf(curfew, handle)
    expect(others).toEqual([])
    expect(await tokensOf(run!)).toEqual([
      ['before', 'completed'],
      ['call', 'timed_out'],
    ])
    expect(await run!.status()).toBe('failed')
    expect((await handle.run()).tokens[1]).toMatchObject({ status: 'failed', retries: 0, timeoutType: null })
    expect(await timeoutsOf(handle)).toEqual([])
    expect(await handle.status()).toBe('failed')
  })

  test('C5: a parent that times out stops its child, waits for it, and ignores what comes of it', async ({
    world,
  }) => {
    const { clock } = world
    const reasons: unknown[] = []
    const stubborn = task({
      name: 'stubborn',
      run: async (_: unknown, { signal }) => {
        await clock.sleep('1h', signal).catch((reason) => {
          reasons.push(reason)
          return clock.sleep('2s')
        })
        return { written: true }
      },
    })
    const called = workflow({
      name: 'child',
      actions: { stubborn },
      nodes: [{ id: 'inner', actionId: 'stubborn', output: { 'state.inner': 'result' } }],
    })
    const definition = calling(world, called, {
      timeout: '10s',
      node: { output: { 'state.called': 'result' } },
    })
    const curfew = await world.open({ workflows: [definition, called] })
    const start = world.now
    const handle = await curfew.start(definition, 1)
    await clock.advance('11s')
    const [run] = await childrenOf(curfew, handle)
    expect(await handle.view()).toMatchObject({
      status: 'timed_out',
      settled: false,
      endedAt: start + 10_000,
    })
    expect(await run!.status()).toBe('cancelling')
    expect(reasons).toMatchObject([{ code: 'cancelled' }])
    await clock.advance('1h')
    expect(await handle.view()).toMatchObject({ status: 'timed_out', settled: true, output: null })
    expect(await run!.view()).toMatchObject({ status: 'cancelled', endedAt: start + 12_000, output: null })
    expect(await tokensOf(run!)).toEqual([['inner', 'cancelled']])
    expect(await tokensOf(handle)).toEqual([
      ['before', 'completed'],
      ['call', 'timed_out'],
    ])
    expect(await timeoutsOf(handle)).toEqual([['call', 1, 'workflow', 10_000, 'cancel_all']])
    expect(await timeoutsOf(run!)).toEqual([])
    expect((await handle.run()).state).toEqual({})
    expect((await run!.run()).state).toEqual({})
    const { tasks } = await curfew.list({ parent: run!.id })
    expect(tasks).toMatchObject([{ status: 'cancelled', receipt: 'aborted' }])
    const events = await curfew.task(tasks[0]?.id ?? '').events()
    expect(events.filter(({ type }) => type === 'late_result')).toHaveLength(1)
  })

  test('C6: what is left of the parent does not bind the child, unless it inherits', async ({ world }) => {
    const called = child(world)
    const definition = calling(world, called, { timeout: '1h' })
    const curfew = await world.open({ workflows: [definition, called] })
    const start = world.now
    const handle = await curfew.start(definition, 50 * MINUTE)
    await world.clock.advance('50m')
    const [run] = await childrenOf(curfew, handle)
    expect(await run!.view()).toMatchObject({ status: 'running', deadlineAt: start + 110 * MINUTE })
    await world.clock.advance('10m')
    expect(await handle.status()).toBe('timed_out')
    expect(await run!.status()).toBe('cancelled')
    expect(await tokensOf(run!)).toEqual([['inner', 'cancelled']])
  })

  test('C7: the join of a child has its own limit, and its own clock', async ({ world }) => {
    const { clock } = world
    const merged = { strategy: 'all', siblingGroup: 'fan', onTimeout: 'proceed_with_available' } as const
    const merge = { target: 'state.all', strategy: 'collect' } as const
    const called = workflow({
      name: 'child',
      actions: { work: workFor(world) },
      output: 'state.all',
      nodes: [{ id: 'start' }, { id: 'part', actionId: 'work', input: 'branch.item' }, { id: 'end' }],
      transitions: [
        { id: 'fan', from: 'start', to: 'part', foreach: { collection: 'input' } },
        { from: 'part', to: 'end', synchronization: { ...merged, timeout: '2s', merge } },
      ],
    })
    const definition = workflow({
      name: 'parent',
      actions: { call: { kind: 'workflow_call', workflow: 'child' } },
      output: 'state.all',
      nodes: [{ id: 'start' }, { id: 'call', actionId: 'call', input: 'branch.item' }, { id: 'end' }],
      transitions: [
        { id: 'fan', from: 'start', to: 'call', foreach: { collection: 'input' } },
        { from: 'call', to: 'end', synchronization: { ...merged, timeout: '10s', merge } },
      ],
    })
    const curfew = await world.open({ workflows: [definition, called] })
    const start = world.now
    const handle = await curfew.start(definition, [[500], [1_000, MINUTE]])
    await clock.advance('1500ms')
    const [, run] = await childrenOf(curfew, handle)
    expect((await run!.run()).joins).toMatchObject([
      { arrived: 1, timeoutMs: 2_000, deadlineAt: start + 3_000 },
    ])
    expect((await handle.run()).joins).toMatchObject([
      { arrived: 1, timeoutMs: 10_000, deadlineAt: start + 10_500 },
    ])
    await clock.advance('1m')
    expect(await run!.view()).toMatchObject({ status: 'completed', output: [1000], endedAt: start + 3_000 })
    expect(await timeoutsOf(run!)).toEqual([['part', 1, 'synchronization', 2_000, 'proceed_with_available']])
    expect(await handle.view()).toMatchObject({ status: 'completed', output: [[500], [1000]] })
    expect(await timeoutsOf(handle)).toEqual([])
    expect((await tokensOf(handle)).map(([, status]) => status)).toEqual(Array(4).fill('completed'))
  })

  test('F2: a child that inherits ends before its parent does, by the reserve', async ({ world }) => {
    const called = child(world)
    const usual = calling(world, called, { timeout: '10m', node: { inherit: true } })
    const set = calling(world, called, { timeout: '10m', node: { inherit: true, reserve: '5s' } })
    const curfew = await world.open({ workflows: [called] })
    const start = world.now
    const runs = [await curfew.start(usual, 9 * MINUTE), await curfew.start(set, 9 * MINUTE)]
    await world.clock.advance('9m')
    const deadlines: unknown[] = []
    for (const handle of runs) {
      const [run] = await childrenOf(curfew, handle)
      deadlines.push((await run!.view()).deadlineAt)
      const [, token] = (await handle.run()).tokens
      expect(token).toMatchObject({ status: 'waiting_for_subworkflow', deadlineAt: deadlines.at(-1) })
    }
    expect(deadlines).toEqual([start + 599_000, start + 595_000])
    await world.clock.advance('1m')
    for (const [i, handle] of runs.entries()) {
      const [run] = await childrenOf(curfew, handle)
      expect(await run!.view()).toMatchObject({ status: 'timed_out', endedAt: deadlines[i] })
      const leftMs = i === 0 ? 59_000 : 55_000
      expect(await timeoutsOf(run!)).toEqual([['inner', 1, 'workflow', leftMs, 'cancel_all']])
      expect(await timeoutsOf(handle)).toEqual([['call', 1, 'execution', leftMs, 'fail']])
      expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: deadlines[i] })
      expect((await tokensOf(handle))[1]).toEqual(['call', 'timed_out'])
    }
  })

  test('F2: a workflow that inherits says so for all below it', async ({ world }) => {
    const reports = agent({
      name: 'reports',
      run: async (_: unknown, ctx) => ctx.schedule(workFor(world), 1_000 * MINUTE),
    })
    const inmost = workflow({
      name: 'inmost',
      timeout: '2h',
      actions: { reports },
      nodes: [{ id: 'report', actionId: 'reports' }],
    })
    const middle = calling(world, inmost, { timeout: '2h' })
    const definition = calling(world, middle, { timeout: '10m', inherit: true })
    const curfew = await world.open({ tasks: [workFor(world)], workflows: [middle, inmost] })
    const start = world.now
    const handle = await curfew.start(definition, 1)
    await world.clock.settle()
    await world.clock.advance(2)
    const deadlines: number[] = []
    for (let id: string | undefined = handle.id; id !== undefined; ) {
      const { tasks } = await curfew.list({ parent: id, status: 'running' })
      if (tasks[0]) deadlines.push((tasks[0].deadlineAt ?? Infinity) - start)
      id = tasks[0]?.id
    }
    // Child, grandchild, its agent, the agent's task: a second for each, and the grace of the task.
    expect(deadlines).toEqual([599_000, 598_000, 597_000, 591_000])
    await world.clock.advance('10m')
    expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 591_000 })
    expect((await tokensOf(handle))[1]).toEqual(['call', 'failed'])
  })

  test('F2: tries after the first share what is left, and with nothing left there is none', async ({
    world,
  }) => {
    const starts: number[] = []
    const slow = task({
      name: 'slow',
      run: (_: unknown, { signal }) => {
        starts.push(world.now - start)
        return world.clock.sleep('1h', signal)
      },
    })
    const definition = workflow({
      name: 'tries',
      timeout: '70s',
      actions: { slow },
      nodes: [
        { id: 'only', actionId: 'slow', timeout: '30s', onTimeout: 'retry', retryLimit: 9, inherit: true },
      ],
    })
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await world.clock.advance('2m')
    expect(starts).toEqual([0, 30_000, 60_000])
    expect((await handle.run()).tokens).toMatchObject([
      { status: 'timed_out', timeoutType: 'execution', retries: 3, deadlineAt: start + 64_000 },
    ])
    expect(await timeoutsOf(handle)).toEqual([
      ['only', 1, 'execution', 30_000, 'retry'],
      ['only', 2, 'execution', 30_000, 'retry'],
      ['only', 3, 'execution', 4_000, 'retry'],
      ['only', 4, 'execution', 0, 'fail'],
    ])
    expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 64_000 })
  })

  for (const kind of ['task', 'child'] as const) {
    test(`F2: a ${kind} that has no time left is timed out without being dispatched`, async ({ world }) => {
      let starts = 0
      const quick = task({ name: 'quick', run: () => ++starts })
      const called = workflow({
        name: 'child',
        actions: { quick },
        nodes: [{ id: 'inner', actionId: 'quick' }],
      })
      const definition = workflow({
        name: 'late',
        timeout: '10s',
        inherit: true,
        reserve: '2s',
        actions: {
          work: workFor(world),
          next: kind === 'task' ? quick : { kind: 'workflow_call', workflow: 'child' },
        },
        nodes: [
          { id: 'before', actionId: 'work', input: '8000', inherit: false },
          { id: 'next', actionId: 'next', onTimeout: 'retry', timeout: '1m' },
        ],
        transitions: [{ from: 'before', to: 'next' }],
      })
      const curfew = await world.open({ workflows: [definition, called] })
      const start = world.now
      const handle = await curfew.start(definition, null)
      await world.clock.advance('1m')
      expect(starts).toBe(0)
      const { tokens } = await handle.run()
      expect(tokens[1]).toMatchObject({ status: 'timed_out', timeoutType: 'execution', retries: 0 })
      expect(await curfew.task(tokens[1]?.workId ?? '').view()).toMatchObject({
        status: 'timed_out',
        timeoutKind: 'workflow',
        attempts: 0,
        startedAt: null,
        endedAt: start + 8_000,
      })
      expect(await timeoutsOf(handle)).toEqual([['next', 1, 'execution', 0, 'fail']])
      expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 8_000 })
    })
  }
})
