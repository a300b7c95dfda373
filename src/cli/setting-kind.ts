/**
 * How the value of a setting is read: from text (flags, environment) and from the configuration file. A reader
 * throws `WrongValue`; who asked says where it stands.
 */
import path from 'node:path'
import { inspect } from 'node:util'
import type { Duration } from '../core/duration.ts'
import { durationMs, formatDuration, isZero } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import { maskUrl } from '../core/masked-url.ts'
import { didYouMean } from '../definitions/problem.ts'
import { checkName } from '../definitions/task-policy.ts'

export class WrongValue extends Error {
  readonly suggestion: string | null
  /** Of the element or entry that is wrong: `[2]`, `.bank`. */
  readonly inner: string

  constructor(message: string, suggestion: string | null = null, inner = '') {
    super(message)
    this.suggestion = suggestion
    this.inner = inner
  }
}

/** `folder`: what relative paths are relative to; null leaves them to the working directory. */
export interface Source {
  folder: string | null
  /** JSON has no durations of its own: a number needs a unit there. */
  json: boolean
}

export interface Kind<T> {
  /** For people: what stands in the table of settings. */
  readonly name: string
  /** A flag may be given several times. */
  readonly many?: true
  fromText(text: string, source: Source): T
  fromValue(value: unknown, source: Source): T
  show(value: T): string
  /** What stands in the output of programs, where it is not the value itself. */
  plain?(value: T): unknown
}

const TEXT_SOURCE: Source = { folder: null, json: false }

export function text(name = 'text'): Kind<string> {
  return {
    name,
    fromText: (value) => value,
    fromValue: (value) => notEmpty(value),
    show: (value) => value,
  }
}

export const file: Kind<string> = {
  name: 'file',
  fromText: (value) => value,
  fromValue: (value, source) => inFolder(notEmpty(value), source),
  show: (value) => value,
}

/** A file name too, unless it names a server or memory. */
export const store: Kind<string> = {
  name: 'file or URL',
  fromText: (value) => value,
  fromValue: (value, source) => {
    const given = notEmpty(value)
    return given === ':memory:' || /^[a-z][a-z0-9+.-]+:\/\//i.test(given) ? given : inFolder(given, source)
  },
  show: maskUrl,
}

const HOST_AND_PORT = /^(?:\[[0-9a-f:.%\w]+\]|[^:\s/[\]]+):(\d{1,5})$/i
const ADDRESS = "'host:port', 'unix:PATH' or false"

export const address: Kind<string | false> = {
  name: 'address, or false',
  fromText: (value) => (value === 'false' ? false : checkAddress(value, TEXT_SOURCE)),
  fromValue: (value, source) => {
    if (value === false) return false
    return typeof value === 'string' ? checkAddress(value, source) : wrong(ADDRESS, value)
  },
  show: (value) => String(value),
}

function checkAddress(value: string, source: Source): string {
  if (value.startsWith('unix:') && value.length > 5) return `unix:${inFolder(value.slice(5), source)}`
  const port = HOST_AND_PORT.exec(value)?.[1]
  if (port !== undefined && Number(port) <= 65_535) return value
  const bare = /^:?(\d+)$/.exec(value)?.[1]
  const suggestion = bare
    ? `Write 127.0.0.1:${bare} for this machine alone, 0.0.0.0:${bare} for every network.`
    : null
  throw new WrongValue(`must be ${ADDRESS}, got ${shown(value)}`, suggestion)
}

/** Of managers. */
export const url: Kind<string> = {
  name: 'URL',
  fromText: checkUrl,
  fromValue: (value, source) => checkUrl(notEmpty(value), source),
  show: maskUrl,
}

