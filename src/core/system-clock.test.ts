import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { hearingMs, sleep } from './clock.ts'
import { SystemClock, SystemRandomness } from './system-clock.ts'

const LONGEST_MS = 30_000
const DAY = 86_400_000

describe('timers', () => {
  let awakeMs: number
  /** What was asked of setTimeout and has not come yet. */
  let armed: { callback: () => void; ms: number }[]

  beforeEach(() => {
    awakeMs = 1_000
    armed = []
    vi.spyOn(process.hrtime, 'bigint').mockImplementation(() => BigInt(Math.round(awakeMs * 1e6)))
    vi.stubGlobal('setTimeout', (callback: () => void, ms: number) => armed.push({ callback, ms }))
    vi.stubGlobal('clearTimeout', (handle: number) => delete armed[handle - 1])
  })
  afterEach(() => {
    vi.restoreAllMocks()
    vi.unstubAllGlobals()
  })

  /** The machine's timer comes up after so much time, which may be less than it was asked for. */
  function comesUpAfter(ms: number): void {
    awakeMs += ms
    armed.pop()?.callback()
  }

  test('above 2^31-1 ms are chained: no part is longer than setTimeout can count', () => {
    const clock = new SystemClock(() => null)
    let calls = 0
    clock.setTimer(25 * DAY + 1, () => calls++)
    let waitedMs = 0
    while (armed.length > 0) {
      const ms = armed[0]?.ms as number
      if (calls > 0 || ms > LONGEST_MS) break
      waitedMs += ms
      comesUpAfter(ms)
    }
    expect(waitedMs).toBe(25 * DAY + 1)
    expect(calls).toBe(1)
  })

  test('never call back early, even when the machine does', () => {
    const clock = new SystemClock(() => null)
    let calledAt = 0
    clock.setTimer(10, () => {
      calledAt = awakeMs
    })
    comesUpAfter(9.2)
    expect(calledAt).toBe(0)
    expect(armed[0]?.ms).toBe(1)
    comesUpAfter(0.7)
    expect(calledAt).toBe(0)
    comesUpAfter(0.2)
    expect(calledAt).toBeGreaterThanOrEqual(1_010)
    expect(armed).toEqual([])
  })

  test('that come a second too late tell that this process stood still, and it hears for a moment', () => {
    const clock = new SystemClock(() => null)
    const before = clock.stoodStillAt
    clock.setTimer(10, () => {})
    comesUpAfter(1_009)
    expect(clock.stoodStillAt).toBe(before)
    clock.setTimer(10, () => {})
    comesUpAfter(1_010)
    const other = new SystemClock(() => null)
    expect([clock.stoodStillAt, other.stoodStillAt]).toEqual([awakeMs, awakeMs])
    expect(hearingMs(other)).toBe(250)
    awakeMs += 249
    expect(hearingMs(other)).toBe(1)
    awakeMs += 1
    expect(hearingMs(other)).toBe(0)
  })

  test('of a clock that knows of more sleep than another make that one hear no longer', () => {
    let asleepMs = 0
    const uptime = () => awakeMs + asleepMs
    const clock = new SystemClock(uptime)
    clock.setTimer(2_000, () => {})
    awakeMs += 1_900
    const looked = new SystemClock(uptime)
    looked.monotonic()
    asleepMs = DAY
    comesUpAfter(100)
    const younger = new SystemClock(uptime)
    expect([clock, looked, younger].map(hearingMs)).toEqual([250, 250, 250])
    awakeMs += 1_000
    expect([clock, looked, younger].map(hearingMs)).toEqual([0, 0, 0])
  })

  test('for a moment that has passed are not late', () => {
    const clock = new SystemClock(() => null)
    const before = clock.stoodStillAt
    let calls = 0
    clock.setTimer(-5_000, () => calls++)
    comesUpAfter(1)
    expect([calls, clock.stoodStillAt]).toEqual([1, before])
  })

  test('a cancelled one never calls back, in no part of its chain', () => {
    const clock = new SystemClock(() => null)
    const timer = clock.setTimer(60 * DAY, () => expect.unreachable())
    comesUpAfter(LONGEST_MS)
    timer.cancel()
    expect(armed.filter(Boolean)).toEqual([])
  })

  test('that were over while the machine slept call back soon after it woke, not a whole wait later', () => {
    let asleepMs = 0
    const clock = new SystemClock(() => awakeMs + asleepMs)
    clock.monotonic()
    let calls = 0
    clock.setTimer(DAY, () => calls++)
    asleepMs = DAY
    comesUpAfter(armed[0]?.ms as number)
    expect(calls).toBe(1)
    expect(awakeMs - 1_000).toBeLessThanOrEqual(LONGEST_MS)
  })
})

