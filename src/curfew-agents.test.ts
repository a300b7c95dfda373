/** Agents through the public API on the virtual clock: what they schedule, wait for, and how they end. */
import { expect } from 'vitest'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import { agent, CurfewError, TaskTimedOut, task } from './curfew.ts'

onEachStore('agents', (test) => {
  const add = task({ name: 'add', run: ({ a, b }: { a: number; b: number }) => a + b })

  test('an agent schedules tasks one after the other and ends with what they gave', async ({ world }) => {
    const sum = agent({
      name: 'sum',
      run: async (numbers: number[], ctx) => {
        let total = 0
        for (const n of numbers) total = await ctx.schedule(add, { a: total, b: n })
        return total
      },
    })
    const curfew = await world.open({ tasks: [add], agents: [sum] })
    const handle = await curfew.start(sum, [1, 2, 3, 4])
    await world.clock.settle()
    expect(await handle.result()).toBe(10)
  })

  test('row 24: a task that times out reaches its agent as TaskTimedOut', async ({ world }) => {
    const hangs = task({ name: 'hangs', run: (_: null, ctx) => world.clock.sleep('1h', ctx.signal) })
    const waits = agent({
      name: 'waits',
      run: async (_: null, ctx) => {
        const error = await ctx.schedule(hangs, null, { timeout: '30s' }).catch((reason) => reason)
        return error instanceof TaskTimedOut ? [error.kind, error.deadlineAt] : String(error)
      },
    })
    const curfew = await world.open({ tasks: [hangs], agents: [waits] })
    const start = world.now
    const handle = await curfew.start(waits, null)
    await world.clock.advance('31s')
    expect(await handle.result()).toEqual(['total', start + 30_000])
    expect(await errorOf(curfew.agent('g_none').result(), CurfewError)).toMatchObject({ code: 'not_found' })
  })
})
