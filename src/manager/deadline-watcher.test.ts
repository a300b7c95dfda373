import { afterEach, beforeEach, expect, test } from 'vitest'
import { VirtualClock } from '../testing/virtual-clock.ts'
import { DeadlineWatcher } from './deadline-watcher.ts'

let clock: VirtualClock
/** How long this process stood still: its timers come so much later than they should. */
let stoodMs: number
/** What is due, as the store has it. */
let due: number[]
/** When something was fired, counted from the start. */
let firedAt: number[]
let watcher: DeadlineWatcher

beforeEach(() => {
  clock = new VirtualClock(0)
  stoodMs = 0
  due = []
  firedAt = []
  const now = () => clock.wall() + stoodMs
  watcher = new DeadlineWatcher({
    ...{ clock, now, nextDue: async () => due[0] ?? null },
    fire: async () => {
      const left = due.filter((at) => at > now())
      if (left.length < due.length) firedAt.push(clock.wall())
      due = left
      return { more: false, busy: false }
    },
    failed: (error) => expect.fail(String(error)),
  })
})
afterEach(() => watcher.close())

function dueAt(...times: number[]): void {
  due = times
  for (const time of times) watcher.hint(time)
}

test('what is due is fired then, and what comes after it in its turn', async () => {
  dueAt(1_000, 3_000)
  await clock.advance(999)
  expect(firedAt).toEqual([])
  await clock.advance(5_000)
  expect(firedAt).toEqual([1_000, 3_000])
})

test('J4: after it stood still it hears what happened meanwhile before it fires anything', async () => {
  dueAt(1_000, 1_500)
  stoodMs = 4_000
  await clock.advance(1_000)
  expect(firedAt).toEqual([])
  // A report that was waiting: nothing is due at 1 s any more.
  due = [1_500]
  await clock.advance(249)
  expect(firedAt).toEqual([])
  await clock.advance(1)
  expect(firedAt).toEqual([1_250])
  await clock.advance(60_000)
  expect([firedAt, due]).toEqual([[1_250], []])
})

test('J4: what was reported while it heard is not fired', async () => {
  dueAt(1_000)
  stoodMs = 4_000
  await clock.advance(1_000)
  due = []
  await clock.advance(60_000)
  expect(firedAt).toEqual([])
})

test('J4: a timer that is only a little late, and what is due when it is told, are fired at once', async () => {
  dueAt(1_000)
  stoodMs = 900
  await clock.advance(1_000)
  expect(firedAt).toEqual([1_000])
  dueAt(clock.wall() + stoodMs - 5_000)
  await clock.settle()
  expect(firedAt).toEqual([1_000, 1_000])
})

test('one that is closed while it hears fires nothing', async () => {
  dueAt(1_000)
  stoodMs = 4_000
  await clock.advance(1_000)
  watcher.close()
  await clock.advance(60_000)
  expect(firedAt).toEqual([])
})
