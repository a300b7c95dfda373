// What code of a user's modules may do to the process of a command.

import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { CliProcess } from './fixtures/cli-process.ts'

const CURFEW = path.join(import.meta.dirname, '../curfew.ts')

let cwd: string
const started: CliProcess[] = []

beforeEach(async () => {
  cwd = await mkdtemp(path.join(tmpdir(), 'curfew-cli-'))
  await writeFile(path.join(cwd, 'flow.yml'), 'name: flow\nnodes: [{ id: only, action_id: code }]\n')
})

afterEach(async () => {
  for (const one of started.splice(0)) await one.end()
  await rm(cwd, { recursive: true, force: true })
})

/** `curfew run --json` with a module of these lines. */
async function run(...lines: string[]): Promise<CliProcess> {
  await writeFile(path.join(cwd, 'code.ts'), [`import { task } from '${CURFEW}'`, ...lines].join('\n'))
  await writeFile(path.join(cwd, 'input.json'), '{ "n": 3 }')
  const args = ['run', 'flow.yml', '--module', 'code.ts', '--input', '@input.json', '--json']
  const command = new CliProcess(args, { cwd })
  started.push(command)
  return command
}

test.each([
  ['in this process', ''],
  ['in a process of its own', "isolation: 'process', file: import.meta.url, "],
])('with --json, what code prints %s goes to stderr', async (_, where) => {
  const command = await run(
    "console.log('from the module')",
    `export const code = task({ name: 'code', ${where}run: () => {
      console.log('from console')
      process.stdout.write('from the stream\\n')
      return 'done'
    } })`,
  )
  expect(await command.exited).toBe(0)
  expect(JSON.parse(command.stdout)).toMatchObject({ status: 'completed', output: 'done' })
  for (const line of ['the module', 'console', 'the stream'])
    expect(command.stderr).toContain(`from ${line}\n`)
})

test.each([
  ['ends the process while it is loaded', 'process.exit(0)'],
  ['ends the process as a task', "export const code = task({ name: 'code', run: () => process.exit(0) })"],
  ['waits for what never comes', 'await new Promise(() => {})'],
])('code that %s is not taken for success', async (_, line) => {
  const command = await run(line)
  expect([await command.exited, command.stdout]).toEqual([1, ''])
  const last = command.stderr.trimEnd().split('\n').at(-1) as string
  expect(JSON.parse(last)).toMatchObject({ error: { code: 'cut_short', hint: expect.any(String) } })
})

test('a process that code ends with another code keeps that', async () => {
  const command = await run('process.exit(7)')
  expect(await command.exited).toBe(7)
})

test('code that goes to another folder takes nothing of the command along', async () => {
  await mkdir(path.join(cwd, 'elsewhere'))
  const command = await run(
    "process.chdir('elsewhere')",
    "export const code = task({ name: 'code', run: () => 'done' })",
  )
  expect(await command.exited).toBe(0)
})
