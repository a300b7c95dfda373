// The deadline tree: work that inherits the deadline of what is above it, DESIGN.md section 4.
import { expect } from 'vitest'
import { onEachStore } from '../scripts/acceptance/world.ts'
import type { TaskTimedOut } from './curfew.ts'
import { agent, task } from './curfew.ts'

const slow = task({
  name: 'slow',
  grace: '2s',
  run: (_: null, context) =>
    new Promise<never>((_, reject) =>
      context.signal.addEventListener('abort', () => reject(context.signal.reason as Error)),
    ),
})

onEachStore('a deadline that is inherited', (test) => {
  test('is the one above minus the reserve: the grace and a second, unless set', async ({ world }) => {
    const both = agent({
      name: 'both',
      timeout: '60s',
      run: async (_: null, ctx) => {
        await ctx.allSettled([
          ctx.schedule(slow, null, { timeout: '1h', inherit: true }),
          ctx.schedule(slow, null, { inherit: true, reserve: '10s' }),
          ctx.schedule(slow, null, { timeout: '5s', inherit: true }),
          ctx.schedule(slow, null, { timeout: '1h' }),
        ])
      },
    })
    const curfew = await world.open({ tasks: [slow], agents: [both] })
    const startedAt = world.now
    const handle = await curfew.start(both, null)
    await world.clock.advance('1ms')
    const { tasks } = await curfew.list({ parent: handle.id })
    const deadlines = tasks.map(({ deadlineAt }) => (deadlineAt ?? 0) - startedAt).sort((a, b) => a - b)
    expect(deadlines).toEqual([5_000, 50_000, 57_000, 3_600_000])
  })

  test('names whose it is, and with no time left nothing is dispatched', async ({ world }) => {
    const late = agent({
      name: 'late',
      timeout: '10s',
      run: async (_: null, ctx) => {
        await ctx.sleep('8s')
        return ctx.schedule(slow, null, { inherit: true }).catch((error: unknown) => ({
          kind: (error as TaskTimedOut).kind,
          attempts: (error as TaskTimedOut).attempts,
        }))
      },
    })
    const curfew = await world.open({ tasks: [slow], agents: [late] })
    const handle = await curfew.start(late, null)
    await world.clock.advance('8001ms')
    expect(await handle.result()).toEqual({ kind: 'agent', attempts: 0 })
  })

  test('is over before a start that comes too late: that is told at once', async ({ world }) => {
    const hasty = agent({
      name: 'hasty',
      timeout: '60s',
      run: async (_: null, ctx) =>
        ctx.schedule(slow, null, { inherit: true, delay: '2m' }).catch((error: unknown) => ({
          kind: (error as TaskTimedOut).kind,
          attempts: (error as TaskTimedOut).attempts,
        })),
    })
    const curfew = await world.open({ tasks: [slow], agents: [hasty] })
    const handle = await curfew.start(hasty, null)
    await world.clock.advance('1ms')
    expect(await handle.view()).toMatchObject({ status: 'completed', output: { kind: 'agent', attempts: 0 } })
  })

  test('does not hold for what cleans up after it: that has the budget of the clean-up', async ({
    world,
  }) => {
    const giveBack = task({ name: 'give-back', run: async (what: string) => what })
    const returned: string[] = []
    const rents = agent({
      name: 'rents',
      timeout: '60s',
      inherit: true,
      run: async (_: null, ctx) => {
        try {
          await ctx.waitForSignal('never')
        } finally {
          returned.push(await ctx.schedule(giveBack, 'a machine'))
        }
      },
    })
    const curfew = await world.open({ tasks: [slow, giveBack], agents: [rents] })
    const handle = await curfew.start(rents, null)
    await world.clock.advance('60s')
    expect(returned).toEqual(['a machine'])
    expect(await handle.view()).toMatchObject({ status: 'timed_out', settled: true, receipt: 'aborted' })
  })

  test('reaches what is further below when the agent says so', async ({ world }) => {
    const inner = agent({
      name: 'inner',
      run: async (_: null, ctx) => void (await ctx.allSettled([ctx.schedule(slow, null)])),
    })
    const outer = agent({
      name: 'outer',
      timeout: '60s',
      inherit: true,
      reserve: '5s',
      run: async (_: null, ctx) => void (await ctx.child(inner, null)),
    })
    const curfew = await world.open({ tasks: [slow], agents: [outer, inner] })
    const startedAt = world.now
    const handle = await curfew.start(outer, null)
    await world.clock.advance('1ms')
    const [child] = (await curfew.list({ parent: handle.id })).tasks
    expect((child?.deadlineAt ?? 0) - startedAt).toBe(55_000)
    const [grandchild] = (await curfew.list({ parent: child?.id ?? '' })).tasks
    expect((grandchild?.deadlineAt ?? 0) - startedAt).toBeLessThanOrEqual(55_000)
    await world.clock.advance('60s')
    expect(await curfew.task(grandchild?.id ?? '').view()).toMatchObject({
      status: 'timed_out',
      timeoutKind: 'agent',
    })
  })

  test('follows when what is above it is given more time, as far as its own timeout has it', async ({
    world,
  }) => {
    const inner = agent({
      name: 'inner',
      run: async (_: null, ctx) =>
        void (await ctx.allSettled([ctx.schedule(slow, null), ctx.schedule(slow, null, { timeout: '70s' })])),
    })
    const outer = agent({
      ...{ name: 'outer', timeout: '60s', inherit: true, reserve: '5s' },
      run: async (_: null, ctx) => {
        ctx.schedule(slow, null, { timeout: '40s' })
        await ctx.child(inner, null)
      },
    })
    const curfew = await world.open({ tasks: [slow], agents: [outer, inner] })
    const startedAt = world.now
    const handle = await curfew.start(outer, null)
    await world.clock.advance('10s')
    const below = async () => {
      const works = [...(await curfew.list({ parent: handle.id })).tasks]
      const child = works.find(({ name }) => name === 'inner')
      works.push(...(await curfew.list({ parent: child?.id ?? '' })).tasks)
      const sorted = works.map(({ deadlineAt }) => (deadlineAt ?? 0) - startedAt).sort((a, b) => a - b)
      return { sorted, running: works.filter(({ status }) => status === 'running').length }
    }
    // The timeout of 40 s is its own; inner has 55 s, the two below it have its deadline less their grace and a second.
    expect(await below()).toEqual({ sorted: [40_000, 52_000, 52_000, 55_000], running: 4 })
    await handle.extend('60s')
    expect((await below()).sorted).toEqual([40_000, 70_000, 112_000, 115_000])
    const events = await curfew
      .task((await curfew.list({ name: 'slow', status: 'running' })).tasks[0]?.id ?? '')
      .events()
    expect(events.at(-1)).toMatchObject({ type: 'deadlines_extended' })
    const bound = async (deadline: number) => {
      const { tasks } = await curfew.list({ name: 'slow' })
      const id = tasks.find(({ deadlineAt }) => deadlineAt === startedAt + deadline)?.id ?? ''
      return (await curfew.task(id).explain()).limits
    }
    expect(await bound(70_000)).toMatchObject([
      { kind: 'total', setBy: 'call', timeoutMs: 70_000, binding: true },
    ])
    expect(await bound(112_000)).toMatchObject([{ kind: 'agent', setBy: 'inherited', binding: true }])
    await world.clock.advance('55s')
    expect((await below()).running).toBe(3)
    await world.clock.advance('40s')
    expect((await below()).running).toBe(2)
    await world.clock.advance('60s')
    const { tasks } = await curfew.list({ name: 'slow' })
    expect(tasks.map(({ timeoutKind, endedAt }) => [timeoutKind, (endedAt ?? 0) - startedAt])).toEqual(
      expect.arrayContaining([
        ['total', 40_000],
        ['total', 70_000],
        ['agent', 112_000],
      ]),
    )
    expect(await handle.view()).toMatchObject({ status: 'completed' })
  })

  test('that has followed as far as its own timeout has it is bound by that, also when it is granted more', async ({
    world,
  }) => {
    const asking = task({
      name: 'asking',
      timeout: '40s',
      run: async (_: null, { extend, signal }) => {
        await world.clock.sleep('20s', signal)
        for (const completed of [1, 2]) await extend({ progress: { completed } })
        await world.clock.sleep('10h', signal)
      },
    })
    const above = agent({
      ...{ name: 'above', timeout: '10s', inherit: true, reserve: '1s' },
      run: async (_: null, ctx) => void (await ctx.allSettled([ctx.schedule(asking, null)])),
    })
    const curfew = await world.open({ tasks: [asking], agents: [above] })
    const startedAt = world.now
    const handle = await curfew.start(above, null)
    await world.clock.advance('5s')
    await handle.extend('1h')
    await world.clock.advance('2m')
    const { tasks } = await curfew.list({ name: 'asking' })
    // 15 s and 7.5 s were granted.
    expect(tasks.map(({ timeoutKind, endedAt }) => [timeoutKind, (endedAt ?? 0) - startedAt])).toEqual([
      ['total', 62_500],
    ])
  })

  test('is told to be an option where it is none', async ({ world }) => {
    const wrong = agent({
      name: 'wrong',
      run: async (_: null, ctx) => void (await ctx.schedule(slow, null, { reserve: '1s' })),
    })
    const curfew = await world.open({ tasks: [slow], agents: [wrong] })
    const handle = await curfew.start(wrong, null)
    await expect(handle.result()).rejects.toThrow(/reserve is for what inherits: set inherit: true/)
  })

  test('is a limit in force as any other, and named as what it comes from', async ({ world }) => {
    const above = agent({
      name: 'above',
      timeout: '60s',
      inherit: true,
      run: async (_: null, ctx) => void (await ctx.allSettled([ctx.schedule(slow, null)])),
    })
    const curfew = await world.open({ tasks: [slow], agents: [above] })
    const handle = await curfew.start(above, null)
    await world.clock.advance('7s')
    const [below] = (await handle.explain()).below
    const inherited = { kind: 'agent', option: 'timeout', setBy: 'inherited', timeoutMs: 57_000 }
    expect(below?.limits).toMatchObject([{ ...inherited, active: true, binding: true, remainingMs: 50_000 }])
    await world.clock.advance('60s')
    expect((await curfew.task(below?.id ?? '').explain()).limits).toMatchObject([
      { ...inherited, active: false, binding: false, remainingMs: null },
    ])
  })
})

