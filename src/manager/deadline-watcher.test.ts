import { afterEach, beforeEach, expect, test } from 'vitest'
import { VirtualClock } from '../testing/virtual-clock.ts'
import { DeadlineWatcher } from './deadline-watcher.ts'

let clock: VirtualClock & { stoodStillAt: number }
/** What is due, as the store has it. */
let due: number[]
/** When something was fired, counted from the start. */
let firedAt: number[]
let watcher: DeadlineWatcher

beforeEach(() => {
  clock = Object.assign(new VirtualClock(0), { stoodStillAt: -Infinity })
  due = []
  firedAt = []
  const now = () => clock.wall()
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
  await clock.advance(900)
  clock.stoodStillAt = 900
  await clock.advance(200)
  expect(firedAt).toEqual([])
  // A report that was waiting: nothing is due at 1 s any more.
  due = [1_100, 1_500]
  await clock.advance(49)
  expect(firedAt).toEqual([])
  await clock.advance(1)
  expect(firedAt).toEqual([1_150])
  await clock.advance(60_000)
  expect([firedAt, due]).toEqual([[1_150, 1_500], []])
})

test('J4: what was reported while it heard is not fired', async () => {
  dueAt(1_000)
  clock.stoodStillAt = 1_000
  await clock.advance(1_100)
  due = []
  await clock.advance(60_000)
  expect(firedAt).toEqual([])
})

test('J4: what it is told of then waits as well, however long it has been due', async () => {
  await clock.advance(10_000)
  clock.stoodStillAt = 10_000
  dueAt(5_000)
  await clock.advance(249)
  expect(firedAt).toEqual([])
  await clock.advance(1)
  expect(firedAt).toEqual([10_250])
})

test('one that stands still again and again fires all the same', async () => {
  Object.defineProperty(clock, 'stoodStillAt', { get: () => clock.monotonic() })
  dueAt(1_000, 3_000)
  await clock.advance(60_000)
  expect([firedAt, due]).toEqual([[1_250, 3_250], []])
})

test('what has long been due when it is told of it is fired at once', async () => {
  await clock.advance(10_000)
  dueAt(5_000)
  await clock.settle()
  expect(firedAt).toEqual([10_000])
})

test('one that is closed while it hears fires nothing', async () => {
  dueAt(1_000)
  clock.stoodStillAt = 1_000
  await clock.advance(1_000)
  watcher.close()
  await clock.advance(60_000)
  expect(firedAt).toEqual([])
})
