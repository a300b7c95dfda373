/** The timeout of a whole workflow: when it holds, what it ends, and what it leaves as it was. */
import { expect } from 'vitest'
import { timeoutsOf, tokensOf } from '../scripts/acceptance/workflow-runs.ts'
import type { World } from '../scripts/acceptance/world.ts'
import { errorOf, metric, onEachStore } from '../scripts/acceptance/world.ts'
import { TaskFailed, TaskTimedOut, task, workflow } from './curfew.ts'

/** Takes as long as its input says; follows its signal. */
const workFor = (world: World) =>
  task({
    name: 'work',
    run: async (ms: number, { signal }) => {
      if (ms > 0) await world.clock.sleep(ms, signal)
      return ms
    },
  })

/** One node that runs for an hour. */
const single = (world: World, options: { timeout?: number | null; onTimeout?: 'cancel_all' | 'fail' } = {}) =>
  workflow({
    name: 'single',
    ...options,
    actions: { work: workFor(world) },
    nodes: [{ id: 'only', actionId: 'work', input: '3600000' }],
  })

/** A branch for each element of the input, and a join that waits for all of them. */
const fanned = (world: World, onTimeout?: 'cancel_all' | 'fail') =>
  workflow({
    name: 'fanned',
    timeout: 1_000,
    ...(onTimeout && { onTimeout }),
    actions: { work: workFor(world) },
    nodes: [{ id: 'start' }, { id: 'read', actionId: 'work', input: 'branch.item' }, { id: 'end' }],
    transitions: [
      { id: 'fan', from: 'start', to: 'read', foreach: { collection: 'input' } },
      { from: 'read', to: 'end', synchronization: { strategy: 'all', siblingGroup: 'fan' } },
    ],
  })

