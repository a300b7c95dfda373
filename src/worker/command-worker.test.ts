import type { ChildProcess } from 'node:child_process'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { strangers } from './fixtures/command-probe.ts'
import type { ProgramArgument } from './fixtures/command-program.ts'
import { hangingProgram } from './fixtures/hanging-program.ts'
import {
  clock,
  endTree,
  processIn,
  readIfThere,
  stateOf,
  temporaryFolder,
  until,
} from './fixtures/process-probe.ts'
import { TREE, TREE_NAMES } from './fixtures/process-tasks.ts'
import { ProcessTable } from './process-table.ts'
import { killMarked } from './process-tree.ts'

const table = new ProcessTable(clock)
let nodeId: string
let dir: string
let worker: ChildProcess | null

beforeEach(() => {
  nodeId = `n_commands_${process.pid}_${Math.floor(clock.monotonic())}`
  dir = temporaryFolder()
  worker = null
})

afterEach(async () => {
  worker?.kill('SIGKILL')
  await killMarked({ nodeId }, { clock, table })
  endTree(dir)
  rmSync(dir, { recursive: true, force: true })
})

const read = (name: string) => readIfThere(join(dir, name))
const ended = async (name: string) => JSON.parse(await until(name, () => read(name)))

/** Resolves with its supervisor when its commands run. */
async function startWorker(argument: Omit<ProgramArgument, 'nodeId' | 'dir'>): Promise<number> {
  const program = fileURLToPath(new URL('./fixtures/command-program.ts', import.meta.url))
  const text = JSON.stringify({ nodeId, dir, ...argument })
  worker = spawn('sh', ['-c', 'ulimit -n 300; exec "$@"', 'sh', process.execPath, program, text], {
    ...{ detached: true, stdio: ['ignore', 'inherit', 'inherit'] },
  })
  return Number(await until('the worker', () => read('running')))
}

test('a worker that is killed takes all its commands with it, and nothing else', async () => {
  const others = strangers({ CURFEW_NODE: `${nodeId}0`, CURFEW_ATTEMPT: `${nodeId}0:a_program/1` })
  const ignores = (i: number) => `trap '' TERM; echo $$ > main${i}; while :; do sleep 1000; done`
  const supervisor = await startWorker({
    commands: [
      { name: 'tree', script: TREE },
      // Without marks: known by their groups alone, one of them after its command has ended.
      {
        name: 'bare',
        script: 'echo $$ > bare-main; (env -i sleep 1000 & echo $! > bare); exec env -i sleep 1000',
      },
      { name: 'left', script: 'env -i sleep 1000 > /dev/null 2>&1 & echo $! > kept', sweep: 'later' },
      ...Array.from({ length: 20 }, (_, i) => ({ name: `ignores${i}`, script: ignores(i) })),
    ],
  })
  expect(await ended('left')).toMatchObject({ exitCode: 0, left: [] })
  const since = clock.monotonic()
  await until('what was released to be forgotten', () => clock.monotonic() - since > 100)
  const names = [
    ...TREE_NAMES,
    'bare-main',
    'bare',
    'kept',
    ...Array.from({ length: 20 }, (_, i) => `main${i}`),
  ]
  const processes = await Promise.all(names.map((name) => processIn(dir, name)))
  expect(processes.map(({ alive }) => alive())).toEqual(names.map(() => true))
  worker?.kill('SIGKILL')
  await until('the supervisor to go', () => stateOf(supervisor) === null)
  expect(processes.map(({ alive }) => alive())).toEqual(names.map(() => false))
  expect((await table.scan())?.filter(({ nodes, zombie }) => nodes.includes(nodeId) && !zombie)).toEqual([])
  await until('the zombies to go', () => processes.every(({ pid }) => stateOf(pid) !== 'Z'))
  expect(await others.untouched()).toBe(true)
})

test('J4: a worker that was stopped sees what happened meanwhile before it says that a limit is over', async () => {
  await startWorker({
    commands: [
      { name: 'in-time', script: 'sleep 0.5; echo done; echo 1 > finished', limitMs: 1_000 },
      { name: 'over', script: 'exec sleep 1000', limitMs: 1_000 },
      {
        ...{ name: 'talks', idleMs: 1_000, limitMs: 60_000 },
        script: 'while [ ! -e enough ]; do echo more; sleep 0.1; done',
      },
    ],
  })
  const since = clock.monotonic()
  worker?.kill('SIGSTOP')
  await until('the command to finish', () => read('finished'))
  await until('all limits to be over', () => clock.monotonic() - since > 2_500)
  const resumed = clock.monotonic()
  worker?.kill('SIGCONT')
  expect(await ended('over')).toMatchObject({ timedOut: 'limit', receipt: 'terminated' })
  expect(clock.monotonic() - resumed).toBeLessThan(2_000)
  expect(await ended('in-time')).toMatchObject({ exitCode: 0, timedOut: null, stdout: 'done\n' })
  expect(read('talks')).toBeNull()
  spawn('touch', [join(dir, 'enough')])
  expect(await ended('talks')).toMatchObject({ exitCode: 0, timedOut: null })
})

test.skipIf(process.platform !== 'linux')(
  'J4: and what had started meanwhile before it says that its start took too long',
  async () => {
    const { file, asked, letGo } = hangingProgram('#!/bin/sh\necho done\necho 1 > finished\n')
    await startWorker({
      commands: [{ name: 'starts', script: '', argv: [file], limitMs: 3_000, hangs: true }],
    })
    await asked
    const since = clock.monotonic()
    worker?.kill('SIGSTOP')
    letGo()
    await until('the command to finish', () => read('finished'))
    await until('its limit to be over', () => clock.monotonic() - since > 3_500)
    worker?.kill('SIGCONT')
    expect(await ended('starts')).toMatchObject({ exitCode: 0, timedOut: null, stdout: 'done\n' })
  },
)

test('with no file left to open a command is not started, a running one is stopped all the same', async () => {
  await startWorker({ withoutFiles: true, commands: [{ name: 'again', script: 'echo works' }] })
  expect(await ended('without')).toEqual({
    full: 'EMFILE',
    stopped: expect.objectContaining({ signal: 'SIGTERM', timedOut: 'limit' }),
    started: {
      type: 'not_started',
      code: 'no_resources',
      message: '/bin/sh could not be started: this process has too many open files',
      retryable: true,
    },
  })
  expect(await ended('again')).toMatchObject({ exitCode: 0, stdout: 'works\n' })
  worker?.kill('SIGTERM')
  await once(worker as ChildProcess, 'exit')
})
