/** Around a deadline: the warning before it, the soft stop before it, what is heard of an attempt after it. */
import { expect } from 'vitest'
import { timeoutsOf, tokensOf } from '../scripts/acceptance/workflow-runs.ts'
import type { World } from '../scripts/acceptance/world.ts'
import { onEachStore } from '../scripts/acceptance/world.ts'
import type { Curfew, TaskEventView, WorkflowHandle } from './curfew.ts'
import { agent, Stopped, task, workflow } from './curfew.ts'

/** Takes as long as its input says; follows its signal. */
const workFor = (world: World) =>
  task({
    name: 'work',
    run: async (ms: number, { signal }) => {
      if (ms > 0) await world.clock.sleep(ms, signal)
      return ms
    },
  })

/** One node, under its own limit or that of the whole. */
const single = (world: World, limits: { whole?: number; node?: object }) =>
  workflow({
    name: 'single',
    timeout: limits.whole ?? null,
    actions: { work: workFor(world) },
    nodes: [{ id: 'only', actionId: 'work', input: 'input', ...limits.node }],
  })

/** A branch for each element of the input, and a join that waits so long for the slower ones. */
const joined = (world: World, timeout = 1_000) =>
  workflow({
    name: 'joined',
    timeout: null,
    actions: { work: workFor(world) },
    nodes: [{ id: 'start' }, { id: 'part', actionId: 'work', input: 'branch.item' }, { id: 'end' }],
    transitions: [
      { id: 'fan', from: 'start', to: 'part', foreach: { collection: 'input' } },
      {
        ...{ id: 'meet', from: 'part', to: 'end' },
        synchronization: { strategy: 'all', siblingGroup: 'fan', timeout },
      },
    ],
  })

/** Of the run, and of the work of all its tokens. */
async function warningsOf(curfew: Curfew, handle: WorkflowHandle): Promise<TaskEventView[]> {
  const below = (await curfew.list({ parent: handle.id })).tasks.toReversed()
  const events = [await handle.events()]
  for (const { id } of below) events.push(await curfew.task(id).events())
  return events.flat().filter(({ type }) => type === 'limit_warning' || type === 'join_warning')
}

