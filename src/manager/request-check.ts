/** Fields of requests from the wire that several methods have. */
import { CurfewError } from '../core/errors.ts'
import { MAX_PAGE } from '../core/limits.ts'
import { checkName } from '../definitions/task-policy.ts'

const DEFAULT_PAGE = 100

/** Of a list: one of these words, or nothing. */
export function oneOf<const T extends string>(
  what: string,
  value: string | undefined,
  words: readonly T[],
): T | null {
  if (value === undefined) return null
  if (words.includes(value as T)) return value as T
  throw invalid(`${what}: '${value.slice(0, 50)}' is none of ${words.join(', ')}`)
}

export function nameOf(what: string, value: string | undefined, maxLength?: number): string | null {
  return value === undefined ? null : checkName(what, value, maxLength)
}

/** 0 is what a request says that does not say it. */
export function pageLimit(limit: number): number {
  if (limit < 0 || limit > MAX_PAGE) throw invalid(`limit must be from 1 to ${MAX_PAGE}`)
  return limit || DEFAULT_PAGE
}

export function invalid(message: string, options: { hint?: string } = {}): CurfewError {
  return new CurfewError('invalid_request', message, options)
}
