/**
 * A cursor over a definition while it is read: the value, where it stands, and what is wrong with it. The same
 * readers serve TypeScript objects (camelCase, places are paths) and text (snake_case, places are lines).
 * Keys are asked for in camelCase; a key nobody asked for is unknown.
 */
import { durationMs, isZero } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import { MAX_NAME_LENGTH, MAX_PROBLEMS } from '../core/limits.ts'
import type { Located, ParsedText } from './definition-text.ts'
import { parseText, UNSAFE_KEYS } from './definition-text.ts'
import type { Problem } from './problem.ts'
import { didYouMean, nearest } from './problem.ts'

export interface ProblemOptions {
  severity?: 'error' | 'warning'
  suggestion?: string | null
  /** Point at the key and not at its value. */
  atKey?: boolean
  /** Characters into the text of this field. */
  offset?: number
}

export class DefinitionSource {
  readonly file: string | null
  readonly spelling: 'camel' | 'snake'
  readonly problems: Problem[] = []
  readonly #text: ParsedText | null

  constructor(file: string | null, text: ParsedText | null) {
    this.file = file
    this.#text = text
    this.spelling = text ? 'snake' : 'camel'
  }

  /** The key as it is written in this kind of source. */
  spell(key: string): string {
    return this.spelling === 'camel' ? key : key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
  }

  /** Once: an action that several nodes use is looked at for each of them. */
  add(problem: Omit<Problem, 'file' | 'line' | 'column'>, offset: number | null): void {
    if (this.problems.length > MAX_PROBLEMS) return
    const { path, message } = problem
    if (this.problems.some((told) => told.path === path && told.message === message)) return
    if (this.problems.length === MAX_PROBLEMS) {
      const message = `there are more than ${MAX_PROBLEMS} problems; the others are not listed`
      problem = { severity: 'error', code: 'too_many_problems', message, suggestion: null, path: '' }
    }
    const place = offset === null || !this.#text ? null : this.#text.place(offset)
    this.problems.push({
      ...problem,
      file: this.file,
      line: place?.line ?? null,
      column: place?.column ?? null,
    })
  }
}

/** The root of a text, or of an object written in TypeScript. */
export function textField(text: string, file: string | null): Field | DefinitionSource {
  const parsed = parseText(text)
  const source = new DefinitionSource(file, parsed)
  for (const { code, message, offset } of parsed.problems) {
    source.add({ severity: 'error', code, message, suggestion: null, path: '' }, offset)
  }
  return parsed.root ? new Field(source, '', parsed.root.value, parsed.root) : source
}

export function objectField(value: unknown): Field {
  return new Field(new DefinitionSource(null, null), '', value, null)
}

export class Field {
  readonly source: DefinitionSource
  readonly path: string
  readonly value: unknown
  readonly #located: Located | null

  constructor(source: DefinitionSource, path: string, value: unknown, located: Located | null) {
    this.source = source
    this.path = path
    this.value = value
    this.#located = located
  }

  /** Of an object or a list; the field itself, with the path prolonged, where there is no such child. */
  child(key: string | number): Field {
    const path =
      typeof key === 'number' || !/^\w+$/.test(key)
        ? `${this.path}[${JSON.stringify(key)}]`
        : `${this.path}${this.path === '' ? '' : '.'}${key}`
    const located = this.#located?.children.get(key) ?? this.#located
    const value =
      typeof this.value === 'object' && this.value !== null && Object.hasOwn(this.value, key)
        ? (this.value as Record<string | number, unknown>)[key]
        : undefined
    return new Field(this.source, path, value, located)
  }

