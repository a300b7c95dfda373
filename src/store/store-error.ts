/** What can go wrong between the engine and its store, told apart by what to do about it. */
import type { CurfewErrorOptions } from '../core/errors.ts'
import { CurfewError } from '../core/errors.ts'

/**
 * - `store_missing`: there is none; only a reader minds, everybody else makes one.
 * - `store_unavailable`: not reached, nothing was written; trying again is right.
 * - `store_full`: rolled back for want of space; trying again is right once there is some.
 * - `store_conflict`: lost a race with another transaction; trying again is right.
 * - `store_refused`: the database would not take a statement; trying the same again is no use.
 * - `store_failed`: an I/O error; nothing may be acknowledged any more.
 * - `commit_unknown`: the answer to the commit was lost and could not be looked up.
 * - `not_leading`: this process may not decide any more: its lease was given away.
 */
export type StoreErrorCode =
  | 'store_missing'
  | 'store_unavailable'
  | 'store_full'
  | 'store_conflict'
  | 'store_refused'
  | 'store_failed'
  | 'commit_unknown'
  | 'not_leading'

export class StoreError extends CurfewError {
  declare readonly code: StoreErrorCode

  constructor(code: StoreErrorCode, message: string, options: CurfewErrorOptions = {}) {
    super(code, message, options)
  }
}
