/** What agents tell about themselves: explain, events, logs and metrics. */
import { expect } from 'vitest'
import { onEachStoreAndResidence } from '../scripts/acceptance/residence.ts'
import type { World } from '../scripts/acceptance/world.ts'
import { errorOf, metric } from '../scripts/acceptance/world.ts'
import type { TaskEventView } from './curfew.ts'
import { agent, TaskTimedOut, task } from './curfew.ts'

const elsewhere = task({ name: 'elsewhere', run: (_: unknown) => 1 })

const hangOn = (world: World) =>
  task({ name: 'hang', run: (_: unknown, { signal }) => world.clock.sleep('1h', signal) })

/** Numbered from 1 without a gap, and never back in time. */
function expectWhole(events: TaskEventView[]): void {
  expect(events.map(({ seq }) => seq)).toEqual(events.map((_, i) => i + 1))
  expect(events.map(({ at }) => at)).toEqual(events.map(({ at }) => at).toSorted((a, b) => a - b))
}

onEachStoreAndResidence('what an agent tells about itself', (test, residents) => {
  test('explain: what it waits for, since when and until when', async ({ world }) => {
    const { clock } = world
    const hang = hangOn(world)
    const child = agent({
      name: 'child',
      run: async (_: null, ctx) => ctx.waitForSignal('x', { timeout: '5m' }),
    })
    const waits = agent({
      name: 'waits',
      timeout: '1h',
      run: async (_: null, ctx) => {
        const unwatched = ctx.schedule(elsewhere, 'nobody waits for it')
        const first = ctx.schedule(hang, null, { timeout: '1m' })
        await ctx.sleep('10s')
        await first.catch((error: unknown) => error)
        const several = [
          ctx.schedule(elsewhere, null),
          ctx.child(child, null),
          ctx.waitForSignal('go'),
        ] as const
        await ctx.race(several, { timeout: '20m' })
        return unwatched.id
      },
    })
    const curfew = await world.open({ tasks: [hang], agents: [waits, child], residents })
    const start = world.now
    const handle = await curfew.start(waits, null)
    await clock.advance('5s')
    const sleeping = await handle.explain()
    expect(sleeping.waits).toEqual([
      { what: 'time', id: null, name: null, status: null, since: start, until: start + 10_000 },
    ])
    expect(sleeping.summary).toBe('waits since 5s for the time, at most 5s more; its timeout ends in 59m55s')
    await clock.advance('25s')
    const [, hanging] = (await curfew.list({ parent: handle.id })).tasks.toReversed()
    const forTask = await handle.explain()
    expect(forTask.waits).toEqual([
      {
        what: 'task',
        id: hanging?.id,
        name: 'hang',
        status: 'running',
        since: start + 10_000,
        until: start + 60_000,
      },
    ])
    expect(forTask.summary).toBe(
      `waits since 20s for task hang (${hanging?.id}), at most 30s more; its timeout ends in 59m30s`,
    )
    await clock.advance('1m')
    const forSeveral = await handle.explain()
    const since = start + 60_000
    expect(forSeveral.waits).toMatchObject([
      { what: 'task', name: 'elsewhere', status: 'pending', since, until: null },
      { what: 'agent', name: 'child', status: 'running', since, until: null },
      { what: 'signal', id: null, name: 'go', since, until: null },
      { what: 'time', since, until: start + 60_000 + 20 * 60_000 },
    ])
    expect(forSeveral.summary).toMatch(
      /^waits since 30s for task elsewhere \(t_\w+\) and 3 more; its timeout/,
    )
    expect(forSeveral.journal).toMatchObject({ steps: 7, results: 2, open: 3, turns: 3 })
    const [childView] = (await curfew.list({ parent: handle.id, kind: 'agent' })).tasks
    expect((await curfew.agent(childView?.id ?? '').explain()).summary).toBe(
      'waits since 30s for signal x, at most 4m30s more; it has no timeout',
    )
    await handle.signal('go')
    await clock.settle()
    expect((await handle.explain()).summary).toBe('completed after 1m30s, 7 steps and 4 turns')
    expect((await handle.explain()).waits).toEqual([])
  })

  test('explain: a deadline that ends the clean-up is in force, one that comes after it is not', async ({
    world,
  }) => {
    const cleans = (cleanup: string) =>
      agent({
        name: `cleans-${cleanup}`,
        timeout: '1m',
        cleanup,
        run: async (_: null, ctx) => ctx.sleep('1h').finally(() => ctx.sleep('1h')),
      })
    const agents = [cleans('10m'), cleans('10s')]
    const curfew = await world.open({ agents, residents })
    const handles = await Promise.all(agents.map((one) => curfew.start(one, null)))
    await world.clock.advance('30s')
    for (const handle of handles) await handle.cancel()
    await world.clock.advance('5s')
    const [late, early] = await Promise.all(handles.map((handle) => handle.explain()))
    expect(late?.limits).toMatchObject([{ kind: 'agent', remainingMs: 25_000, active: true, binding: true }])
    expect(late?.binding).toMatchObject({ kind: 'agent', remainingMs: 25_000 })
    expect(early?.limits).toMatchObject([{ remainingMs: null, active: false, binding: false }])
    expect(early?.binding).toBeNull()
    await world.clock.advance('1m')
  })

  test('explain: what was stopped is waited for until its clean-up or its grace is over', async ({
    world,
  }) => {
    const { clock } = world
    const deaf = task({ name: 'deaf', timeout: '1m', grace: '3s', run: () => clock.sleep('1h') })
    const child = agent({
      name: 'child',
      timeout: '1m',
      cleanup: '5m',
      run: async (_: null, ctx) => {
        try {
          await ctx.sleep('1h')
        } finally {
          await ctx.sleep('2m')
        }
      },
    })
    const waits = agent({
      name: 'waits',
      run: async (_: null, ctx) => ctx.allSettled([ctx.schedule(deaf), ctx.child(child, null)]),
    })
    const curfew = await world.open({ tasks: [deaf], agents: [waits, child], residents })
    const start = world.now
    const handle = await curfew.start(waits, null)
    await clock.advance('61s')
    expect((await handle.explain()).waits).toMatchObject([
      { name: 'deaf', status: 'timed_out', until: start + 65_000 },
      { name: 'child', status: 'timed_out', until: start + 360_000 },
    ])
    await clock.advance('1h')
  })

  test('explain: its limit, where it was set, and one sentence for each way to end', async ({ world }) => {
    const { clock } = world
    const works = agent({
      name: 'works',
      timeout: '1m',
      run: async (how: string, ctx) => {
        if (how === 'fails') throw new Error('no paper')
        await ctx.run('busy', ({ signal }) => clock.sleep('30s', signal))
        return ctx.waitForSignal('go')
      },
    })
    const curfew = await world.open({ agents: [works], residents })
    const start = world.now
    const busy = await curfew.start(works, 'busy')
    const called = await curfew.start(works, 'busy', { timeout: '2m' })
    const free = await curfew.start(works, 'busy', { timeout: null })
    const failed = await curfew.start(works, 'fails')
    await clock.advance('10s')
    expect((await busy.explain()).summary).toBe('turn 1 runs; its timeout ends in 50s')
    expect((await free.explain()).summary).toBe('turn 1 runs; it has no timeout')
    expect((await failed.explain()).summary).toBe('failed: no paper')
    const limit = { kind: 'agent', option: 'timeout', active: true, binding: true }
    expect((await busy.explain()).limits).toEqual([
      { ...limit, timeoutMs: 60_000, setBy: 'definition', deadlineAt: start + 60_000, remainingMs: 50_000 },
    ])
    expect((await called.explain()).limits).toMatchObject([{ timeoutMs: 120_000, setBy: 'call' }])
    expect((await free.explain()).limits).toEqual([])
    await clock.advance('2m')
    expect((await busy.explain()).summary).toBe('timed out: its timeout of 1m was over')
    expect((await busy.explain()).limits).toMatchObject([{ active: false, remainingMs: null }])
  })

  test('events tell the whole story, numbered without gaps', async ({ world }) => {
    const { clock } = world
    const waits = agent({
      name: 'waits',
      timeout: '100s',
      run: async (_: null, ctx) => {
        const word = await ctx.waitForSignal('go')
        return word ?? ctx.waitForSignal('never')
      },
    })
    const curfew = await world.open({ agents: [waits], residents })
    const start = world.now
    const [completed, timedOut] = [await curfew.start(waits, null), await curfew.start(waits, null)]
    await clock.advance('10s')
    await completed.signal('go', 'on')
    await timedOut.signal('go')
    expect(await timedOut.extend('100s')).toEqual({ deadlineAt: start + 200_000 })
    await clock.advance('10m')
    const story = async (id: string) => {
      const events = await curfew.agent(id).events()
      expectWhole(events)
      return events.map(({ at, type }) => `${(at - start) / 1_000} ${type}`)
    }
    expect(await story(completed.id)).toEqual([
      '0 agent_scheduled',
      '0 agent_started',
      '10 signal_received',
      '10 agent_completed',
    ])
    expect(await story(timedOut.id)).toEqual([
      '0 agent_scheduled',
      '0 agent_started',
      '10 signal_received',
      '10 deadlines_extended',
      '180 limit_warning',
      '200 agent_timed_out',
    ])
    const [warning, end] = (await timedOut.events()).slice(-2)
    expect(warning).toMatchObject({
      kind: 'agent',
      percent: 80,
      deadlineAt: start + 200_000,
      remainingMs: 20_000,
    })
    expect(end).toMatchObject({ kind: 'agent', deadlineAt: start + 200_000, timeoutMs: 100_000, lateMs: 0 })
    expect(await errorOf(timedOut.result(), TaskTimedOut)).toMatchObject({ deadlineAt: start + 200_000 })
  })

  test('row 51: the timeout of a task is one event, which names its agent if it has one', async ({
    world,
  }) => {
    const hang = hangOn(world)
    const waits = agent({
      name: 'waits',
      run: async (_: null, ctx) => {
        const handles = [
          ctx.schedule(hang, null, { timeout: '5s' }),
          ctx.schedule(elsewhere, null, { timeout: '6s' }),
        ]
        await ctx.allSettled(handles)
        return handles.map(({ id }) => id)
      },
    })
    const curfew = await world.open({ tasks: [hang], agents: [waits], residents })
    const start = world.now
    const handle = await curfew.start(waits, null)
    const alone = await curfew.schedule(elsewhere, null, { timeout: '5s' })
    await world.clock.advance('1m')
    const [running, never] = await handle.result()
    const timeouts = async (id = '') =>
      (await curfew.task(id).events()).filter(({ type }) => type === 'task_timed_out')
    expect(await timeouts(running)).toEqual([
      expect.objectContaining({
        taskId: running,
        agentId: handle.id,
        kind: 'total',
        deadlineAt: start + 5_000,
        startedAt: start,
      }),
    ])
    expect(await timeouts(never)).toMatchObject([
      { agentId: handle.id, deadlineAt: start + 6_000, startedAt: null, attempts: 0 },
    ])
    const [event] = await timeouts(alone.id)
    expect(event).toMatchObject({ taskId: alone.id, deadlineAt: start + 5_000, startedAt: null })
    expect(event).not.toHaveProperty('agentId')
  })

  test('rows 52 and 53: metrics and log lines of a timeout, once', async ({ world }) => {
    const { clock } = world
    const hang = hangOn(world)
    const waits = agent({
      name: 'waits',
      run: async (_: null, ctx) => {
        const unwatched = ctx.schedule(elsewhere, null, { timeout: '3s' })
        const handle = ctx.schedule(hang, null, { timeout: '5s', queue: 'slow' })
        await handle.catch((error: unknown) => error)
        await ctx.sleep('1s')
        return [unwatched.id, handle.id]
      },
    })
    const dies = agent({
      name: 'dies',
      timeout: '10s',
      run: async (_: null, ctx) => ctx.waitForSignal('never'),
    })
    const curfew = await world.open({ tasks: [hang], agents: [waits, dies], residents })
    const start = world.now
    const handle = await curfew.start(waits, null)
    const dead = await curfew.start(dies, null)
    await clock.advance('10m')
    const [unwatched, watched] = await handle.result()
    const timeouts = (labels: Record<string, string>) => metric(curfew, 'curfew_task_timeouts_total', labels)
    expect(await timeouts({ queue: 'slow', kind: 'total' })).toBe(1)
    expect(await timeouts({})).toBe(2)
    const took = { name: 'hang', outcome: 'timeout' }
    expect(await metric(curfew, 'curfew_task_duration_seconds', took, 'count')).toBe(1)
    expect(await metric(curfew, 'curfew_task_duration_seconds', took, 'sum')).toBe(5)
    expect(await metric(curfew, 'curfew_tasks_ended_total', { outcome: 'timeout' })).toBe(2)
    expect(await metric(curfew, 'curfew_agents_ended_total', { name: 'waits', outcome: 'completed' })).toBe(1)
    expect(await metric(curfew, 'curfew_agents_ended_total', { name: 'dies', outcome: 'timeout' })).toBe(1)
    expect(await metric(curfew, 'curfew_agents_ended_total')).toBe(2)
    expect(await metric(curfew, 'curfew_agent_duration_seconds', { name: 'waits' }, 'sum')).toBe(6)
    expect(await metric(curfew, 'curfew_deadline_lateness_seconds', { kind: 'agent' }, 'count')).toBe(1)
    expect(await metric(curfew, 'curfew_agent_turns_total', { name: 'waits' })).toBe(3)

    const lines = world.log.filter(({ message }) => /timed out|timeout/.test(message))
    expect(lines).toMatchObject([
      { level: 'info', message: 'Task timed out', fields: { taskId: unwatched, deadline: start + 3_000 } },
      { level: 'info', message: 'Task timed out', fields: { taskId: watched, deadline: start + 5_000 } },
      {
        level: 'info',
        message: 'Resuming agent after task timeout',
        fields: { agentId: handle.id, taskId: watched },
      },
      { level: 'info', message: 'Agent timed out', fields: { agentId: dead.id, deadline: start + 10_000 } },
    ])
  })
})
