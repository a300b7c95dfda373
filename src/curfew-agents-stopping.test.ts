/** Agents that are stopped, by a cancel, their timeout or their own end: what becomes of everything below them. */
import { expect } from 'vitest'
import { onEachStoreAndResidence } from '../scripts/acceptance/residence.ts'
import type { World } from '../scripts/acceptance/world.ts'
import { errorOf } from '../scripts/acceptance/world.ts'
import type { AgentDefinition, Curfew } from './curfew.ts'
import { agent, Stopped, TaskCancelled, TaskFailed, TaskTimedOut, task } from './curfew.ts'

/** Follows its signal; ends by itself after an hour. */
const hangOn = (world: World) =>
  task({ name: 'hang', run: (_: unknown, { signal }) => world.clock.sleep('1h', signal) })

const byName = async (curfew: Curfew, parent: string) =>
  Object.fromEntries(
    (await curfew.list({ parent })).tasks.map(({ name, status, receipt }) => [name, [status, receipt]]),
  )

onEachStoreAndResidence('stopping agents', (test, residents) => {
  test('a cancel stops what is below, down to the last, and tells how each attempt ended', async ({
    world,
  }) => {
    const { clock } = world
    const hang = hangOn(world)
    const slow = task({
      name: 'slow',
      // Follows its signal two seconds late.
      run: (_: null, { signal }) => clock.sleep('1h', signal).catch(() => clock.sleep('2s')),
    })
    const child = agent({ name: 'child', run: async (_: null, ctx) => ctx.schedule(slow, null) })
    const parent = agent({
      name: 'parent',
      run: async (_: null, ctx) => {
        const later = ctx.schedule(hang, 'later', { delay: '2h' })
        return ctx.all([ctx.schedule(hang, 'now'), later, ctx.child(child, null)])
      },
    })
    const curfew = await world.open({ tasks: [hang, slow], agents: [parent, child], residents })
    const start = world.now
    const handle = await curfew.start(parent, null)
    await clock.advance('5s')
    expect(await handle.cancel()).toBe('cancelled')
    await clock.settle()
    expect(await handle.cancel()).toBe('already_cancelled')
    expect(await handle.view()).toMatchObject({ status: 'cancelling', settled: false, endedAt: null })
    expect((await handle.explain()).summary).toBe('is being cancelled; 1 below it have not stopped yet')
    const outcome = handle.cancelled()
    await clock.advance('2s')
    expect(await handle.view()).toMatchObject({ status: 'cancelled', settled: true, endedAt: start + 7_000 })
    const { success, errors, ledger } = await outcome
    expect({ success, errors }).toEqual({ success: true, errors: [] })
    expect(ledger.map(({ name, status, receipt }) => [name, status, receipt]).toSorted()).toEqual([
      ['hang', 'cancelled', 'aborted'],
      ['slow', 'cancelled', 'aborted'],
    ])
    expect(await errorOf(handle.result(), TaskCancelled)).toMatchObject({ taskId: handle.id })
    const types = (await handle.events()).map(({ type }) => type)
    expect(types).toEqual(['agent_scheduled', 'agent_started', 'agent_cancelling', 'agent_cancelled'])
    expect(await handle.cancel()).toBe('already_cancelled')
  })

  test('what ignores its signal is in the ledger, and in its errors', async ({ world }) => {
    const deaf = task({ name: 'deaf', grace: '3s', run: () => new Promise(() => undefined) })
    const parent = agent({ name: 'parent', run: async (_: null, ctx) => ctx.schedule(deaf) })
    const curfew = await world.open({ tasks: [deaf], agents: [parent], residents })
    const handle = await curfew.start(parent, null)
    await world.clock.settle()
    await handle.cancel()
    await world.clock.advance('10s')
    const { success, errors, ledger } = await handle.cancelled()
    expect({ success, ledger }).toMatchObject({
      success: false,
      ledger: [{ name: 'deaf', receipt: 'abandoned' }],
    })
    expect(errors).toEqual([
      `attempt 1 of task deaf (${ledger[0]?.taskId}) ignored its signal and still runs`,
    ])
  })

  test('finally code runs, sees why, and may schedule what makes up for it', async ({ world }) => {
    const hang = hangOn(world)
    const refunds: string[] = []
    const refund = task({
      name: 'refund',
      run: async (order: string) => {
        await world.clock.sleep('3s')
        refunds.push(order)
      },
    })
    const seen: string[] = []
    const order = agent({
      name: 'order',
      run: async (id: string, ctx) => {
        try {
          await ctx.all([ctx.schedule(hang, null), ctx.sleep('1h')])
        } catch (error) {
          const word = error instanceof Stopped ? error.code : String(error)
          await ctx.run('note', () => seen.push(word))
          throw error
        } finally {
          await ctx.schedule(refund, id)
          await ctx.sleep('1s')
        }
      },
    })
    const curfew = await world.open({ tasks: [hang, refund], agents: [order], residents })
    const start = world.now
    const handle = await curfew.start(order, 'o-1')
    await world.clock.advance('5s')
    await handle.cancel()
    await world.clock.advance('3s')
    expect((await handle.explain()).summary).toBe('is being cancelled: its clean-up runs')
    await world.clock.advance('30s')
    expect({ refunds, seen }).toEqual({ refunds: ['o-1'], seen: ['cancelled'] })
    expect(await handle.view()).toMatchObject({
      status: 'cancelled',
      receipt: 'aborted',
      endedAt: start + 9_000,
    })
    expect(await byName(curfew, handle.id)).toEqual({
      hang: ['cancelled', 'aborted'],
      refund: ['completed', null],
    })
    expect((await handle.cancelled()).success).toBe(true)
  })

  test('a task it waits for tells its own end, with the receipt', async ({ world }) => {
    const hang = hangOn(world)
    const seen: unknown[] = []
    const waits = agent({
      name: 'waits',
      run: async (_: null, ctx) => {
        const error = await ctx.schedule(hang, null).catch((reason: unknown) => reason)
        await ctx.run('see', () => seen.push(error instanceof TaskCancelled && error.receipt))
        return 'too late'
      },
    })
    const curfew = await world.open({ tasks: [hang], agents: [waits], residents })
    const handle = await curfew.start(waits, null)
    await world.clock.settle()
    await handle.cancel()
    await world.clock.advance('1s')
    expect(seen).toEqual(['aborted'])
    expect(await handle.status()).toBe('cancelled')
    const [late] = (await handle.events()).filter(({ type }) => type === 'late_result')
    expect(late).toMatchObject({ output: '"too late"', status: 'cancelling' })
  })

  test('the clean-up has a budget: what is not done then is abandoned', async ({ world }) => {
    const hang = hangOn(world)
    const endless = agent({
      name: 'endless',
      cleanup: '10s',
      run: async (_: null, ctx) => {
        for (;;) await ctx.schedule(hang, null).catch((error: unknown) => error)
      },
    })
    const curfew = await world.open({ tasks: [hang], agents: [endless], residents })
    const start = world.now
    const handle = await curfew.start(endless, null)
    await world.clock.advance('5s')
    await handle.cancel()
    await world.clock.advance('9s')
    expect(await handle.status()).toBe('cancelling')
    await world.clock.advance('1m')
    expect(await handle.view()).toMatchObject({
      status: 'cancelled',
      receipt: 'abandoned',
      endedAt: start + 15_000,
    })
    expect((await handle.explain()).summary).toBe('cancelled; its clean-up took too long and was abandoned')
    const events = await handle.events()
    expect(events.filter(({ type }) => type === 'cleanup_abandoned')).toMatchObject([{ cleanupMs: 10_000 }])
    const { tasks } = await curfew.list({ parent: handle.id })
    expect(tasks.map(({ status }) => status)).toEqual(['cancelled', 'cancelled'])
  })

  test('without a budget nothing of its code runs any more', async ({ world }) => {
    let cleaned = 0
    const none = agent({
      name: 'none',
      run: async (_: null, ctx) => {
        try {
          await ctx.sleep('1h')
        } finally {
          cleaned++
        }
      },
    })
    const curfew = await world.open({ agents: [none], residents })
    const handle = await curfew.start(none, null, { cleanup: 0 })
    await world.clock.settle()
    await handle.cancel()
    expect(await handle.status()).toBe('cancelled')
    await world.clock.advance('2h')
    expect(cleaned).toBe(0)
  })

  test('code that waits for nothing of ctx is ended by its timeout and its budget', async ({ world }) => {
    const lost = agent({
      name: 'lost',
      timeout: '5s',
      cleanup: '2s',
      run: () => new Promise(() => undefined),
    })
    const quick = agent({ name: 'quick', run: () => 'ran' })
    const curfew = await world.open({ agents: [lost, quick], turns: 1, residents })
    const start = world.now
    const handle = await curfew.start(lost)
    await world.clock.settle()
    const next = await curfew.start(quick)
    await world.clock.advance('6s')
    expect(await handle.view()).toMatchObject({ status: 'timed_out', settled: false, endedAt: start + 5_000 })
    expect(await next.status()).toBe('pending')
    await world.clock.advance('1s')
    expect(await errorOf(handle.result(), TaskTimedOut)).toMatchObject({
      kind: 'agent',
      receipt: 'abandoned',
      hint: 'Its clean-up, or a handler below it, was abandoned and may still run.',
    })
    expect(await next.result()).toBe('ran')
  })

  test('an interrupted run is told by its signal, and is not called again by the clean-up', async ({
    world,
  }) => {
    const calls: string[] = []
    const refund = task({ name: 'refund', run: () => void calls.push('refund') })
    const charges = agent({
      name: 'charges',
      run: async (_: null, ctx) => {
        try {
          await ctx.run('charge', async ({ signal }) => {
            calls.push('charge')
            await world.clock.sleep('1h', signal).catch((reason: Stopped) => calls.push(reason.code))
          })
        } finally {
          await ctx.schedule(refund)
          await ctx.sleep('1s')
        }
      },
    })
    const curfew = await world.open({ tasks: [refund], agents: [charges], residents })
    const handle = await curfew.start(charges, null)
    await world.clock.advance('5s')
    await handle.cancel()
    await world.clock.advance('5s')
    expect(await handle.status()).toBe('cancelled')
    expect(calls).toEqual(['charge', 'cancelled', 'refund'])
  })

  test('its own timeout stops everything below: tasks, children, their tasks, what never started', async ({
    world,
  }) => {
    const { clock } = world
    const hang = hangOn(world)
    const elsewhere = agent({ name: 'elsewhere', run: () => 1 })
    const child = agent({
      name: 'child',
      run: async (_: null, ctx) => ctx.all([ctx.schedule(hang, null), ctx.child(elsewhere)]),
    })
    const parent = agent({
      name: 'parent',
      timeout: '10s',
      run: async (_: null, ctx) => {
        const kept = ctx.schedule(hang, 'kept', { detached: true })
        return ctx.all([ctx.schedule(hang, null), ctx.child(child, null), ctx.child(elsewhere), kept])
      },
    })
    const curfew = await world.open({ tasks: [hang], agents: [parent, child], residents })
    const start = world.now
    const handle = await curfew.start(parent, null)
    await clock.advance(9_999)
    expect(await handle.status()).toBe('running')
    await clock.advance(1)
    expect(await errorOf(handle.result(), TaskTimedOut)).toMatchObject({ kind: 'agent', timeoutMs: 10_000 })
    expect(await handle.view()).toMatchObject({ status: 'timed_out', settled: true, endedAt: start + 10_000 })
    const all = (await curfew.list()).tasks
    const told = all.map(({ name, status, attempts, endedAt }) => [name, status, attempts > 0, endedAt])
    const at = start + 10_000
    expect(told.toSorted((a, b) => String(a).localeCompare(String(b)))).toEqual([
      ['child', 'cancelled', true, at],
      ['elsewhere', 'cancelled', false, at],
      ['elsewhere', 'cancelled', false, at],
      ['hang', 'cancelled', true, at],
      ['hang', 'cancelled', true, at],
      ['hang', 'running', true, null],
      ['parent', 'timed_out', true, at],
    ])
    await clock.advance('1h')
    expect((await curfew.list({ status: 'completed' })).tasks).toMatchObject([
      { name: 'hang', parentId: handle.id },
    ])
  })

  test('a deadline that falls while it is cancelled ends the clean-up, not the outcome', async ({
    world,
  }) => {
    const cleans = agent({
      name: 'cleans',
      timeout: '10s',
      run: async (_: null, ctx) => {
        try {
          await ctx.sleep('1h')
        } finally {
          await ctx.sleep('20s')
        }
      },
    })
    const curfew = await world.open({ agents: [cleans], residents })
    const start = world.now
    const handle = await curfew.start(cleans, null)
    await world.clock.advance('5s')
    await handle.cancel()
    await world.clock.advance('1m')
    expect(await handle.view()).toMatchObject({ status: 'cancelled', endedAt: start + 10_000 })
  })

  test('row 56: what is open when it returns or fails is cancelled; it tells its end after theirs', async ({
    world,
  }) => {
    const { clock } = world
    const slow = task({
      name: 'slow',
      timeout: '1m',
      run: (_: null, { signal }) => clock.sleep('1h', signal).catch(() => clock.sleep('2s')),
    })
    const leaves = agent({
      name: 'leaves',
      run: async (how: 'returns' | 'throws', ctx) => {
        ctx.schedule(slow, null)
        await ctx.sleep('5s')
        ctx.schedule(slow, null, { delay: '1h' }) // not even out yet
        if (how === 'throws') throw new Error('no paper')
        return how
      },
    })
    const curfew = await world.open({ tasks: [slow], agents: [leaves], residents })
    const start = world.now
    const returned = await curfew.start(leaves, 'returns')
    const threw = await curfew.start(leaves, 'throws')
    const toldAt: number[] = []
    const result = returned.result().finally(() => toldAt.push(world.now - start))
    await clock.advance('5s')
    expect(await returned.view()).toMatchObject({
      status: 'completed',
      settled: false,
      endedAt: start + 5_000,
    })
    expect(await threw.view()).toMatchObject({ status: 'failed', settled: false })
    const turns = (await returned.explain()).journal?.turns
    await clock.advance('2h')
    expect([await result, toldAt]).toEqual(['returns', [7_000]])
    expect(await errorOf(threw.result(), TaskFailed)).toMatchObject({ failure: { message: 'no paper' } })
    for (const { id } of [returned, threw]) {
      const { tasks } = await curfew.list({ parent: id })
      expect(tasks.map(({ status, receipt }) => [status, receipt])).toEqual([
        ['cancelled', null],
        ['cancelled', 'aborted'],
      ])
    }
    // No deadline of theirs wakes a dead agent.
    expect((await returned.explain()).journal?.turns).toBe(turns)
    expect((await curfew.list({ status: 'timed_out' })).tasks).toEqual([])
  })

  test('what is detached goes on, with everything below it', async ({ world }) => {
    const slow = task({ name: 'slow', run: (_: unknown, { signal }) => world.clock.sleep('10s', signal) })
    const child = agent({ name: 'child', run: async (_: null, ctx) => ctx.schedule(slow, null) })
    const leaves = agent({
      name: 'leaves',
      run: async (_: null, ctx) => {
        const kept = ctx.schedule(slow, null, { detached: true })
        return [kept.id, ctx.child(child, null, { detached: true }).id]
      },
    })
    const curfew = await world.open({ tasks: [slow], agents: [leaves, child], residents })
    const handle = await curfew.start(leaves, null)
    await world.clock.settle()
    expect(await handle.view()).toMatchObject({ status: 'completed', settled: true })
    await world.clock.advance('10s')
    const ids = await handle.result()
    const statuses = await Promise.all(ids.map((id) => curfew.task(id).status()))
    expect(statuses).toEqual(['completed', 'completed'])
    expect((await curfew.list({ parent: ids[1] as string })).tasks).toMatchObject([{ status: 'completed' }])
  })

  test('a cancel goes down a deep tree, and comes up with all receipts', async ({ world }) => {
    const slow = task({
      name: 'slow',
      run: (_: null, { signal }) => world.clock.sleep('1h', signal).catch(() => world.clock.sleep('1s')),
    })
    const cleaned: number[] = []
    const nest = agent({
      name: 'nest',
      run: async (depth: number, ctx): Promise<unknown> => {
        try {
          return await (depth === 0 ? ctx.schedule(slow, null) : ctx.child(nestAgain(), depth - 1))
        } finally {
          await ctx.run('clean', () => cleaned.push(depth))
        }
      },
    })
    const nestAgain = (): AgentDefinition<number, unknown> => nest
    const curfew = await world.open({ tasks: [slow], agents: [nest], residents })
    const handle = await curfew.start(nest, 6)
    await world.clock.settle()
    await handle.cancel()
    await world.clock.advance('5s')
    const { success, ledger } = await handle.cancelled()
    expect({ success, ledger }).toMatchObject({
      success: true,
      ledger: [{ name: 'slow', receipt: 'aborted' }],
    })
    expect(cleaned).toEqual([0, 1, 2, 3, 4, 5, 6])
    expect((await curfew.list({ kind: 'agent', status: 'cancelled' })).tasks).toHaveLength(7)
  })

  test('somebody cancels a task or child of it: it is told, and goes on', async ({ world }) => {
    const hang = hangOn(world)
    const child = agent({ name: 'child', run: async (_: null, ctx) => ctx.sleep('1h') })
    const parent = agent({
      name: 'parent',
      run: async (_: null, ctx) => {
        const { cancelled } = await ctx.allSettled([ctx.schedule(hang, null), ctx.child(child, null)])
        return cancelled.map(({ index }) => index)
      },
    })
    const curfew = await world.open({ tasks: [hang], agents: [parent, child], residents })
    const handle = await curfew.start(parent, null)
    await world.clock.settle()
    for (const { id } of (await curfew.list({ parent: handle.id })).tasks) await curfew.task(id).cancel()
    await world.clock.settle()
    expect(await handle.result()).toEqual([0, 1])
  })

  test('one that never ran ends at once', async ({ world }) => {
    const elsewhere = agent({ name: 'elsewhere', run: () => 1 })
    const curfew = await world.open({ residents })
    const [cancelled, timedOut] = [
      await curfew.start(elsewhere),
      await curfew.start(elsewhere, {}, { timeout: '5s' }),
    ]
    expect(await cancelled.cancel()).toBe('pending_cancelled')
    expect(await cancelled.view()).toMatchObject({ status: 'cancelled', settled: true, startedAt: null })
    expect((await cancelled.explain()).summary).toBe('cancelled before it started')
    await world.clock.advance('5s')
    expect(await timedOut.view()).toMatchObject({ status: 'timed_out', settled: true, attempts: 0 })
    expect(await timedOut.cancel()).toBe('already_completed')
  })
})
