import { createHash } from 'node:crypto'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { CurfewError } from '../core/errors.ts'
import { MAX_ACCESS_TOKENS } from '../core/limits.ts'
import { SystemRandomness } from '../core/system-clock.ts'
import { ROLES } from './roles.ts'
import type { TokenEntry } from './tokens.ts'
import { createToken, readTokens, tokenText } from './tokens.ts'

const randomness = new SystemRandomness()
const HEX = 'ab'.repeat(32)
const PLAIN = `cft_${'A'.repeat(43)}`

test.each(ROLES)('a token made for the role %s is found by its text and by its entry', (role) => {
  const { token, entry } = createToken(role, randomness, 'ci')
  expect(token).toMatch(/^cft_[A-Za-z0-9_-]{43}$/)
  expect(entry).toEqual({
    name: 'ci',
    role,
    hash: `sha256:${createHash('sha256').update(token).digest('hex')}`,
  })
  expect(readTokens([tokenText(entry)]).find(token)).toEqual(entry)
  expect(readTokens([entry]).find(token)).toEqual(entry)
})

test('a token without a name has none in its text', () => {
  const { token, entry } = createToken('worker', randomness)
  expect(tokenText(entry)).toMatch(/^worker:sha256:[0-9a-f]{64}$/)
  expect(readTokens([tokenText(entry)]).find(token)).toEqual(entry)
})

test('a token holds all 256 bits that were drawn', () => {
  const bytes = Uint8Array.from({ length: 32 }, (_, index) => index * 7)
  const asked: number[] = []
  const drawn = {
    next: () => 0,
    bytes: (count: number) => {
      asked.push(count)
      return bytes
    },
  }
  const { token } = createToken('client', drawn)
  expect(asked).toEqual([32])
  expect(Buffer.from(token.slice('cft_'.length), 'base64url')).toEqual(Buffer.from(bytes))
})

test.each([
  [`client:sha256:${HEX}`, { role: 'client', hash: `sha256:${HEX}` }],
  [`  read-only:sha256:${HEX}\n`, { role: 'read-only', hash: `sha256:${HEX}` }],
  [`build.7=admin:SHA256:${HEX.toUpperCase()}`, { name: 'build.7', role: 'admin', hash: `sha256:${HEX}` }],
  [
    { role: 'peer', hash: `sha256:${HEX}` },
    { role: 'peer', hash: `sha256:${HEX}` },
  ],
])('%j is an entry', (given, entry) => {
  expect(readTokens([given as string]).entries).toEqual([entry])
})

test.each<[unknown, RegExp]>([
  ['', /is empty/],
  ['client', /is not the hash of a token/],
  [`boss:sha256:${HEX}`, /the role 'boss' that is not one of read-only, client, worker, peer, admin/],
  [`Client:sha256:${HEX}`, /the role 'Client'/],
  [`:sha256:${HEX}`, /has a role that is not one of/],
  [`client:sha256:${HEX}0`, /not 64 hexadecimal digits/],
  [`client:sha256:${HEX.slice(2)}`, /not 64 hexadecimal digits/],
  [`client:sha256:${HEX.slice(1)}g`, /not 64 hexadecimal digits/],
  [`client:sha256:${HEX}\nworker:sha256:${HEX}`, /not 64 hexadecimal digits/],
  [`client:md5:${HEX}`, /is not the hash of a token/],
  [`client:${HEX}`, /is not the hash of a token/],
  [`=client:sha256:${HEX}`, /has a name that is not/],
  [`a b=client:sha256:${HEX}`, /has a name that is not/],
  [`${PLAIN}=client:sha256:${HEX}`, /has a name that is not/],
  [`${'n'.repeat(201)}=client:sha256:${HEX}`, /has a name that is not/],
  [7, /must be a text or/],
  [null, /must be a text or/],
  [[`client:sha256:${HEX}`], /must be a text or/],
  [{ role: 'client' }, /is not the hash of a token/],
  [{ role: 'client', hash: HEX }, /is not the hash of a token/],
  [{ role: 'toString', hash: `sha256:${HEX}` }, /the role 'toString'/],
  [{ role: 'client', hash: `sha256:${HEX}`, roles: [] }, /a key that is none of name, role, hash/],
])('%j is refused, with its place', (given, message) => {
  const read = () => readTokens([`worker:sha256:${'0'.repeat(64)}`, given as string], 'listen.tokens')
  expect(read).toThrow(expect.objectContaining({ code: 'invalid_option' }))
  expect(read).toThrow(message)
  expect(read).toThrow(/^listen\.tokens\[1\] /)
})

