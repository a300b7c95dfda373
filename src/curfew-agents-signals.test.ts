/** Signals to agents: kept until they are asked for, in the order of their arrival, each taken once. */
import { expect } from 'vitest'
import { onEachStoreAndResidence } from '../scripts/acceptance/residence.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import { agent, CurfewError, task, WaitTimedOut } from './curfew.ts'

onEachStoreAndResidence('signals', (test, residents) => {
  test('row 58: those that wait are taken in their order, one by one', async ({ world }) => {
    const takes = agent({
      name: 'takes',
      run: async (_: null, ctx) => {
        await ctx.sleep('1m')
        const taken: unknown[] = []
        for (let i = 0; i < 3; i++) taken.push(await ctx.waitForSignal<number>('n'))
        return [...taken, ctx.now()]
      },
    })
    const curfew = await world.open({ agents: [takes], residents })
    const start = world.now
    const handle = await curfew.start(takes, null)
    await world.clock.settle()
    for (const n of [1, 2, 3]) await handle.signal('n', n)
    await handle.signal('other', 'not asked for')
    expect((await handle.explain()).warnings.toSorted()).toEqual([
      `1 of signal 'other' wait until it asks for them`,
      `3 of signal 'n' wait until it asks for them`,
    ])
    await world.clock.advance('1m')
    expect(await handle.result()).toEqual([1, 2, 3, start + 60_000])
  })

  test('row 58: all that wait are drained at once, in their order', async ({ world }) => {
    const drains = agent({
      name: 'drains',
      run: async (_: null, ctx) => {
        await ctx.sleep('1m')
        const waits = [1, 2, 3].map(() => ctx.waitForSignal<number>('n'))
        const last = ctx.waitForSignal<string>('n', { timeout: '10s' })
        return [await Promise.all(waits), await last.catch((error: unknown) => error instanceof WaitTimedOut)]
      },
    })
    const curfew = await world.open({ agents: [drains], residents })
    const handle = await curfew.start(drains, null)
    await world.clock.settle()
    await Promise.all([1, 2, 3].map((n) => handle.signal('n', n)))
    await world.clock.advance('2m')
    const [values, timedOut] = await handle.result()
    expect([values, timedOut]).toEqual([[1, 2, 3], true])
  })

  test('several waits of one name are served in the order in which they were begun', async ({ world }) => {
    const serves = agent({
      name: 'serves',
      run: async (_: null, ctx) => {
        const [first, second] = [ctx.waitForSignal('n'), ctx.waitForSignal('n')]
        const other = ctx.waitForSignal('other')
        return [await second, await first, await other]
      },
    })
    const curfew = await world.open({ agents: [serves], residents })
    const handle = await curfew.start(serves, null)
    await world.clock.settle()
    await handle.signal('other', { any: ['value'] })
    await handle.signal('n', 'a')
    await world.clock.settle()
    expect(await handle.status()).toBe('running')
    await handle.signal('n')
    await world.clock.settle()
    expect(await handle.result()).toEqual([null, 'a', { any: ['value'] }])
  })

  test('a wait that timed out or was cancelled takes nothing; the next one does', async ({ world }) => {
    const waits = agent({
      name: 'waits',
      run: async (_: null, ctx) => {
        const start = ctx.now()
        const error = await ctx.waitForSignal('n', { timeout: '5s' }).catch((reason: unknown) => reason)
        const timedOut = error instanceof WaitTimedOut && [error.timeoutMs, ctx.now() - start]
        const cancelled = ctx.waitForSignal('n')
        ctx.cancel(cancelled)
        const next = ctx.waitForSignal('n')
        return [
          timedOut,
          await cancelled.catch((reason: CurfewError | unknown) => codeOf(reason)),
          await next,
        ]
      },
    })
    const curfew = await world.open({ agents: [waits], residents })
    const handle = await curfew.start(waits, null)
    await world.clock.advance('10s')
    await handle.signal('n', 'for the next')
    await world.clock.settle()
    expect(await handle.result()).toEqual([[5_000, 5_000], 'cancelled', 'for the next'])
  })

  test('a signal in time ends the wait and its limit', async ({ world }) => {
    const waits = agent({
      name: 'waits',
      run: async (_: null, ctx) => {
        const first = await ctx.waitForSignal('n', { timeout: '5s' })
        return [first, await ctx.waitForSignal('n')]
      },
    })
    const curfew = await world.open({ agents: [waits], residents })
    const handle = await curfew.start(waits, null)
    await world.clock.advance(4_999)
    await handle.signal('n', 1)
    await world.clock.advance('1m')
    expect((await handle.explain()).waits).toMatchObject([{ what: 'signal', name: 'n', until: null }])
    expect((await handle.explain()).journal).toMatchObject({ turns: 2, results: 1 })
    await handle.signal('n', 2)
    await world.clock.settle()
    expect(await handle.result()).toEqual([1, 2])
  })

  test('those that came before the start are there', async ({ world }) => {
    const busy = agent({
      name: 'busy',
      run: async (_: null, ctx) => ctx.run('busy', () => world.clock.sleep('10s')),
    })
    const takes = agent({
      name: 'takes',
      run: async (_: null, ctx) => [await ctx.waitForSignal('a'), await ctx.waitForSignal('b')],
    })
    const curfew = await world.open({ agents: [busy, takes], turns: 1, residents })
    await curfew.start(busy, null)
    await world.clock.settle()
    const handle = await curfew.start(takes, null)
    await handle.signal('b', 'second')
    await handle.signal('a', 'first')
    expect(await handle.view()).toMatchObject({ status: 'pending', attempts: 0 })
    await world.clock.advance('10s')
    expect(await handle.result()).toEqual(['first', 'second'])
  })

  test('names of things that every object has are names like others', async ({ world }) => {
    const names = ['constructor', '__proto__', 'toString', 'größe 1']
    const takes = agent({
      name: 'takes',
      run: async (_: null, ctx) => {
        await ctx.sleep('1s')
        const values: unknown[] = []
        for (const name of names) values.push(await ctx.waitForSignal(name))
        return values
      },
    })
    const curfew = await world.open({ agents: [takes], residents })
    const handle = await curfew.start(takes, null)
    await world.clock.settle()
    for (const name of names) await handle.signal(name, name)
    await world.clock.advance('1s')
    expect(await handle.result()).toEqual(names)
  })
})

