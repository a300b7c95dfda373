import { existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { findHolder } from '../curfew.ts'
import { CliProcess, until } from './fixtures/cli-process.ts'

// Each test starts several processes, and the machine may be busy.
vi.setConfig({ testTimeout: 90_000 })

const MODULE = path.join(import.meta.dirname, 'fixtures/process-tasks.ts')

let cwd: string
let started: CliProcess[]

beforeEach(() => {
  cwd = mkdtempSync(path.join(tmpdir(), 'curfew-lent-'))
  started = []
})

afterEach(async () => {
  for (const one of started.toReversed()) await one.end()
  rmSync(cwd, { recursive: true, force: true })
})

/** Its task says which process runs it, and waits until it is released. */
function run(name: string, ...args: string[]): CliProcess {
  const node = '{ id: only, action_id: wait, input: input, timeout: 1m }'
  writeFileSync(path.join(cwd, `${name}.yml`), `name: ${name}\nnodes: [${node}]\n`)
  const input = JSON.stringify({ started: path.join(cwd, name), release: path.join(cwd, `${name}-go`) })
  const process = new CliProcess(['run', `${name}.yml`, '--module', MODULE, '--input', input, ...args], {
    cwd,
  })
  started.push(process)
  return process
}

const begun = (name: string, attempt = 1) => existsSync(path.join(cwd, `${name}-${attempt}`))
const runs = (name: string) => until(() => begun(name), `${name} runs`)
const runner = (name: string) => Number(readFileSync(path.join(cwd, `${name}-1`), 'utf8'))
const release = (name: string) => writeFileSync(path.join(cwd, `${name}-go`), '')
const hasGone = (process: CliProcess, by: CliProcess) =>
  until(() => by.stderr.includes(`process ${process.pid} is gone`))

/** With what it runs itself it has no room for more. */
const ALONE = ['--concurrency', '1']

test.each(['SIGKILL', 'SIGINT'] as const)(
  'what a process runs for one that goes (%s) it runs to its end, though it has the store itself by then',
  async (signal) => {
    const first = run('one', ...ALONE)
    await runs('one')
    const second = run('two')
    await runs('two')
    expect(runner('two')).toBe(second.pid)
    first.kill(signal)
    await hasGone(first, second)
    // Whoever has the store begins what comes.
    await until(() => findHolder(path.join(cwd, 'curfew.db'))?.pid === second.pid)
    const third = run('three')
    await runs('three')
    release('two')
    expect([await second.exited, second.stdout]).toEqual([0, '"released in attempt 1"\n'])
    expect(begun('two', 2)).toBe(false)
    release('three')
    expect(await third.exited).toBe(0)
  },
)

test('it does so too where it came to the store over a link', async () => {
  const first = run('one', ...ALONE)
  await runs('one')
  symlinkSync(path.join(cwd, 'curfew.db'), path.join(cwd, 'link.db'))
  const second = run('two', '--store', 'link.db')
  await runs('two')
  expect(runner('two')).toBe(second.pid)
  first.kill('SIGKILL')
  await hasGone(first, second)
  release('two')
  expect([await second.exited, second.stdout]).toEqual([0, '"released in attempt 1"\n'])
})

test('what one process runs for another goes on when the first of three is killed, whoever takes its place', async () => {
  const first = run('one', ...ALONE)
  await runs('one')
  const second = run('two')
  await runs('two')
  const third = run('three', ...ALONE)
  await runs('three')
  expect(['two', 'three'].map(runner)).toEqual([second.pid, second.pid])
  first.kill('SIGKILL')
  await Promise.all([hasGone(first, second), hasGone(first, third)])
  release('three')
  expect([await third.exited, third.stdout]).toEqual([0, '"released in attempt 1"\n'])
  release('two')
  expect([await second.exited, second.stdout]).toEqual([0, '"released in attempt 1"\n'])
})
