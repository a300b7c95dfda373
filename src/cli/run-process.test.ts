import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { Curfew } from '../curfew.ts'
import { task } from '../definitions/task.ts'
import { CliProcess, until } from './fixtures/cli-process.ts'
import { writeProject } from './fixtures/live.ts'
import { curfew } from './fixtures/test-io.ts'

let cwd: string
const started: CliProcess[] = []

beforeEach(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  await writeProject(cwd)
})

afterEach(async () => {
  for (const one of started.splice(0)) await one.end()
  await rm(cwd, { recursive: true, force: true })
})

function start(...args: string[]): CliProcess {
  const process = new CliProcess(args, { cwd })
  started.push(process)
  return process
}

const run = (file: string, ...args: string[]) => start('run', file, '--module', 'tasks.ts', ...args)

/** The first of this kind that is listed. */
async function listed(...args: string[]): Promise<{ id: string; status: string } | undefined> {
  const io = await curfew(['list', ...args, '--json'], { cwd })
  return io.code === 0 ? (io.json() as { works: { id: string; status: string }[] }).works[0] : undefined
}

test('run as a process: output, progress and exit code', async () => {
  const done = run('double.yml', '--input', '21')
  expect([await done.exited, done.stdout]).toEqual([0, '42\n'])
  expect(done.stderr).toContain('double-flow completed')
  expect(done.stderr).not.toContain('\x1b')
})

test('a pipe that is closed early ends a command quietly', async () => {
  const many = task({ name: 'many', run: () => 1 })
  const engine = await Curfew.open({ store: path.join(cwd, 'curfew.db'), listen: false, concurrency: 0 })
  await engine.scheduleMany(many, Array(400).fill('x'.repeat(10)), { delay: '1h' })
  await engine.close()
  const script = `set -o pipefail; "${process.execPath}" "${path.join(import.meta.dirname, 'main.ts')}" list --all --json | head -c 21`
  const { code, stdout, stderr } = await shell(script)
  expect(stdout).toBe('{\n  "works": [\n    {\n')
  expect([code, stderr]).toEqual([0, 'Nobody works on curfew.db: what is open there stands still.\n'])
})

test('SIGINT cancels the run and waits until it has stopped: 130', async () => {
  const hanging = run('hang.yml')
  await until(() => hanging.stderr.includes('hang-flow/only running'))
  hanging.kill('SIGINT')
  expect(await hanging.exited).toBe(130)
  expect(hanging.stderr).toMatch(/workflow hang-flow cancelled after/)
  expect(await listed('--name', 'hang')).toMatchObject({ status: 'cancelled', receipt: 'aborted' })
})

test('a second SIGINT ends at once', async () => {
  const stubborn = run('stubborn.yml')
  await until(() => stubborn.stderr.includes('stubborn-flow/only running'))
  stubborn.kill('SIGINT')
  await until(() => stubborn.stderr.includes('Cancelling'))
  stubborn.kill('SIGINT')
  expect(await stubborn.exited).toBe(130)
  expect(stubborn.stderr).not.toContain('stubborn-flow cancelled after')
})

test('commands find the process that works on the store', async () => {
  const file = path.join(cwd, 'there')
  const waiting = run('wait.yml', '--input', JSON.stringify(file))
  await until(() => waiting.stderr.includes('wait-flow/only running'))
  const status = await curfew(['list', '--kind', 'workflow', '--json'], { cwd })
  expect(status.err).toBe('')
  const { id } = (status.json() as { works: { id: string }[] }).works[0]!
  const watching = start('watch', id)
  await until(() => watching.stdout.includes('wait-flow/only running'))
  await writeFile(file, '')
  expect([await waiting.exited, await watching.exited, watching.stderr]).toEqual([0, 0, ''])
  expect(waiting.stdout).toBe('"it came"\n')
})

test('a second run is a client of the first, and takes over when that one is killed', async () => {
  const [first, second] = [path.join(cwd, 'first'), path.join(cwd, 'second')]
  const killed = run('wait.yml', '--input', JSON.stringify(first))
  await until(() => killed.stderr.includes('wait-flow/only running'))
  const heir = run('wait.yml', '--input', JSON.stringify(second), '--json')
  await until(() => heir.stderr.includes('wait-flow/only running'))
  killed.kill('SIGKILL')
  await killed.exited
  await until(() => heir.stderr.includes(`process ${killed.pid} is gone`))
  await writeFile(second, '')
  expect(await heir.exited).toBe(0)
  expect(JSON.parse(heir.stdout)).toMatchObject({ status: 'completed', output: 'it came' })
  // What the first one ran is there too, and went on.
  expect(await listed('--kind', 'workflow', '--status', 'pending,running')).toBeDefined()
})

test('resume goes on with what a killed run left', async () => {
  const file = path.join(cwd, 'there')
  const killed = run('wait.yml', '--input', JSON.stringify(file))
  await until(() => killed.stderr.includes('wait-flow/only running'))
  killed.kill('SIGKILL')
  await killed.exited
  const left = await listed('--kind', 'workflow')
  expect(left).toMatchObject({ status: 'running' })
  const resumed = start('resume', left!.id, '--module', 'tasks.ts')
  await until(() => resumed.stderr.includes('wait-flow/only running'))
  await writeFile(file, '')
  expect([await resumed.exited, resumed.stdout]).toEqual([0, '"it came"\n'])
})

function shell(script: string): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    execFile('bash', ['-c', script], { cwd, timeout: 20_000 }, (error, stdout, stderr) => {
      resolve({ code: error ? Number(error.code ?? -1) : 0, stdout, stderr })
    })
  })
}