onEachStore('signals that nobody can take', (test) => {
  test('an agent that has ended, and what is no agent, refuse them with a typed error', async ({ world }) => {
    const quick = agent({ name: 'quick', run: () => 1 })
    const waits = agent({ name: 'waits', run: async (_: null, ctx) => ctx.waitForSignal('never') })
    const job = task({ name: 'job', run: () => 1 })
    const curfew = await world.open({ tasks: [job], agents: [quick, waits] })
    const ended = await curfew.start(quick)
    const cancelled = await curfew.start(waits, null)
    const aTask = await curfew.schedule(job)
    await world.clock.settle()
    await cancelled.cancel()
    await world.clock.settle()
    for (const handle of [ended, cancelled]) {
      const error = await errorOf(handle.signal('go'), CurfewError)
      expect(error).toMatchObject({ code: 'refused', fields: { id: handle.id } })
      expect(error.message).toContain(`it is ${await handle.status()}`)
    }
    const noAgent = await errorOf(curfew.agent(aTask.id).signal('go'), CurfewError)
    expect(noAgent.code).toBe('refused')
    const running = await curfew.start(waits, null)
    expect((await errorOf(running.signal(''), CurfewError)).code).toBe('invalid_name')
    expect((await errorOf(running.signal('go', 1n), CurfewError)).code).toBe('invalid_json')
    expect((await running.explain()).warnings).toEqual([])
  })

  test('events tell of each, and a queue of ten thousand is full', async ({ world }) => {
    const sleeps = agent({ name: 'sleeps', run: async (_: null, ctx) => ctx.sleep('1h') })
    const curfew = await world.open({ agents: [sleeps] })
    const handle = await curfew.start(sleeps, null)
    await world.clock.settle()
    await handle.signal('a')
    const events = (await handle.events()).filter(({ type }) => type === 'signal_received')
    expect(events).toMatchObject([{ name: 'a', at: world.now }])
    if (world.kind !== 'memory') return
    const batches = Array.from({ length: 9_999 }, () => handle.signal('b', 1))
    await Promise.all(batches)
    const error = await errorOf(handle.signal('b', 2), CurfewError)
    expect(error).toMatchObject({ code: 'refused' })
    expect(error.message).toContain('10000 signals wait for it already')
  })
})

function codeOf(reason: unknown): string {
  return (reason as CurfewError).code
}
