/** How long joins wait for their branches, and what becomes of those that do not come in time. */
import { expect } from 'vitest'
import { expectReplay } from '../scripts/acceptance/run-replay.ts'
import { joined, NEVER, workOf } from '../scripts/acceptance/scripted-work.ts'
import { timeoutsOf, tokensOf } from '../scripts/acceptance/workflow-runs.ts'
import type { World } from '../scripts/acceptance/world.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { WorkflowDefinition, WorkflowHandle } from './curfew.ts'
import { TaskFailed, TaskTimedOut, workflow } from './curfew.ts'

const PROCEED = { strategy: 'all', timeout: 1_000, onTimeout: 'proceed_with_available' } as const
const FAIL = { strategy: 'all', timeout: 1_000, onTimeout: 'fail' } as const

const joinOf = async (handle: WorkflowHandle, transition = 'join') =>
  (await handle.run()).joins.find((join) => join.transition === transition)

const firedOf = async (handle: WorkflowHandle) =>
  (await handle.events())
    .filter(({ type }) => type === 'join_fired')
    .map(({ transition, arrived, timedOut }) => [transition, arrived, timedOut])

onEachStore('synchronization timeouts', (test, kind) => {
  // One that is evicted at every wait is replayed at every step.
  const residents = kind === 'memory' ? { count: 0 } : {}
  const open = (world: World, ...workflows: WorkflowDefinition[]) =>
    world.open({ tasks: [workOf(world)], workflows, residents, concurrency: 50 })

  test('S1: it waits from its first arrival, then its policy is applied', async ({ world }) => {
    const definition = joined(FAIL)
    const curfew = await open(world, definition)
    const start = world.now
    const handle = await curfew.start(definition, [{}, { ms: 200 }, NEVER])
    await world.clock.advance(999)
    const waiting = { arrived: 2, expected: 3, fired: false, timeoutMs: 1_000, deadlineAt: start + 1_000 }
    expect(await joinOf(handle)).toMatchObject(waiting)
    expect(await tokensOf(handle)).toEqual([
      ['start', 'completed'],
      ['read', 'waiting_for_siblings'],
      ['read', 'waiting_for_siblings'],
      ['read', 'executing'],
    ])
    await world.clock.advance(1)
    expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 1_000 })
    await expectReplay(world, handle)
  })

  test('S2: what the branches take before the first arrives does not count', async ({ world }) => {
    const definition = joined({ ...FAIL, timeout: 60_000 })
    const curfew = await open(world, definition)
    const start = world.now
    const handle = await curfew.start(definition, [{ ms: 600_000 }, NEVER])
    await world.clock.advance(659_999)
    expect(await handle.status()).toBe('running')
    expect((await joinOf(handle))?.deadlineAt).toBe(start + 660_000)
    await world.clock.advance(1)
    expect(await handle.status()).toBe('failed')
    await expectReplay(world, handle)
  })

  test('S3: later arrivals do not move it', async ({ world }) => {
    const definition = joined(FAIL)
    const curfew = await open(world, definition)
    const handle = await curfew.start(definition, [{}, { ms: 900 }, NEVER])
    await world.clock.advance(999)
    expect(await handle.status()).toBe('running')
    await world.clock.advance(1)
    expect(await handle.status()).toBe('failed')
    await expectReplay(world, handle)
  })

  test('S4: it proceeds once, with what has arrived in the order of branches', async ({ world }) => {
    const definition = joined(PROCEED)
    const curfew = await open(world, definition)
    const handle = await curfew.start(definition, [{ ms: 300, value: 'a' }, NEVER, { value: 'c' }])
    await world.clock.advance(1_000)
    expect((await handle.run()).state).toEqual({ all: ['a', 'c'] })
    const waiter = ['read', 1, 'synchronization', 1_000, 'proceed_with_available']
    expect(await timeoutsOf(handle)).toEqual([waiter, waiter])
    expect(await firedOf(handle)).toEqual([['join', 2, true]])
    await world.clock.advance(600_000)
    expect(await handle.result()).toEqual(['a', 'c'])
    // What is late is stopped with the run.
    const { tasks } = await curfew.list({ parent: handle.id, status: 'cancelled' })
    expect(tasks).toMatchObject([{ title: 'read', receipt: 'aborted' }])
    await expectReplay(world, handle)
  })

  test('S5: one that runs on is not interrupted; what it brings is dropped', async ({ world }) => {
    const definition = joined(PROCEED)
    const curfew = await open(world, definition)
    const handle = await curfew.start(definition, [{ value: 'a' }, { value: 'b' }, { ms: 5_000, value: 'c' }])
    await world.clock.advance(1_000)
    const { state } = await handle.run()
    expect(state).toEqual({ all: ['a', 'b'] })
    expect(await tokensOf(handle)).toContainEqual(['read', 'executing'])
    await world.clock.advance(4_000)
    const late = (await handle.run()).tokens[3]
    expect(late).toMatchObject({ node: 'read', status: 'completed' })
    expect(await curfew.task(late?.workId ?? '').result()).toBe('c')
    expect((await handle.run()).state).toEqual(state)
    await world.clock.advance(600_000)
    expect(await handle.result()).toEqual(['a', 'b'])
    expect((await tokensOf(handle)).filter(([node]) => node === 'end')).toHaveLength(1)
    expect(await firedOf(handle)).toHaveLength(1)
    await expectReplay(world, handle)
  })

  test('S6: one that fails or times out late changes nothing', async ({ world }) => {
    const definition = joined(PROCEED, { readTimeout: 8_000 })
    const curfew = await open(world, definition)
    const handle = await curfew.start(definition, [{ value: 'a' }, { ms: 5_000, fails: true }, NEVER])
    await world.clock.advance(10_000)
    expect((await tokensOf(handle)).slice(2)).toEqual([
      ['read', 'failed'],
      ['read', 'timed_out'],
      ['end', 'executing'],
    ])
    await world.clock.advance(600_000)
    expect(await handle.result()).toEqual(['a'])
    // Each on record once, and neither retried.
    expect(await timeoutsOf(handle)).toEqual([
      ['read', 1, 'synchronization', 1_000, 'proceed_with_available'],
      ['read', 1, 'execution', 8_000, 'fail'],
    ])
    await expectReplay(world, handle)
  })

  test('S7: with nothing that was worked for there is nothing to proceed with', async ({ world }) => {
    const definition = workflow({
      name: 'empty-handed',
      nodes: [
        { id: 'start' },
        { id: 'gate' },
        { id: 'read', actionId: 'work', input: 'branch.item' },
        { id: 'end' },
      ],
      transitions: [
        { id: 'fan', from: 'start', to: 'gate', foreach: { collection: 'input' } },
        { from: 'gate', to: 'read', condition: 'branch.index > 0' },
        {
          from: 'gate',
          to: 'end',
          priority: 1,
          synchronization: { siblingGroup: 'fan', ...PROCEED },
        },
      ],
    })
    const curfew = await open(world, definition)
    const handle = await curfew.start(definition, [null, NEVER])
    await world.clock.advance(1_000)
    const error = await errorOf(handle.result(), TaskFailed)
    expect(error.failure).toMatchObject({ code: 'synchronization_timeout' })
    expect(error.failure.message).toContain('No siblings completed before timeout')
    await expectReplay(world, handle)
  })

  test('S8: fail times out those that wait, each with an event, and fails the run', async ({ world }) => {
    const definition = joined(FAIL)
    const curfew = await open(world, definition)
    const handle = await curfew.start(definition, [{}, {}, NEVER])
    await world.clock.advance(1_000)
    const error = await errorOf(handle.result(), TaskFailed)
    expect(error.failure.message).toContain('Synchronization timeout exceeded')
    expect((await tokensOf(handle)).slice(1)).toEqual([
      ['read', 'timed_out'],
      ['read', 'timed_out'],
      ['read', 'cancelled'],
    ])
    const waiter = ['read', 1, 'synchronization', 1_000, 'fail']
    expect(await timeoutsOf(handle)).toEqual([waiter, waiter])
    await expectReplay(world, handle)
  })

  test('S9: fail is what happens where nothing is said', async ({ world }) => {
    const definition = joined({ strategy: 'all', timeout: 1_000 })
    const curfew = await open(world, definition)
    const handle = await curfew.start(definition, [{ value: 'a' }, NEVER])
    await world.clock.advance(1_000)
    expect(await handle.status()).toBe('failed')
    expect(await timeoutsOf(handle)).toEqual([['read', 1, 'synchronization', 1_000, 'fail']])
    await expectReplay(world, handle)
  })

  test('S10 to S14: without a timeout it waits for what its branches may take', async ({ world }) => {
    const rows = [
      { name: 's10', actionTimeout: 120_000, branches: 10, expected: 1_800_000 },
      { name: 's11', actionTimeout: 10_000, branches: 4, expected: 60_000 },
      { name: 's12', actionTimeout: 600_000, branches: 10, expected: 1_800_000 },
      { name: 's13', branches: 3, expected: 1_800_000 },
      { name: 's14', actionTimeout: 10_000, readTimeout: 20_000, branches: 2, expected: 60_000 },
    ]
    const definitions = rows.map((row) => joined({ strategy: 'all' }, row))
    const curfew = await open(world, ...definitions)
    const start = world.now
    for (const [i, { branches, expected }] of rows.entries()) {
      const definition = definitions[i] as WorkflowDefinition
      const handle = await curfew.start(definition, [{}, ...Array<object>(branches - 1).fill(NEVER)])
      await world.clock.settle()
      expect(await joinOf(handle)).toMatchObject({
        arrived: 1,
        timeoutMs: expected,
        deadlineAt: start + expected,
      })
    }
  })

  test('S15: the last one comes in the tick of the timeout: one activation, whichever is first', async ({
    world,
  }) => {
    const definition = joined(PROCEED)
    const curfew = await open(world, definition)
    const handle = await curfew.start(definition, [{ value: 'a' }, { ms: 1_000, value: 'b' }])
    await world.clock.advance(1_000)
    const [[, arrived, timedOut] = [], ...others] = await firedOf(handle)
    expect(others).toEqual([])
    expect((await handle.run()).state.all).toEqual(timedOut ? ['a'] : ['a', 'b'])
    expect(arrived).toBe(timedOut ? 1 : 2)
    expect((await tokensOf(handle)).filter(([node]) => node === 'end')).toHaveLength(1)
    await world.clock.advance(600_000)
    expect(await handle.status()).toBe('completed')
    await expectReplay(world, handle)
  })

  test('S16: of nested joins only the one that is late applies its policy', async ({ world }) => {
    const definition = workflow({
      name: 'nested',
      nodes: [
        { id: 'start' },
        { id: 'open' },
        { id: 'read', actionId: 'work', input: 'branch.item' },
        { id: 'meet', actionId: 'work', input: { ms: 3_000, value: 'branch.pages' } },
        { id: 'end' },
      ],
      transitions: [
        { id: 'a', from: 'start', to: 'open', foreach: { collection: 'input' } },
        { id: 'b', from: 'open', to: 'read', foreach: { collection: 'branch.item' } },
        {
          id: 'inner',
          from: 'read',
          to: 'meet',
          synchronization: {
            ...{ siblingGroup: 'b', ...PROCEED },
            merge: { target: 'branch.pages', strategy: 'collect' },
          },
        },
        {
          id: 'outer',
          from: 'meet',
          to: 'end',
          synchronization: {
            ...{ siblingGroup: 'a', ...PROCEED, timeout: 5_000 },
            merge: { target: 'state.all', strategy: 'collect' },
          },
        },
      ],
      output: 'state.all',
    })
    const curfew = await open(world, definition)
    const start = world.now
    const handle = await curfew.start(definition, [
      [{ value: 'a' }, NEVER],
      [{ value: 'b' }, { ms: 4_000 }],
    ])
    await world.clock.advance(1_000)
    // Both inner ones went on with what they had; the outer one has not begun to wait.
    expect(await firedOf(handle)).toEqual([
      ['inner', 1, true],
      ['inner', 1, true],
    ])
    expect(await joinOf(handle, 'outer')).toMatchObject({ arrived: 0, deadlineAt: null })
    await world.clock.advance(2_999)
    expect(await joinOf(handle, 'outer')).toMatchObject({ arrived: 0, deadlineAt: null })
    expect(await handle.status()).toBe('running')
    await world.clock.advance(1)
    expect(await handle.result()).toEqual([['a'], ['b']])
    expect(await handle.view()).toMatchObject({ endedAt: start + 4_000 })
    await expectReplay(world, handle)
  })

  test('S17: two joins of one group have a timeout each', async ({ world }) => {
    const merge = (target: string) => ({ merge: { target, strategy: 'collect' as const } })
    const definition = workflow({
      name: 'twice',
      nodes: [
        { id: 'start' },
        { id: 'read', actionId: 'work', input: 'branch.item' },
        { id: 'quick' },
        { id: 'thorough' },
      ],
      transitions: [
        { id: 'fan', from: 'start', to: 'read', foreach: { collection: 'input' } },
        {
          id: 'soon',
          from: 'read',
          to: 'quick',
          synchronization: { siblingGroup: 'fan', ...PROCEED, ...merge('state.soon') },
        },
        {
          id: 'late',
          from: 'read',
          to: 'thorough',
          synchronization: { siblingGroup: 'fan', ...PROCEED, timeout: 5_000, ...merge('state.late') },
        },
      ],
      output: 'state',
    })
    const curfew = await open(world, definition)
    const start = world.now
    const handle = await curfew.start(definition, [{ value: 'a' }, { ms: 3_000, value: 'b' }, NEVER])
    await world.clock.advance(10)
    expect(await joinOf(handle, 'soon')).toMatchObject({ deadlineAt: start + 1_000 })
    expect(await joinOf(handle, 'late')).toMatchObject({ deadlineAt: start + 5_000 })
    await world.clock.advance(4_990)
    expect(await handle.result()).toEqual({ soon: ['a'], late: ['a', 'b'] })
    expect(await firedOf(handle)).toEqual([
      ['soon', 1, true],
      ['late', 2, true],
    ])
    await expectReplay(world, handle)
  })

  test('S18: where nobody arrives it never fires; the other limits end the run', async ({ world }) => {
    const unlimited = joined({ ...PROCEED, timeout: 100 })
    const limited = joined({ ...PROCEED, timeout: 100 }, { name: 'limited', readTimeout: 2_000 })
    const curfew = await open(world, unlimited, limited)
    const byWorkflow = await curfew.start(unlimited, [NEVER, NEVER], { timeout: 10_000 })
    const byExecution = await curfew.start(limited, [NEVER, NEVER])
    await world.clock.advance(10_000)
    expect(await byWorkflow.status()).toBe('timed_out')
    const ofWorkflow = ['read', 1, 'workflow', 10_000, 'cancel_all']
    expect(await timeoutsOf(byWorkflow)).toEqual([ofWorkflow, ofWorkflow])
    expect(await byExecution.view()).toMatchObject({ status: 'failed' })
    expect(await timeoutsOf(byExecution)).toEqual([['read', 1, 'execution', 2_000, 'fail']])
    for (const handle of [byWorkflow, byExecution]) expect(await firedOf(handle)).toEqual([])
    await expectReplay(world, byWorkflow, byExecution)
  })

  test('S19: a quorum that is not met in time proceeds with less', async ({ world }) => {
    const definition = joined({ ...PROCEED, strategy: { mOfN: 3 } })
    const curfew = await open(world, definition)
    const handle = await curfew.start(definition, [
      NEVER,
      { value: 'b' },
      NEVER,
      { ms: 500, value: 'd' },
      { ms: 700, fails: true },
    ])
    await world.clock.advance(1_000)
    expect(await firedOf(handle)).toEqual([['join', 2, true]])
    await world.clock.advance(600_000)
    expect(await handle.result()).toEqual(['b', 'd'])
    await expectReplay(world, handle)
  })

  test('S20: the timeout of the workflow comes before that of a join', async ({ world }) => {
    const definition = joined(PROCEED)
    const curfew = await open(world, definition)
    const handle = await curfew.start(definition, [{ value: 'a' }, NEVER], { timeout: 1_000 })
    await world.clock.advance(1_000)
    expect(await errorOf(handle.result(), TaskTimedOut)).toMatchObject({ kind: 'workflow', timeoutMs: 1_000 })
    const each = ['read', 1, 'workflow', 1_000, 'cancel_all']
    expect(await timeoutsOf(handle)).toEqual([each, each])
    expect((await tokensOf(handle)).slice(1)).toEqual([
      ['read', 'timed_out'],
      ['read', 'timed_out'],
    ])
    await world.clock.advance(10_000)
    expect(await firedOf(handle)).toEqual([])
    await expectReplay(world, handle)
  })
})

