/** Why a piece of work ended badly, as a value: stored, sent, and turned into the typed error a caller meets. */
import { inspect } from 'node:util'
import { CurfewError } from './errors.ts'
import { MAX_FAILURE_TEXT } from './limits.ts'

export interface Failure {
  code: string
  message: string
  retryable: boolean
  details?: unknown
  cause?: Failure
  stack?: string
}

/** What a handler gave back although its attempt was stopped: JSON text, or why it failed. */
export type LateResult = { output: string } | { failure: Failure }

/** Throw it from a handler to say that another attempt would not help, or to give the failure a code. */
export class HandlerError extends CurfewError {
  readonly retryable: boolean
  readonly details: unknown

  constructor(
    message: string,
    options: { code?: string; retryable?: boolean; details?: unknown; cause?: unknown } = {},
  ) {
    super(options.code ?? 'failed', message, { cause: options.cause })
    this.retryable = options.retryable ?? true
    this.details = options.details
  }
}

/** Whatever a handler threw, made storable. */
export function failureOf(thrown: unknown): Failure {
  try {
    return describe(thrown, 0)
  } catch (error) {
    const message = `what was thrown could not be read: ${isThrown(error, Error) ? error.message : typeof error}`
    return { code: 'failed', message: cut(message), retryable: true }
  }
}

/** `instanceof`, of what code of others threw: of a proxy that may throw, too. */
export function isThrown<T>(thrown: unknown, type: abstract new (...args: never[]) => T): thrown is T {
  try {
    return thrown instanceof type
  } catch {
    return false
  }
}

/** One that came from elsewhere, no larger than those that are made here. */
export function boundFailure(failure: Failure, depth = 0): Failure {
  const { code, message, retryable, details, cause, stack } = failure
  const storableDetails = storable(details)
  return {
    ...{ code: cut(code, 200), message: cut(message), retryable },
    ...(storableDetails !== undefined && { details: storableDetails }),
    ...(cause && depth < 5 && { cause: boundFailure(cause, depth + 1) }),
    ...(stack !== undefined && depth === 0 && { stack: cut(stack) }),
  }
}

function describe(thrown: unknown, depth: number): Failure {
  if (!(thrown instanceof Error)) {
    return {
      code: 'failed',
      message: cut(typeof thrown === 'string' ? thrown : show(thrown)),
      retryable: true,
    }
  }
  const { code, retryable, details } = thrown as { code?: unknown; retryable?: unknown; details?: unknown }
  const failure: Failure = {
    code: typeof code === 'string' ? cut(code, 200) : 'failed',
    message: cut(String(thrown.message)),
    retryable: typeof retryable === 'boolean' ? retryable : true,
  }
  const storableDetails = storable(details)
  if (storableDetails !== undefined) failure.details = storableDetails
  if (thrown.cause !== undefined && depth < 5) failure.cause = describe(thrown.cause, depth + 1)
  if (typeof thrown.stack === 'string' && depth === 0) failure.stack = cut(thrown.stack)
  return failure
}

function storable(details: unknown): unknown {
  if (details === undefined) return undefined
  try {
    const text = JSON.stringify(details)
    if (text === undefined || text.length > MAX_FAILURE_TEXT) return cut(String(text))
    return JSON.parse(text)
  } catch (error) {
    return `details could not be kept: ${failureOf(error).message}`
  }
}

function show(value: unknown): string {
  try {
    return JSON.stringify(value) ?? String(value)
  } catch {
    return typeof value === 'object' ? inspect(value) : String(value) // a cycle or a bigint
  }
}

function cut(text: string, length = MAX_FAILURE_TEXT): string {
  const whole = text.toWellFormed()
  return whole.length <= length
    ? whole
    : `${whole.slice(0, length).toWellFormed()}… (${whole.length} characters)`
}
