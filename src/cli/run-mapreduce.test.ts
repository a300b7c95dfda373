import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { CliProcess, until } from './fixtures/cli-process.ts'
import { curfew, TestIo } from './fixtures/test-io.ts'
import { main } from './program.ts'

const PIPELINE = `name: drinks
mode: mapreduce
map:
  input: { items: [tea] }
  agent_template: [{ shell: 'echo "\${item}"' }]
`

let home: string
let cwd: string
const started: CliProcess[] = []
beforeEach(async () => {
  home = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  cwd = path.join(home, 'here')
  await mkdir(cwd)
  await writeFile(path.join(cwd, 'drinks.yml'), PIPELINE)
})
afterEach(async () => {
  for (const one of started.splice(0)) await one.end()
  await rm(home, { recursive: true, force: true })
})

const world = (state: string) => ({
  ...{ cwd, env: { PATH: process.env.PATH ?? '', HOME: home, CURFEW_STATE_DIR: state } },
})

const run = (state: string, ...args: string[]) =>
  curfew(['run', 'drinks.yml', '--no-worktrees', '--json', ...args], world(state))

test('--concurrency is refused with what is meant, and nothing is begun', async () => {
  const state = path.join(home, 'state')
  const { code, err } = await run(state, '--concurrency', '4')
  expect([code, JSON.parse(err).error]).toMatchObject([2, { code: 'usage' }])
  expect(err).toContain('max_parallel')
  expect([await readdir(home), await readdir(cwd)]).toEqual([['here'], ['drinks.yml']])
})

test('a state folder that cannot be made is named, with what to do, and nothing is begun', async () => {
  const file = path.join(home, 'a file')
  await writeFile(file, '')
  const { code, err } = await run(path.join(file, 'state'))
  expect([code, JSON.parse(err).error]).toMatchObject([
    1,
    {
      code: 'state_folder',
      message: expect.stringMatching(
        /^the folder of the run, .*a file\/state\/runs\/w_\w+, cannot be made \(ENOTDIR\)/,
      ),
      hint: expect.stringContaining('CURFEW_STATE_DIR'),
    },
  ])
  expect(await readdir(cwd)).toEqual(['drinks.yml'])
})

test('a state folder in which nothing can be written is told in the same way', async () => {
  const state = path.join(home, 'state')
  await mkdir(path.join(state, 'runs.lock'), { recursive: true })
  const { code, err } = await run(state)
  expect([code, JSON.parse(err).error]).toMatchObject([1, { code: 'state_folder' }])
  expect(await readdir(path.join(state, 'runs'))).toEqual([])
})

test('as many items at once as a file may ask for can be run', async () => {
  const file = PIPELINE.replace('map:', 'map:\n  max_parallel: 10000')
  await writeFile(path.join(cwd, 'drinks.yml'), file)
  const { code, err } = await run(path.join(home, 'state'))
  expect(code, err).toBe(0)
})

test('one whose store is gone is not gone on with in an empty one', async () => {
  const state = path.join(home, 'state')
  await writeFile(
    path.join(cwd, 'drinks.yml'),
    PIPELINE.replace('echo', 'touch ~/began; exec sleep 60; echo'),
  )
  const io = new TestIo(world(state))
  const ended = main(['run', 'drinks.yml', '--no-worktrees'], io)
  await until(() => existsSync(path.join(home, 'began')))
  io.send('SIGINT')
  expect(await ended).toBe(130)
  await rm(path.join(cwd, 'curfew.db'))
  const [id] = (await readdir(path.join(state, 'runs'))) as [string]
  const { code, err } = await curfew(['resume', id, '--json'], world(state))
  expect([code, JSON.parse(err).error]).toMatchObject([1, { code: 'store_missing' }])
  expect(await readdir(cwd)).toEqual(['drinks.yml'])
  // It can be gone on with once the store is back.
  expect(await readdir(path.join(state, 'runs'))).toContain(id)
})

/** Processes of their own: whoever reads a pipe without an end does not come back. */
async function runOver(input: string, feed: string, ...args: string[]) {
  await writeFile(path.join(cwd, 'drinks.yml'), PIPELINE.replace('{ items: [tea] }', input))
  const main = path.join(import.meta.dirname, 'main.ts')
  const command = `mkfifo pipe; ${feed} exec "${process.execPath}" "${main}" run drinks.yml --no-worktrees "$@"`
  const shell = new CliProcess([command, 'sh', ...args], {
    ...{ program: ['/bin/bash', '-c'], cwd, env: { CURFEW_STATE_DIR: path.join(home, 'state') } },
  })
  started.push(shell)
  return { code: await shell.exited, err: shell.stderr, out: shell.stdout }
}

test('the limit of a run holds while its items are read from a pipe that nobody writes to', async () => {
  const { code, err } = await runOver('pipe', '', '--timeout', '1')
  expect([code, err]).toEqual([124, expect.stringContaining('its timeout was over')])
})

test.each([
  ['a pipe', 'pipe', `echo '["tea", "milk"]' > pipe &`],
  ['stdin', '/dev/stdin', `exec < <(echo '["tea", "milk"]');`],
])('items are read from %s', async (_, input, feed) => {
  const { code, err } = await runOver(input, feed)
  expect([code, err]).toEqual([0, expect.stringContaining('2 items: 2 successful')])
})

test('a plan reads no pipe', async () => {
  const { code, out } = await runOver('pipe', '', '--dry-run')
  expect([code, out]).toEqual([0, expect.stringContaining('not known, from file pipe (it is a pipe')])
})
