import { expect, test } from 'vitest'
import { isLoopback } from './authority.ts'
import { allowedHosts, checkHeaders, checkListen, formatListen, parseListen } from './listen-rules.ts'

test.each([
  ['127.0.0.1:7070', { type: 'tcp', host: '127.0.0.1', port: 7070 }],
  ['localhost:0', { type: 'tcp', host: 'localhost', port: 0 }],
  ['LocalHost.:65535', { type: 'tcp', host: 'localhost', port: 65_535 }],
  ['0.0.0.0:80', { type: 'tcp', host: '0.0.0.0', port: 80 }],
  ['[::1]:7070', { type: 'tcp', host: '::1', port: 7070 }],
  ['[0:0::0:1]:7070', { type: 'tcp', host: '::1', port: 7070 }],
  ['[FD00::A]:7070', { type: 'tcp', host: 'fd00::a', port: 7070 }],
  ['[::ffff:127.0.0.1]:7070', { type: 'tcp', host: '127.0.0.1', port: 7070 }],
  ['manager_1.internal:7070', { type: 'tcp', host: 'manager_1.internal', port: 7070 }],
  ['unix:/run/curfew.sock', { type: 'unix', path: '/run/curfew.sock' }],
  ['unix:///run/curfew.sock', { type: 'unix', path: '/run/curfew.sock' }],
  ['unix:here.sock', { type: 'unix', path: 'here.sock' }],
  ['unix:/with space:and colon', { type: 'unix', path: '/with space:and colon' }],
  [`unix:/${'x'.repeat(102)}`, { type: 'unix', path: `/${'x'.repeat(102)}` }],
])('%s is an address to listen on', (text, address) => {
  expect(parseListen(text)).toEqual(address)
  expect(parseListen(formatListen(parseListen(text)))).toEqual(address)
})

test.each<[unknown, RegExp]>([
  ['', /is not an address/],
  [undefined, /is not an address/],
  [7070, /is not an address/],
  ['7070', /127\.0\.0\.1:7070 for this machine alone, 0\.0\.0\.0:7070 for every network/],
  [':7070', /127\.0\.0\.1:7070 for this machine alone/],
  ['localhost', /has no port/],
  ['[::1]', /has no port/],
  ['localhost:', /is not an address/],
  ['localhost:65536', /is not an address/],
  ['localhost:-1', /is not an address/],
  ['localhost:0x50', /is not an address/],
  ['localhost:7070 ', /is not an address/],
  ['local host:7070', /is not an address/],
  ['::1:7070', /is not an address/],
  ['[::1:7070', /is not an address/],
  ['[localhost]:7070', /is not an address/],
  ['[127.0.0.1]:7070', /is not an address/],
  ['[fe80::1%eth0]:7070', /is not an address/],
  ['127.1:7070', /is not an address/],
  ['0x7f.0.0.1:7070', /is not an address/],
  ['256.0.0.1:7070', /is not an address/],
  ['*:7070', /is not an address/],
  ['me@localhost:7070', /is not an address/],
  ['http://localhost:7070', /is a URL/],
  ['unix:', /names no socket file/],
  ['unix://run/curfew.sock', /names no socket file/],
  ['unix:/run/\0', /names no socket file/],
  [`unix:/${'x'.repeat(103)}`, /longer path than a socket can have/],
  [`unix:/${'ü'.repeat(60)}`, /longer path than a socket can have/],
])('%j is none', (text, message) => {
  const parse = () => parseListen(text as string, '--listen')
  expect(parse).toThrow(expect.objectContaining({ code: 'invalid_option' }))
  expect(parse).toThrow(message)
  expect(parse).toThrow(/^--listen: /)
})

const TOKENS = { size: 1 }
const NONE = { size: 0 }
const TLS = {}
const MUTUAL = { clientCa: 'pem' }
const CLEAR = /travel in the clear/

