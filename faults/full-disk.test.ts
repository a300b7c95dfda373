// A SQLite store on a disk that fills up, and on one that fails.

import { readFileSync, rmSync, statfsSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterEach, beforeEach, expect, test } from 'vitest'
import type { CallFailed } from './engine-process.ts'
import { EngineProcess, factsOf, started } from './engine-process.ts'
import { monotonicMs } from './journal.ts'
import { Scratch } from './scratch.ts'
import { until } from './wait.ts'

const LIMIT = { timeout: 180_000 }
const DISK_BYTES = 8 * 1024 * 1024
const CALLER_WAITS_MS = 10_000
const BIG = { ms: 1, padding: 'x'.repeat(200_000) }

let scratch: Scratch
let engine: EngineProcess | null

beforeEach(() => {
  scratch = new Scratch()
  engine = null
})

afterEach(async () => {
  await engine?.end()
  await scratch.remove()
})

function mountSmallDisk(): string | null {
  if (process.getuid?.() === 0) return scratch.mountMemory(DISK_BYTES)
  console.warn('NOT TESTED: a full disk. Mounting a small file system needs root, and this is not root.')
  return null
}

/** Everything that is left, to the last page. */
function fill(folder: string): string {
  const file = path.join(folder, 'filler')
  const { bavail, bsize } = statfsSync(folder)
  writeFileSync(file, Buffer.alloc(Math.max(0, bavail * bsize)))
  return file
}

test(
  'a full disk refuses new work, keeps limits, and everything goes on when there is space',
  LIMIT,
  async () => {
    const disk = mountSmallDisk()
    if (disk === null) return
    const store = path.join(disk, 'store.db')
    engine = await EngineProcess.open(scratch, { store, tasks: ['wait', 'wait-once'], concurrency: 20 })
    const running = await engine.call.scheduleMany('wait', Array(5).fill({ ms: 3_000 }))
    const hanging = await engine.call.schedule('wait', { ms: 120_000 }, { timeout: 4_000 })
    await started(scratch, [...running, hanging], 1, 20_000)
    const filler = fill(disk)

    const before = await engine.call.list()
    const askedAt = monotonicMs()
    const refused = (await engine.call.scheduleMany('wait', Array(20).fill(BIG)).then(
      () => null,
      (error: CallFailed) => error,
    )) as CallFailed | null
    console.log(`a full disk was told after ${(monotonicMs() - askedAt).toFixed(0)} ms: ${refused?.message}`)
    expect(refused).toMatchObject({ code: 'store_full', message: expect.stringMatching(/full/) })
    expect(monotonicMs() - askedAt).toBeLessThan(CALLER_WAITS_MS + 10_000)
    // Nothing half-done, and reading goes on.
    expect((await engine.call.list()).map(({ id }) => id)).toEqual(before.map(({ id }) => id))
    await until('the handler that hangs was told to stop', 30_000, () => {
      const [told] = factsOf(scratch, 'aborted', [hanging])
      return told?.code === 'timed_out'
    })
    await until('the others ended', 30_000, () => factsOf(scratch, 'attempt_ended', running).length === 5)

    rmSync(filler)
    for (const id of running) expect(await engine.call.result(id, 30_000)).toEqual({ attempt: 1 })
    await expect(engine.call.result(hanging, 30_000)).rejects.toMatchObject({ code: 'task_timed_out' })
    const ids = await engine.call.scheduleMany('wait', Array(5).fill({ ms: 1 }))
    for (const id of ids) expect(await engine.call.result(id, 30_000)).toEqual({ attempt: 1 })
    await engine.call.close()
    const database = new DatabaseSync(store)
    expect(database.prepare('pragma integrity_check').get()).toEqual({ integrity_check: 'ok' })
    database.close()
  },
)

test('an engine killed on a full disk starts again on it', LIMIT, async () => {
  const disk = mountSmallDisk()
  if (disk === null) return
  const store = path.join(disk, 'store.db')
  engine = await EngineProcess.open(scratch, { store, tasks: ['wait-once'], concurrency: 20 })
  const ids = await engine.call.scheduleMany('wait-once', Array(5).fill({ ms: 120_000 }))
  await started(scratch, ids, 1, 20_000)
  const filler = fill(disk)
  await engine.kill()
  // It cannot: that is said; and with space it can.
  const again = EngineProcess.open(scratch, { store, tasks: ['wait-once'], concurrency: 20 })
  const opened = await again.catch((error: CallFailed) => error)
  if (opened instanceof EngineProcess) engine = opened
  else {
    console.log(`opening on a full disk: ${opened.code}: ${opened.message}`)
    expect(opened).toMatchObject({ code: 'store_full' })
  }
  rmSync(filler)
  if (!(opened instanceof EngineProcess)) {
    engine = await EngineProcess.open(scratch, { store, tasks: ['wait-once'], concurrency: 20 })
  }
  for (const id of ids) expect(await engine.call.result(id, 30_000)).toEqual({ attempt: 2 })
})

// EFBIG, from a limit on the size of files, reaches SQLite as an I/O error.
test('after an I/O error nothing is acknowledged, and the host lives on', LIMIT, async () => {
  const store = scratch.path('store.db')
  engine = await EngineProcess.open(
    scratch,
    { store, tasks: ['wait'], concurrency: 5 },
    { fileSizeKiB: 2_048 },
  )
  const running = await engine.call.schedule('wait', { ms: 120_000 })
  await started(scratch, [running], 1, 20_000)
  const acknowledged: string[] = []
  const failure = await until('a write fails', 60_000, async () => {
    try {
      acknowledged.push(
        ...(await engine!.call.scheduleMany('wait', Array(5).fill(BIG), { delay: 3_600_000 })),
      )
      return null
    } catch (error) {
      return error as CallFailed
    }
  })
  console.log(`an I/O error: ${failure.code}: ${failure.message}`)
  expect(failure).toMatchObject({ code: 'store_failed' })
  await expect(engine.call.schedule('wait', { ms: 1 })).rejects.toMatchObject({ code: 'store_failed' })
  await expect(engine.call.view(running)).rejects.toMatchObject({ code: 'store_failed' })
  await until('its attempts were stopped', 20_000, () => factsOf(scratch, 'aborted', [running]).length === 1)
  expect(await engine.call.ping()).toBe('pong')
  await engine.call.close()
  expect(await engine.call.ping()).toBe('pong')
  await engine.end()
  // What was acknowledged is there.
  engine = await EngineProcess.open(scratch, { store, tasks: ['wait'], concurrency: 5 })
  for (const id of acknowledged) expect((await engine.call.view(id)).status).toBe('pending')
  expect(readFileSync(store).length).toBeGreaterThan(0)
})
