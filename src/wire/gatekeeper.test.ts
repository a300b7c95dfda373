import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import { expect, onTestFinished, test } from 'vitest'
import { MAX_COUNTED_ADDRESSES } from '../core/limits.ts'
import { SystemRandomness } from '../core/system-clock.ts'
import { VirtualClock } from '../testing/virtual-clock.ts'
import type { GatekeeperOptions, Knock } from './gatekeeper.ts'
import { Gatekeeper } from './gatekeeper.ts'
import { parseListen } from './listen-rules.ts'
import { RefusalCounts } from './refusal-counts.ts'
import type { Role } from './roles.ts'
import { ROLES } from './roles.ts'
import { createToken, readTokens } from './tokens.ts'

const SUBMIT = '/curfew.v1.JobService/Submit'
const GET = '/curfew.v1.JobService/Get'
const randomness = new SystemRandomness()
const made = ROLES.map((role) => createToken(role, randomness, `the-${role}`))
const tokens = readTokens(made.map(({ entry }) => entry))
const clock = new VirtualClock()

function gatekeeper(options: Partial<GatekeeperOptions> = {}, listen = '127.0.0.1:7070'): Gatekeeper {
  return new Gatekeeper({ address: parseListen(listen), clock, ...options })
}

function tokenOf(role: Role): string {
  return made[ROLES.indexOf(role)]!.token
}

function knock(path: string, headers: Knock['headers'] = {}): Knock {
  return { path, headers: { host: 'localhost:7070', ...headers }, remoteAddress: '127.0.0.1' }
}

function bearer(role: Role): Knock['headers'] {
  return { authorization: `Bearer ${tokenOf(role)}` }
}

test('without tokens everybody on this machine is an admin', () => {
  const admitted = { type: 'admitted', role: 'admin', name: 'local' }
  expect(gatekeeper().admit(knock(SUBMIT))).toEqual(admitted)
  expect(gatekeeper({ tokens: readTokens([]) }).admit(knock(SUBMIT))).toEqual(admitted)
  expect(gatekeeper({}, 'unix:/run/c.sock').admit({ path: SUBMIT, headers: {} })).toEqual(admitted)
})

test.each(ROLES)('a token of the role %s is admitted as it, under its name', (role) => {
  const answer = gatekeeper({ tokens }).admit(knock('/curfew.v1.ClusterService/GetStatus', bearer(role)))
  expect(answer).toEqual({ type: 'admitted', role, name: `the-${role}` })
})

test('a token without a name is told by the beginning of its hash', () => {
  const { token, entry } = createToken('client', randomness)
  const answer = gatekeeper({ tokens: readTokens([entry]) }).admit(
    knock(GET, { authorization: `Bearer ${token}` }),
  )
  expect(answer).toMatchObject({ name: `client ${entry.hash.slice(0, 15)}` })
  expect(JSON.stringify(answer)).not.toContain(token)
})

test.each<[string, Knock['headers']]>([
  ['no header', {}],
  ['an empty header', { authorization: '' }],
  ['a scheme alone', { authorization: 'Bearer' }],
  ['a scheme and a space', { authorization: 'Bearer ' }],
  ['an unknown token', { authorization: `Bearer cft_${'A'.repeat(43)}` }],
  ['another scheme', { authorization: `Basic ${tokenOf('admin')}` }],
  ['a scheme in a longer word', { authorization: `XBearer ${tokenOf('admin')}` }],
  ['no scheme', { authorization: tokenOf('admin') }],
  ['a token and more', { authorization: `Bearer ${tokenOf('admin')} x` }],
  ['two in one header', { authorization: `Bearer ${tokenOf('client')}, Bearer ${tokenOf('admin')}` }],
  ['a token in quotes', { authorization: `Bearer "${tokenOf('admin')}"` }],
  ['a token with a zero', { authorization: `Bearer ${tokenOf('admin')}\0` }],
  ['a token with a line end', { authorization: `Bearer ${tokenOf('admin')}\n` }],
  ['letters that are not ASCII', { authorization: 'Bearer cft_ü\u202e\ud800' }],
  ['a token with a full-width letter', { authorization: `Bearer ｃ${tokenOf('admin').slice(1)}` }],
  ['a megabyte', { authorization: `Bearer ${'A'.repeat(1024 * 1024)}` }],
  ['a megabyte of spaces', { authorization: `Bearer${' '.repeat(1024 * 1024)}` }],
  ['the hash', { authorization: `Bearer ${made[4]!.entry.hash}` }],
  ['a cookie', { cookie: `authorization=Bearer ${tokenOf('admin')}` }],
])('%s is answered as any unknown caller is', (_, headers) => {
  expect(gatekeeper({ tokens }).admit(knock(SUBMIT, headers))).toEqual({
    type: 'refused',
    status: 401,
    code: 'unauthenticated',
    message: 'a token is needed that this manager knows: Authorization: Bearer TOKEN',
    headers: { 'www-authenticate': 'Bearer' },
  })
})