test.each([
  ['unix:/run/c.sock', undefined, undefined, 'safe'],
  ['127.0.0.1:1', undefined, undefined, 'safe'],
  ['127.8.9.10:1', NONE, undefined, 'safe'],
  ['[::1]:1', undefined, undefined, 'safe'],
  ['[::ffff:127.0.0.1]:1', undefined, undefined, 'safe'],
  ['LOCALHOST:1', undefined, undefined, 'safe'],
  ['localhost:1', TOKENS, undefined, 'safe'],
  ['0.0.0.0:1', undefined, undefined, 'unsafe'],
  ['0.0.0.0:1', NONE, undefined, 'unsafe'],
  ['[::]:1', undefined, undefined, 'unsafe'],
  ['[::ffff:0.0.0.0]:1', undefined, undefined, 'unsafe'],
  ['10.0.0.5:1', undefined, undefined, 'unsafe'],
  ['128.0.0.1:1', undefined, undefined, 'unsafe'],
  ['[::2]:1', undefined, undefined, 'unsafe'],
  ['localhost.evil.example:1', undefined, undefined, 'unsafe'],
  ['127.0.0.1.example:1', undefined, undefined, 'unsafe'],
  ['app.localhost:1', undefined, undefined, 'unsafe'],
  ['0.0.0.0:1', undefined, TLS, 'unsafe'],
  ['0.0.0.0:1', NONE, TLS, 'unsafe'],
  ['0.0.0.0:1', undefined, { clientCa: '' }, 'unsafe'],
  ['0.0.0.0:1', undefined, MUTUAL, 'safe'],
  ['0.0.0.0:1', TOKENS, TLS, 'safe'],
  ['0.0.0.0:1', TOKENS, MUTUAL, 'safe'],
  ['0.0.0.0:1', TOKENS, undefined, 'clear'],
  ['manager.internal:1', TOKENS, undefined, 'clear'],
])('%s with tokens %j and TLS %j is %s', (text, tokens, tls, verdict) => {
  const check = () => checkListen({ address: parseListen(text), tokens, tls })
  if (verdict === 'unsafe') return expect(check).toThrow(expect.objectContaining({ code: 'unsafe_listen' }))
  return verdict === 'clear' ? expect(check()).toMatch(CLEAR) : expect(check()).toBeUndefined()
})

test('an unsafe listener is told where, why and what to do', () => {
  const address = parseListen('[::]:7070')
  expect(() => checkListen({ address })).toThrow(/on \[::\]:7070 without tokens: anybody .*\n.*set tokens/)
  expect(() => checkListen({ address, tls: {} })).toThrow(/TLS alone does not tell who calls/)
})

const HOSTS = [
  'curfew.example.com',
  'Proxy.Example.com.:8443',
  'tls.example.com:443',
  '10.9.9.9',
  'fd00::1',
  '[fd00::2]:90',
]

