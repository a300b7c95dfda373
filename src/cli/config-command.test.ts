import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { curfew } from './fixtures/test-io.ts'
import { SETTING_NAMES, SETTINGS } from './settings.ts'

let cwd: string

beforeEach(() => {
  cwd = mkdtempSync(path.join(tmpdir(), 'curfew-config-'))
})

afterEach(() => {
  rmSync(cwd, { recursive: true, force: true })
})

async function call(args: string[], env: Record<string, string> = {}) {
  const { code, out, err } = await curfew(args, { cwd, env })
  return { code, stdout: out, stderr: err }
}

const FILE = `export default { store: 'postgres://me:hush@db/curfew', token: 'cft_hush', drain: '1m', labels: { zone: 'eu' } }`

test('curfew config prints every setting, its value and where it comes from, and no secret', async () => {
  writeFileSync(path.join(cwd, 'curfew.config.mjs'), FILE)
  const { code, stdout } = await call(['config', '--turns', '7'], { CURFEW_TOKENS: 'ci=admin:sha256:hush' })
  expect(code).toBe(0)
  expect(stdout).toContain(`Configuration file: ${path.join(cwd, 'curfew.config.mjs')}\n`)
  for (const [key, value, from] of [
    ['store', 'postgres://me:***@db/curfew', 'curfew.config.mjs'],
    ['token', '***', 'curfew.config.mjs'],
    ['tokens', 'ci=admin:***', 'CURFEW_TOKENS'],
    ['turns', '7', '--turns'],
    ['drain', '1m', 'curfew.config.mjs'],
    ['concurrency', '10', 'default'],
    ['queues', '-', 'default'],
  ]) {
    expect(stdout.replace(/ +/g, ' ')).toContain(`\n${key} ${value} ${from}\n`)
  }
  expect(stdout).not.toContain('hush')
})

test('as JSON it has the same, with the flag and the variable of each', async () => {
  writeFileSync(path.join(cwd, 'curfew.config.mjs'), FILE)
  const { stdout } = await call(['config', '--json'])
  const { file, settings } = JSON.parse(stdout)
  expect(file).toBe(path.join(cwd, 'curfew.config.mjs'))
  expect(Object.keys(settings)).toEqual(SETTING_NAMES.map((name) => SETTINGS[name].key))
  expect(settings.drain).toEqual({
    value: '1m',
    from: 'file',
    place: 'curfew.config.mjs',
    flag: '--drain',
    variable: 'CURFEW_DRAIN',
  })
  expect(settings.labels.value).toEqual({ zone: 'eu' })
  expect(settings.token.value).toBe('***')
  expect(settings.listen.value).toBe('127.0.0.1:4242')
  expect(stdout).not.toContain('hush')
})

test('of one command it prints what that uses, and what it misses', async () => {
  const { stdout } = await call(['config', 'worker', '--json'])
  const { file, settings } = JSON.parse(stdout)
  expect(file).toBeNull()
  expect(settings.store).toBeUndefined()
  expect(settings.managers).toMatchObject({ value: null, from: 'missing' })
  const text = await call(['config', 'manager'])
  expect(text.stdout).toContain(`No configuration file (curfew.config.ts) in ${cwd}\n`)
  expect(text.stdout).toMatch(/^store +- +missing$/m)
})

test('what is wrong is an error with exit code 2', async () => {
  expect(await call(['config'], { CURFEW_STOR: 'x' })).toEqual({
    code: 2,
    stdout: '',
    stderr: 'error: CURFEW_STOR: is not a setting\n  Did you mean CURFEW_STORE?\n',
  })
  expect((await call(['config', 'worke'])).stderr).toContain("Did you mean 'worker'?")
})

test('curfew token create prints a token and the line that managers know it by', async () => {
  const { code, stdout } = await call(['token', 'create', '--role', 'worker', '--name', 'farm', '--json'])
  const { token, line } = JSON.parse(stdout)
  expect(code).toBe(0)
  expect(token).toMatch(/^cft_[\w-]{43}$/)
  expect(line).toMatch(/^farm=worker:sha256:[0-9a-f]{64}$/)
  expect(line).not.toContain(token.slice(4))
  const { readTokens } = await import('../wire/tokens.ts')
  expect(readTokens([line]).find(token)).toMatchObject({ name: 'farm', role: 'worker' })
})

test('for people it prints both, each once', async () => {
  const { stdout } = await call(['token', 'create', '--role', 'client'])
  expect(stdout.match(/cft_[\w-]{43}/g)).toHaveLength(1)
  expect(stdout.match(/client:sha256:[0-9a-f]{64}/g)).toHaveLength(1)
})

test.each([
  [['token', 'create', '--role', 'boss'], "the role 'boss'"],
  [['token', 'create', '--role', 'client', '--name', 'a b'], 'name'],
  [['token', 'create'], '--role'],
])('%j is refused', async (args, expected) => {
  const { code, stderr, stdout } = await call(args)
  expect(code).toBe(2)
  expect(stderr).toContain(expected)
  expect(stdout).toBe('')
})
