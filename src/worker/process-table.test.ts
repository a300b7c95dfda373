import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { clock, stateOf, temporaryFolder, until } from './fixtures/process-probe.ts'
import { markedEnvironment } from './marker.ts'
import { isAlive, ProcessTable, startTimeOf } from './process-table.ts'

test('a process is alive only with its own start time, and not as a zombie', async () => {
  // The shell becomes a program that never looks after its child, which has ended.
  const parent = spawn('sh', ['-c', 'sleep 0 & echo $!; exec sleep 1000'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  try {
    const [line] = await once(parent.stdout, 'data')
    const pid = parent.pid as number
    const startTime = startTimeOf(pid) as number
    expect(isAlive(pid, startTime)).toBe(true)
    expect(isAlive(pid, startTime - 1)).toBe(false)
    const zombie = Number(String(line))
    await until('the zombie', () => stateOf(zombie) === 'Z')
    expect(isAlive(zombie, startTimeOf(zombie))).toBe(false)
  } finally {
    parent.kill('SIGKILL')
  }
  await once(parent, 'exit')
  expect(startTimeOf(parent.pid as number)).toBe(null)
})

test('a name with parentheses and spaces does not shift the fields', async () => {
  const dir = temporaryFolder()
  const odd = join(dir, 'a) R 1 (b')
  copyFileSync('/bin/sleep', odd)
  const child = spawn(odd, ['1000'], { detached: true, stdio: 'ignore' })
  try {
    const entry = await until('it', async () => (await scan())?.find(({ pid }) => pid === child.pid))
    expect(entry).toMatchObject({ parent: process.pid, group: child.pid, session: child.pid, zombie: false })
    expect(entry.startTime).toBeGreaterThanOrEqual(startTimeOf(process.pid) as number)
  } finally {
    child.kill('SIGKILL')
    rmSync(dir, { recursive: true })
  }
})

test('a scan finds the marks, also those of a worker inside a task', async () => {
  const outer = markedEnvironment(process.env, 'n_outer', 'a_outer')
  const env = markedEnvironment(outer, 'n_inner', 'a_inner')
  const child = spawn('sleep', ['1000'], { env, stdio: 'ignore' })
  try {
    const marks = { nodes: ['n_outer', 'n_inner'], attempts: ['a_outer', 'a_inner'] }
    expect((await scan())?.find(({ pid }) => pid === child.pid)).toMatchObject(marks)
  } finally {
    child.kill('SIGKILL')
  }
})

test('whoever asks while a scan runs shares the next one, which begins after it was asked for', async () => {
  const table = new ProcessTable(clock)
  const first = table.scan()
  expect(table.scan()).toBe(first)
  // It begins at the end of this turn.
  for (let turn = 0; turn < 2; turn++) await new Promise((resolve) => clock.endOfTurn(() => resolve(null)))
  const second = table.scan()
  expect(second).not.toBe(first)
  const child = spawn('sleep', ['1000'], { stdio: 'ignore' })
  try {
    expect(table.scan()).toBe(second)
    expect((await second)?.some(({ pid }) => pid === child.pid)).toBe(true)
  } finally {
    child.kill('SIGKILL')
  }
})

test('processes older than the worker are left out', async () => {
  const since = startTimeOf(process.pid) as number
  const entries = (await new ProcessTable(clock, since).scan()) ?? []
  expect(entries.some(({ pid }) => pid === process.pid)).toBe(true)
  expect(entries.some(({ pid }) => pid === 1)).toBe(false)
})

test('what is older is not read again, and what is new is found all the same', async () => {
  const table = new ProcessTable(clock, startTimeOf(process.pid) as number)
  const pids = async () => (await table.scan())?.map(({ pid }) => pid)
  const before = await pids()
  const child = spawn('sleep', ['1000'], { stdio: 'ignore' })
  try {
    expect(before).not.toContain(child.pid)
    expect(await pids()).toContain(child.pid)
    expect(await pids()).toContain(child.pid)
    expect(await pids()).not.toContain(1)
  } finally {
    child.kill('SIGKILL')
  }
})

const scan = () => new ProcessTable(clock).scan()
