/** Progress as handlers write it, checked and made one shape. */
import { CurfewError } from '../core/errors.ts'
import type { Progress } from '../core/states.ts'

/** A fraction, or items done out of a total. More done than the total is allowed: totals are estimates. */
export function toProgress(value: number | Progress): Progress {
  if (typeof value === 'number') return { fraction: checkFraction(value) }
  if (typeof value !== 'object' || value === null) {
    throw invalid(value, 'expected a fraction, or { completed, total }')
  }
  const { fraction, completed, total } = value
  if (fraction === undefined && completed === undefined) {
    throw invalid(value, 'it has neither a fraction nor a completed count')
  }
  const progress: Progress = {}
  if (fraction !== undefined) progress.fraction = checkFraction(fraction)
  if (completed !== undefined) progress.completed = checkCount('completed', completed)
  if (total !== undefined) progress.total = checkCount('total', total)
  return progress
}

function checkFraction(fraction: number): number {
  if (!(typeof fraction === 'number' && fraction >= 0 && fraction <= 1)) {
    throw invalid(fraction, 'a fraction is a number from 0 to 1')
  }
  return fraction
}

function checkCount(key: string, count: number): number {
  if (!(typeof count === 'number' && count >= 0 && Number.isFinite(count))) {
    throw invalid(count, `${key} is a number that is not negative`)
  }
  return count
}

function invalid(got: unknown, expected: string): CurfewError {
  const shown = typeof got === 'object' ? JSON.stringify(got) : String(got)
  return new CurfewError('invalid_progress', `progress ${shown} is not valid: ${expected}`, {
    fields: { got: shown },
  })
}
