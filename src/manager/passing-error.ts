/** Errors of this manager, not of what was reported: a worker elsewhere keeps its report, and sends it again. */
import { CurfewError } from '../core/errors.ts'
import type { Answered } from '../engine/funnel.ts'

const PASSING = ['closed', 'store_failed', 'store_unavailable', 'store_full', 'not_leading', 'commit_unknown']

export function throwPassing(answers: readonly Answered<unknown>[]): void {
  for (const answered of answers) {
    if (!('error' in answered)) continue
    const { error } = answered
    if (error instanceof CurfewError && PASSING.includes(error.code))
      throw new CurfewError('closed', error.message, { cause: error })
  }
}