function checkUrl(value: string, source: Source): string {
  if (value.startsWith('unix:') && value.length > 5) return `unix:${inFolder(value.slice(5), source)}`
  if (/^https?:\/\//.test(value) && URL.canParse(value)) return value
  const meant = HOST_AND_PORT.test(value) ? `Did you mean 'http://${value}'?` : null
  throw new WrongValue(
    `must be 'http://host:port', 'https://host:port' or 'unix:PATH', got ${shown(value)}`,
    meant,
  )
}

export const queueName: Kind<string> = {
  name: 'name',
  fromText: named,
  fromValue: (value) => named(notEmpty(value)),
  show: (value) => value,
}

export function list<T>(of: Kind<T>): Kind<readonly T[]> {
  return {
    name: `list of ${of.name}s`,
    many: true,
    fromText: (value, source) => parts(value).map((part) => of.fromText(part, source)),
    fromValue: (value, source) => {
      if (!Array.isArray(value)) return wrong(`a list of ${of.name}s`, value)
      return Array.from(value, (entry: unknown, i) => inside(`[${i}]`, () => of.fromValue(entry, source)))
    },
    show: (values) => values.map((value) => of.show(value)).join(', '),
    plain: (values) => values.map((value) => of.show(value)),
  }
}

export function whole(min: number, max: number): Kind<number> {
  const expected = `a whole number from ${min} to ${max}`
  const check = (value: unknown) =>
    typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max ? value : null
  return {
    name: 'number',
    fromText: (value) => (/^\d+$/.test(value) ? check(Number(value)) : null) ?? wrong(expected, value),
    fromValue: (value) => check(value) ?? wrong(expected, value),
    show: String,
  }
}

/** Milliseconds. */
export const duration: Kind<number> = {
  name: 'duration',
  fromText: readDuration,
  fromValue: (value, { json }) => {
    if (json && typeof value === 'number') {
      throw new WrongValue(`${value} has no unit`, `Write '${value}s' or '${value}ms'.`)
    }
    return readDuration(value as Duration)
  },
  show: formatMs,
  plain: formatMs,
}

export function oneOf<const T extends string>(allowed: readonly T[]): Kind<T> {
  const check = (value: unknown): T => {
    if (allowed.includes(value as T)) return value as T
    const meant = typeof value === 'string' ? didYouMean(value, allowed) : null
    throw new WrongValue(`must be one of ${allowed.join(', ')}, got ${shown(value)}`, meant)
  }
  return { name: allowed.join(' '), fromText: check, fromValue: check, show: String }
}

/** `zone=eu,disk=fast`. */
export const labels: Kind<Readonly<Record<string, string>>> = {
  name: 'labels',
  many: true,
  fromText: (value) => Object.fromEntries(pairs(value, 'name=value')),
  fromValue: (value) => {
    const entries = Object.entries(plainObject(value, "an object of texts: { zone: 'eu' }"))
    return Object.fromEntries(
      entries.map(([name, label]) => inside(`.${name}`, () => [named(name), notEmpty(label)])),
    )
  },
  show: (value) => written(value, (label) => label),
}

/** `bank=2,mail=none`: attempts at a time over all processes. */
export const queueLimits: Kind<Readonly<Record<string, number | null>>> = {
  name: 'limits',
  many: true,
  fromText: (value) => Object.fromEntries(pairs(value, 'queue=number').map(limitOf)),
  fromValue: (value) =>
    Object.fromEntries(
      Object.entries(plainObject(value, 'an object of numbers: { bank: 2 }')).map(([name, limit]) =>
        inside(`.${name}`, () => [named(name), checkLimit(limit)]),
      ),
    ),
  show: (value) => written(value, (limit) => String(limit ?? 'none')),
}

function limitOf([name, text]: [string, string]): [string, number | null] {
  return inside(`.${name}`, () => [
    name,
    checkLimit(text === 'none' ? null : /^\d+$/.test(text) ? +text : text),
  ])
}

function checkLimit(value: unknown): number | null {
  if (value === null || (typeof value === 'number' && Number.isSafeInteger(value) && value > 0)) return value
  return wrong('a whole number above 0, or none (null in a file)', value)
}

/** All, none, or these. */
export const hosts: Kind<boolean | readonly string[]> = {
  name: 'true, false or hosts',
  many: true,
  fromText: (value) => (value === 'true' || value === 'false' ? value === 'true' : parts(value)),
  fromValue: (value, source) => {
    if (typeof value === 'boolean') return value
    return Array.isArray(value)
      ? list(text('host')).fromValue(value, source)
      : wrong('true, false or a list of hosts', value)
  },
  show: (value) => (typeof value === 'boolean' ? String(value) : value.join(', ')),
}

export const secret: Kind<string> = {
  name: 'token',
  fromText: (value) => value,
  fromValue: (value) => notEmpty(value),
  show: () => MASKED,
}

/** A line `NAME=ROLE:sha256:HEX`: the hash is no secret that opens anything, but nobody needs to read it. */
export const tokenLine: Kind<string> = {
  name: 'token line',
  fromText: (value) => value,
  fromValue: (value) => notEmpty(value),
  show: (value) => (/^[^:]*=[^:]*:/.test(value) ? value.replace(/:.*$/s, `:${MASKED}`) : MASKED),
}

const MASKED = '***'

function inFolder(name: string, { folder }: Source): string {
  return folder === null ? name : path.resolve(folder, name)
}

function formatMs(ms: number): string {
  return ms === 0 ? '0s' : formatDuration(ms)
}

function readDuration(value: Duration): number {
  if (isZero(value)) return 0
  try {
    return durationMs(value, '')
  } catch (error) {
    if (!(error instanceof CurfewError) || error.code !== 'invalid_duration') throw error
    throw new WrongValue(error.message.replace(/^: /, ''))
  }
}

function parts(value: string): string[] {
  const found = value.split(',').map((part) => part.trim())
  return found.every((part) => part !== '') ? found : wrong('a list without gaps: a,b', value)
}

function pairs(value: string, form: string): [string, string][] {
  return parts(value).map((part) => {
    const at = part.indexOf('=')
    if (at < 1 || at === part.length - 1) throw new WrongValue(`must be ${form},…, got ${shown(part)}`)
    return [named(part.slice(0, at).trim()), part.slice(at + 1).trim()]
  })
}

function written<T>(value: Readonly<Record<string, T>>, show: (entry: T) => string): string {
  return Object.entries(value)
    .map(([name, entry]) => `${name}=${show(entry)}`)
    .join(', ')
}

function inside<T>(place: string, read: () => T): T {
  try {
    return read()
  } catch (error) {
    if (!(error instanceof WrongValue)) throw error
    throw new WrongValue(error.message, error.suggestion, place + error.inner)
  }
}

function named(name: string): string {
  try {
    return checkName('', name)
  } catch (error) {
    if (!(error instanceof CurfewError)) throw error
    throw new WrongValue(error.message.trim())
  }
}

function plainObject(value: unknown, expected: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return wrong(expected, value)
  return value as Record<string, unknown>
}

function notEmpty(value: unknown): string {
  return typeof value === 'string' && value.trim() !== '' ? value : wrong('a text that is not empty', value)
}

function wrong(expected: string, value: unknown): never {
  throw new WrongValue(`must be ${expected}, got ${shown(value)}`)
}

function shown(value: unknown): string {
  return inspect(value, { depth: 0, breakLength: Infinity, maxStringLength: 60 })
}
