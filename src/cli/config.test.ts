import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { Command } from 'commander'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { CurfewError } from '../core/errors.ts'
import { MARKS } from '../core/own-work.ts'
import type { Config } from './config.ts'
import { addSettings, loadConfig } from './config.ts'
import type { CurfewConfig } from './curfew-config.ts'
import type { SettingName, User } from './settings.ts'
import { SETTING_NAMES, SETTINGS } from './settings.ts'

let cwd: string

beforeEach(() => {
  cwd = mkdtempSync(path.join(tmpdir(), 'curfew-config-'))
})

afterEach(() => {
  rmSync(cwd, { recursive: true, force: true })
})

interface Given {
  args?: string[]
  env?: Record<string, string>
  file?: CurfewConfig | Record<string, unknown>
  user?: User | 'all'
}

/** As a command does it: commander reads the flags, the loader the rest. */
async function load({ args = [], env = {}, file, user = 'all' }: Given): Promise<Config> {
  if (file) writeFileSync(path.join(cwd, 'curfew.config.json'), JSON.stringify(file))
  const command = addSettings(new Command('test').exitOverride(), user)
  command.parse(args, { from: 'user' })
  return loadConfig({ env, cwd }, user, command.opts())
}

async function problemOf(given: Given): Promise<string> {
  return load(given).then(
    (config) => `no problem: ${JSON.stringify(config.settings)}`,
    (error: CurfewError) => `${error.code}: ${error.message}`,
  )
}

/** For every setting: what to write, and what comes of it. */
const READINGS: Record<SettingName, { text: string; value: unknown; read: unknown }> = {
  store: {
    text: 'postgres://me@db/curfew',
    value: 'postgres://me@db/curfew',
    read: 'postgres://me@db/curfew',
  },
  listen: { text: '[::1]:0', value: '[::1]:0', read: '[::1]:0' },
  tokens: {
    text: 'a=admin:sha256:1, worker:sha256:2',
    value: ['x'],
    read: ['a=admin:sha256:1', 'worker:sha256:2'],
  },
  tokensFile: { text: 'tokens.txt', value: 'tokens.txt', read: 'tokens.txt' },
  tlsCert: { text: 'cert.pem', value: 'cert.pem', read: 'cert.pem' },
  tlsKey: { text: 'key.pem', value: 'key.pem', read: 'key.pem' },
  tlsClientCa: { text: 'ca.pem', value: 'ca.pem', read: 'ca.pem' },
  hosts: { text: 'a.example,b.example', value: ['a.example'], read: ['a.example', 'b.example'] },
  managers: {
    text: 'http://a:4242,unix:/run/c.sock',
    value: ['https://a'],
    read: ['http://a:4242', 'unix:/run/c.sock'],
  },
  token: { text: 'cft_secret', value: 'cft_secret', read: 'cft_secret' },
  tlsCa: { text: 'ca.pem', value: 'ca.pem', read: 'ca.pem' },
  tlsClientCert: { text: 'me.pem', value: 'me.pem', read: 'me.pem' },
  tlsClientKey: { text: 'me.key', value: 'me.key', read: 'me.key' },
  modules: { text: 'a.ts,b.ts', value: ['a.ts'], read: ['a.ts', 'b.ts'] },
  queues: { text: 'bank, mail', value: ['bank'], read: ['bank', 'mail'] },
  concurrency: { text: '0', value: 3, read: 0 },
  turns: { text: '7', value: 7, read: 7 },
  labels: { text: 'zone=eu,disk=fast', value: { zone: 'eu' }, read: { zone: 'eu', disk: 'fast' } },
  queueLimits: { text: 'bank=2,mail=none', value: { bank: 2, mail: null }, read: { bank: 2, mail: null } },
  drain: { text: '1m30s', value: '10s', read: 90_000 },
  log: { text: 'debug', value: 'info', read: 'debug' },
  allowPrivate: { text: 'db.internal,10.0.0.1', value: true, read: ['db.internal', '10.0.0.1'] },
}

function nested(key: string, value: unknown): Record<string, unknown> {
  const [first = '', second] = key.split('.')
  return { [first]: second === undefined ? value : { [second]: value } }
}

describe.each(SETTING_NAMES)('%s', (name) => {
  const { key, env, flag } = SETTINGS[name]
  const { text, value, read } = READINGS[name]
  const long = flag.split(' ')[0] as string

  test('a flag wins over the environment, that over the file, that over the default', async () => {
    const file = nested(key, value)
    const other = { ...READINGS[name], ...OTHERS[name] }
    const seen: [unknown, string][] = []
    for (const given of [
      { args: [long, text], env: { [env]: other.text }, file },
      { env: { [env]: text }, file },
      { file },
    ]) {
      const { settings, origins } = await load(given)
      seen.push([settings[name], origins[name].place])
    }
    rmSync(path.join(cwd, 'curfew.config.json'))
    const { settings, origins } = await load({})
    expect(seen).toEqual([
      [read, long],
      [read, env],
      [name === 'drain' ? 10_000 : value, 'curfew.config.json'],
    ])
    expect(settings[name]).toEqual(SETTINGS[name].default)
    expect(origins[name]).toEqual({ from: 'default', place: 'default' })
  })
})