test('a token in the query is none', () => {
  const path = `${SUBMIT}?access_token=${tokenOf('admin')}`
  expect(gatekeeper({ tokens }).admit(knock(path))).toMatchObject({ status: 401 })
})

test.each(['bearer', 'BEARER', 'bEaReR', 'Bearer  '])('the scheme may be written %j', (scheme) => {
  const headers = { authorization: `${scheme} ${tokenOf('client')}` }
  expect(gatekeeper({ tokens }).admit(knock(SUBMIT, headers))).toMatchObject({ role: 'client' })
})

test('several Authorization headers are no request, with and without tokens', () => {
  const headers = { authorization: [`Bearer ${tokenOf('admin')}`, `Bearer ${tokenOf('admin')}`] }
  expect(gatekeeper({ tokens }).admit(knock(SUBMIT, headers))).toMatchObject({ status: 400 })
  expect(gatekeeper().admit(knock(SUBMIT, headers))).toMatchObject({ status: 400 })
})

test('who may not call a method is told the role and the method', () => {
  expect(gatekeeper({ tokens }).admit(knock(SUBMIT, bearer('worker')))).toEqual({
    type: 'refused',
    status: 403,
    code: 'permission_denied',
    message: 'the role worker may not call /curfew.v1.JobService/Submit: it takes client, peer, admin',
    headers: {},
  })
  expect(gatekeeper({ tokens }).admit(knock('/metrics', bearer('worker')))).toMatchObject({ status: 403 })
})

test('the query of a path does not count', () => {
  const gate = gatekeeper({ tokens })
  expect(gate.admit(knock(`${GET}?connect=v1&message=%7B%7D`, bearer('read-only')))).toMatchObject({
    role: 'read-only',
  })
  expect(gate.admit(knock(`${SUBMIT}?/healthz`, bearer('read-only')))).toMatchObject({ status: 403 })
  expect(gate.admit(knock(`/healthz?${SUBMIT}`))).toMatchObject({ type: 'admitted' })
})

test('what does not exist is refused for admins too, and not told to strangers', () => {
  for (const path of ['/', '', '/admin', '/curfew.v1.JobService/Drop', '/__proto__', `${SUBMIT}/`]) {
    expect(gatekeeper().admit(knock(path))).toMatchObject({ status: 404, code: 'unknown_path' })
    expect(gatekeeper({ tokens }).admit(knock(path, bearer('admin')))).toMatchObject({ status: 404 })
    expect(gatekeeper({ tokens }).admit(knock(path))).toMatchObject({ status: 401 })
  }
})

test('whether it lives and is ready may be asked by anybody, under any name', () => {
  for (const path of ['/healthz', '/readyz']) {
    const answer = gatekeeper({ tokens }).admit({ path, headers: { host: 'probe', origin: 'null' } })
    expect(answer).toEqual({ type: 'admitted', role: 'read-only', name: 'anyone' })
  }
  expect(gatekeeper({ tokens }).admit(knock('/metrics'))).toMatchObject({ status: 401 })
})

