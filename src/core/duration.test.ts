import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Duration } from './duration.ts'
import { durationMs, formatDuration } from './duration.ts'
import { CurfewError } from './errors.ts'

const DAY = 86_400_000

describe('durationMs', () => {
  test.each<[Duration, number]>([
    [1, 1],
    [250, 250],
    ['90s', 90_000],
    ['5m', 300_000],
    ['1h30m', 5_400_000],
    ['1d2h3m4s5ms', DAY + 2 * 3_600_000 + 3 * 60_000 + 4_005],
    ['1.5s', 1_500],
    [' 10s ', 10_000],
    [{ minutes: 5 }, 300_000],
    [{ days: 1, hours: 1, minutes: 1, seconds: 1, milliseconds: 1 }, DAY + 3_661_001],
    ['400d', 400 * DAY],
  ])('reads %j as %i ms', (duration, ms) => {
    expect(durationMs(duration, 'timeout')).toBe(ms)
  })

  test('a part of a millisecond is rounded up, so that no limit comes early', () => {
    expect(durationMs(0.1, 'timeout')).toBe(1)
    expect(durationMs('1.0001s', 'timeout')).toBe(1_001)
  })

  const rubbish: unknown[] = [
    0,
    -1,
    NaN,
    Infinity,
    -Infinity,
    400 * DAY + 1,
    '401d',
    '0s',
    '',
    '  ',
    'soon',
    '5',
    '5 m',
    '-5s',
    '5s!',
    's',
    '1e3s',
    '5y',
    null,
    undefined,
    true,
    10n,
    Symbol('5s'),
    [],
    {},
    { minutes: 0 },
    { minutes: -5 },
    { minutes: NaN },
    { minutes: '5' },
    { minute: 5 },
    { days: 10n },
  ]
  test.each(rubbish.map((value) => [value]))('refuses %o with an error that names the key', (value) => {
    const error = thrownBy(() => durationMs(value as Duration, 'task resize: timeout'))
    expect(error).toBeInstanceOf(CurfewError)
    expect(error).toMatchObject({ code: 'invalid_duration', fields: { key: 'task resize: timeout' } })
    expect(error.message).toMatch(/^task resize: timeout: /)
  })

  test('a value that refers to itself is refused like any other', () => {
    const loop: { days?: unknown } = {}
    loop.days = loop
    expect(thrownBy(() => durationMs(loop as Duration, 'grace'))).toMatchObject({ code: 'invalid_duration' })
  })

  test('the error says what was given and what is possible', () => {
    expect(() => durationMs('soon', 'grace')).toThrow(/'soon'.*'90s'.*\{ minutes: 5 \}/)
    expect(() => durationMs('401d', 'grace')).toThrow(/the longest is 400 days/)
    expect(() => durationMs(0, 'grace')).toThrow(/longer than zero/)
    expect(() => durationMs({ minute: 5 } as Duration, 'grace')).toThrow(/'minute' is not a unit/)
  })
})

describe('formatDuration', () => {
  test.each([
    [0, '0ms'],
    [999, '999ms'],
    [1_000, '1s'],
    [1_230, '1.23s'],
    [59_999, '1m'],
    [90_000, '1m30s'],
    [3_600_000, '1h'],
    [5_400_000, '1h30m'],
    [DAY + 1_000, '1d1s'],
    [-90_000, '-1m30s'],
  ])('%i ms are shown as %s', (ms, text) => {
    expect(formatDuration(ms)).toBe(text)
  })

  test('what it shows is read back as the same duration, up to the rounding', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 400 * DAY - 1_000 }), (ms) => {
        const back = durationMs(formatDuration(ms), 'shown')
        const step = ms < 1_000 ? 0 : ms < 60_000 ? 5 : 500
        expect(Math.abs(back - ms)).toBeLessThanOrEqual(step)
      }),
    )
  })

  test('whole seconds survive the round trip exactly', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: (400 * DAY) / 1_000 }), (seconds) => {
        expect(durationMs(formatDuration(seconds * 1_000), 'shown')).toBe(seconds * 1_000)
      }),
    )
  })
})

function thrownBy(call: () => unknown): Error {
  try {
    call()
  } catch (error) {
    return error as Error
  }
  throw new Error('nothing was thrown')
}