/** Another text where any will not do. */
const OTHERS: Partial<Record<SettingName, { text: string }>> = {
  listen: { text: 'false' },
  concurrency: { text: '5' },
  queueLimits: { text: 'bank=9' },
  allowPrivate: { text: 'false' },
}

describe('what is wrong is told with its place', () => {
  test.each<[string, Given, string]>([
    [
      'a number that is none',
      { env: { CURFEW_CONCURRENCY: 'ten' } },
      "CURFEW_CONCURRENCY: must be a whole number from 0 to 10000, got 'ten'",
    ],
    [
      'a number that is too large',
      { args: ['--turns', '100000'] },
      "--turns: must be a whole number from 1 to 10000, got '100000'",
    ],
    [
      'a text for a number',
      { file: { concurrency: '3' } },
      "curfew.config.json: concurrency: must be a whole number from 0 to 10000, got '3'",
    ],
    [
      'a list that is none',
      { file: { queues: 'bank' } },
      "curfew.config.json: queues: must be a list of names, got 'bank'",
    ],
    [
      'an element',
      { file: { managers: ['http://a', 7] } },
      'curfew.config.json: managers[1]: must be a text that is not empty, got 7',
    ],
    [
      'an entry',
      { file: { queueLimits: { bank: 0 } } },
      'curfew.config.json: queueLimits.bank: must be a whole number above 0, or none (null in a file), got 0',
    ],
    [
      'an entry of a text',
      { env: { CURFEW_QUEUE_LIMITS: 'bank=two' } },
      "CURFEW_QUEUE_LIMITS.bank: must be a whole number above 0, or none (null in a file), got 'two'",
    ],
    ['a label without a value', { args: ['--labels', 'zone'] }, "--labels: must be name=value,…, got 'zone'"],
    [
      'a gap in a list',
      { args: ['--queues', 'a,,b'] },
      "--queues: must be a list without gaps: a,b, got 'a,,b'",
    ],
    [
      'a manager without a scheme',
      { args: ['--manager', 'db:4242'] },
      "--manager: must be 'http://host:port', 'https://host:port' or 'unix:PATH', got 'db:4242'\n  Did you mean 'http://db:4242'?",
    ],
    [
      'a port alone',
      { args: ['--listen', '4242'] },
      "--listen: must be 'host:port', 'unix:PATH' or false, got '4242'\n  Write 127.0.0.1:4242 for this machine alone, 0.0.0.0:4242 for every network.",
    ],
    [
      'a duration without a unit',
      { env: { CURFEW_DRAIN: '30' } },
      "CURFEW_DRAIN: '30' is not a valid duration: its unit is missing, as in '30s' or '30m'",
    ],
    [
      'a duration without a unit in JSON',
      { file: { drain: 30 } },
      "curfew.config.json: drain: 30 has no unit\n  Write '30s' or '30ms'.",
    ],
    [
      'a level',
      { env: { CURFEW_LOG: 'warning' } },
      "CURFEW_LOG: must be one of silent, error, warn, info, debug, got 'warning'",
    ],
    ['an empty flag', { args: ['--token', ''] }, '--token: must not be empty'],
    [
      'null',
      { file: { store: null } },
      'curfew.config.json: store: must be a text that is not empty, got null',
    ],
    [
      'a group that is no object',
      { file: { tls: 'cert.pem' } },
      'curfew.config.json: tls: must be an object: { cert, key, clientCa, ca, clientCert, clientKey }',
    ],
    [
      'an unknown key',
      { file: { concurency: 3 } },
      'curfew.config.json: concurency: is not a setting\n  Did you mean concurrency?',
    ],
    [
      'an unknown key in a group',
      { file: { tls: { certificate: 'x' } } },
      'curfew.config.json: tls.certificate: is not a setting',
    ],
    [
      'a key in the wrong place',
      { file: { allowPrivate: true } },
      'curfew.config.json: allowPrivate: is not a setting\n  Did you mean http.allowPrivate?',
    ],
    ['a key of Object', { file: { constructor: 1 } }, 'curfew.config.json: constructor: is not a setting'],
    [
      'an unknown variable',
      { env: { CURFEW_MANAGER: 'http://a' } },
      'CURFEW_MANAGER: is not a setting\n  Did you mean CURFEW_MANAGERS?',
    ],
    [
      'a mistake in a layer that does not count',
      { args: ['--turns', '3'], env: { CURFEW_TURNS: 'x' } },
      "CURFEW_TURNS: must be a whole number from 1 to 10000, got 'x'",
    ],
    [
      'a store nobody named',
      { user: 'manager' },
      'curfew manager: store is missing\n  Give it with --store <url>, CURFEW_STORE, or store in a configuration file.',
    ],
  ])('%s', async (_, given, expected) => {
    expect(await problemOf(given)).toContain(`invalid_config: ${expected}`)
  })

  test('all at once', async () => {
    const told = await problemOf({
      user: 'worker',
      args: ['--concurrency', 'x'],
      env: { CURFEW_TOKN: 'x', CURFEW_DRAIN: 'soon' },
      file: { lables: {} },
    })
    expect(told).toContain('the configuration has 6 problems:')
    for (const place of ['--concurrency', 'CURFEW_TOKN', 'CURFEW_DRAIN', 'curfew.config.json: lables']) {
      expect(told).toContain(`\n${place}: `)
    }
    expect(told).toContain('curfew worker: managers are missing')
    expect(told).toContain('curfew worker: modules are missing')
  })

  test('what is wrong is not missing too', async () => {
    const told = await problemOf({ user: 'worker', args: ['--manager', 'localhost:1', '--module', 'a.ts'] })
    expect(told).toMatch(/^invalid_config: --manager: must be/)
    expect(told).not.toContain('missing')
  })

  test('an unknown variable that holds a secret is not shown', async () => {
    expect(await problemOf({ env: { CURFEW_TOKEN_SECRET: 'cft_very' } })).not.toContain('cft_very')
  })
})

