/** PostgreSQL's errors by what to do about them. */
import { CurfewError } from '../../core/errors.ts'
import { StoreError } from '../store-error.ts'

const CONFLICTS = ['40001', '40P01', '55P03']
const FULL = ['53100', '53200', '53400']
/** Shutting down, starting up, too many connections, connection failures, a transaction that stood still too long. */
const UNAVAILABLE = /^(08|57P|53300|25006|25P0[34])/
const NETWORK = [
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'ENOTFOUND',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EAI_AGAIN',
]
/** What pg says without a code when a connection ends or does not come. */
const LOST =
  /connection terminated|timeout (exceeded )?when|query read timeout|connection error|client has encountered/i
const IO = ['58030', 'XX001', 'XX002']

/** Thrown by code, not by a database. */
const BUGS = [SyntaxError, TypeError, ReferenceError, RangeError]

/** While it works; one that is only being opened is ended by it. */
const GOES_ON = 'Work goes on by itself when it is back.'
const NOT_OPENED = 'Check that it runs, and the host and port in the address of the store.'

/** Of a store that could not be opened. */
export function postgresOpenError(error: unknown): Error {
  const { cause = error } = error instanceof StoreError && error.code === 'store_unavailable' ? error : {}
  return postgresError(cause, NOT_OPENED)
}

export function postgresError(error: unknown, hint = GOES_ON): Error {
  // Of ours already, or thrown by the work itself: a caller's mistake is not the database's.
  if (error instanceof CurfewError) return error
  if (BUGS.some((type) => error instanceof type)) return error as Error
  const { code, message } = error as { code?: string; message: string }
  if (code !== undefined && CONFLICTS.includes(code))
    return new StoreError('store_conflict', message, { cause: error })
  if (code !== undefined && FULL.includes(code)) {
    return new StoreError('store_full', `PostgreSQL has no space left: ${message}`, { cause: error })
  }
  if (code !== undefined && IO.includes(code))
    return new StoreError('store_failed', message, { cause: error })
  const lost = code !== undefined ? NETWORK.includes(code) || UNAVAILABLE.test(code) : LOST.test(message)
  if (lost) {
    return new StoreError('store_unavailable', `PostgreSQL cannot be reached: ${message}`, {
      hint,
      cause: error,
    })
  }
  return new StoreError('store_refused', `PostgreSQL refused: ${message}`, { cause: error })
}