test.each<[string, string, 'ok' | 400 | 421]>([
  ['127.0.0.1:7070', '127.0.0.1:7070', 'ok'],
  ['127.0.0.1:7070', 'localhost:7070', 'ok'],
  ['127.0.0.1:7070', 'LOCALHOST.:7070', 'ok'],
  ['127.0.0.1:7070', 'localhost', 'ok'],
  // A tunnel ends at another port.
  ['127.0.0.1:7070', 'localhost:9000', 'ok'],
  ['127.0.0.1:7070', '[::1]:7070', 'ok'],
  ['localhost:7070', '[0:0:0:0:0:0:0:1]', 'ok'],
  ['[::1]:7070', '127.0.0.2:7070', 'ok'],
  ['[::1]:7070', '[::ffff:127.0.0.1]:7070', 'ok'],
  ['127.0.0.1:7070', 'evil.example:7070', 421],
  ['127.0.0.1:7070', 'localhost.evil.example', 421],
  ['127.0.0.1:7070', 'app.localhost', 421],
  ['127.0.0.1:7070', '127.0.0.1.nip.example', 421],
  ['127.0.0.1:7070', '0.0.0.0:7070', 421],
  ['127.0.0.1:7070', '10.0.0.5:7070', 421],
  ['127.0.0.1:7070', '[::]:7070', 421],
  ['127.0.0.1:7070', 'curfew.example.com', 'ok'],
  ['127.0.0.1:7070', 'CURFEW.example.com.:1234', 'ok'],
  ['127.0.0.1:7070', 'sub.curfew.example.com', 421],
  ['127.0.0.1:7070', 'proxy.example.com:8443', 'ok'],
  ['127.0.0.1:7070', 'proxy.example.com:8444', 421],
  ['127.0.0.1:7070', 'proxy.example.com', 421],
  // A browser leaves the port of its scheme out.
  ['127.0.0.1:7070', 'tls.example.com', 'ok'],
  ['127.0.0.1:7070', '10.9.9.9:7070', 'ok'],
  ['127.0.0.1:7070', '[FD00:0::1]:7070', 'ok'],
  ['127.0.0.1:7070', '[fd00::2]:91', 421],
  ['10.0.0.5:7070', '10.0.0.5:7070', 'ok'],
  ['10.0.0.5:7070', '10.0.0.6:7070', 421],
  ['10.0.0.5:7070', 'localhost:7070', 421],
  ['manager.internal:7070', 'Manager.Internal:7070', 'ok'],
  ['manager.internal:7070', 'other.internal:7070', 421],
  ['0.0.0.0:7070', '192.168.1.7:7070', 'ok'],
  ['0.0.0.0:7070', 'localhost:7070', 'ok'],
  ['[::]:7070', '[2001:db8::7]:7070', 'ok'],
  ['0.0.0.0:7070', 'evil.example:7070', 421],
  ['127.0.0.1:7070', '', 400],
  ['127.0.0.1:7070', 'local host', 400],
  ['127.0.0.1:7070', ' localhost', 400],
  ['127.0.0.1:7070', 'localhost\t', 400],
  ['127.0.0.1:7070', 'localhost\0', 400],
  ['127.0.0.1:7070', 'localhost\r\nX: y', 400],
  ['127.0.0.1:7070', 'localhost, evil.example', 400],
  ['127.0.0.1:7070', 'evil.example@localhost', 400],
  ['127.0.0.1:7070', 'localhost/x', 400],
  ['127.0.0.1:7070', 'localhost#', 400],
  ['127.0.0.1:7070', 'localhost:', 400],
  ['127.0.0.1:7070', 'localhost:99999', 400],
  ['127.0.0.1:7070', 'localhost:7070:7070', 400],
  ['127.0.0.1:7070', 'localhost..', 400],
  ['127.0.0.1:7070', '.localhost', 400],
  ['127.0.0.1:7070', '.', 400],
  ['127.0.0.1:7070', '::1', 400],
  ['127.0.0.1:7070', '[::1', 400],
  ['127.0.0.1:7070', '[::1%lo]:7070', 400],
  ['127.0.0.1:7070', '[::1]x:7070', 400],
  ['127.0.0.1:7070', '127.1', 400],
  ['127.0.0.1:7070', '2130706433', 400],
  ['127.0.0.1:7070', '0177.0.0.1', 400],
  ['127.0.0.1:7070', 'ⓛocalhost', 400],
  ['127.0.0.1:7070', 'localhoſt', 400],
  ['kiosk:7070', '\u212aiosk:7070', 400],
  ['127.0.0.1:7070', 'xn--caf-dma.example', 421],
  ['127.0.0.1:7070', 'a'.repeat(100_000), 400],
  ['127.0.0.1:7070', 'a.'.repeat(50_000), 400],
])('a manager on %s called by the host %j: %s', (listen, host, verdict) => {
  const refusal = checkHeaders({ host: [host], origin: [] }, allowedHosts(parseListen(listen), HOSTS))
  expect(refusal?.status ?? 'ok').toBe(verdict)
  // The answer repeats nothing that is not plain.
  expect(refusal?.message ?? '').toMatch(/^[\x20-\x7e]{0,400}$/)
})

