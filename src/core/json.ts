/**
 * The one JSON codec for payloads: what cannot be stored and read back is refused where it enters.
 * Payloads are kept as text that no database parses, so escaped NULs and surrogates are safe in them.
 */
import { CurfewError } from './errors.ts'
import { failureOf } from './failure.ts'
import { MAX_DEPTH, MAX_PAYLOAD_BYTES } from './limits.ts'

/** What editors of Windows put before a text; JSON has no place for it. */
export function withoutByteOrderMark(text: string): string {
  return text.replace(/^\ufeff/, '')
}

/** Encodes, or throws `invalid_json` / `too_big` with the place in the value. `undefined` becomes `null`. */
export function encodeJson(value: unknown, what: string, maxBytes = MAX_PAYLOAD_BYTES): string {
  if (value === undefined || value === null) return 'null'
  let text: string | undefined
  try {
    text = JSON.stringify(value)
  } catch (thrown) {
    throw invalid(what, '', failureOf(thrown).message)
  }
  if (text === undefined) throw invalid(what, '', `a ${typeof value} is not JSON`)
  refuseBytes(text, what, maxBytes)
  // Each check walks the value only when the text gives a reason to.
  if (text.length > MAX_DEPTH) refuseDepth(text, what) // first: the others go down as deep as it is
  if (text.includes('null')) refuseLostNumbers(value, what, '')
  if (hasUnsafeKey(text)) refuseUnsafeKeys(JSON.parse(text), what, '')
  return text
}

/** Text that somebody says is JSON, as it came from outside. */
export function checkJsonText(text: string, what: string, maxBytes = MAX_PAYLOAD_BYTES): void {
  refuseBytes(text, what, maxBytes)
  if (text.length > MAX_DEPTH) refuseDepth(text, what)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw invalid(what, '', (error as Error).message)
  }
  // Whoever wrote it may have spelled a key otherwise: with blanks behind it, or with escapes.
  if (text.includes('\\u') || UNSAFE_KEYS.some((key) => text.includes(key))) refuseUnsafeKeys(value, what, '')
}

export function decodeJson(text: string): unknown {
  return JSON.parse(text)
}

/** Where a number may be longer than one can be here: to look at each takes its time. */
const LONG_NUMBER = /(?:^|[[,:])\s*-?\d{16,}\s*(?:$|[\],}])/

/** What somebody wrote: an id with other digits would be that of another thing. */
export function decodeExactly(text: string, what: string): unknown {
  if (!LONG_NUMBER.test(text)) return JSON.parse(text)
  const check = (key: string, value: unknown, { source = '' }: { source?: string } = {}) => {
    if (!isOtherNumber(value, source)) return value
    const where = key === '' ? '' : ` at '${key}'`
    throw new CurfewError('invalid_json', `${what}: ${source}${where} would become ${value}`, {
      hint: `JSON numbers are exact up to ${Number.MAX_SAFE_INTEGER}: write it as a text, "${source}".`,
    })
  }
  return JSON.parse(text, check)
}

/** Whether a whole number was read as another one than was written, or has other digits when it is shown. */
export function isOtherNumber(value: unknown, source: string): value is number {
  if (typeof value !== 'number') return false
  const written = source.replace(/^\+/, '')
  if (/^-?\d{16,}$/.test(written)) return String(value) !== written
  return /^0[xo][\da-f]{13,}$/i.test(written) && BigInt(written) !== BigInt(value)
}

/** For text that was put together of encoded parts. */
export function refuseBytes(text: string, what: string, maxBytes = MAX_PAYLOAD_BYTES): void {
  if (text.length <= maxBytes / 4) return
  const bytes = Buffer.byteLength(text)
  if (bytes <= maxBytes) return
  throw new CurfewError('too_big', `${what} is ${bytes} bytes; at most ${maxBytes} can be kept`, {
    hint: 'Keep large data elsewhere and pass a reference to it.',
    fields: { bytes, maxBytes },
  })
}

/**
 * Whether a value would be longer than this as JSON. Parts that stand in it many times count each time, and it stops
 * counting there: a few lines that double a value make one that no computer can write down.
 */
export function isLongerThan(value: unknown, most: number): boolean {
  let left = most
  const walk = (part: unknown): void => {
    left -= typeof part === 'string' ? part.length + 3 : 5
    if (typeof part !== 'object' || part === null) return
    for (const key in part) {
      if (left < 0) return
      if (!Array.isArray(part)) left -= key.length + 3
      walk((part as Record<string, unknown>)[key])
    }
  }
  walk(value)
  return left < 0
}

/** JSON.stringify turns NaN and Infinity into null without a word. */
function refuseLostNumbers(value: unknown, what: string, path: string): void {
  if (typeof value === 'number' && !Number.isFinite(value)) throw invalid(what, path, `${value} is not JSON`)
  if (typeof value !== 'object' || value === null || 'toJSON' in value) return
  for (const [key, item] of Object.entries(value)) refuseLostNumbers(item, what, `${path}.${key}`)
}

function refuseDepth(text: string, what: string): void {
  let depth = 0
  let inString = false
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if (inString) {
      if (c === 92 /* \ */) i++
      else if (c === 34 /* " */) inString = false
    } else if (c === 34) inString = true
    else if (c === 91 || c === 123) {
      if (++depth > MAX_DEPTH) throw invalid(what, '', `it is nested deeper than ${MAX_DEPTH}`)
    } else if (c === 93 || c === 125) depth--
  }
}

const UNSAFE_KEYS = ['__proto__', 'constructor', 'prototype']

function hasUnsafeKey(text: string): boolean {
  return UNSAFE_KEYS.some((key) => text.includes(`"${key}":`))
}

function refuseUnsafeKeys(value: unknown, what: string, path: string): void {
  if (typeof value !== 'object' || value === null) return
  for (const [key, item] of Object.entries(value)) {
    if (UNSAFE_KEYS.includes(key)) throw invalid(what, path, `the key '${key}' is not allowed`)
    refuseUnsafeKeys(item, what, `${path}.${key}`)
  }
}

function invalid(what: string, path: string, why: string): CurfewError {
  return new CurfewError('invalid_json', `${what}${path ? ` at ${path}` : ''} cannot be kept: ${why}`, {
    fields: { path },
  })
}
