import { once } from 'node:events'
import type { AddressInfo, Socket } from 'node:net'
import { createServer } from 'node:net'
import type { Worker } from 'node:worker_threads'
import { afterEach, beforeEach, expect, inject, onTestFinished, test, vi } from 'vitest'
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

/** A server that greets and then refuses every statement, as a standby does that takes no writes. */
async function startStandby() {
  const message = (type: string, body: Buffer) => {
    const length = Buffer.alloc(4)
    length.writeInt32BE(body.length + 4)
    return Buffer.concat([Buffer.from(type), length, body])
  }
  const ready = message('Z', Buffer.from('I'))
  const refusal = message(
    'E',
    Buffer.from('SERROR\0VERROR\0C25006\0Mcannot execute LISTEN during recovery\0\0'),
  )
  const open = new Set<Socket>()
  let accepted = 0
  const server = createServer((socket) => {
    accepted++
    open.add(socket)
    socket.once('close', () => open.delete(socket)).on('error', () => socket.destroy())
    socket.once('data', () => {
      socket.write(Buffer.concat([message('R', Buffer.alloc(4)), ready]))
      socket.on('data', (data) => void (data[0] === 0x51 && socket.write(Buffer.concat([refusal, ready]))))
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => {
    server.close()
    for (const socket of open) socket.destroy()
  })
  const { port } = server.address() as AddressInfo
  return { url: `postgres://somebody@127.0.0.1:${port}/any`, open, accepted: () => accepted }
}

test('a connection over which nothing can be heard is closed before the next is made', async () => {
  const standby = await startStandby()
  const nothing = () => undefined
  const driver = new ThreadDriver(
    { url: standby.url, nodeId: 'n_nobody', epoch: 1 },
    new SystemClock(),
    { debug: nothing, info: nothing, warn: nothing, error: nothing },
    { beat: nothing, hint: nothing, failed: nothing },
  )
  onTestFinished(() => driver.close())
  await vi.waitUntil(() => standby.accepted() >= 4, { timeout: 30_000 })
  await vi.waitUntil(() => standby.open.size <= 1, { timeout: 10_000, interval: 1 })
})
