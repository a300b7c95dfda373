/**
 * Faults that somebody can act on. They are told apart by `code`, never by text.
 * What a piece of work ended with is a `Failure`: a value that is stored and crosses the wire.
 */

export interface CurfewErrorOptions {
  /** What to try. */
  hint?: string
  fields?: Record<string, unknown>
  cause?: unknown
}

export class CurfewError extends Error {
  readonly code: string
  readonly hint: string | undefined
  readonly fields: Record<string, unknown>

  constructor(code: string, message: string, options: CurfewErrorOptions = {}) {
    super(options.hint ? `${message}\n  ${options.hint}` : message, { cause: options.cause })
    this.name = new.target.name
    this.code = code
    this.hint = options.hint
    this.fields = options.fields ?? {}
  }
}

/** A bug of ours, not of the caller. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Error(`curfew: ${message}`)
}

export function unreachable(value: never): never {
  throw new Error(`curfew: unexpected ${JSON.stringify(value)}`)
}