onEachStore('limits of workflows', (test) => {
  test('W1: one hour from its creation where none is set', async ({ world }) => {
    const definition = single(world)
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await world.clock.settle()
    expect(await handle.view()).toMatchObject({ status: 'running', deadlineAt: start + 3_600_000 })
    expect(await tokensOf(handle)).toEqual([['only', 'executing']])
  })

  test('W2: null is none at all', async ({ world }) => {
    const { clock } = world
    const hang = task({ name: 'hang', run: (_: unknown, { signal }) => clock.sleep('100h', signal) })
    const definition = workflow({
      name: 'endless',
      timeout: null,
      actions: { hang },
      nodes: [{ id: 'only', actionId: 'hang' }],
    })
    const curfew = await world.open({ workflows: [definition] })
    const handle = await curfew.start(definition, null)
    await clock.advance('10h')
    expect(await handle.view()).toMatchObject({ status: 'running', deadlineAt: null })
    expect(await tokensOf(handle)).toEqual([['only', 'executing']])
    expect((await handle.events()).map(({ type }) => type)).toEqual([
      'workflow_scheduled',
      'workflow_started',
    ])
  })

  test('W3: cancel_all times out everything that runs or waits, and says so of each', async ({ world }) => {
    const { clock } = world
    const definition = fanned(world, 'cancel_all')
    const curfew = await world.open({ workflows: [definition], concurrency: 2 })
    const start = world.now
    const handle = await curfew.start(definition, [0, 60_000, 60_000, 60_000])
    await clock.advance(1_000 - 1)
    expect((await tokensOf(handle)).slice(1)).toEqual([
      ['read', 'waiting_for_siblings'],
      ['read', 'executing'],
      ['read', 'executing'],
      ['read', 'dispatched'],
    ])
    await clock.advance(1)
    expect(await handle.view()).toMatchObject({
      status: 'timed_out',
      timeoutKind: 'workflow',
      settled: true,
      endedAt: start + 1_000,
      deadlineAt: start + 1_000,
    })
    const { tokens } = await handle.run()
    expect(tokens[0]).toMatchObject({ node: 'start', status: 'completed', timeoutType: null })
    for (const token of tokens.slice(1)) {
      expect(token).toMatchObject({
        status: 'timed_out',
        timeoutType: 'workflow',
        deadlineAt: start + 1_000,
      })
    }
    const each = ['read', 1, 'workflow', 1_000, 'cancel_all']
    expect(await timeoutsOf(handle)).toEqual([each, each, each, each])
    const ids = (await handle.events()).flatMap(({ tokenId }) => tokenId ?? [])
    expect(ids.toSorted()).toEqual([1, 2, 3, 4])
    const work = (await curfew.list({ parent: handle.id })).tasks
    expect(work.map(({ status, receipt }) => `${status} ${receipt}`).toSorted()).toEqual([
      'cancelled aborted',
      'cancelled aborted',
      'cancelled null',
      'completed null',
    ])
    expect(await errorOf(handle.result(), TaskTimedOut)).toMatchObject({ kind: 'workflow', timeoutMs: 1_000 })
  })

  test('W4: with fail the tokens time out and the run has failed', async ({ world }) => {
    const { clock } = world
    const definition = fanned(world, 'fail')
    const curfew = await world.open({ workflows: [definition], concurrency: 2 })
    const handle = await curfew.start(definition, [0, 60_000, 60_000, 60_000])
    await clock.advance(1_000)
    const statuses = (await tokensOf(handle)).slice(1).map(([, status]) => status)
    expect(statuses).toEqual(Array(4).fill('timed_out'))
    const each = ['read', 1, 'workflow', 1_000, 'fail']
    expect(await timeoutsOf(handle)).toEqual([each, each, each, each])
    expect(await handle.status()).toBe('failed')
    const error = await errorOf(handle.result(), TaskFailed)
    expect(error.failure).toMatchObject({ code: 'workflow_timeout' })
    expect(error.failure.message).toContain('Workflow exceeded timeout')
  })

  test('W5: cancel_all is what happens where nothing is said', async ({ world }) => {
    const definition = single(world, { timeout: 1_000 })
    const curfew = await world.open({ workflows: [definition] })
    const handle = await curfew.start(definition, null)
    await world.clock.advance(1_000)
    expect(await handle.view()).toMatchObject({ status: 'timed_out', timeoutKind: 'workflow' })
    expect(await tokensOf(handle)).toEqual([['only', 'timed_out']])
    expect(await timeoutsOf(handle)).toEqual([['only', 1, 'workflow', 1_000, 'cancel_all']])
  })

  test('W6: an endless circle of nodes ends at the limit, and nothing of it starts afterwards', async ({
    world,
  }) => {
    const { clock } = world
    const definition = workflow({
      name: 'circle',
      timeout: 1_000,
      start: 'a',
      actions: { work: workFor(world) },
      nodes: ['a', 'b', 'c'].map((id) => ({ id, actionId: 'work' as const, input: '30' })),
      transitions: [
        { from: 'a', to: 'b' },
        { from: 'b', to: 'c' },
        { from: 'c', to: 'a' },
      ],
    })
    const curfew = await world.open({ workflows: [definition] })
    const handle = await curfew.start(definition, null)
    await clock.advance(1_000)
    expect(await handle.status()).toBe('timed_out')
    // 33 that took 30 ms each, and the one that the limit cut short.
    const tokens = await tokensOf(handle)
    expect(tokens).toHaveLength(34)
    expect(tokens.slice(0, 4)).toEqual(['a', 'b', 'c', 'a'].map((node) => [node, 'completed']))
    expect(tokens.at(-1)).toEqual(['a', 'timed_out'])
    const before = (await curfew.list({ parent: handle.id })).tasks.length
    await clock.advance('1h')
    expect(await tokensOf(handle)).toEqual(tokens)
    expect((await curfew.list({ parent: handle.id })).tasks).toHaveLength(before)
    expect(await timeoutsOf(handle)).toHaveLength(1)
  })

  test('W7: a fan-out that never stops ends at the limit, every token of it', async ({ world }) => {
    const { clock } = world
    const definition = workflow({
      name: 'avalanche',
      timeout: 550,
      actions: { work: workFor(world) },
      start: 'a',
      nodes: ['a', 'b'].map((id) => ({ id, actionId: 'work' as const, input: '100' })),
      // Each of them starts both again.
      transitions: ['a', 'b'].flatMap((from) => ['a', 'b'].map((to) => ({ from, to }))),
    })
    const curfew = await world.open({ workflows: [definition], concurrency: 100 })
    const handle = await curfew.start(definition, null)
    await clock.advance(550)
    const statuses = (await tokensOf(handle)).map(([, status]) => status)
    expect(statuses).toEqual([...Array(31).fill('completed'), ...Array(32).fill('timed_out')])
    expect(await timeoutsOf(handle)).toHaveLength(32)
    await clock.advance('1h')
    expect(await tokensOf(handle)).toHaveLength(63)
    expect((await curfew.list({ parent: handle.id })).tasks).toHaveLength(63)
    expect(await handle.status()).toBe('timed_out')
  })

  test('W8: of a node and its workflow due at the same moment the workflow wins', async ({ world }) => {
    const { clock } = world
    let starts = 0
    const hang = task({
      name: 'hang',
      run: async (_: unknown, { signal }) => {
        starts++
        await clock.sleep('1h', signal)
      },
    })
    const definition = workflow({
      name: 'both',
      timeout: 1_000,
      actions: { hang },
      nodes: [{ id: 'only', actionId: 'hang', timeout: 1_000, onTimeout: 'retry' }],
    })
    const curfew = await world.open({ workflows: [definition] })
    const handle = await curfew.start(definition, null)
    await clock.advance(5_000)
    expect(await handle.view()).toMatchObject({ status: 'timed_out', timeoutKind: 'workflow' })
    expect((await handle.run()).tokens).toMatchObject([
      { status: 'timed_out', timeoutType: 'workflow', retries: 0 },
    ])
    expect(await timeoutsOf(handle)).toEqual([['only', 1, 'workflow', 1_000, 'cancel_all']])
    expect(starts).toBe(1)
    const { tasks } = await curfew.list({ parent: handle.id })
    expect(tasks).toMatchObject([{ status: 'cancelled', timeoutKind: null, receipt: 'aborted' }])
  })

  test('W9: what has ended keeps its status, its output and what it wrote', async ({ world }) => {
    const { clock } = world
    const broken = task({
      name: 'broken',
      run: () => {
        throw new Error('no such page')
      },
    })
    const definition = workflow({
      name: 'partly',
      timeout: 1_000,
      actions: { work: workFor(world), broken },
      nodes: [
        { id: 'plan', actionId: 'work', input: '10', output: { 'state.plan': 'result' } },
        { id: 'good', actionId: 'work', input: '20' },
        { id: 'bad', actionId: 'broken' },
        { id: 'slow', actionId: 'work', input: '60000' },
        { id: 'end' },
      ],
      transitions: [
        ...(['good', 'bad', 'slow'] as const).map((to) => ({
          from: 'plan' as const,
          to,
          siblingGroup: 'parts',
        })),
        ...(['good', 'bad', 'slow'] as const).map((from) => ({
          from,
          to: 'end' as const,
          synchronization: {
            strategy: 'all' as const,
            siblingGroup: 'parts',
            onBranchFailure: 'settle' as const,
          },
        })),
      ],
    })
    const curfew = await world.open({ workflows: [definition] })
    const handle = await curfew.start(definition, null)
    await clock.advance(900)
    const ended = async () =>
      (await handle.run()).tokens.filter(({ node }) => node === 'plan' || node === 'bad')
    const before = await ended()
    await clock.advance(100)
    expect(await handle.status()).toBe('timed_out')
    expect(await tokensOf(handle)).toEqual([
      ['plan', 'completed'],
      ['good', 'timed_out'],
      ['bad', 'failed'],
      ['slow', 'timed_out'],
    ])
    expect(await ended()).toEqual(before)
    expect((await handle.run()).state).toEqual({ plan: 10 })
    const { tasks } = await curfew.list({ parent: handle.id, status: ['completed', 'failed'] })
    const outputs = tasks.map(({ title, output, failure }) => [title, output, failure?.message])
    expect(outputs.toSorted()).toEqual([
      ['bad', null, 'no such page'],
      ['good', 20, undefined],
      ['plan', 10, undefined],
    ])
  })

  for (const late of ['result', 'error'] as const) {
    test(`W10: a late ${late} of what the timeout stopped changes nothing`, async ({ world }) => {
      const { clock } = world
      const stubborn = task({
        name: 'stubborn',
        run: async ({ first }: { first: boolean }) => {
          // One answers within its grace, the other long after it was given up.
          await clock.sleep(first ? '3s' : '1m')
          if (late === 'error') throw new Error('too late')
          return { written: true }
        },
      })
      const definition = workflow({
        name: 'late',
        timeout: 1_000,
        actions: { stubborn },
        nodes: [
          { id: 'start' },
          { id: 'one', actionId: 'stubborn', input: { first: 'true' }, output: { 'state.one': 'result' } },
          { id: 'two', actionId: 'stubborn', input: { first: 'false' }, output: { 'state.two': 'result' } },
        ],
        transitions: [
          { from: 'start', to: 'one' },
          { from: 'start', to: 'two' },
        ],
      })
      const curfew = await world.open({ workflows: [definition] })
      const start = world.now
      const handle = await curfew.start(definition, null)
      await clock.advance('2m')
      expect(await handle.view()).toMatchObject({ status: 'timed_out', endedAt: start + 1_000, output: null })
      const { tokens, state } = await handle.run()
      expect(tokens.slice(1).map(({ status }) => status)).toEqual(['timed_out', 'timed_out'])
      expect(state).toEqual({})
      expect(await timeoutsOf(handle)).toHaveLength(2)
      for (const { workId } of tokens.slice(1)) {
        const events = await curfew.task(workId as string).events()
        expect(events.filter(({ type }) => type === 'late_result')).toHaveLength(1)
        expect(await curfew.task(workId as string).status()).toBe('cancelled')
      }
    })
  }

  test('W11: a run that is through before its limit has none any more', async ({ world }) => {
    const { clock } = world
    const definition = workflow({
      name: 'in-time',
      timeout: 1_000,
      actions: { work: workFor(world) },
      nodes: [{ id: 'only', actionId: 'work', input: '999' }],
    })
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await clock.advance(2_000)
    expect(await handle.view()).toMatchObject({ status: 'completed', endedAt: start + 999 })
    expect(await tokensOf(handle)).toEqual([['only', 'completed']])
    const types = (await handle.events()).map(({ type }) => type)
    expect(types).toEqual(['workflow_scheduled', 'workflow_started', 'limit_warning', 'workflow_completed'])
    expect((await handle.explain()).limits.filter(({ active }) => active)).toEqual([])
    expect(await metric(curfew, 'curfew_task_timeouts_total')).toBe(0)
  })
})

