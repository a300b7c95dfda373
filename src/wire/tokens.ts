/**
 * The tokens that callers show, and what a manager keeps of them: role and hash. A token is 256 random bits, so a
 * plain SHA-256 of it cannot be turned around; what does not have the form of a token never matches, so nobody can
 * hash a password instead. No message of this file holds a part of something that may be a token.
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import type { Randomness } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { MAX_ACCESS_TOKENS, MAX_NAME_LENGTH } from '../core/limits.ts'
import type { Role } from './roles.ts'
import { ROLES } from './roles.ts'

/** What configuration holds of a token; as text `ROLE:sha256:HEX` or `NAME=ROLE:sha256:HEX`. */
export interface TokenEntry {
  /** For logs and answers; tokens may share one, so that one can replace another. */
  name?: string
  role: Role
  /** `sha256:HEX` of the token's text. */
  hash: string
}

const PREFIX = 'cft_'
const TOKEN_BYTES = 32
const TOKEN = /^cft_[A-Za-z0-9_-]{43}$/
const HASH = /^sha256:[0-9a-f]{64}$/
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]*$/
const FORM = `write ROLE:sha256:HEX or NAME=ROLE:sha256:HEX, with a role of ${ROLES.join(', ')}`
const HASH_HINT =
  'configuration holds hashes only: make one with  printf %s "$TOKEN" | sha256sum  ' +
  'and write ROLE:sha256:HEX. A token that stood in a file is better replaced'

export function createToken(
  role: Role,
  randomness: Randomness,
  name?: string,
): { token: string; entry: TokenEntry } {
  const token = PREFIX + Buffer.from(randomness.bytes(TOKEN_BYTES)).toString('base64url')
  const hash = `sha256:${digest(token).toString('hex')}`
  return { token, entry: readEntry({ name, role, hash }, 'token') }
}

export function tokenText({ name, role, hash }: TokenEntry): string {
  return `${name === undefined ? '' : `${name}=`}${role}:${hash}`
}

/** `place` is where they stand, for errors: `listen.tokens`, `CURFEW_TOKENS`. */
export function readTokens(given: readonly (string | TokenEntry)[], place = 'tokens'): Tokens {
  if (!Array.isArray(given)) throw invalid(place, 'must be a list', FORM)
  if (given.length > MAX_ACCESS_TOKENS) {
    throw invalid(place, `has ${given.length} tokens, at most ${MAX_ACCESS_TOKENS} are allowed`)
  }
  const seen = new Map<string, number>()
  const entries = given.map((item: unknown, index) => {
    const here = `${place}[${index}]`
    const entry = readEntry(typeof item === 'string' ? readText(item.trim(), here) : item, here)
    const earlier = seen.get(entry.hash)
    if (earlier !== undefined) throw invalid(here, `is the same token as ${place}[${earlier}]`)
    seen.set(entry.hash, index)
    return entry
  })
  return new Tokens(entries)
}

export class Tokens {
  readonly entries: readonly TokenEntry[]
  readonly #digests: readonly Buffer[]

  constructor(entries: readonly TokenEntry[]) {
    this.entries = entries
    this.#digests = entries.map((entry) => Buffer.from(entry.hash.slice('sha256:'.length), 'hex'))
  }

  get size(): number {
    return this.entries.length
  }

  /** Compares with every entry, each in constant time: how long it takes says nothing about the entries. */
  find(token: string): TokenEntry | undefined {
    if (!TOKEN.test(token)) return undefined
    const shown = digest(token)
    let found: TokenEntry | undefined
    for (const [index, kept] of this.#digests.entries()) {
      if (timingSafeEqual(kept, shown)) found = this.entries[index]
    }
    return found
  }
}

function readText(text: string, here: string): Record<string, unknown> {
  const match = /^(?:([^=]*)=)?([^:=]*):(sha256:.*)$/is.exec(text)
  if (match) return { name: match[1], role: match[2], hash: match[3] }
  if (text === '') throw invalid(here, 'is empty', FORM)
  throw invalid(here, 'is not the hash of a token', text.includes('sha256') ? FORM : HASH_HINT)
}

function readEntry(given: unknown, here: string): TokenEntry {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw invalid(here, 'must be a text or { name, role, hash }', FORM)
  }
  const { name, role, hash, ...others } = given as Record<string, unknown>
  const other = Object.keys(others)[0]
  if (other === 'token') throw invalid(here, 'holds a token itself, not its hash', HASH_HINT)
  if (other !== undefined) throw invalid(here, 'has a key that is none of name, role, hash', FORM)
  if (!ROLES.includes(role as Role)) {
    // A long one may be a token in the wrong place.
    const shown =
      typeof role === 'string' && /^[A-Za-z_-]{1,20}$/.test(role) ? `the role '${role}'` : 'a role'
    throw invalid(here, `has ${shown} that is not one of ${ROLES.join(', ')}`)
  }
  if (name !== undefined && !isName(name)) {
    throw invalid(here, 'has a name that is not of letters, digits, dots, dashes and underscores')
  }
  const normal = typeof hash === 'string' ? hash.toLowerCase() : ''
  if (!normal.startsWith('sha256:')) throw invalid(here, 'is not the hash of a token', HASH_HINT)
  if (!HASH.test(normal)) throw invalid(here, 'has a SHA-256 that is not 64 hexadecimal digits', FORM)
  return name === undefined
    ? { role: role as Role, hash: normal }
    : { name, role: role as Role, hash: normal }
}

function isName(name: unknown): name is string {
  return (
    typeof name === 'string' && name.length <= MAX_NAME_LENGTH && NAME.test(name) && !name.startsWith(PREFIX)
  )
}

function digest(token: string): Buffer {
  return createHash('sha256').update(token).digest()
}

function invalid(here: string, what: string, hint?: string): CurfewError {
  return new CurfewError('invalid_option', `${here} ${what}`, { hint, fields: { place: here } })
}