onEachStore('before a deadline', (test) => {
  /** A node with five seconds for itself before its deadline at thirty. */
  const soft = (world: World, onSignal: (reason: Stopped) => Promise<unknown>) => {
    const signals: [at: number, reason: Stopped][] = []
    const work = task({
      name: 'work',
      softStop: '1s',
      run: (_: unknown, { signal }) =>
        world.clock.sleep('1h', signal).catch((reason: Stopped) => {
          signals.push([world.now, reason])
          return onSignal(reason)
        }),
    })
    const definition = workflow({
      name: 'soft',
      actions: { work },
      nodes: [{ id: 'only', actionId: 'work', timeout: '30s', softStop: '5s', grace: '4s' }],
    })
    return { definition, signals }
  }

  test('F3: the soft stop tells it when its deadline is; what it gives back until then counts', async ({
    world,
  }) => {
    const { definition, signals } = soft(world, () => world.clock.sleep('4s').then(() => 'half of it'))
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await world.clock.advance(24_999)
    expect(signals).toEqual([])
    await world.clock.advance(1)
    expect(signals.map(([at]) => at - start)).toEqual([25_000])
    expect(signals[0]?.[1]).toBeInstanceOf(Stopped)
    expect(signals[0]?.[1]).toMatchObject({ code: 'soft_stop', deadlineAt: start + 30_000 })
    expect(await tokensOf(handle)).toEqual([['only', 'executing']])
    await world.clock.advance('1m')
    expect(await handle.result()).toBe('half of it')
    expect(await handle.view()).toMatchObject({ status: 'completed', endedAt: start + 29_000 })
    expect(await tokensOf(handle)).toEqual([['only', 'completed']])
    expect(await timeoutsOf(handle)).toEqual([])
  })

  test('F3: one that only follows it has timed out at its deadline, and has stopped by then', async ({
    world,
  }) => {
    const { definition, signals } = soft(world, (reason) => Promise.reject(reason))
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await world.clock.advance(29_999)
    expect(await tokensOf(handle)).toEqual([['only', 'executing']])
    await world.clock.advance('1m')
    expect(signals).toHaveLength(1)
    expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 30_000 })
    expect((await curfew.list({ parent: handle.id })).tasks).toMatchObject([
      { status: 'timed_out', timeoutKind: 'execution', receipt: 'aborted' },
    ])
    expect(await tokensOf(handle)).toEqual([['only', 'timed_out']])
    expect(await timeoutsOf(handle)).toEqual([['only', 1, 'execution', 30_000, 'fail']])
  })

  test('F3: from its deadline on one that goes on is stopped like any other', async ({ world }) => {
    const { definition } = soft(world, () => world.clock.sleep('1h'))
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, null)
    await world.clock.advance('30s')
    expect((await curfew.list({ parent: handle.id })).tasks).toMatchObject([
      { status: 'timed_out', settled: false, endedAt: start + 30_000 },
    ])
    await world.clock.advance('10s')
    expect((await curfew.list({ parent: handle.id })).tasks).toMatchObject([{ receipt: 'abandoned' }])
    expect(await handle.view()).toMatchObject({ status: 'failed', endedAt: start + 34_000 })
    expect(await tokensOf(handle)).toEqual([['only', 'timed_out']])
    expect(await timeoutsOf(handle)).toEqual([['only', 1, 'execution', 30_000, 'fail']])
  })

  test('F4: each layer warns once at 80 %, then its limit is over', async ({ world }) => {
    const layers = [
      { definition: single(world, { whole: 1_000 }), input: 60_000, kind: 'workflow' },
      { definition: single(world, { node: { timeout: 1_000 } }), input: 60_000, kind: 'execution' },
      { definition: joined(world), input: [0, 60_000], kind: undefined },
    ]
    const curfew = await world.open({ tasks: [workFor(world)] })
    const start = world.now
    for (const { definition, input, kind } of layers) {
      const handle = await curfew.start(definition, input)
      const from = world.now
      await world.clock.advance(799)
      expect(await warningsOf(curfew, handle)).toEqual([])
      await world.clock.advance(1)
      const warning = { at: from + 800, percent: 80, remainingMs: 200 }
      const what = kind ? { type: 'limit_warning', kind } : { type: 'join_warning', transition: 'meet' }
      expect(await warningsOf(curfew, handle)).toMatchObject([{ ...warning, ...what }])
      expect(await timeoutsOf(handle)).toEqual([])
      await world.clock.advance('1m')
      expect(await warningsOf(curfew, handle)).toHaveLength(1)
      const [timeout] = await timeoutsOf(handle)
      expect(timeout?.slice(2, 4)).toEqual([kind ?? 'synchronization', 1_000])
      expect((await tokensOf(handle)).map(([, status]) => status)).toContain('timed_out')
    }
    expect(world.now - start).toBe(182_400)
  })

  test('F4: what is through in time is not warned of', async ({ world }) => {
    const curfew = await world.open({ tasks: [workFor(world)] })
    const runs = [
      await curfew.start(single(world, { whole: 1_000 }), 700),
      await curfew.start(single(world, { node: { timeout: 1_000 } }), 700),
      await curfew.start(joined(world), [0, 700]),
    ]
    await world.clock.advance('1m')
    for (const handle of runs) {
      expect(await handle.status()).toBe('completed')
      expect(await warningsOf(curfew, handle)).toEqual([])
      expect((await tokensOf(handle)).every(([, status]) => status === 'completed')).toBe(true)
    }
  })

  test('F4: each attempt has its own warning', async ({ world }) => {
    const definition = single(world, { node: { timeout: 1_000, onTimeout: 'retry', retryLimit: 2 } })
    const curfew = await world.open({ workflows: [definition] })
    const start = world.now
    const handle = await curfew.start(definition, 60_000)
    await world.clock.advance('1m')
    const warnings = await warningsOf(curfew, handle)
    expect(warnings.map(({ at, remainingMs }) => [at - start, remainingMs])).toEqual([
      [800, 200],
      [1_800, 200],
      [2_800, 200],
    ])
    expect((await handle.run()).tokens).toMatchObject([{ status: 'timed_out', retries: 2 }])
  })
})

onEachStore(
  'warnings over a restart',
  (test) => {
    test('F4: a warning is not given again after a restart', async ({ world }) => {
      const first = await world.open({ tasks: [workFor(world)] })
      const start = world.now
      const whole = await first.start(single(world, { whole: 1_000_000 }), 2_000_000)
      const waiting = await first.start(joined(world, 1_000_000), [1, 2_000_000])
      await world.clock.advance('850s')
      await world.close(first)
      const curfew = await world.open({ tasks: [workFor(world)] })
      await world.clock.advanceTo(start + 1_100_000)
      for (const { id } of [whole, waiting]) {
        const handle = curfew.workflow(id)
        expect(await warningsOf(curfew, handle)).toMatchObject([{ percent: 80, remainingMs: 200_000 }])
        expect(await handle.status()).toBe(id === whole.id ? 'timed_out' : 'failed')
        expect((await timeoutsOf(handle)).map(([, , , ms]) => ms)).toEqual([1_000_000])
      }
    })
  },
  ['file', 'postgres'],
)