describe('variables', () => {
  test('an empty one is not set', async () => {
    const { origins } = await load({ env: { CURFEW_TOKEN: '', CURFEW_CONFIG: '' } })
    expect(origins.token.from).toBe('default')
  })

  test('the marks of our processes are no settings', async () => {
    const env = Object.fromEntries(Object.values(MARKS).map((name) => [name, 'x']))
    expect(Object.keys(env)).toContain('CURFEW_NODE')
    expect((await load({ env })).origins.store.from).toBe('default')
  })

  test('where runs are kept is no setting of a process', async () => {
    expect((await load({ env: { CURFEW_STATE_DIR: '/var/lib' } })).origins.store.from).toBe('default')
  })

  test('what Kubernetes sets for a service named curfew is nobody’s mistake, and no setting looks like it', async () => {
    const env = {
      CURFEW_SERVICE_HOST: '10.0.0.1',
      CURFEW_SERVICE_PORT: '4242',
      CURFEW_SERVICE_PORT_RPC: '4242',
      CURFEW_PORT: 'tcp://10.0.0.1:4242',
      CURFEW_PORT_4242_TCP: 'tcp://10.0.0.1:4242',
      CURFEW_PORT_4242_TCP_ADDR: '10.0.0.1',
      CURFEW_MANAGER_SERVICE_HOST: '10.0.0.1',
      CURFEW_MANAGER_PORT: 'tcp://10.0.0.1:4242',
    }
    expect((await load({ env })).origins.listen.from).toBe('default')
    expect(await problemOf({ env: { CURFEW_PORTS: '1' } })).toContain('CURFEW_PORTS')
  })
})

describe('flags', () => {
  test('a list may be given several times, one value only once: the last counts', async () => {
    const { settings } = await load({
      args: [
        '--manager',
        'http://a',
        '--manager',
        'http://b,http://c',
        '--labels',
        'a=1',
        '--labels',
        'b=2',
        '--store',
        'x',
        '--store',
        'y,z',
      ],
    })
    expect(settings.managers).toEqual(['http://a', 'http://b', 'http://c'])
    expect(settings.labels).toEqual({ a: '1', b: '2' })
    expect(settings.store).toBe('y,z')
  })

  test('modules given as arguments win, commas and all', async () => {
    const { settings, origins } = await loadConfig({ env: { CURFEW_MODULES: 'x.ts' }, cwd }, 'dev', {
      modules: ['a,b.ts'],
    })
    expect(settings.modules).toEqual(['a,b.ts'])
    expect(origins.modules).toEqual({ from: 'argument', place: 'arguments' })
  })

  test('a command takes the flags of what it uses, and no other', () => {
    const flags = (user: User) =>
      addSettings(new Command(), user, ['modules']).options.map(({ long }) => long)
    expect(flags('worker')).toEqual(
      expect.arrayContaining([
        '--config',
        '--manager',
        '--queues',
        '--concurrency',
        '--labels',
        '--token',
        '--drain',
      ]),
    )
    expect(flags('worker')).not.toContain('--module')
    expect(flags('worker')).not.toContain('--store')
    expect(flags('manager')).not.toContain('--concurrency')
    expect(flags('client')).toEqual([
      '--config',
      '--store',
      '--manager',
      '--token',
      '--tls-ca',
      '--tls-client-cert',
      '--tls-client-key',
      '--log',
    ])
  })
})
