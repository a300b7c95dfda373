import fc from 'fast-check'
import { expect, test } from 'vitest'
import { backoffMs, DEFAULT_BACKOFF } from './backoff.ts'

test('without jitter it doubles until it reaches its cap', () => {
  const exact = { ...DEFAULT_BACKOFF, jitter: 0 }
  const delays = Array.from({ length: 9 }, (_, tries) => backoffMs(exact, tries, 0.5))
  expect(delays).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000])
})

test('full jitter spreads from nothing to the whole delay, half of it from the middle', () => {
  expect(backoffMs(DEFAULT_BACKOFF, 1, 0)).toBe(0)
  expect(backoffMs(DEFAULT_BACKOFF, 1, 0.5)).toBe(1_000)
  expect(backoffMs({ ...DEFAULT_BACKOFF, jitter: 0.5 }, 1, 0)).toBe(1_000)
  expect(backoffMs({ ...DEFAULT_BACKOFF, jitter: 0.5 }, 1, 0.5)).toBe(1_500)
})

const backoffs = fc.record({
  initialMs: fc.integer({ min: 0, max: 400 * 86_400_000 }),
  factor: fc.double({ min: 1, max: 100, noNaN: true }),
  maxMs: fc.integer({ min: 0, max: 400 * 86_400_000 }),
  jitter: fc.double({ min: 0, max: 1, noNaN: true }),
})
const tries = fc.integer({ min: 0, max: 100_000 })
const chance = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })

test('whatever the rules, the delay is a whole number between zero and the cap', () => {
  fc.assert(
    fc.property(backoffs, tries, chance, (backoff, count, drawn) => {
      const delay = backoffMs(backoff, count, drawn)
      expect(Number.isInteger(delay)).toBe(true)
      expect(delay).toBeGreaterThanOrEqual(0)
      expect(delay).toBeLessThanOrEqual(backoff.maxMs)
    }),
    { examples: [[{ initialMs: 0, factor: 100, maxMs: 60_000, jitter: 1 }, 999, 0.5]] },
  )
})

test('with the same chance it never shrinks from one try to the next', () => {
  fc.assert(
    fc.property(backoffs, fc.integer({ min: 0, max: 1_200 }), chance, (backoff, count, drawn) => {
      expect(backoffMs(backoff, count + 1, drawn)).toBeGreaterThanOrEqual(backoffMs(backoff, count, drawn))
    }),
  )
})

test('a larger chance never makes it shorter', () => {
  fc.assert(
    fc.property(backoffs, tries, chance, chance, (backoff, count, one, two) => {
      const [low, high] = [Math.min(one, two), Math.max(one, two)]
      expect(backoffMs(backoff, count, high)).toBeGreaterThanOrEqual(backoffMs(backoff, count, low))
    }),
  )
})
