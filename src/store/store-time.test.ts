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
    time.update(1_000_150, { sentAt: 600, arrivedAt: 600 })
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
    time.update(10_050, { sentAt: 100, arrivedAt: 100 })
    expect(time.now()).toBe(10_100)
    at.monotonic = 149
    expect(time.now()).toBe(10_100)
    at.monotonic = 151
    expect(time.now()).toBe(10_101)
  })

  test('is not held up by a reading that took long to come', () => {
    const { clock, at } = handClock()
    const time = new StoreTime(clock, 10_000)
    at.monotonic = 3_000
    // It was read at 11,000.
    time.update(11_000, { sentAt: 900, arrivedAt: 3_000 })
    expect(time.now()).toBe(12_997)
    at.monotonic = 3_500
    expect(time.now()).toBe(13_497)
  })

  test('follows a store whose clock stood still, which a quick answer proves', () => {
    const { clock, at } = handClock()
    const time = new StoreTime(clock, 10_000)
    at.monotonic = 60_000
    time.update(20_000, { sentAt: 59_999, arrivedAt: 60_000 })
    expect(time.now()).toBe(20_000)
  })

  test('never goes back, and is never ahead of the store, however long answers take', () => {
    const step = fc.record({
      ...{ passMs: fc.nat(5_000), askMs: fc.nat(1_000), answerMs: fc.nat(2_000), read: fc.boolean() },
    })
    const drift = fc.double({ min: -0.000_5, max: 0.000_5, noNaN: true })
    fc.assert(
      fc.property(fc.nat(10 ** 9), drift, fc.array(step), (offset, apart, steps) => {
        const { clock, at } = handClock()
        // The store's clock runs beside ours, a little faster or slower; a reading is as old as its answer took.
        const store = () => at.monotonic * (1 + apart) + offset
        const time = new StoreTime(clock, store())
        let last = time.now()
        let readAt = 0
        for (const { passMs, askMs, answerMs, read } of steps) {
          at.monotonic += passMs
          if (read) {
            const sentAt = at.monotonic
            at.monotonic += askMs
            const reading = store()
            at.monotonic += answerMs
            time.update(reading, { sentAt, arrivedAt: at.monotonic })
            readAt = at.monotonic
          }
          const now = time.now()
          const sinceMs = at.monotonic - readAt
          expect(now).toBeLessThanOrEqual(store() + sinceMs * Math.max(0, -apart) + 0.001)
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
    time.update(99, { sentAt: 0, arrivedAt: 0 })
    expect(time.now()).toBe(3_605_000)
  })
})