test.each<[string, string, 'ok' | 403]>([
  ['localhost:7070', 'http://localhost:7070', 'ok'],
  ['localhost:7070', 'HTTP://LocalHost:7070', 'ok'],
  ['localhost', 'http://localhost', 'ok'],
  ['localhost', 'https://localhost', 'ok'],
  ['localhost:80', 'http://localhost', 'ok'],
  ['localhost:443', 'https://localhost', 'ok'],
  ['[::1]:7070', 'http://[::1]:7070', 'ok'],
  // Another port of this machine, and another name of it, are other people's pages.
  ['localhost:7070', 'http://localhost:3000', 403],
  ['localhost:7070', 'http://localhost', 403],
  ['localhost:80', 'https://localhost', 403],
  ['localhost:7070', 'http://127.0.0.1:7070', 403],
  ['localhost:7070', 'http://evil.example', 403],
  ['localhost:7070', 'http://evil.example:7070', 403],
  ['localhost:7070', 'https://curfew.example.com', 'ok'],
  ['localhost:7070', 'http://curfew.example.com:5173', 'ok'],
  ['localhost:7070', 'https://proxy.example.com:8443', 'ok'],
  ['localhost:7070', 'https://proxy.example.com', 403],
  ['localhost:7070', 'https://tls.example.com', 'ok'],
  ['localhost:7070', 'http://tls.example.com', 403],
  ['localhost:7070', 'null', 403],
  ['localhost:7070', '', 403],
  ['localhost:7070', 'localhost:7070', 403],
  ['localhost:7070', 'file://', 403],
  ['localhost:7070', 'chrome-extension://localhost:7070', 403],
  ['localhost:7070', 'http://localhost:7070/', 403],
  ['localhost:7070', 'http://a@localhost:7070', 403],
  ['localhost:7070', 'http://localhost:7070 http://evil.example', 403],
  ['localhost:7070', 'http://localhost:7070\r\n', 403],
  ['localhost:7070', ` http://localhost:7070`, 403],
  ['localhost:7070', `http://${'a'.repeat(100_000)}`, 403],
])('a page: host %s, origin %j: %s', (host, origin, verdict) => {
  const allowed = allowedHosts(parseListen('127.0.0.1:7070'), HOSTS)
  const refusal = checkHeaders({ host: [host], origin: [origin] }, allowed)
  expect(refusal?.status ?? 'ok').toBe(verdict)
  expect(refusal?.message ?? '').toMatch(/^[\x20-\x7e]{0,400}$/)
})

test('none or several Host headers, and several origins, are no request', () => {
  const allowed = allowedHosts(parseListen('127.0.0.1:7070'))
  const status = (host: string[], origin: string[] = []) => checkHeaders({ host, origin }, allowed)?.status
  expect(status([])).toBe(400)
  expect(status(['localhost', 'localhost'])).toBe(400)
  expect(status(['localhost', 'evil.example'])).toBe(400)
  expect(status(['localhost'], ['http://localhost', 'http://localhost'])).toBe(400)
  expect(status(['localhost'], ['http://localhost'])).toBeUndefined()
})

test('over a Unix socket nothing is checked', () => {
  const allowed = allowedHosts(parseListen('unix:/run/c.sock'))
  expect(checkHeaders({ host: [], origin: [] }, allowed)).toBeUndefined()
  expect(checkHeaders({ host: ['evil.example', 'x'], origin: ['null'] }, allowed)).toBeUndefined()
})

test.each<[unknown, string]>([
  [['ok.example', 'https://curfew.example.com'], 'listen.hosts[1] is not a host'],
  [['*.example.com'], 'listen.hosts[0] is not a host'],
  [['*'], 'listen.hosts[0] is not a host'],
  [[''], 'listen.hosts[0] is not a host'],
  [[5], 'listen.hosts[0] is not a host'],
  [['fe80::1%eth0'], 'listen.hosts[0] is not a host'],
  ['curfew.example.com', 'listen.hosts must be a list'],
  [Array.from({ length: 101 }, (_, index) => `h${index}.example`), 'listen.hosts has more than 100 entries'],
])('hosts %j are refused', (hosts, message) => {
  const read = () => allowedHosts(parseListen('localhost:1'), hosts as string[], 'listen.hosts')
  expect(read).toThrow(message)
  expect(read).toThrow(expect.objectContaining({ code: 'invalid_option' }))
})

test.each([
  ['localhost', true],
  ['127.0.0.1', true],
  ['127.255.255.255', true],
  ['::1', true],
  ['::ffff:127.0.0.1', true],
  ['0.0.0.0', false],
  ['::', false],
  ['126.255.255.255', false],
  ['128.0.0.0', false],
  ['::2', false],
  ['fe80::1', false],
  ['localhost.example', false],
  ['', false],
])('%s is loopback: %s', (host, expected) => {
  expect(isLoopback(host)).toBe(expected)
})
