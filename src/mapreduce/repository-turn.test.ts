import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { SystemClock } from '../core/system-clock.ts'
import { RepositoryTurn } from './repository-turn.ts'

let folder: string
let file: string
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'curfew-turn-'))
  file = path.join(folder, 'turn')
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const turn = () => new RepositoryTurn(file, new SystemClock())

test('two turns of one repository never overlap, and each has its own result', async () => {
  const both = [turn(), turn()]
  let running = 0
  const results = await Promise.all(
    Array.from({ length: 12 }, (_, index) =>
      both[index % 2]!.take(async () => {
        running++
        expect(running).toBe(1)
        await new Promise<void>((resolve) => setImmediate(resolve))
        running--
        return index
      }),
    ),
  )
  expect(results).toEqual(Array.from({ length: 12 }, (_, index) => index))
})

test('one that fails does not hold up the next', async () => {
  const one = turn()
  const failing = one.take(() => Promise.reject(new Error('no')))
  const next = one.take(() => Promise.resolve('yes'))
  await expect(failing).rejects.toThrow('no')
  expect(await next).toBe('yes')
})

test('another process is waited for, and one that was killed has let go', async () => {
  const holder = spawn(
    process.execPath,
    [
      ...['--no-warnings', '-e'],
      `const { DatabaseSync } = require('node:sqlite')
       const database = new DatabaseSync(process.argv[1])
       database.exec('BEGIN EXCLUSIVE')
       console.log('held')
       setInterval(() => {}, 1000)`,
      file,
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  )
  const exited = once(holder, 'exit')
  let isTaken = false
  let taking: Promise<void>
  try {
    await once(holder.stdout, 'data')
    const looked = Promise.withResolvers<void>()
    const clock = new SystemClock()
    let looks = 0
    taking = new RepositoryTurn(file, {
      wall: () => clock.wall(),
      monotonic: () => clock.monotonic(),
      endOfTurn: (callback) => clock.endOfTurn(callback),
      setTimer: (delayMs, callback) => {
        if (++looks === 3) looked.resolve()
        return clock.setTimer(delayMs, callback)
      },
    }).take(async () => {
      isTaken = true
    })
    await Promise.race([looked.promise, taking])
    expect(isTaken).toBe(false)
  } finally {
    holder.kill('SIGKILL')
    await exited
  }
  await taking
  expect(isTaken).toBe(true)
})
