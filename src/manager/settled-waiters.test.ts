import { expect, test } from 'vitest'
import { VirtualClock } from '../testing/virtual-clock.ts'
import { SettledWaiters } from './settled-waiters.ts'

test('however many wait, what another process has ended is told within a second', async () => {
  const clock = new VirtualClock()
  const asked: number[] = []
  const ended = new Set<string>()
  const ask = async (ids: string[]) => {
    asked.push(ids.length)
    return ids.filter((id) => ended.has(id))
  }
  const waiters = new SettledWaiters(clock, ask, { firstMs: 20, longestMs: 1_000 })
  const told: string[] = []
  for (let i = 0; i < 20_000; i++) {
    waiters.add(`t_${i}`, () => told.push(`t_${i}`))
    if (i % 2 === 1) ended.add(`t_${i}`)
  }
  await clock.advance(1_000)
  expect(told).toHaveLength(10_000)
  // Each statement is small.
  expect(Math.max(...asked)).toBe(500)
  for (let i = 0; i < 20_000; i++) ended.add(`t_${i}`)
  await clock.advance(1_000)
  expect(new Set(told).size).toBe(20_000)
  asked.length = 0
  await clock.advance(10_000)
  expect(asked).toEqual([])
})
