/** Inputs, outputs and journals as large as they may be, in numbers: they travel in pieces. */
import { expect } from 'vitest'
import { onEachWire } from '../scripts/acceptance/wire-world.ts'
import { agent, task } from './curfew.ts'

const BIG = 'x'.repeat(1024 * 1024 - 1_000)
const SIZE = BIG.length
const times = <T>(count: number, value: T) => Array.from({ length: count }, () => value)

const measure = task({ name: 'measure', run: (text: string) => text.length })
const grow = task({ name: 'grow', run: () => BIG })
const sends = agent({
  name: 'sends',
  run: async (count: number, ctx) => {
    const lengths = await ctx.all(times(count, null).map(() => ctx.schedule(measure, BIG)))
    return lengths.reduce((sum, length) => sum + length, 0)
  },
})
const gathers = agent({
  name: 'gathers',
  run: async (count: number, ctx) => {
    const texts = await ctx.all(times(count, null).map(() => ctx.schedule(grow)))
    const [made] = await ctx.all([ctx.run('make', () => BIG), ctx.run('again', () => BIG)])
    return texts.reduce((sum, { length }) => sum + length, 0) + made.length
  },
})

onEachWire('large values over the wire', (test) => {
  test('tasks with large inputs are scheduled, handed out and answered together', async ({ wire }) => {
    const manager = await wire.manager()
    const client = await wire.connect(manager)
    const handles = await client.scheduleMany(measure, times(24, BIG))
    await wire.work(manager, { tasks: [measure], concurrency: 100 })
    const lengths = await Promise.all(handles.map((handle) => handle.result({ timeout: '25s' })))
    expect(lengths).toEqual(times(24, SIZE))
    expect((await client.list({ limit: 1_000 })).tasks).toHaveLength(24)
  })

  test('large outputs are read and listed', async ({ wire }) => {
    const manager = await wire.manager()
    await wire.work(manager, { tasks: [grow], concurrency: 100 })
    const client = await wire.connect(manager)
    const handles = await client.scheduleMany(grow, times(24, undefined))
    const texts = await Promise.all(handles.map((handle) => handle.result({ timeout: '25s' })))
    expect(texts.every(({ length }) => length === SIZE)).toBe(true)
    const { tasks } = await client.list({ limit: 1_000 })
    expect(tasks.map(({ output }) => (output as string).length)).toEqual(times(24, SIZE))
  })

  test('agents schedule and gather large values, more than one request carries', async ({ wire }) => {
    const manager = await wire.manager()
    await wire.work(manager, { tasks: [measure, grow], agents: [sends, gathers], concurrency: 50 })
    const client = await wire.connect(manager)
    const sent = await client.start(sends, 24)
    expect(await sent.result({ timeout: '28s' })).toBe(24 * SIZE)
    const gathered = await client.start(gathers, 24)
    expect(await gathered.result({ timeout: '28s' })).toBe(25 * SIZE)
  })

  test('agents that are replayed at every step read their journal in pieces', async ({ wire }) => {
    const manager = await wire.manager()
    await wire.work(manager, {
      ...{ tasks: [measure, grow], agents: [gathers], concurrency: 50, residents: { count: 0 } },
    })
    const client = await wire.connect(manager)
    const gathered = await client.start(gathers, 24)
    expect(await gathered.result({ timeout: '28s' })).toBe(25 * SIZE)
  })
})
