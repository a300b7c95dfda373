/** The limits of one node: how long it may execute or wait for a worker, what a timeout leads to, soft stops, warnings. */
import { expect } from 'vitest'
import { timeoutsOf, tokensOf } from '../scripts/acceptance/workflow-runs.ts'
import type { World } from '../scripts/acceptance/world.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { WorkflowOptions } from './curfew.ts'
import { DefinitionError, loadWorkflow, TaskFailed, task, workflow } from './curfew.ts'

/** Counts its starts; ends by itself after a hundred hours, or at its signal. */
function hanging(world: World) {
  const starts: number[] = []
  const hang = task({
    name: 'hang',
    run: async (_: unknown, { signal }) => {
      starts.push(world.now)
      await world.clock.sleep('100h', signal)
    },
  })
  return { hang, starts }
}

type Execution = Pick<WorkflowOptions['nodes'][number], 'timeout' | 'onTimeout' | 'retryLimit'>

/** One node that hangs, under the limits of its action and its own. */
function limited(world: World, action: Execution, node: Execution = {}) {
  const { hang, starts } = hanging(world)
  const definition = workflow({
    name: 'limited',
    timeout: null,
    actions: { hang: { kind: 'task', task: 'hang', execution: action } },
    nodes: [{ id: 'only', actionId: 'hang', ...node }],
  })
  return { definition, tasks: [hang], starts }
}