describe('monotonic time', () => {
  let awakeMs: number
  let uptimeMs: number | null
  beforeEach(() => {
    awakeMs = 5_000
    uptimeMs = 100_000
    vi.spyOn(process.hrtime, 'bigint').mockImplementation(() => BigInt(Math.round(awakeMs * 1e6)))
  })
  afterEach(() => {
    vi.restoreAllMocks()
  })

  function pass(awake: number, asleep = 0): void {
    awakeMs += awake
    if (uptimeMs !== null) uptimeMs += awake + asleep
  }

  test('counts the time the machine slept', () => {
    const clock = new SystemClock(() => uptimeMs)
    const start = clock.monotonic()
    pass(2_000)
    expect(clock.monotonic() - start).toBe(2_000)
    pass(1_000, 3_600_000)
    expect(clock.monotonic() - start).toBe(3_603_000)
    pass(1_000)
    expect(clock.monotonic() - start).toBe(3_604_000)
    pass(1_000, 7_000)
    expect(clock.monotonic() - start).toBe(3_612_000)
  })

  test('does not take the coarse steps of the uptime for sleep', () => {
    const clock = new SystemClock(() => (uptimeMs as number) + (awakeMs % 3_000 === 0 ? 990 : 0))
    const start = clock.monotonic()
    for (let i = 1; i <= 10; i++) {
      pass(1_000)
      expect(clock.monotonic() - start).toBe(i * 1_000)
    }
  })

  test('never goes back, also when the uptime does', () => {
    const clock = new SystemClock(() => uptimeMs)
    let last = clock.monotonic()
    for (const asleep of [5_000, -5_000, 0, 20_000, -100_000]) {
      pass(1_500, asleep)
      const now = clock.monotonic()
      expect(now - last).toBeGreaterThanOrEqual(1_500)
      last = now
    }
  })

  test('goes by the machine alone where there is no uptime', () => {
    uptimeMs = null
    const clock = new SystemClock(() => uptimeMs)
    const start = clock.monotonic()
    pass(10_000)
    expect(clock.monotonic() - start).toBe(10_000)
  })

  test('does not look at the uptime more than once a second', () => {
    let looks = 0
    const clock = new SystemClock(() => {
      looks++
      return uptimeMs
    })
    for (let i = 0; i < 100; i++) {
      pass(100)
      clock.monotonic()
    }
    expect(looks).toBe(10)
  })
})

describe('sleep', () => {
  test('ends with its signal, and takes its timer along', async () => {
    const cancelled: number[] = []
    const clock = {
      ...{ wall: () => 0, monotonic: () => 0, endOfTurn: () => undefined },
      setTimer: (delayMs: number) => ({ cancel: () => void cancelled.push(delayMs) }),
    }
    const abort = new AbortController()
    const slept = sleep(clock, 50, abort.signal)
    expect(cancelled).toEqual([])
    abort.abort()
    await slept
    expect(cancelled).toEqual([50])
    await sleep(clock, 60, abort.signal)
    expect(cancelled).toEqual([50])
  })

  test('takes at least as long as asked for on the real clock', async () => {
    const clock = new SystemClock()
    for (const ms of [1, 3, 7, 12]) {
      const start = clock.monotonic()
      await sleep(clock, ms)
      expect(clock.monotonic() - start).toBeGreaterThanOrEqual(ms)
    }
  })
})

test('chance lies in [0, 1), and bytes are as many as asked for and not all the same', () => {
  const randomness = new SystemRandomness()
  for (let i = 0; i < 1_000; i++) {
    const drawn = randomness.next()
    expect(drawn >= 0 && drawn < 1).toBe(true)
  }
  const bytes = randomness.bytes(256)
  expect(bytes).toHaveLength(256)
  expect(new Set(bytes).size).toBeGreaterThan(50)
})
