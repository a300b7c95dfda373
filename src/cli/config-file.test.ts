import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { CurfewError } from '../core/errors.ts'
import { loadConfig } from './config.ts'
import type { CurfewConfig } from './curfew-config.ts'
import { defineConfig } from './curfew-config.ts'
import { SETTING_NAMES, SETTINGS } from './settings.ts'

let cwd: string

beforeEach(() => {
  cwd = mkdtempSync(path.join(tmpdir(), 'curfew-config-'))
})

afterEach(() => {
  rmSync(cwd, { recursive: true, force: true })
})

const load = (named: { config?: string } = {}, env: Record<string, string> = {}) =>
  loadConfig({ env, cwd }, 'all', named)

const problemOf = (named: { config?: string } = {}) =>
  load(named).then(
    () => 'no problem',
    (error: CurfewError) => `${error.code}: ${error.message}`,
  )
const at = (name: string, text: string) => {
  mkdirSync(path.dirname(path.join(cwd, name)), { recursive: true })
  writeFileSync(path.join(cwd, name), text)
  return path.join(cwd, name)
}

test.each([
  ['curfew.config.ts', "const store: string = 'a.db'\nexport default { store } satisfies { store: string }"],
  ['curfew.config.mts', "export default { store: 'a.db' } as const"],
  ['curfew.config.js', "export default { store: 'a.db', token: undefined }"],
  ['curfew.config.mjs', "export default { store: 'a.db' }"],
  ['curfew.config.json', '{ "store": "a.db" }'],
  ['curfew.config.json', '\ufeff{ "store": "a.db" }\r\n'],
])('%s is found in the working directory', async (name, text) => {
  at('package.json', '{ "type": "module" }')
  const file = at(name, text)
  const config = await load()
  expect(config.file).toBe(file)
  expect(config.settings.store).toBe('a.db')
  expect(config.origins.store).toEqual({ from: 'file', place: name })
})

test('a number is milliseconds in a program', async () => {
  at('curfew.config.mjs', 'export default { drain: 1500, queueLimits: { bank: null } }')
  const { settings } = await load()
  expect(settings.drain).toBe(1_500)
  expect(settings.queueLimits).toEqual({ bank: null })
})

test('one that is named is taken instead, by flag or variable; its paths are relative to it', async () => {
  at('curfew.config.json', '{ "store": "wrong.db" }')
  const file = at(
    'etc/curfew.json',
    JSON.stringify({
      store: 'a.db',
      listen: 'unix:run/c.sock',
      modules: ['tasks.ts', '/abs/tasks.ts'],
      tls: { cert: 'cert.pem' },
    }),
  )
  for (const config of [await load({ config: 'etc/curfew.json' }), await load({}, { CURFEW_CONFIG: file })]) {
    const inEtc = (name: string) => path.join(cwd, 'etc', name)
    expect(config.file).toBe(file)
    expect(config.settings.store).toBe(inEtc('a.db'))
    expect(config.settings.listen).toBe(`unix:${inEtc('run/c.sock')}`)
    expect(config.settings.modules).toEqual([inEtc('tasks.ts'), '/abs/tasks.ts'])
    expect(config.settings.tlsCert).toBe(inEtc('cert.pem'))
  }
})

test.each([':memory:', 'postgres://u:p@db/x'])('the store %s is no file of that folder', async (store) => {
  at('etc/c.json', JSON.stringify({ store }))
  expect((await load({ config: 'etc/c.json' })).settings.store).toBe(store)
})

test.each([
  ['is not there', 'missing.ts', null, 'there is no configuration file missing.ts'],
  [
    'throws',
    'c.mjs',
    "throw new Error('no database today')",
    'c.mjs cannot be loaded: Error: no database today',
  ],
  ['imports what is not there', 'c.mjs', "import './gone.mjs'\nexport default {}", 'gone.mjs'],
  ['is not JavaScript', 'c.mjs', 'export default {', 'c.mjs cannot be loaded'],
  ['is not JSON', 'c.json', '{ "store": }', 'c.json cannot be read'],
  ['exports nothing by default', 'c.mjs', 'export const store = 1', 'c.mjs has no default export'],
  [
    'exports a function',
    'c.mjs',
    'export default () => ({})',
    'c.mjs must hold an object of settings, and not a function',
  ],
  ['holds a list', 'c.json', '[]', 'c.json must hold an object of settings, and not a list'],
])('one that %s is an error', async (_, name, text, expected) => {
  if (text !== null) at(name, text)
  const told = await problemOf({ config: name })
  expect(told).toMatch(/^invalid_config: /)
  expect(told).toContain(expected)
})

test('two in one folder are an error', async () => {
  at('curfew.config.json', '{}')
  at('curfew.config.mjs', 'export default {}')
  expect(await problemOf()).toContain(
    'there are two configuration files, curfew.config.mjs and curfew.config.json',
  )
})

test('its type has the settings, all of them and no other', () => {
  const config: Required<CurfewConfig> = defineConfig({
    store: '',
    listen: false,
    tokens: [],
    tokensFile: '',
    tls: { cert: '', key: '', clientCa: '', ca: '', clientCert: '', clientKey: '' },
    hosts: [],
    managers: [],
    token: '',
    modules: [],
    queues: [],
    concurrency: 1,
    turns: 1,
    labels: {},
    queueLimits: {},
    drain: { seconds: 1 },
    log: 'warn',
    http: { allowPrivate: true },
  }) as Required<CurfewConfig>
  const keys = Object.entries(config).flatMap(([key, value]) =>
    key === 'tls' || key === 'http' ? Object.keys(value).map((inner) => `${key}.${inner}`) : [key],
  )
  expect(keys.toSorted()).toEqual(SETTING_NAMES.map((name) => SETTINGS[name].key).toSorted())
})