  /** What it stands for, at the same place. */
  with(value: unknown): Field {
    return new Field(this.source, this.path, value, this.#located)
  }

  /** The child as it is spelled in this source. */
  at(key: string): Field {
    return this.child(this.source.spell(key))
  }

  problem(code: string, message: string, options: ProblemOptions = {}): void {
    const { severity = 'error', suggestion = null, atKey = false, offset } = options
    const problem = { severity, code, message, suggestion, path: this.path }
    const located = this.#located
    if (!located) return this.source.add(problem, null)
    const exact = offset === undefined ? null : this.#letterAt(located, offset)
    this.source.add(problem, atKey ? (located.keyOffset ?? located.offset) : (exact ?? located.offset))
  }

  #letterAt({ lettersAt, value }: Located, offset: number): number | null {
    const before = typeof value === 'string' ? value.slice(0, offset).split('\n') : []
    const start = lettersAt?.[before.length - 1]
    return start === undefined ? null : start + before.at(-1)!.length
  }

  warning(code: string, message: string, options: ProblemOptions = {}): void {
    this.problem(code, message, { ...options, severity: 'warning' })
  }

  expected(what: string, suggestion: string | null = null): null {
    this.problem('invalid_value', `must be ${what}, got ${shown(this.value)}`, { suggestion })
    return null
  }

  object(): Fields | null {
    if (typeof this.value !== 'object' || this.value === null || Array.isArray(this.value)) {
      return this.expected('an object')
    }
    return new Fields(this)
  }

  /** The elements of a list. */
  list(max: number): Field[] | null {
    if (!Array.isArray(this.value)) return this.expected('a list')
    if (this.value.length > max) {
      this.problem('too_many', `has ${this.value.length} elements; at most ${max} are allowed`)
      return null
    }
    return Array.from(this.value, (_, i) => this.child(i))
  }

  /** Names and ids stand in indexes: not empty, not long, no NUL and no half character. */
  name(): string | null {
    const { value } = this
    if (typeof value !== 'string' || value === '') return this.expected('a text that is not empty')
    if (value.length > MAX_NAME_LENGTH) {
      this.problem('invalid_name', `has ${value.length} characters; at most ${MAX_NAME_LENGTH} are allowed`)
      return null
    }
    if (value.includes('\u0000') || !value.isWellFormed()) {
      this.problem('invalid_name', 'holds a NUL or half a character')
      return null
    }
    if (UNSAFE_KEYS.includes(value)) {
      this.problem('invalid_name', `'${value}' cannot be a name`)
      return null
    }
    return value
  }

  text(): string | null {
    return typeof this.value === 'string' ? this.value : this.expected('a text')
  }

  flag(): boolean | null {
    return typeof this.value === 'boolean' ? this.value : this.expected('true or false')
  }

  whole(min: number, max: number): number | null {
    const { value } = this
    if (typeof value !== 'number' || !Number.isInteger(value) || value < min || value > max) {
      return this.expected(`a whole number from ${min} to ${max}`)
    }
    return value
  }

  between(min: number, max: number): number | null {
    const { value } = this
    if (typeof value !== 'number' || !(value >= min && value <= max)) {
      return this.expected(`a number from ${min} to ${max}`)
    }
    return value
  }

  oneOf<const T extends string>(allowed: readonly T[]): T | null {
    if (allowed.includes(this.value as T)) return this.value as T
    const text = typeof this.value === 'string' ? this.value : ''
    return this.expected(
      allowed.length === 1 ? allowed[0]! : `one of ${allowed.join(', ')}`,
      didYouMean(text, allowed),
    )
  }
}

/** Units a key of a text may name, longest first. */
const KEY_UNITS = { _seconds: 1_000, _secs: 1_000, _ms: 1 } as const

/** An object while it is read. `end()` reports the keys nobody asked for. */
export class Fields {
  readonly field: Field
  readonly #known = new Set<string>()

  constructor(field: Field) {
    this.field = field
  }

  /** The field, or null when the key is not there. `undefined` is not there. */
  get(key: string): Field | null {
    const name = this.field.source.spell(key)
    this.#known.add(name)
    return this.#has(name) ? this.field.child(name) : null
  }

  required(key: string, suggestion: string | null = null): Field | null {
    const field = this.get(key)
    if (!field) {
      const name = this.field.source.spell(key)
      this.field.problem('missing_key', `${name} is missing`, { suggestion })
    }
    return field
  }

