import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Clock } from '../core/clock.ts'
import { VirtualClock } from '../testing/virtual-clock.ts'
import { StoreTime } from './store-time.ts'

/** A clock that is moved by hand. */
function handClock() {
  const at = { monotonic: 0, wall: 0 }
  const clock: Clock = {
    wall: () => at.wall,
    monotonic: () => at.monotonic,
    setTimer: () => ({ cancel: () => undefined }),
    endOfTurn: () => undefined,
  }
  return { clock, at }
}

describe('the time of the store', () => {
  test('is the last reading and what has passed since its answer came, in whole milliseconds', () => {
    const { clock, at } = handClock()
    at.monotonic = 500
    const time = new StoreTime(clock, 1_000_000)
    expect(time.now()).toBe(1_000_000)
    at.monotonic = 600.9
    expect(time.now()).toBe(1_000_100)
    time.update(1_000_150, 600)
    at.monotonic = 650
    expect(time.now()).toBe(1_000_200)
  })

  test("does not follow this machine's wall clock", () => {
    const { clock, at } = handClock()
    const time = new StoreTime(clock, 1_000)
    at.wall = 10 ** 12
    expect(time.now()).toBe(1_000)
  })

  test('stands still rather than go back when a reading is lower, until it is reached again', () => {
    const { clock, at } = handClock()
    const time = new StoreTime(clock, 10_000)
    at.monotonic = 100
    expect(time.now()).toBe(10_100)
    time.update(10_050, 100)
    expect(time.now()).toBe(10_100)
    at.monotonic = 149
    expect(time.now()).toBe(10_100)
    at.monotonic = 151
    expect(time.now()).toBe(10_101)
  })

  test('never goes back, and is never ahead of the store, however long answers take', () => {
    const step = fc.record({ passMs: fc.nat(5_000), answerMs: fc.nat(2_000), read: fc.boolean() })
    fc.assert(
      fc.property(fc.nat(10 ** 9), fc.array(step), (offset, steps) => {
        const { clock, at } = handClock()
        // The store's clock runs beside ours; a reading is as old as its answer took.
        const store = () => at.monotonic + offset
        const time = new StoreTime(clock, store())
        let last = time.now()
        for (const { passMs, answerMs, read } of steps) {
          at.monotonic += passMs
          if (read) {
            const reading = store()
            at.monotonic += answerMs
            time.update(reading, at.monotonic)
          }
          const now = time.now()
          expect(now).toBeLessThanOrEqual(store())
          expect(now).toBeGreaterThanOrEqual(last)
          last = now
        }
      }),
    )
  })

  test('under a virtual clock it is that clock', async () => {
    const clock = new VirtualClock(5_000)
    const time = new StoreTime(clock, 77)
    expect(time.now()).toBe(5_000)
    await clock.advance('1h')
    time.update(99, 0)
    expect(time.now()).toBe(3_605_000)
  })
})
