/** When work may start: after a while, or at a time. */
import type { Duration } from '../core/duration.ts'
import { durationMs, isZero } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'

/** What a Date can hold, on either side of the epoch. */
export const LAST_TIME = 8.64e15

/** A delay counts from the commit; a time is on the store's clock. */
export type StartTime = { delayMs: number } | { at: number }

export function startTime(
  what: string,
  delay: Duration | undefined,
  startAt: Date | number | undefined,
): StartTime {
  if (delay !== undefined && startAt !== undefined) {
    throw new CurfewError('invalid_option', `${what}: delay and startAt exclude each other`)
  }
  if (startAt !== undefined) {
    const at = Number(startAt)
    if (!(Math.abs(at) <= LAST_TIME))
      throw new CurfewError('invalid_option', `${what}: startAt is not a time`)
    return { at: Math.ceil(at) }
  }
  return { delayMs: delay === undefined || isZero(delay) ? 0 : durationMs(delay, `${what}: delay`) }
}
