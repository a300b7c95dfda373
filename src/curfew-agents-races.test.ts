/** Agents where two things come together: a stop and what the code asks for, damaged records, very much data. */
import { expect } from 'vitest'
import { onEachStoreAndResidence } from '../scripts/acceptance/residence.ts'
import { onEachStore } from '../scripts/acceptance/world.ts'
import { agent, task } from './curfew.ts'

onEachStoreAndResidence('stops of agents', (test, residents) => {
  test('what code asks for before it knows of the stop is not begun, and its clean-up runs', async ({
    world,
  }) => {
    const began: string[] = []
    const work = task({
      name: 'work',
      run: async (name: string, ctx) => {
        began.push(name)
        await world.clock.sleep('1h', ctx.signal)
      },
    })
    const undo = task({ name: 'undo', run: () => void began.push('undo') })
    const runs = agent({
      name: 'runs',
      run: async (_: null, ctx) => {
        try {
          await ctx.waitForSignal('go')
          await ctx.schedule(work, 'late')
        } finally {
          await ctx.schedule(undo, null)
        }
      },
    })
    const curfew = await world.open({ tasks: [work, undo], agents: [runs], residents })
    const handle = await curfew.start(runs, null)
    await world.clock.settle()
    // Both are stored before the code is given either.
    await Promise.all([handle.signal('go'), handle.cancel()])
    await world.clock.advance('10s')
    expect(await handle.status()).toBe('cancelled')
    expect(began).toEqual(['undo'])
  })

  test('a signal that comes after the stop is there for the clean-up', async ({ world }) => {
    const seen: unknown[] = []
    const waits = agent({
      name: 'waits',
      timeout: '5s',
      run: async (_: null, ctx) => {
        try {
          await ctx.waitForSignal('verdict')
        } finally {
          seen.push(await ctx.waitForSignal('verdict', { timeout: '20s' }))
        }
      },
    })
    const curfew = await world.open({ agents: [waits], residents })
    const cancelled = await curfew.start(waits, null)
    const timedOut = await curfew.start(waits, null)
    await world.clock.settle()
    await cancelled.cancel()
    await cancelled.signal('verdict', 'first')
    await world.clock.advance('6s')
    await timedOut.signal('verdict', 'second')
    await world.clock.settle()
    expect(seen).toEqual(['first', 'second'])
    expect([await cancelled.status(), await timedOut.status()]).toEqual(['cancelled', 'timed_out'])
  })

  test('a deadline of the same moment as that above it does not end the clean-up before it begins', async ({
    world,
  }) => {
    const returned: string[] = []
    const giveBack = task({ name: 'give-back', run: async (what: string) => void returned.push(what) })
    const rents = agent({
      name: 'rents',
      timeout: '60s',
      run: async (_: null, ctx) => {
        try {
          await ctx.waitForSignal('never')
        } finally {
          await ctx.schedule(giveBack, 'a machine')
        }
      },
    })
    const above = agent({
      name: 'above',
      timeout: '60s',
      run: async (_: null, ctx) => ctx.child(rents, null),
    })
    const curfew = await world.open({ tasks: [giveBack], agents: [rents, above] })
    const handle = await curfew.start(above, null)
    await world.clock.advance('60s')
    expect(returned).toEqual(['a machine'])
    expect(await handle.view()).toMatchObject({ status: 'timed_out', settled: true })
    const { tasks } = await curfew.list({ parent: handle.id })
    const { deadlineAt } = await handle.view()
    expect(tasks).toMatchObject([{ status: 'cancelled', receipt: 'aborted', deadlineAt }])
  })

  test('a run that ignores its signal makes the cancel say so', async ({ world }) => {
    const stubborn = agent({
      name: 'stubborn',
      run: async (_: null, ctx) => {
        await ctx.run('deaf', () => new Promise(() => undefined))
      },
    })
    const curfew = await world.open({ agents: [stubborn], residents })
    const handle = await curfew.start(stubborn, null)
    await world.clock.settle()
    await handle.cancel()
    await world.clock.advance('1m')
    const { success, errors } = await handle.cancelled()
    expect({ success, errors: errors.length }).toEqual({ success: false, errors: 1 })
  })
})

onEachStore(
  'damaged agents',
  (test) => {
    const add = task({ name: 'add', run: (n: number) => n + 1 })

    test('a record that cannot be read is parked, and everybody else goes on', async ({ world }) => {
      const slow = task({ name: 'slow', run: (_: null, ctx) => world.clock.sleep('1h', ctx.signal) })
      const waits = agent({
        name: 'waits',
        run: (_: null, ctx) => ctx.schedule(slow, null, { timeout: '5s' }),
      })
      const signals = agent({ name: 'signals', run: (_: null, ctx) => ctx.waitForSignal('go') })
      const options = { tasks: [add, slow], agents: [waits, signals], residents: { count: 0 } }
      let curfew = await world.open(options)
      const damaged = [await curfew.start(waits, null), await curfew.start(waits, null)]
      const unread = await curfew.start(signals, null)
      await world.clock.settle()
      await world.close(curfew)
      await world.sql(`update curfew.tasks set policy = '{' where id = '${damaged[0]?.id}'`)
      await world.sql(`update curfew.tasks set waits = '{' where id = '${damaged[1]?.id}'`)
      await world.sql(`update curfew.journal set body = '[' where agent_id = '${unread.id}'`)
      curfew = await world.open(options)
      await curfew.agent(unread.id).signal('go')
      await world.clock.advance('20s')
      for (const { id } of [...damaged, unread]) {
        expect((await curfew.agent(id).view()).parked).toMatch(/cannot be read/)
      }
      expect(await (await curfew.schedule(add, 1, { timeout: '1s' })).result()).toBe(2)
    })
  },
  ['file', 'postgres'],
)

onEachStore('large agents', (test) => {
  test('a long run of large results stays in memory', async ({ world }) => {
    let begun = 0
    const large = task({ name: 'large', run: () => 'x'.repeat(200_000) })
    const reads = agent({
      name: 'reads',
      run: async (_: null, ctx) => {
        begun++
        for (let i = 0; i < 40; i++) await ctx.schedule(large, null)
      },
    })
    const curfew = await world.open({ tasks: [large], agents: [reads], residents: { bytes: 1_000_000 } })
    const handle = await curfew.start(reads, null)
    await handle.result()
    expect(begun).toBe(1)
  })

  test('a time that cannot be is refused where it stands', async ({ world }) => {
    const far = agent({ name: 'far', run: (_: null, ctx) => ctx.sleepUntil(1e19) })
    const curfew = await world.open({ agents: [far] })
    const handle = await curfew.start(far, null)
    await world.clock.settle()
    expect((await handle.view()).failure).toMatchObject({ code: 'invalid_option' })
  })
})
