import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { CurfewError } from '../core/errors.ts'
import { loadConfig } from './config.ts'
import { callerOf, listenerOf } from './credentials.ts'
import { TestIo } from './fixtures/test-io.ts'

let cwd: string

beforeEach(() => {
  cwd = mkdtempSync(path.join(tmpdir(), 'curfew-credentials-'))
  for (const name of ['cert', 'key', 'ca']) writeFileSync(path.join(cwd, `${name}.pem`), `${name} text`)
  writeFileSync(path.join(cwd, 'tokens'), '# who may call\n\n  farm=worker:sha256:2  \nread-only:sha256:3\n')
})

afterEach(() => {
  rmSync(cwd, { recursive: true, force: true })
})

async function made(what: 'listener' | 'caller', flags: Record<string, string>): Promise<unknown> {
  const io = new TestIo({ cwd })
  const config = await loadConfig(io, 'all', flags)
  return (what === 'listener' ? listenerOf(io, config) : callerOf(io, config)).catch(
    (error: CurfewError) => `${error.code}: ${error.message}`,
  )
}

test.each<[string, Record<string, string>, unknown]>([
  ['nothing but its address', {}, { address: '127.0.0.1:4242', tokens: [], hosts: [] }],
  ['false', { listen: 'false', tlsCert: 'cert.pem' }, false],
  [
    'tokens of the list and of the file, without comments',
    { tokens: 'ci=admin:sha256:1', tokensFile: 'tokens', hosts: 'curfew.example' },
    {
      address: '127.0.0.1:4242',
      tokens: ['ci=admin:sha256:1', 'farm=worker:sha256:2', 'read-only:sha256:3'],
      hosts: ['curfew.example'],
    },
  ],
  [
    'certificates',
    { tlsCert: 'cert.pem', tlsKey: 'key.pem', tlsClientCa: 'ca.pem' },
    {
      address: '127.0.0.1:4242',
      tokens: [],
      hosts: [],
      tls: { cert: 'cert text', key: 'key text', clientCa: 'ca text' },
    },
  ],
  [
    'a certificate without its key',
    { tlsCert: 'cert.pem' },
    expect.stringContaining('invalid_config: --tls-cert: tls.cert is of no use without tls.key'),
  ],
  [
    'an authority of clients without a certificate',
    { tlsClientCa: 'ca.pem' },
    expect.stringContaining('--tls-client-ca: tls.clientCa is of no use without tls.cert'),
  ],
  [
    'a file that is not there',
    { tokensFile: 'nowhere' },
    expect.stringMatching(/^invalid_config: --tokens-file: tokensFile: nowhere cannot be read: ENOENT/),
  ],
])('a listener with %s', async (_, flags, expected) => {
  expect(await made('listener', flags)).toEqual(expected)
})

const https = { manager: 'https://a' }

test.each<[string, Record<string, string>, unknown]>([
  ['nothing', {}, {}],
  ['a token', { token: 'cft_x' }, { token: 'cft_x' }],
  ['no certificate where nobody asks for one', { manager: 'http://a', tlsCa: 'nowhere' }, {}],
  ['an authority', { ...https, tlsCa: 'ca.pem' }, { tls: { ca: 'ca text' } }],
  [
    'a certificate of its own',
    { ...https, tlsClientCert: 'cert.pem', tlsClientKey: 'key.pem' },
    { tls: { cert: 'cert text', key: 'key text' } },
  ],
  [
    'a key alone',
    { ...https, tlsClientKey: 'key.pem' },
    expect.stringContaining('tls.clientKey is of no use without tls.clientCert'),
  ],
])('a caller with %s', async (_, flags, expected) => {
  expect(await made('caller', flags)).toEqual(expected)
})