onEachStore('after a deadline, with a handler that goes on below', (test) => {
  test('no agent or child is begun again beside it', async ({ world }) => {
    let starts = 0
    const returned = Promise.withResolvers<void>()
    const deaf = task({
      name: 'deaf',
      grace: 200,
      run: () => {
        starts++
        return returned.promise
      },
    })
    const asks = agent({ name: 'asks', run: async (_: unknown, ctx) => ctx.schedule(deaf) })
    const one = { actions: { deaf }, nodes: [{ id: 'd', actionId: 'deaf' }] } as const
    const cautious = workflow({ ...one, name: 'cautious' })
    const failing = workflow({ ...one, name: 'failing', onTimeout: 'fail' })
    const around = workflow({ name: 'around', actions: { asks }, nodes: [{ id: 'a', actionId: 'asks' }] })
    const curfew = await world.open({
      tasks: [deaf],
      agents: [asks],
      workflows: [cautious, failing, around],
      residents: { count: 0 },
    })
    const messages: string[] = []
    for (const action of [asks, cautious, failing, around]) {
      const definition = workflow({
        name: 'again',
        actions: { action },
        nodes: [{ id: 'only', actionId: 'action', timeout: 100, onTimeout: 'retry' }],
      })
      starts = 0
      const handle = await curfew.start(definition, null)
      await world.clock.advance('1m')
      expect([action.name, starts]).toEqual([action.name, 1])
      expect(await timeoutsOf(handle)).toEqual([['only', 1, 'execution', 100, 'fail']])
      messages.push((await handle.view()).failure?.message ?? '')
    }
    expect(
      messages.filter((text) => /handler below it, was abandoned and may still run/.test(text)),
    ).toHaveLength(3)
    returned.resolve()
    await world.clock.settle()
  })
})

onEachStore(
  'after a deadline, with a process that does not answer',
  (test) => {
    test('X7: what the first attempt brings while the second one runs is kept and ignored', async ({
      world,
    }) => {
      const starts: number[] = []
      const first = Promise.withResolvers<string>()
      const { clock } = world
      const slow = task({
        name: 'slow',
        run: async () => {
          starts.push(world.now - start)
          if (starts.length === 1) return first.promise
          await world.clock.sleep('10s')
          return 'second'
        },
      })
      const definition = workflow({
        name: 'fenced',
        actions: { slow },
        nodes: [{ id: 'only', actionId: 'slow', timeout: '20s', onTimeout: 'retry' }],
      })
      const frozen = await world.open({ workflows: [definition] })
      const start = world.now
      const { id } = await frozen.start(definition, null)
      await clock.advance(19_500)
      // Its process stands still. Nobody can tell whether the attempt still runs until its lease is over.
      await world.crash()
      const curfew = await world.open({ workflows: [definition] })
      const handle = curfew.workflow(id)
      await world.runFor(13)
      expect(starts).toEqual([0])
      expect((await handle.run()).tokens).toMatchObject([{ status: 'dispatched', retries: 0 }])
      for (let i = 0; i < 30 && starts.length < 2; i++) await world.runFor(1)
      expect(starts[1]).toBeGreaterThanOrEqual(19_500 + 15_000)
      expect((await handle.run()).tokens).toMatchObject([{ status: 'executing', retries: 1 }])
      // It goes on as if nothing had happened.
      first.resolve('first')
      await clock.advanceTo(world.now)
      await world.runFor(5)
      expect((await handle.run()).tokens).toMatchObject([{ status: 'executing', retries: 1 }])
      await world.runFor(10)
      expect(await handle.result()).toBe('second')
      expect((await handle.run()).tokens).toMatchObject([{ status: 'completed', retries: 1 }])
      expect(await timeoutsOf(handle)).toEqual([['only', 1, 'execution', 20_000, 'retry']])
      const { tasks } = await curfew.list({ parent: id, status: 'timed_out' })
      const events = await curfew.task(tasks[0]?.id ?? '').events()
      expect(events.filter(({ type }) => type === 'late_result')).toMatchObject([{ output: '"first"' }])
    })
  },
  ['postgres'],
)