onEachStore(
  'limits of workflows over a restart',
  (test) => {
    for (const [how, reopened, when] of [
      ['a restart', 600_000, 'its time, once'],
      ['a crash', 500_000, 'its time, once'],
      ['a long time', 5_000_000, 'the moment of opening'],
    ] as const) {
      test(`W12: after ${how} the timeout fires at ${when}`, async ({ world }) => {
        const definition = single(world, { timeout: 1_000_000 })
        const first = await world.open({ workflows: [definition] })
        const start = world.now
        const { id } = await first.start(definition, null)
        await world.clock.advance('500s')
        if (how === 'a crash') await world.crash()
        else await world.close(first)
        await world.clock.advanceTo(start + reopened)
        const curfew = await world.open({ workflows: [definition] })
        const handle = curfew.workflow(id)
        await world.clock.settle()
        // Long enough for the lease of one that died.
        if (how === 'a crash') await world.runFor(20)
        if (reopened < 1_000_000) {
          await world.clock.advanceTo(start + 999_999)
          expect(await handle.view()).toMatchObject({ status: 'running', deadlineAt: start + 1_000_000 })
          await world.clock.advance(2)
        }
        const firesAt = Math.max(reopened, 1_000_000)
        expect(await handle.view()).toMatchObject({ status: 'timed_out', endedAt: start + firesAt })
        await world.clock.advance('1h')
        expect(await timeoutsOf(handle)).toEqual([['only', 1, 'workflow', 1_000_000, 'cancel_all']])
        expect(await tokensOf(handle)).toEqual([['only', 'timed_out']])
        const types = (await handle.events()).map(({ type }) => type)
        expect(types.filter((type) => type === 'workflow_timed_out')).toHaveLength(1)
      })
    }
  },
  ['file', 'postgres'],
)