test.each<[unknown]>([
  [PLAIN],
  [`client:${PLAIN}`],
  [`ci=client:${PLAIN}`],
  [{ role: 'client', hash: PLAIN }],
  [{ role: 'client', token: PLAIN }],
  [{ role: PLAIN, hash: `sha256:${HEX}` }],
  [`${PLAIN}:sha256:${HEX}`],
  [{ [PLAIN]: 'client' }],
])('a plain token is refused and not repeated: %j', (given) => {
  const error = caught(() => readTokens([given as string]))
  expect(error.code).toBe('invalid_option')
  expect(JSON.stringify([error.message, error.fields])).not.toContain('AAAA')
})

test('whoever writes a plain token is told how to make its hash', () => {
  for (const given of [PLAIN, `client:${PLAIN}`, 'client:hunter2', { role: 'client', token: PLAIN }]) {
    expect(caught(() => readTokens([given as string])).hint).toMatch(/printf %s .* sha256sum/)
  }
})

test('one token cannot have two roles', () => {
  expect(() => readTokens([`client:sha256:${HEX}`, `admin:sha256:${HEX.toUpperCase()}`])).toThrow(
    'tokens[1] is the same token as tokens[0]',
  )
})

test('tokens may share a name, so that one can replace another', () => {
  const tokens = [createToken('client', randomness, 'ci'), createToken('client', randomness, 'ci')]
  const known = readTokens(tokens.map(({ entry }) => entry))
  expect(tokens.map(({ token }) => known.find(token)?.name)).toEqual(['ci', 'ci'])
})

test('there is a limit to their number, and a single text is not a list', () => {
  const many = Array.from({ length: MAX_ACCESS_TOKENS + 1 }, (_, index) => entryOf(index))
  expect(readTokens(many.slice(1)).size).toBe(MAX_ACCESS_TOKENS)
  expect(() => readTokens(many)).toThrow(/at most 1000/)
  expect(() => readTokens(`client:sha256:${HEX}` as never)).toThrow('tokens must be a list')
})

test('of many tokens each is found with its own role', () => {
  const made = ROLES.map((role) => createToken(role, randomness))
  const tokens = readTokens(made.map(({ entry }) => entry))
  expect(made.map(({ token }) => tokens.find(token)?.role)).toEqual([...ROLES])
})

test('a password does not match, even when somebody put its hash there', () => {
  const hash = `sha256:${createHash('sha256').update('hunter2').digest('hex')}`
  expect(readTokens([{ role: 'admin', hash }]).find('hunter2')).toBeUndefined()
})

test('neither a random token nor one that differs a little ever matches', () => {
  const made = ROLES.map((role) => createToken(role, randomness))
  const tokens = readTokens(made.map(({ entry }) => entry))
  const random = fc
    .uint8Array({ minLength: 32, maxLength: 32 })
    .map((bytes) => `cft_${Buffer.from(bytes).toString('base64url')}`)
  const changed = fc
    .tuple(fc.nat(made.length - 1), fc.nat(46), fc.constantFrom(...'AZaz09_-'))
    .map(([which, at, letter]) => made[which]!.token.slice(0, at) + letter + made[which]!.token.slice(at + 1))
    .filter((text) => !made.some(({ token }) => token === text))
  const near = fc
    .tuple(fc.nat(made.length - 1), fc.string())
    .map(([which, extra]) => made[which]!.token + extra)
    .filter((text) => !made.some(({ token }) => token === text))
  fc.assert(
    fc.property(fc.oneof(random, changed, near, fc.string(), fc.string({ unit: 'binary' })), (token) => {
      expect(tokens.find(token)).toBeUndefined()
    }),
    { numRuns: 2_000 },
  )
})

test('the hash of a token is no token', () => {
  const { entry } = createToken('admin', randomness)
  const tokens = readTokens([entry])
  for (const text of [entry.hash, entry.hash.slice('sha256:'.length), tokenText(entry)]) {
    expect(tokens.find(text)).toBeUndefined()
  }
})

function entryOf(index: number): TokenEntry {
  return { role: 'worker', hash: `sha256:${index.toString(16).padStart(64, '0')}` }
}

function caught(call: () => unknown): CurfewError {
  try {
    call()
  } catch (error) {
    return error as CurfewError
  }
  throw new Error('nothing was thrown')
}