test('a wrong host or origin is refused before any credential is looked at', () => {
  const gate = gatekeeper({ tokens, hosts: ['curfew.example.com'] })
  const status = (headers: Knock['headers']) => gate.admit(knock(SUBMIT, { ...bearer('admin'), ...headers }))
  expect(status({ host: 'evil.example' })).toMatchObject({ status: 421, code: 'wrong_host' })
  expect(status({ host: ['localhost', 'evil.example'] })).toMatchObject({
    status: 400,
    code: 'invalid_request',
  })
  expect(status({ host: undefined })).toMatchObject({ status: 400 })
  expect(status({ origin: 'http://evil.example' })).toMatchObject({ status: 403, code: 'wrong_origin' })
  expect(status({ host: 'curfew.example.com', origin: 'https://curfew.example.com' })).toMatchObject({
    role: 'admin',
  })
})

test('the authority of HTTP/2 counts as the host', () => {
  const admit = (headers: Knock['headers']) => gatekeeper().admit({ path: GET, headers })
  expect(admit({ ':authority': 'localhost:7070' })).toMatchObject({ role: 'admin' })
  expect(admit({ ':authority': 'localhost:7070', host: 'localhost:7070' })).toMatchObject({ role: 'admin' })
  expect(admit({ ':authority': 'evil.example' })).toMatchObject({ status: 421 })
  expect(admit({ ':authority': 'localhost:7070', host: 'evil.example' })).toMatchObject({ status: 400 })
})

test('a listener that anybody could call is not made', () => {
  const unsafe = expect.objectContaining({ code: 'unsafe_listen' })
  expect(() => gatekeeper({}, '0.0.0.0:7070')).toThrow(unsafe)
  expect(() => gatekeeper({ tls: {} }, '0.0.0.0:7070')).toThrow(unsafe)
  expect(gatekeeper({ tokens }, '0.0.0.0:7070').warning).toMatch(/in the clear/)
  expect(gatekeeper({ tokens, tls: {} }, '0.0.0.0:7070').warning).toBeUndefined()
})

test('a client certificate is the credential where there are no tokens, and comes on top where there are', () => {
  const tls = { clientCa: 'pem' }
  const host = { host: '10.0.0.5:7070' }
  const certificate = { name: 'ops' }
  const alone = gatekeeper({ tls }, '0.0.0.0:7070')
  expect(alone.admit(knock(SUBMIT, host))).toMatchObject({ status: 401, code: 'unauthenticated' })
  expect(alone.admit({ ...knock(SUBMIT, host), clientCertificate: certificate })).toEqual({
    type: 'admitted',
    role: 'admin',
    name: 'ops',
  })
  const both = gatekeeper({ tls, tokens }, '0.0.0.0:7070')
  const shown = knock(GET, { ...host, ...bearer('read-only') })
  expect(both.admit(shown)).toMatchObject({ status: 401 })
  expect(both.admit({ ...knock(GET, host), clientCertificate: certificate })).toMatchObject({ status: 401 })
  expect(both.admit({ ...shown, clientCertificate: certificate })).toMatchObject({ role: 'read-only' })
})

test('tokens hold on a Unix socket as well', () => {
  const gate = gatekeeper({ tokens }, 'unix:/run/c.sock')
  expect(gate.admit({ path: SUBMIT, headers: {} })).toMatchObject({ status: 401 })
  expect(gate.admit({ path: SUBMIT, headers: bearer('client') })).toMatchObject({ role: 'client' })
})

test('after 20 refused tokens in a minute an address is told to wait, and nobody else is', async () => {
  const time = new VirtualClock()
  const gate = gatekeeper({ tokens, clock: time })
  const from = (remoteAddress: string, headers: Knock['headers'] = {}) =>
    gate.admit({ ...knock(SUBMIT, headers), remoteAddress })
  for (let i = 0; i < 20; i++) expect(from('10.0.0.1')).toMatchObject({ status: 401 })
  await time.advance('15s')
  expect(from('10.0.0.1')).toEqual({
    type: 'refused',
    status: 429,
    code: 'too_many_refusals',
    message: 'too many requests without a valid credential from this address',
    headers: { 'retry-after': '45' },
  })
  expect(from('::ffff:10.0.0.1')).toMatchObject({ status: 429 })
  expect(from('10.0.0.2')).toMatchObject({ status: 401 })
  // Behind the same proxy.
  expect(from('10.0.0.1', bearer('client'))).toMatchObject({ role: 'client' })
  await time.advance('44999ms')
  expect(from('10.0.0.1')).toMatchObject({ status: 429 })
  await time.advance('1ms')
  expect(from('10.0.0.1')).toMatchObject({ status: 401 })
})

