// What the items of a map-reduce came to, counted.
import { expect, test } from 'vitest'
import type { ItemOutput } from '../mapreduce/item-work.ts'
import { lastOfEach, statsOf } from './timeouts-stats.ts'

type Item = Parameters<typeof statsOf>[0][number]

function item(output: Partial<ItemOutput> | null, over: Partial<Item> = {}): Item {
  const whole = { id: 'item-1', status: 'successful', ms: 1_000, attempts: 1, timeouts: [], stop: null }
  return {
    attempts: 1,
    status: 'completed',
    endedAt: 1,
    ...over,
    output: output && { ...whole, ...output },
  } as Item
}

const byAgent = { type: 'agent', commandType: 'shell' }

test('G1: one of four items timed out', () => {
  const items = [item({}), item({}), item({ ms: 3_000 }), item({ status: 'timed_out', timeouts: [byAgent] })]
  expect(statsOf(items)).toMatchObject({
    ...{ agents_started: 4, agents_completed: 3, timeouts_occurred: 1, timeout_rate_percent: 25 },
    ...{ average_execution_time_secs: 1.5, by_type: { agent: 1 }, by_command_type: { shell: 1 } },
  })
})

test('G1: an attempt that was tried again counts, as does one that the store had to stop', () => {
  const retried = item({ attempts: 2, timeouts: [{ type: 'command', commandType: 'claude' }] })
  const details = { limit: { type: 'idle', commandType: 'shell' }, attempt: 1, notedAt: 1, firedAt: 2 }
  const stats = statsOf([retried, item(null, { status: 'timed_out', details })])
  expect(stats).toMatchObject({ agents_started: 3, timeouts_occurred: 2 })
  expect([stats.by_type, stats.by_command_type]).toEqual([
    { command: 1, idle: 1 },
    { claude: 1, shell: 1 },
  ])
})

test('G3: the average is of the last 100 items, the trend of the last 1,000', () => {
  const old = Array.from({ length: 2_000 }, () => item({ ms: 9_000, timeouts: [byAgent] }))
  const recent = Array.from({ length: 1_000 }, () => item({ ms: 1_000 }, { endedAt: 2 }))
  const stats = statsOf([...recent, ...old])
  expect([stats.average_execution_time_secs, stats.trend.agents, stats.trend.timeouts]).toEqual([1, 1_000, 0])
})

test('G4: without items there is nothing to divide by', () => {
  expect(statsOf([])).toMatchObject({
    ...{ agents_started: 0, timeout_rate_percent: 0, average_execution_time_secs: 0 },
    trend: { timeout_rate_percent: 0 },
  })
})

test('G1: an item that was worked on once more is counted once', () => {
  const first = item({ id: 'item-1', status: 'timed_out', timeouts: [byAgent] })
  const again = item({ id: 'item-1', attempts: 2, timeouts: [byAgent] })
  const stats = statsOf(lastOfEach([first, item({ id: 'item-2' }), again]))
  expect([stats.agents_started, stats.timeouts_occurred]).toEqual([3, 1])
})
