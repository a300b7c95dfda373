import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Randomness } from './clock.ts'
import { IdSource } from './id.ts'
import { SystemRandomness } from './system-clock.ts'

/** Always these bytes. */
function fixed(byte: number): Randomness {
  return { next: () => 0, bytes: (count) => new Uint8Array(count).fill(byte) }
}

describe('ids', () => {
  test('say what they are and keep to one alphabet', () => {
    const ids = new IdSource(new SystemRandomness())
    for (const prefix of ['t', 'n', 'a'] as const) {
      expect(ids.next(prefix, Date.UTC(2026, 0, 1))).toMatch(
        new RegExp(`^${prefix}_[0123456789abcdefghjkmnpqrstvwxyz]{26}$`),
      )
    }
  })

  test('of one source rise whatever the clock does, and are never the same', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: -5, max: 5 }), { minLength: 2, maxLength: 200 }), (steps) => {
        const source = new IdSource(new SystemRandomness())
        let now = Date.UTC(2026, 0, 1)
        const ids = steps.map((step) => {
          now += step
          return source.next('t', now)
        })
        for (const [i, id] of ids.entries()) if (i > 0) expect(id > (ids[i - 1] as string)).toBe(true)
      }),
    )
  })

  test('rise within a millisecond, also by a clock that tells parts of one', () => {
    const source = new IdSource(new SystemRandomness())
    const ids = Array.from({ length: 1_000 }, (_, i) => source.next('t', 1_000 + i / 1_000))
    expect(ids.toSorted()).toEqual(ids)
    expect(new Set(ids).size).toBe(ids.length)
  })

  test('count upwards over the end of a digit', () => {
    const source = new IdSource(fixed(255))
    const first = source.next('t', 5)
    const second = source.next('t', 5)
    expect(first).toBe('t_0000000005fzzzzzzzzzzzzzzz')
    expect(second).toBe('t_0000000005g000000000000000')
  })

  test('of two sources are ordered by time as text', () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 0, max: 2 ** 47 }),
        fc.integer({ min: 1, max: 2 ** 47 }),
        (earlier, gap) => {
          const one = new IdSource(fixed(255)).next('t', earlier)
          const two = new IdSource(fixed(0)).next('t', earlier + gap)
          expect(one < two).toBe(true)
        },
      ),
    )
  })

  test('of many sources in the same millisecond differ', () => {
    const ids = Array.from({ length: 10_000 }, () => new IdSource(new SystemRandomness()).next('t', 1))
    expect(new Set(ids).size).toBe(ids.length)
  })
})
