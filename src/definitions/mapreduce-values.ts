/**
 * Numbers and durations in the file of a map-reduce. A bare number of a duration is seconds, and a number may be
 * `$NAME` or `${NAME}`: it is looked up while the file is read, in its `env` and then in the environment.
 */
import { durationMs, isZero, LONGEST_DURATION_MS } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import type { Field, Fields } from './definition-field.ts'
import { didYouMean } from './problem.ts'

const NAMED = /^\s*\$(?:([A-Za-z_]\w*)|\{\s*([A-Za-z_]\w*)\s*\})\s*$/
const NUMBER = /^[-+]?\d+(?:\.\d+)?(?:e\d+)?$/i
/** What a key may end with, and how long one of it is. The key alone takes seconds or a text with units. */
const UNITS = { '': 1_000, Secs: 1_000, Seconds: 1_000, Ms: 1 } as const

type Environment = Readonly<Record<string, string | undefined>>

export class MapreduceValues {
  readonly #env: Environment
  readonly #outside: Environment

  constructor(env: Environment, outside: Environment) {
    this.#env = env
    this.#outside = outside
  }

  whole(field: Field | null, min: number, max: number): number | null {
    return this.#resolve(field)?.whole(min, max) ?? null
  }

  between(field: Field | null, min: number, max: number): number | null {
    return this.#resolve(field)?.between(min, max) ?? null
  }

  /** Milliseconds; undefined: not set, or not readable. `null` is said by the user. */
  duration(fields: Fields, key: string, options: { zero?: boolean } = {}): number | null | undefined {
    const given = Object.entries(UNITS).flatMap(([unit, ms]) => {
      const field = fields.get(key + unit)
      return field ? [{ field, ms, isBare: unit === '' }] : []
    })
    const [first, second] = given
    if (!first) return undefined
    if (second) {
      second.field.problem('duplicate_key', `${keyOf(first.field)} says the same thing`, { atKey: true })
      return undefined
    }
    if (first.field.value === null) return null
    const field = this.#resolve(first.field)
    return field ? readDuration(field, first.ms, first.isBare, options.zero ?? false) : undefined
  }

  /** A value of a list of limits, whose keys are not words of the format. */
  seconds(field: Field): number | null | undefined {
    if (field.value === null) return null
    const resolved = this.#resolve(field)
    return resolved ? readDuration(resolved, 1_000, true, false) : undefined
  }

  /** The field, with the value that its name stands for. Null when nobody knows the name. */
  #resolve(field: Field | null): Field | null {
    if (!field || typeof field.value !== 'string') return field
    const name = namedBy(field.value)
    if (name === null) return field
    const text = this.#lookUp(name)?.trim()
    if (text === undefined || text === '') {
      const message = `the environment variable ${name} is ${text === '' ? 'empty' : 'not set'}`
      field.problem('unknown_variable', message, { suggestion: `Set ${name}, or write the number.` })
      return null
    }
    return field.with(NUMBER.test(text) ? Number(text) : text)
  }

  /** In `env` a name may stand for one outside. */
  #lookUp(name: string): string | undefined {
    const own = Object.hasOwn(this.#env, name) ? this.#env[name] : undefined
    if (own === undefined) return Object.hasOwn(this.#outside, name) ? this.#outside[name] : undefined
    const other = namedBy(own)
    return other === null ? own : Object.hasOwn(this.#outside, other) ? this.#outside[other] : undefined
  }
}

function namedBy(text: string): string | null {
  const found = NAMED.exec(text)
  return found && (found[1] ?? found[2])!
}

function readDuration(field: Field, unitMs: number, isBare: boolean, zero: boolean): number | undefined {
  const { value } = field
  const unit = unitMs === 1 ? 'milliseconds' : 'seconds'
  if (typeof value === 'number') {
    if (!Number.isInteger(value)) {
      const ms = Math.ceil(value * unitMs)
      const key = keyOf(field).replace(/_(ms|secs|seconds)$/, '')
      const other = isBare ? `'${ms}ms'` : `${key}_ms: ${ms}`
      field.expected(`whole ${unit}`, ms > 0 ? `Write ${other}.` : null)
      return undefined
    }
    if (value === 0 && zero) return 0
    if (value <= 0) field.expected(`${zero ? 'zero or more' : 'longer than zero'} ${unit}`)
    else if (value * unitMs > LONGEST_DURATION_MS) field.expected(`at most 400 days, in ${unit}`)
    else return value * unitMs
    return undefined
  }
  if (typeof value !== 'string' || !isBare) {
    const number = typeof value === 'string' && NUMBER.test(value) ? `Write ${value} without quotes.` : null
    field.expected(`whole ${unit}, as a number`, number)
    return undefined
  }
  if (NUMBER.test(value)) {
    field.expected(
      "a number of seconds, or a text with units such as '90s'",
      `Write ${value} without quotes.`,
    )
    return undefined
  }
  if (zero && isZero(value)) return 0
  try {
    return durationMs(value, field.path)
  } catch (error) {
    if (!(error instanceof CurfewError) || error.code !== 'invalid_duration') throw error
    const message = error.message
      .replace(/^.*?: '/s, "'")
      .replace('{ minutes: 5 } or milliseconds', 'or a number of seconds')
    field.problem('invalid_duration', message)
    return undefined
  }
}

function keyOf(field: Field): string {
  return field.path.replace(/^.*\./, '')
}

/** As it is here, or as in the seed's Rust: `graceful_terminate`, `GracefulTerminate`. */
export function readChoice<const T extends string>(field: Field, allowed: readonly T[]): T | null {
  const { value } = field
  if (typeof value !== 'string') return field.oneOf(allowed)
  const spelled = /^[A-Z]/.test(value)
    ? value.replace(/[A-Z]/g, (letter, at) => `${at > 0 ? '_' : ''}${letter.toLowerCase()}`)
    : value
  if (allowed.includes(spelled as T)) return spelled as T
  const meant = didYouMean(value, allowed) ?? didYouMean(spelled, allowed)
  return field.expected(allowed.length === 1 ? allowed[0]! : `one of ${allowed.join(', ')}`, meant)
}