  /** Milliseconds; undefined: not set, or not readable. `null` is taken where there may be no limit. */
  duration(key: string, options: { none?: boolean; zero?: boolean } = {}): number | null | undefined {
    const { source } = this.field
    const plain = source.spell(key)
    const units: Record<string, number> = { [plain]: 0 }
    if (source.spelling === 'snake') {
      for (const [unit, ms] of Object.entries(KEY_UNITS)) units[plain + unit] = ms
    }
    for (const name of Object.keys(units)) this.#known.add(name)
    const [name, second] = Object.keys(units).filter((candidate) => this.#has(candidate))
    if (name === undefined) return undefined
    const field = this.field.child(name)
    if (second !== undefined) {
      field.problem('duplicate_key', `${name} and ${second} say the same thing twice`)
      return undefined
    }
    if (field.value === null) {
      if (options.none) return null
      field.expected('a duration')
      return undefined
    }
    return readDuration(field, units[name]!, options.zero ?? false)
  }

  /** The keys of users: names of mappings, headers, actions. */
  entries(max: number): [name: string, field: Field][] {
    const names = Object.keys(this.field.value as object)
    if (names.length > max) {
      this.field.problem('too_many', `has ${names.length} keys; at most ${max} are allowed`)
      return []
    }
    for (const name of names) {
      this.#known.add(name)
      if (UNSAFE_KEYS.includes(name)) this.field.problem('unsafe_key', `the key '${name}' is not allowed`)
    }
    return names.filter((name) => !UNSAFE_KEYS.includes(name)).map((name) => [name, this.field.child(name)])
  }

  /** Reports what is left. `elsewhere`: where a key of another object belongs. */
  end(elsewhere: Record<string, string> = {}): void {
    for (const name of Object.keys(this.field.value as object)) {
      if (this.#known.has(name) || !this.#has(name)) continue
      const belongs = Object.entries(elsewhere).find(([key]) =>
        [key, ...Object.keys(KEY_UNITS).map((unit) => key + unit)].includes(name),
      )
      const meant = nearest(name, this.#known)
      const suggestion = belongs
        ? `It belongs into ${belongs[1]}.`
        : meant
          ? `Did you mean '${meant}'?`
          : `There are ${[...this.#known].filter((key) => !/_(ms|secs|seconds)$/.test(key)).join(', ')}.`
      this.field.child(name).problem('unknown_key', 'is not a key here', { suggestion, atKey: true })
    }
  }

  #has(name: string): boolean {
    const value = this.field.value as Record<string, unknown>
    return Object.hasOwn(value, name) && value[name] !== undefined
  }
}

function readDuration(field: Field, unitMs: number, zero: boolean): number | undefined {
  const { value, source } = field
  if (unitMs > 0 && typeof value !== 'number') {
    field.expected('a number, since the key names the unit')
    return undefined
  }
  if (unitMs === 0 && typeof value === 'number' && source.spelling === 'snake') {
    field.problem('invalid_duration', `${value} has no unit`, {
      suggestion: `Write '${value}s' or '${value}ms', or a key that names the unit: ${field.path.replace(/^.*\./, '')}_ms.`,
    })
    return undefined
  }
  const duration = (unitMs > 0 ? (value as number) * unitMs : value) as number | string
  if (zero && isZero(duration)) return 0
  try {
    return durationMs(duration, field.path)
  } catch (error) {
    if (!(error instanceof CurfewError) || error.code !== 'invalid_duration') throw error
    field.problem('invalid_duration', error.message.replace(/^.*?: '/s, "'"))
    return undefined
  }
}

/** A value in a message, cut to size. */
function shown(value: unknown, length = 60): string {
  if (value === undefined) return 'nothing'
  if (typeof value === 'function' || typeof value === 'symbol') return `a ${typeof value}`
  if (Array.isArray(value)) return value.length === 0 ? 'an empty list' : `a list of ${value.length}`
  if (typeof value === 'object' && value !== null) return 'an object'
  const text = typeof value === 'string' ? `'${value}'` : String(value)
  return text.length <= length ? text : `${text.slice(0, length)}…`
}