onEachStore('limits of nodes', (test) => {
  test('X1: the timeout of the action ends the token, and with it the run', async ({ world }) => {
    const { definition, tasks } = limited(world, { timeout: 100 })
    const curfew = await world.open({ tasks, workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await world.clock.advance(99)
    expect((await handle.run()).tokens).toMatchObject([{ status: 'executing', deadlineAt: start + 100 }])
    await world.clock.advance(2)
    expect((await handle.run()).tokens).toMatchObject([
      { status: 'timed_out', timeoutType: 'execution', deadlineAt: start + 100, retries: 0 },
    ])
    expect(await timeoutsOf(handle)).toEqual([['only', 1, 'execution', 100, 'fail']])
    expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 100 })
    expect((await errorOf(handle.result(), TaskFailed)).failure.code).toBe('execution_timeout')
  })

  test('X1: also where the task itself has tries left: the graph decides about its timeout', async ({
    world,
  }) => {
    let starts = 0
    const eager = task({
      name: 'eager',
      retries: 5,
      run: (_: unknown, { signal }) => world.clock.sleep('1h', signal).finally(() => starts++),
    })
    const definition = workflow({
      name: 'eager',
      actions: { eager },
      nodes: [{ id: 'only', actionId: 'eager', timeout: 100 }],
    })
    const curfew = await world.open({ workflows: [definition] })
    const handle = await curfew.start(definition, null)
    await world.clock.advance('10m')
    expect(starts).toBe(1)
    expect(await tokensOf(handle)).toEqual([['only', 'timed_out']])
    expect(await timeoutsOf(handle)).toEqual([['only', 1, 'execution', 100, 'fail']])
  })

  test('X2: that of the node wins, whether longer or shorter', async ({ world }) => {
    const longer = limited(world, { timeout: 100 }, { timeout: 300 })
    const shorter = limited(world, { timeout: 100 }, { timeout: 50 })
    const curfew = await world.open({ tasks: longer.tasks })
    const long = await curfew.start(longer.definition, null)
    const short = await curfew.start(shorter.definition, null)
    await world.clock.advance(51)
    expect(await tokensOf(short)).toEqual([['only', 'timed_out']])
    expect(await timeoutsOf(short)).toEqual([['only', 1, 'execution', 50, 'fail']])
    await world.clock.advance(99)
    expect(await tokensOf(long)).toEqual([['only', 'executing']])
    await world.clock.advance(151)
    expect(await tokensOf(long)).toEqual([['only', 'timed_out']])
    expect(await timeoutsOf(long)).toEqual([['only', 1, 'execution', 300, 'fail']])
  })

  test('X3: null on the node takes the limit of the action away', async ({ world }) => {
    const { definition, tasks } = limited(world, { timeout: 100 }, { timeout: null })
    const curfew = await world.open({ tasks })
    const handle = await curfew.start(definition, null)
    await world.clock.advance(10_000)
    expect((await handle.run()).tokens).toMatchObject([{ status: 'executing', deadlineAt: null }])
    expect(await timeoutsOf(handle)).toEqual([])
  })

  test('X4: without either there is none', async ({ world }) => {
    const { definition, tasks } = limited(world, {})
    const curfew = await world.open({ tasks })
    const handle = await curfew.start(definition, null)
    await world.clock.advance('24h')
    expect((await handle.run()).tokens).toMatchObject([{ status: 'executing', deadlineAt: null }])
    expect(await timeoutsOf(handle)).toEqual([])
  })

  test('X5: retry starts it again as often as the limit says, then the timeout counts', async ({ world }) => {
    const { definition, tasks, starts } = limited(world, { timeout: 100, onTimeout: 'retry', retryLimit: 3 })
    const curfew = await world.open({ tasks })
    const start = world.now
    const handle = await curfew.start(definition, null)
    const seen: [number, string][] = []
    for (let period = 0; period < 4; period++) {
      await world.clock.advance(period === 0 ? 50 : 100)
      const [token] = (await handle.run()).tokens
      seen.push([token?.retries ?? -1, token?.status ?? ''])
    }
    expect(seen).toEqual([0, 1, 2, 3].map((retries) => [retries, 'executing']))
    await world.clock.advance(1_000)
    expect(starts.map((at) => at - start)).toEqual([0, 100, 200, 300])
    expect((await handle.run()).tokens).toMatchObject([
      { status: 'timed_out', timeoutType: 'execution', retries: 3, deadlineAt: start + 400 },
    ])
    expect(await timeoutsOf(handle)).toEqual([
      ['only', 1, 'execution', 100, 'retry'],
      ['only', 2, 'execution', 100, 'retry'],
      ['only', 3, 'execution', 100, 'retry'],
      ['only', 4, 'execution', 100, 'fail'],
    ])
    expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 400 })
  })

  test('X6: a second attempt that is through in time is the result', async ({ world }) => {
    const { clock } = world
    let tries = 0
    const second = task({
      name: 'second',
      run: async (_: unknown, { signal }) => {
        const attempt = ++tries
        await clock.sleep(attempt === 1 ? '1h' : 40, signal)
        return `attempt ${attempt}`
      },
    })
    const definition = workflow({
      name: 'again',
      actions: { second },
      nodes: [{ id: 'only', actionId: 'second', timeout: 100, onTimeout: 'retry', retryLimit: 3 }],
    })
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await clock.advance(1_000)
    expect(await handle.result()).toBe('attempt 2')
    expect(await handle.view()).toMatchObject({ status: 'completed', endedAt: start + 140 })
    expect((await handle.run()).tokens).toMatchObject([
      { status: 'completed', retries: 1, timeoutType: null, deadlineAt: null },
    ])
    expect(await timeoutsOf(handle)).toEqual([['only', 1, 'execution', 100, 'retry']])
  })

  test('X7: what the first attempt brings after its timeout is kept and ignored', async ({ world }) => {
    const { clock } = world
    let tries = 0
    const slow = task({
      name: 'slow',
      run: async () => {
        const attempt = ++tries
        // Deaf: the first one answers when its grace has begun.
        await clock.sleep(attempt === 1 ? 150 : 60)
        return `attempt ${attempt}`
      },
    })
    const definition = workflow({
      name: 'late',
      actions: { slow },
      nodes: [{ id: 'only', actionId: 'slow', timeout: 100, onTimeout: 'retry' }],
    })
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await clock.advance(149)
    // The next one waits until this one has really ended.
    expect(tries).toBe(1)
    await clock.advance(1_000)
    expect(tries).toBe(2)
    expect(await handle.result()).toBe('attempt 2')
    expect(await handle.view()).toMatchObject({ status: 'completed', endedAt: start + 210 })
    expect((await handle.run()).tokens).toMatchObject([{ status: 'completed', retries: 1 }])
    const { tasks } = await curfew.list({ parent: handle.id, status: 'timed_out' })
    const events = await curfew.task(tasks[0]?.id ?? '').events()
    expect(events.filter(({ type }) => type === 'late_result')).toMatchObject([{ output: '"attempt 1"' }])
  })

  test('X8: between two attempts no deadline holds but that of the queue', async ({ world }) => {
    const { clock } = world
    let tries = 0
    const slow = task({
      name: 'slow',
      // Follows its signal 30 ms late.
      run: async (_: unknown, { signal }) => {
        tries++
        await clock.sleep('1h', signal).catch(() => clock.sleep(30))
      },
    })
    const other = task({ name: 'other', priority: -1, run: () => clock.sleep(50) })
    const definition = workflow({
      name: 'between',
      actions: { slow },
      nodes: [{ id: 'only', actionId: 'slow', timeout: 100, onTimeout: 'retry', queueTimeout: 500 }],
    })
    const curfew = await world.open({ tasks: [other], workflows: [definition], concurrency: 1 })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await clock.advance(10)
    await curfew.schedule(other, null)
    const token = async () => (await handle.run()).tokens[0]
    expect(await token()).toMatchObject({ status: 'executing', deadlineAt: start + 100 })
    // It was told to stop, and has not yet.
    await clock.advance(100)
    expect(await token()).toMatchObject({ status: 'dispatched', retries: 0, deadlineAt: null })
    // It waits behind the other one.
    await clock.advance(30)
    expect(await token()).toMatchObject({ status: 'dispatched', retries: 1, deadlineAt: start + 130 + 500 })
    await clock.advance(41)
    expect(await token()).toMatchObject({ status: 'executing', retries: 1, deadlineAt: start + 180 + 100 })
    expect(tries).toBe(2)
    expect(await timeoutsOf(handle)).toEqual([['only', 1, 'execution', 100, 'retry']])
  })

  for (const [node, action, starts] of [
    ['fail', 'retry', 1],
    ['retry', 'fail', 4],
  ] as const) {
    test(`X9: ${node} on the node wins over ${action} on the action`, async ({ world }) => {
      const both = limited(world, { timeout: 100, onTimeout: action }, { onTimeout: node })
      const curfew = await world.open({ tasks: both.tasks })
      const handle = await curfew.start(both.definition, null)
      await world.clock.advance(1_000)
      expect(both.starts).toHaveLength(starts)
      const policies = (await timeoutsOf(handle)).map(([, , , , policy]) => policy)
      expect(policies).toEqual([...Array(starts - 1).fill('retry'), 'fail'])
      expect((await handle.run()).tokens).toMatchObject([{ status: 'timed_out', retries: starts - 1 }])
    })
  }

  test('X10: without a limit a timeout is retried three times; a limit that is none is refused', async ({
    world,
  }) => {
    const { definition, tasks, starts } = limited(world, { timeout: 100, onTimeout: 'retry' })
    const curfew = await world.open({ tasks })
    const handle = await curfew.start(definition, null)
    await world.clock.advance(1_000)
    expect(starts).toHaveLength(4)
    expect((await handle.run()).tokens).toMatchObject([{ status: 'timed_out', retries: 3 }])
    for (const retryLimit of [-1, 1.5]) {
      expect(() => limited(world, { timeout: 100, onTimeout: 'retry', retryLimit })).toThrow(DefinitionError)
    }
    const text =
      'name: w\nnodes: [{ id: a, action_id: x, timeout: 1s, on_timeout: retry, retry_limit: many }]'
    expect(() => loadWorkflow(text)).toThrow(/retry_limit/)
  })

  test('X11: what waits too long for a worker has timed out, and is not tried again', async ({ world }) => {
    const { definition, tasks, starts } = limited(world, { timeout: 100, onTimeout: 'retry' })
    const blocker = task({ name: 'blocker', run: () => world.clock.sleep('10s') })
    const curfew = await world.open({ tasks: [...tasks, blocker], concurrency: 1 })
    const start = world.now
    await curfew.schedule(blocker, null)
    await world.clock.settle()
    const handle = await curfew.start(definition, null)
    await world.clock.advance(99)
    expect((await handle.run()).tokens).toMatchObject([{ status: 'dispatched', deadlineAt: start + 100 }])
    await world.clock.advance('1m')
    expect(starts).toEqual([])
    expect((await handle.run()).tokens).toMatchObject([
      { status: 'timed_out', timeoutType: 'execution', retries: 0, deadlineAt: start + 100 },
    ])
    expect(await timeoutsOf(handle)).toEqual([['only', 1, 'execution', 100, 'fail']])
    expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 100 })
    expect((await errorOf(handle.result(), TaskFailed)).failure.code).toBe('queue_timeout')
  })

  test('X12: work that went out and is never heard of has timed out, and is not tried again', async ({
    world,
  }) => {
    let starts = 0
    const deaf = task({
      name: 'deaf',
      grace: 200,
      run: () => {
        starts++
        return new Promise<never>(() => undefined)
      },
    })
    const definition = workflow({
      name: 'silent',
      actions: { deaf },
      nodes: [{ id: 'only', actionId: 'deaf', timeout: 100, onTimeout: 'retry' }],
    })
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await world.clock.advance('1m')
    // It still runs: another one beside it would not be a retry.
    expect(starts).toBe(1)
    expect((await handle.run()).tokens).toMatchObject([
      { status: 'timed_out', timeoutType: 'execution', retries: 0, deadlineAt: start + 100 },
    ])
    expect(await timeoutsOf(handle)).toEqual([['only', 1, 'execution', 100, 'fail']])
    expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 300 })
    const { tasks } = await curfew.list({ parent: handle.id })
    expect(tasks).toMatchObject([{ status: 'timed_out', receipt: 'abandoned' }])
  })

  test('X12: nor does it matter whether anybody works its queue', async ({ world }) => {
    const far = task({ name: 'far', queue: 'far', run: () => 'done' })
    const definition = workflow({
      name: 'far',
      actions: { far },
      nodes: [{ id: 'only', actionId: 'far', timeout: 100, onTimeout: 'retry' }],
    })
    const curfew = await world.open({ workflows: [definition], workQueues: ['default'] })
    const handle = await curfew.start(definition, null)
    await world.clock.advance('1m')
    expect((await handle.run()).tokens).toMatchObject([{ status: 'timed_out', retries: 0 }])
    expect(await timeoutsOf(handle)).toEqual([['only', 1, 'execution', 100, 'fail']])
    expect(await handle.status()).toBe('failed')
  })

  test('X13: of three in a group one times out: the join fires with the other two', async ({ world }) => {
    const { clock } = world
    const read = task({
      name: 'read',
      run: async (ms: number, { signal }) => {
        await clock.sleep(ms, signal)
        return `page ${ms}`
      },
    })
    const definition = workflow({
      name: 'tolerant',
      actions: { read },
      nodes: [
        { id: 'start' },
        { id: 'read', actionId: 'read', input: 'branch.item', timeout: 100 },
        { id: 'end', output: { 'output.pages': 'state.pages', 'output.join': 'join' } },
      ],
      transitions: [
        { id: 'fan', from: 'start', to: 'read', foreach: { collection: 'input' } },
        {
          from: 'read',
          to: 'end',
          synchronization: {
            strategy: 'all',
            siblingGroup: 'fan',
            onBranchFailure: 'settle',
            merge: { target: 'state.pages' },
          },
        },
      ],
    })
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, [10, 500, 20])
    await clock.advance(1_000)
    expect(await handle.result()).toEqual({
      pages: ['page 10', 'page 20'],
      join: { expected: 3, arrived: 2, missing: 1, timed_out: 1 },
    })
    expect(await handle.view()).toMatchObject({ status: 'completed', endedAt: start + 100 })
    expect(await tokensOf(handle)).toEqual([
      ['start', 'completed'],
      ['read', 'completed'],
      ['read', 'timed_out'],
      ['read', 'completed'],
      ['end', 'completed'],
    ])
    expect(await timeoutsOf(handle)).toEqual([['read', 1, 'execution', 100, 'fail']])
  })

  test('X14: an error before the deadline is a failure, no timeout', async ({ world }) => {
    const broken = task({
      name: 'broken',
      run: async (): Promise<never> => {
        await world.clock.sleep(50)
        throw new Error('no such page')
      },
    })
    const definition = workflow({
      name: 'failing',
      actions: { broken },
      nodes: [{ id: 'only', actionId: 'broken', timeout: 100, onTimeout: 'retry' }],
    })
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await world.clock.advance(1_000)
    expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 50 })
    expect((await handle.run()).tokens).toMatchObject([{ status: 'failed', retries: 0, timeoutType: null }])
    expect(await timeoutsOf(handle)).toEqual([])
    const failed = (await handle.events()).filter(({ type }) => type === 'token_failed')
    expect(failed).toMatchObject([{ tokenId: 0, nodeId: 'only' }])
    expect((await errorOf(handle.result(), TaskFailed)).failure.message).toContain('no such page')
  })

  test('X15: each deadline fires at its own moment', async ({ world }) => {
    const { hang } = hanging(world)
    const definition = workflow({
      name: 'two',
      actions: { hang },
      nodes: [
        { id: 'start' },
        { id: 'short', actionId: 'hang', timeout: 100 },
        { id: 'long', actionId: 'hang', timeout: 5_000 },
        { id: 'end' },
      ],
      transitions: [
        { from: 'start', to: 'short', siblingGroup: 'both' },
        { from: 'start', to: 'long', siblingGroup: 'both' },
        ...(['short', 'long'] as const).map((from) => ({
          ...{ from, to: 'end' as const },
          synchronization: {
            ...{
              strategy: 'all' as const,
              siblingGroup: 'both' as const,
              onBranchFailure: 'settle' as const,
            },
          },
        })),
      ],
    })
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await world.clock.advance(101)
    expect((await tokensOf(handle)).slice(1)).toEqual([
      ['short', 'timed_out'],
      ['long', 'executing'],
    ])
    expect(await timeoutsOf(handle)).toEqual([['short', 1, 'execution', 100, 'fail']])
    await world.clock.advance(4_899)
    expect((await tokensOf(handle))[2]).toEqual(['long', 'timed_out'])
    const fired = (await handle.events()).filter(({ type }) => type === 'token_timed_out')
    expect(fired.map(({ at }) => at - start)).toEqual([100, 5_000])
  })
})