test('a token that may not do something is no refused token', () => {
  const gate = gatekeeper({ tokens })
  for (let i = 0; i < 30; i++)
    expect(gate.admit(knock(SUBMIT, bearer('worker')))).toMatchObject({ status: 403 })
  expect(gate.admit(knock(SUBMIT))).toMatchObject({ status: 401 })
})

test.each([
  ['2001:db8:1:2::1', '2001:db8:1:2:ffff:0:0:9', true],
  ['2001:db8:1:2::1', '2001:db8:1:3::1', false],
  ['2001:db8::1', '2001:db8:0:0:5::', true],
  ['2001:db8::1', '2001:db8:0:1::', false],
  ['1::2:3:4:5:6:7', '1:0:2:3::', true],
  ['1:0:0:3:4:5:6:7', '1:0:0:3::', true],
  ['fe80::1%eth0', 'fe80::2%eth1', true],
  ['::1', '::2', true],
  ['10.0.0.1', '10.0.0.2', false],
])('%s and %s are counted together: %s', (first, second, together) => {
  const counts = new RefusalCounts(clock)
  for (let i = 0; i < 20; i++) counts.add(first)
  expect(counts.add(second) !== undefined).toBe(together)
})

test('the addresses that are counted are bounded, and forgotten in time', async () => {
  const time = new VirtualClock()
  const counts = new RefusalCounts(time)
  for (let i = 0; i < 21; i++) counts.add('192.168.0.1')
  for (let i = 0; i < MAX_COUNTED_ADDRESSES; i++) counts.add(`10.1.${i >> 8}.${i & 255}`)
  expect(counts.size).toBe(MAX_COUNTED_ADDRESSES)
  // The oldest made room.
  expect(counts.add('192.168.0.1')).toBeUndefined()
  await time.advance('61s')
  expect(counts.add(undefined)).toBeUndefined()
  expect(counts.size).toBe(1)
})

test('a second Host or Authorization header over a real connection is seen', async () => {
  const gate = gatekeeper({ tokens })
  const server = createServer((request, response) => {
    const admission = gate.admit({
      path: request.url ?? '',
      headers: request.headersDistinct,
      remoteAddress: request.socket.remoteAddress,
    })
    response.writeHead(admission.type === 'refused' ? admission.status : 200).end()
  })
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  const { port } = server.address() as AddressInfo
  const ask = async (...lines: string[]) => {
    const socket = connect(port, '127.0.0.1')
    socket.write(
      [`POST ${SUBMIT} HTTP/1.1`, ...lines, 'Connection: close', 'Content-Length: 0', '', ''].join('\r\n'),
    )
    return Number(/^HTTP\/1\.1 (\d+)/.exec(await text(socket))?.[1])
  }
  const host = `Host: localhost:${port}`
  const good = `Authorization: Bearer ${tokenOf('client')}`
  expect(await ask(host, good)).toBe(200)
  expect(await ask(host)).toBe(401)
  expect(await ask(host, 'Host: evil.example', good)).toBe(400)
  expect(await ask('Host: evil.example', host, good)).toBe(400)
  expect(await ask('Host: evil.example', good)).toBe(421)
  expect(await ask(host, good, good)).toBe(400)
  expect(await ask(host, good, 'Origin: http://evil.example')).toBe(403)
  expect(await ask(host, good, `Origin: http://localhost:${port}`, 'Origin: http://evil.example')).toBe(400)
  expect(await ask(host, 'Authorization: Bearer \xff\xfe')).toBe(401)
})
