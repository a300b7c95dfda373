/** A trace context given with a call reaches the handlers of everything that comes of it, however often they run. */
import { expect } from 'vitest'
import { onEachStore } from '../scripts/acceptance/world.ts'
import { SystemClock } from './core/system-clock.ts'
import type { TraceContext } from './curfew.ts'
import { agent, HandlerError, job, task, workflow } from './curfew.ts'
import { traced } from './worker/fixtures/process-tasks.ts'

const TRACE: TraceContext = {
  traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
  tracestate: 'vendor=1,other=a b',
}
const OTHER: TraceContext = { traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00' }

const tell = task({ name: 'tell', run: (_: unknown, ctx) => ctx.trace })
const child = agent({
  name: 'child',
  run: async (_: unknown, ctx) => ({ own: ctx.trace, below: await ctx.schedule(tell, 1) }),
})
const told = workflow({
  name: 'told',
  actions: { tell },
  nodes: [{ id: 'tell', actionId: 'tell', output: { 'state.trace': 'result' } }],
  output: 'state.trace',
})

onEachStore('a trace', (test) => {
  const options = { tasks: [tell], agents: [child], workflows: [told] }

  test('reaches a task, and stands in its record', async ({ world }) => {
    const curfew = await world.open(options)
    const handle = await curfew.schedule(tell, 1, { trace: TRACE, priority: 3 })
    const without = await curfew.schedule(tell, 2)
    await world.clock.settle()
    expect(await handle.result()).toEqual(TRACE)
    expect(await handle.view()).toMatchObject({ trace: TRACE.traceparent, priority: 3 })
    expect(await handle.explain()).toMatchObject({ trace: TRACE.traceparent })
    expect(await without.result()).toBeNull()
    expect((await without.view()).trace).toBeNull()
    expect((await without.explain()).trace).toBeNull()
  })

  test('reaches each of many tasks, those that start later too', async ({ world }) => {
    const curfew = await world.open({ ...options, concurrency: 2 })
    const handles = await curfew.scheduleMany(tell, [1, 2, 3, 4, 5], { trace: OTHER, delay: '10s' })
    await world.clock.advance('1m')
    for (const handle of handles) expect(await handle.result()).toEqual(OTHER)
  })

  test('is no part of what a key stands for: the first one counts', async ({ world }) => {
    const curfew = await world.open({ tasks: [tell] })
    const first = await curfew.schedule(tell, 1, { key: 'a', trace: TRACE })
    const again = await curfew.schedule(tell, 1, { key: 'a', trace: OTHER })
    expect(again).toMatchObject({ id: first.id, existing: true })
    await world.clock.settle()
    expect(await again.result()).toEqual(TRACE)
  })

  test('reaches an agent, its tasks, its children and theirs, attached or not', async ({ world }) => {
    const above = agent({
      name: 'above',
      run: async (_: null, ctx) => {
        const detached = ctx.child(child, 0, { detached: true })
        return {
          own: ctx.trace,
          task: await ctx.schedule(tell, 1, { retries: 2 }),
          child: await ctx.child(child, 1, { timeout: '5m' }),
          run: await ctx.child(told, null),
          detached: await detached,
        }
      },
    })
    const curfew = await world.open({ ...options, agents: [above, child] })
    const handle = await curfew.start(above, null, { trace: TRACE, inherit: true, timeout: '1h' })
    const without = await curfew.start(above, null)
    await world.clock.settle()
    const both = { own: TRACE, below: TRACE }
    expect(await handle.result()).toEqual({
      own: TRACE,
      task: TRACE,
      child: both,
      run: TRACE,
      detached: both,
    })
    const { below, trace } = await handle.explain()
    expect([trace, ...below.map((one) => one.trace)]).toEqual(new Array(5).fill(TRACE.traceparent))
    expect(await without.result()).toMatchObject({ own: null, task: null, child: { below: null }, run: null })
  })

  test('of a step counts for it and what is below it, not for its agent', async ({ world }) => {
    const above = agent({
      name: 'above',
      run: async (_: null, ctx) => [
        await ctx.schedule(tell, 1, { trace: OTHER }),
        await ctx.child(child, 1, { trace: OTHER }),
        await ctx.child(told, null, { trace: OTHER }),
        await ctx.schedule(tell, 2),
        ctx.trace,
      ],
    })
    const curfew = await world.open({ ...options, agents: [above, child] })
    const traced = await curfew.start(above, null, { trace: TRACE })
    const without = await curfew.start(above, null)
    await world.clock.settle()
    const own = [OTHER, { own: OTHER, below: OTHER }, OTHER]
    expect(await traced.result()).toEqual([...own, TRACE, TRACE])
    expect(await without.result()).toEqual([...own, null, null])
  })

  test('reaches the tasks of a workflow, of a workflow it calls, and of a job', async ({ world }) => {
    const calls = workflow({
      name: 'calls',
      actions: { told, child },
      nodes: [
        { id: 'run', actionId: 'told', output: { 'state.run': 'result' } },
        { id: 'agent', actionId: 'child', output: { 'state.agent': 'result' } },
      ],
      transitions: [{ from: 'run', to: 'agent' }],
      output: '[state.run, state.agent.below]',
    })
    const both = job({
      name: 'both',
      workflows: [
        { id: 'first', workflow: calls },
        { id: 'second', task: tell, dependsOn: ['first'] },
      ],
    })
    const curfew = await world.open({ ...options, workflows: [told, calls] })
    const run = await curfew.start(calls, null, { trace: OTHER, timeout: '5m' })
    const handle = await curfew.submit(both, { trace: TRACE })
    const alone = await curfew.submit(tell, 1, { trace: OTHER })
    await world.clock.settle()
    expect(await run.result()).toEqual([OTHER, OTHER])
    expect(await handle.result()).toEqual({ first: [TRACE, TRACE], second: TRACE })
    expect((await handle.view()).trace).toBe(TRACE.traceparent)
    expect(Object.values(await alone.result())).toEqual([OTHER])
  })

  test('is that of every attempt', async ({ world }) => {
    const seen: unknown[] = []
    const flaky = task({
      name: 'flaky',
      retries: 2,
      run: (_: unknown, ctx) => {
        seen.push(ctx.trace)
        if (ctx.attempt < 3) throw new HandlerError('not yet')
        return ctx.trace
      },
    })
    const curfew = await world.open({ tasks: [flaky] })
    const handle = await curfew.schedule(flaky, 1, { trace: TRACE })
    await world.clock.advance('1h')
    expect(await handle.result()).toEqual(TRACE)
    expect(seen).toEqual([TRACE, TRACE, TRACE])
  })

  test('reaches a process of its own, as variables too, and the commands of a workflow', async ({
    world,
  }) => {
    const shell = (command: string, env: Record<string, string> = {}) =>
      ({ kind: 'shell', command, env, execution: { timeout: '1m' } }) as const
    const commands = workflow({
      name: 'commands',
      actions: {
        inherited: shell('printf %s "$TRACEPARENT,$TRACESTATE"'),
        own: shell('printf %s "$TRACEPARENT"', { TRACEPARENT: '"mine"' }),
      },
      nodes: [
        { id: 'inherited', actionId: 'inherited', output: { 'state.inherited': 'result.stdout' } },
        { id: 'own', actionId: 'own', output: { 'state.own': 'result.stdout' } },
      ],
      transitions: [{ from: 'inherited', to: 'own' }],
      output: 'state',
    })
    const before = process.env.TRACEPARENT
    process.env.TRACEPARENT = 'of the worker'
    try {
      const curfew = await world.open({ tasks: [traced], workflows: [commands], clock: new SystemClock() })
      const [task, plain, without, run, bare] = await Promise.all([
        curfew.schedule(traced, null, { trace: TRACE }).then((handle) => handle.result()),
        curfew.schedule(traced, null, { trace: OTHER }).then((handle) => handle.result()),
        curfew.schedule(traced, null).then((handle) => handle.result()),
        curfew.start(commands, null, { trace: TRACE }).then((handle) => handle.result()),
        curfew.start(commands, null).then((handle) => handle.result()),
      ])
      const { traceparent, tracestate } = TRACE
      expect(task).toEqual({ trace: TRACE, TRACEPARENT: traceparent, TRACESTATE: tracestate })
      expect(plain).toEqual({ trace: OTHER, TRACEPARENT: OTHER.traceparent, TRACESTATE: null })
      expect(without).toEqual({ trace: null, TRACEPARENT: null, TRACESTATE: null })
      expect(run).toEqual({ inherited: `${traceparent},${tracestate}`, own: 'mine' })
      expect(bare).toEqual({ inherited: ',', own: 'mine' })
    } finally {
      if (before === undefined) delete process.env.TRACEPARENT
      else process.env.TRACEPARENT = before
    }
  })

  test('that is none is refused by every call, and nothing is stored', async ({ world }) => {
    const bad = agent({
      name: 'bad',
      run: async (what: 'task' | 'child' | 'run', ctx) => {
        const trace = { traceparent: 'x' }
        if (what === 'task') return ctx.schedule(tell, 1, { trace })
        return what === 'child' ? ctx.child(child, 1, { trace }) : ctx.child(told, null, { trace })
      },
    })
    const curfew = await world.open({ ...options, agents: [bad, child] })
    const trace = { traceparent: TRACE.traceparent.toUpperCase() }
    const both = job({ name: 'both', workflows: [{ id: 'one', task: tell }] })
    const refused = (at: string) => ({
      code: 'invalid_option',
      message: expect.stringContaining(`${at}: trace.traceparent must be 00-<32 hex>-<16 hex>-<2 hex>`),
    })
    await expect(curfew.schedule(tell, 1, { trace })).rejects.toMatchObject(refused('task tell'))
    await expect(curfew.scheduleMany(tell, [1, 2], { trace })).rejects.toMatchObject(refused('task tell'))
    await expect(curfew.start(child, 1, { trace })).rejects.toMatchObject(refused('agent child'))
    await expect(curfew.start(told, null, { trace })).rejects.toMatchObject(refused('workflow told'))
    await expect(curfew.submit(both, { trace })).rejects.toMatchObject(refused('submit'))
    expect((await curfew.list()).tasks).toEqual([])
    expect(() => task({ name: 'x', run: () => 1, trace: TRACE } as never)).toThrow(/trace is not an option/)
    const handles = await Promise.all(
      (['task', 'child', 'run'] as const).map((what) => curfew.start(bad, what)),
    )
    await world.clock.settle()
    for (const handle of handles)
      expect((await handle.view()).failure).toMatchObject({ code: 'invalid_option' })
    expect((await curfew.list()).tasks).toHaveLength(3)
  })
})

onEachStore(
  'a trace after a crash',
  (test, kind) => {
    const leaseSeconds = kind === 'postgres' ? 16 : 1

    test('is that of the attempt that repeats the lost one, and of what a replayed agent does', async ({
      world,
    }) => {
      const attempts: unknown[] = []
      const agents: unknown[] = []
      let hangs = true
      const slow = task({
        name: 'slow',
        run: (_: unknown, ctx) => {
          attempts.push(ctx.trace)
          return hangs ? new Promise(() => {}) : ctx.trace
        },
      })
      const calls = [TRACE, OTHER]
      const waits = agent({
        name: 'waits',
        run: async (_: null, ctx) => {
          agents.push(ctx.trace)
          // Another one each time: what was asked for first counts, and the replay is the same run.
          const [own = OTHER] = calls.splice(0, 1)
          const first = await ctx.schedule(tell, 1, { trace: own })
          return [first, await ctx.schedule(slow, 1), await ctx.schedule(tell, 2), ctx.trace]
        },
      })
      const flow = workflow({
        name: 'flow',
        actions: { slow, tell },
        nodes: [
          { id: 'slow', actionId: 'slow' },
          { id: 'tell', actionId: 'tell', output: { 'state.last': 'result' } },
        ],
        transitions: [{ from: 'slow', to: 'tell' }],
        output: 'state.last',
      })
      const options = { tasks: [tell, slow], agents: [waits], workflows: [flow] }
      const first = await world.open(options)
      const { id } = await first.start(waits, null, { trace: OTHER })
      const run = await first.start(flow, null, { trace: TRACE })
      const handle = await first.submit(job({ name: 'one', workflows: [{ id: 'flow', workflow: flow }] }), {
        trace: OTHER,
      })
      await world.clock.settle()
      expect(attempts).toHaveLength(3)
      await world.crash()
      hangs = false
      const second = await world.open(options)
      await world.runFor(leaseSeconds + 10)
      expect(await second.agent(id).result()).toEqual([TRACE, OTHER, OTHER, OTHER])
      expect(await second.workflow(run.id).result()).toEqual(TRACE)
      expect(await second.job(handle.id).result()).toEqual({ flow: OTHER })
      expect(agents).toEqual([OTHER, OTHER])
      const expected = [OTHER, TRACE, OTHER].map((trace) => trace.traceparent).sort()
      const parents = (some: unknown[]) => some.map((trace) => (trace as TraceContext).traceparent).sort()
      expect(parents(attempts.slice(0, 3))).toEqual(expected)
      expect(parents(attempts.slice(3))).toEqual(expected)
    })

    test('is that of an agent which is replayed at every wait', async ({ world }) => {
      const seen: unknown[] = []
      const naps = agent({
        name: 'naps',
        run: async (_: null, ctx) => {
          seen.push(ctx.trace)
          for (let n = 0; n < 3; n++) await ctx.sleep('10s')
          return ctx.schedule(tell, 1)
        },
      })
      const curfew = await world.open({ tasks: [tell], agents: [naps], residents: { count: 0 } })
      const handle = await curfew.start(naps, null, { trace: TRACE })
      await world.clock.advance('1m')
      expect(await handle.result()).toEqual(TRACE)
      expect(seen.length).toBeGreaterThan(1)
      for (const one of seen) expect(one).toEqual(TRACE)
    })
  },
  ['file', 'postgres'],
)