onEachStore(
  'synchronization timeouts over a restart',
  (test) => {
    test('S21: a join that waits goes on from its first arrival', async ({ world }) => {
      const definition = joined(PROCEED)
      const open = () => world.open({ tasks: [workOf(world)], workflows: [definition] })
      const curfew = await open()
      const start = world.now
      const handle = await curfew.start(definition, [{ value: 'a' }, NEVER])
      await world.clock.advance(400)
      const before = await handle.run()
      await world.crash()
      await world.clock.advance(400)
      const again = (await open()).workflow(handle.id)
      await world.clock.settle()
      expect((await again.run()).joins).toEqual(before.joins)
      expect(await joinOf(again)).toMatchObject({ arrived: 1, deadlineAt: start + 1_000 })
      await world.clock.advance(199)
      expect(await firedOf(again)).toEqual([])
      await world.clock.advance(1)
      expect(await firedOf(again)).toEqual([['join', 1, true]])
      expect((await again.run()).state).toEqual({ all: ['a'] })
    })

    test('S21: one whose time was over meanwhile is told at once', async ({ world }) => {
      const definition = joined(FAIL)
      const curfew = await world.open({ tasks: [workOf(world)], workflows: [definition] })
      const handle = await curfew.start(definition, [{ value: 'a' }, NEVER])
      await world.clock.advance(400)
      await world.crash()
      await world.clock.advance(60_000)
      const reopened = await world.open({ tasks: [workOf(world)], workflows: [definition] })
      await world.clock.settle()
      const again = reopened.workflow(handle.id)
      expect(await again.status()).toBe('failed')
      expect(await timeoutsOf(again)).toEqual([['read', 1, 'synchronization', 1_000, 'fail']])
      await expectReplay(world, again)
    })
  },
  ['file', 'postgres'],
)