onEachStore('what is detached', (test) => {
  test('has time of its own: what it is given moves nothing above it, and nothing above binds it', async ({
    world,
  }) => {
    const asking = task({
      name: 'asking',
      timeout: '60s',
      run: async (_: null, { extend, signal }) => {
        await world.clock.sleep('50s', signal)
        await extend()
        await world.clock.sleep('10h', signal)
      },
    })
    const child = agent({ name: 'child', timeout: '2h', run: (_: null, ctx) => ctx.sleep('1d') })
    const above = agent({
      name: 'above',
      timeout: '1h',
      run: async (_: null, ctx) => {
        ctx.schedule(asking, null, { detached: true, timeout: '59m50s' })
        ctx.child(child, null, { detached: true })
        await ctx.sleep('1d')
      },
    })
    const curfew = await world.open({ tasks: [asking], agents: [above, child] })
    const startedAt = world.now
    const handle = await curfew.start(above, null)
    await world.clock.advance('1m')
    const { tasks } = await curfew.list({ parent: handle.id })
    const [task1, agent1] = ['task', 'agent'].map((kind) => tasks.find((one) => one.kind === kind)?.id ?? '')
    expect((await curfew.task(task1 as string).view()).deadlineAt).toBe(startedAt + 3_605_000)
    expect(await curfew.agent(agent1 as string).explain()).toMatchObject({ binding: { name: 'child' } })
    await curfew.task(task1 as string).extend('5h')
    await curfew.agent(agent1 as string).extend('5h')
    expect((await handle.view()).deadlineAt).toBe(startedAt + 3_600_000)
  })
})

onEachStore('the clean-up of an agent that was cancelled', (test) => {
  test('has until its deadline at most, and that is what an operator is told', async ({ world }) => {
    const tidy = agent({
      name: 'tidy',
      timeout: '1m',
      cleanup: '5m',
      run: async (_: null, ctx) => {
        try {
          await ctx.sleep('1d')
        } finally {
          await ctx.sleep('1d')
        }
      },
    })
    const curfew = await world.open({ agents: [tidy] })
    const startedAt = world.now
    const handle = await curfew.start(tidy, null)
    await world.clock.advance('30s')
    await handle.cancel()
    await world.clock.advance('1s')
    expect(await handle.extend('1m')).toEqual({ deadlineAt: startedAt + 120_000 })
    await world.clock.advance('88s')
    expect(await handle.status()).toBe('cancelling')
    await world.clock.advance('2s')
    expect(await handle.status()).toBe('cancelled')
  })
})
