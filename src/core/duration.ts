/** Durations as people write them: `'90s'`, `'1h30m'`, `{ minutes: 5 }`, or milliseconds. */
import { inspect } from 'node:util'
import { CurfewError } from './errors.ts'

export type Duration =
  | number
  | string
  | { days?: number; hours?: number; minutes?: number; seconds?: number; milliseconds?: number }

const UNITS_MS = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000, ms: 1 } as const
const PART = /(\d+(?:\.\d+)?)(ms|d|h|m|s)/y
const OBJECT_UNITS_MS = {
  days: UNITS_MS.d,
  hours: UNITS_MS.h,
  minutes: UNITS_MS.m,
  seconds: UNITS_MS.s,
  milliseconds: UNITS_MS.ms,
} as const

/** Longer than any work anybody waits for; a larger number is a unit that went wrong. */
export const LONGEST_DURATION_MS = 400 * UNITS_MS.d

/** Milliseconds, rounded up to whole ones so that no limit comes early. Throws an error that names `key`. */
export function durationMs(duration: Duration, key: string): number {
  const ms = Math.ceil(parse(duration, key))
  if (!(ms > 0)) throw invalid(key, duration, 'it must be longer than zero')
  if (ms > LONGEST_DURATION_MS) throw invalid(key, duration, 'the longest is 400 days')
  return ms
}

function parse(duration: Duration, key: string): number {
  if (typeof duration === 'number') {
    if (Number.isNaN(duration)) throw invalid(key, duration, 'it is not a number')
    return duration
  }
  if (typeof duration === 'string') return parseText(duration.trim(), key)
  if (typeof duration !== 'object' || duration === null) throw invalid(key, duration, EXPECTED)
  let total = 0
  for (const [unit, value] of Object.entries(duration)) {
    const unitMs = OBJECT_UNITS_MS[unit as keyof typeof OBJECT_UNITS_MS]
    if (unitMs === undefined) throw invalid(key, duration, `'${unit}' is not a unit; ${EXPECTED}`)
    if (typeof value !== 'number' || Number.isNaN(value)) {
      throw invalid(key, duration, `${unit} is not a number`)
    }
    total += value * unitMs
  }
  return total
}

const EXPECTED = "expected '90s', '5m', '1h30m', { minutes: 5 } or milliseconds"

function parseText(text: string, key: string): number {
  if (/^\d+(\.\d+)?$/.test(text))
    throw invalid(key, text, `its unit is missing, as in '${text}s' or '${text}m'`)
  let total = 0
  PART.lastIndex = 0
  while (PART.lastIndex < text.length) {
    const part = PART.exec(text)
    if (!part) throw invalid(key, text, EXPECTED)
    total += Number(part[1]) * UNITS_MS[part[2] as keyof typeof UNITS_MS]
  }
  if (text === '') throw invalid(key, text, EXPECTED)
  return total
}

function invalid(key: string, got: unknown, expected: string): CurfewError {
  const shown = (typeof got === 'object' ? inspect(got, { depth: 1 }) : String(got)).slice(0, 200)
  return new CurfewError('invalid_duration', `${key}: '${shown}' is not a valid duration: ${expected}`, {
    fields: { key, got: shown },
  })
}

/** `0`, `'0s'`: allowed where nothing may be meant. */
export function isZero(duration: Duration): boolean {
  return duration === 0 || (typeof duration === 'string' && /^0(ms|s|m|h|d)$/.test(duration.trim()))
}

/** `90000` → `1m30s`; used wherever a person reads a duration. */
export function formatDuration(ms: number): string {
  if (ms < 0) return `-${formatDuration(-ms)}`
  if (ms < 1_000) return `${Math.round(ms)}ms`
  let rest = ms < 60_000 ? Math.round(ms / 10) * 10 : Math.round(ms / 1_000) * 1_000
  let text = ''
  for (const [unit, unitMs] of [
    ['d', UNITS_MS.d],
    ['h', UNITS_MS.h],
    ['m', UNITS_MS.m],
  ] as const) {
    if (rest >= unitMs) {
      text += `${Math.floor(rest / unitMs)}${unit}`
      rest %= unitMs
    }
  }
  return rest > 0 || text === '' ? `${text}${Number((rest / 1_000).toFixed(2))}s` : text
}
