import type { Worker } from 'node:worker_threads'
import { afterEach, beforeEach, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase } from '../../scripts/postgres/database.ts'
import { SystemClock } from '../core/system-clock.ts'
import { Curfew } from '../curfew.ts'
import { ThreadDriver } from './thread-driver.ts'

let url: string
beforeEach(async () => {
  url = await createDatabase(inject('postgresUrl'))
  await (await Curfew.open({ store: url })).close()
})
afterEach(() => dropDatabase(url))

test('a renewing thread that dies is replaced', async () => {
  const threads: Worker[] = []
  const onWorker = (worker: Worker) => threads.push(worker)
  process.on('worker', onWorker)
  let beat = Promise.withResolvers<void>()
  const errors: string[] = []
  const log = (_: object, message: string) => errors.push(message)
  const driver = new ThreadDriver(
    { url, nodeId: 'n_nobody', epoch: 1 },
    new SystemClock(),
    { debug: log, info: log, warn: log, error: log },
    { beat: () => beat.resolve(), hint: () => undefined, failed: (error) => errors.push(error.message) },
  )
  try {
    await beat.promise
    beat = Promise.withResolvers()
    await threads[0]?.terminate()
    await beat.promise
    expect(threads).toHaveLength(2)
    expect(errors).toEqual(['the thread that renews the leases died; another one is started'])
  } finally {
    await driver.close()
    process.off('worker', onWorker)
  }
  expect(threads.map(({ threadId }) => threadId)).toEqual([-1, -1])
})
