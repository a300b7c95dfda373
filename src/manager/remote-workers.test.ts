import { create } from '@bufbuild/protobuf'
import { createClient } from '@connectrpc/connect'
import { expect, onTestFinished, test, vi } from 'vitest'
import { Curfew, task } from '../curfew.ts'
import type { Assignment, AttachResponse } from '../wire/gen/curfew/v1/workers_pb.ts'
import { AttachRequestSchema, WorkerService } from '../wire/gen/curfew/v1/workers_pb.ts'
import { endpointOf } from '../wire/http-client.ts'

const work = task({ name: 'work', run: (_: string | null) => 'done' })

/** A manager, and workers that say no more than they are told to. */
async function setUp() {
  const manager = await Curfew.open({ store: ':memory:', concurrency: 0, listen: '127.0.0.1:0' })
  onTestFinished(() => manager.close())
  const endpoint = endpointOf(manager.url as string)
  onTestFinished(() => endpoint.close())
  const rpc = createClient(WorkerService, endpoint.transport)
  const machine = { host: 'here', bootId: '', pidSpace: '', pid: 1, pidStarted: '' }
  const helloOf = (session: number, concurrency: number, workerId = 'n_1') =>
    create(AttachRequestSchema, {
      ...{ workerId, session, version: '1', protocolMin: 1, protocolMax: 1, machine },
      ...{ allQueues: true, concurrency, turns: 1 },
      definitions: [{ kind: 'task', name: 'work', body: {} }],
    })
  const attach = (session: number) => {
    const hello = helloOf(session, 5)
    const cut = new AbortController()
    const started: Assignment[] = []
    const told: string[] = []
    const ended = (async () => {
      for await (const { message } of rpc.attach(hello, { signal: cut.signal })) {
        told.push(`${message.case}`)
        if (message.case === 'start') started.push(...message.value.assignments)
      }
    })().catch((error: Error) => told.push(error.message))
    const hangUp = async () => {
      cut.abort()
      await ended
    }
    onTestFinished(hangUp)
    return { hangUp, started, told }
  }
  return { manager, rpc, attach, helloOf }
}

test('a worker that was silent for some seconds is given work again when it is heard of', async () => {
  const { manager, rpc, attach } = await setUp()
  const { told, started } = attach(1)
  const status = async () => (await manager.workers())[0]?.status
  const free = async () =>
    (await manager.metrics())
      .find(({ name }) => name === 'curfew_slots')
      ?.values.find(({ labels }) => labels.state === 'free')?.value
  await vi.waitUntil(() => told.includes('welcome'))
  await vi.waitUntil(async () => (await status()) === 'silent' && (await free()) === 0, { timeout: 8_000 })
  await rpc.beat({ workerId: 'n_1' })
  await manager.schedule(work, null)
  await vi.waitUntil(() => started.length > 0, { timeout: 5_000 })
  expect(await status()).toBe('attached')
})

test('what a worker was given and never got is sent again when it comes back; what was decided meanwhile is not', async () => {
  const { manager, attach } = await setUp()
  const first = attach(1)
  await vi.waitUntil(() => first.told.includes('welcome'))
  const [kept, cancelled] = await manager.scheduleMany(work, ['kept', 'cancelled'], { attemptTimeout: '1h' })
  if (!kept || !cancelled) throw new Error('two were scheduled')
  await vi.waitUntil(() => first.started.length === 2)
  await first.hangUp()
  expect(await cancelled.cancel()).toBe('cancelled')
  const again = attach(2)
  await vi.waitUntil(() => again.started.length > 0)
  expect((await cancelled.cancelled()).ledger).toMatchObject([{ receipt: 'exited' }])
  const [given] = first.started.filter(({ taskId }) => taskId === kept.id)
  expect(given).toMatchObject({ input: '"kept"', attempt: 1 })
  expect(again.started).toEqual([{ ...given, attemptMs: expect.any(Number) }])
  expect(again.started[0]?.attemptMs).toBeLessThanOrEqual(given?.attemptMs as number)
})

test('a worker that does not read is given what the memory bears, the rest goes to others', async () => {
  const { manager, rpc, helloOf } = await setUp()
  const count = 100
  const slow = rpc.attach(helloOf(1, count))[Symbol.asyncIterator]()
  await slow.next()
  await manager.scheduleMany(work, Array(count).fill('x'.repeat(900_000)))
  const given: string[] = []
  const read = async (stream: AsyncIterator<AttachResponse>, upTo: number) => {
    while (given.length < upTo) {
      for (const workerId of ['n_1', 'n_2']) await rpc.beat({ workerId })
      const { message } = (await stream.next()).value as AttachResponse
      if (message.case === 'start') given.push(...message.value.assignments.map(({ taskId }) => taskId))
    }
  }
  const other = rpc.attach(helloOf(1, count, 'n_2'))[Symbol.asyncIterator]()
  await read(other, 20)
  await Promise.all([read(slow, count), read(other, count)])
  expect(new Set(given).size).toBe(count)
})

test('a manager that closes has what it handed out reach its worker first, however slowly that reads', async () => {
  const { manager, rpc, helloOf } = await setUp()
  // More than the buffers of a connection hold.
  const count = 20
  const stream = rpc.attach(helloOf(1, count))[Symbol.asyncIterator]()
  expect((await stream.next()).value?.message.case).toBe('welcome')
  await manager.scheduleMany(work, Array(count).fill('x'.repeat(900_000)))
  await vi.waitUntil(async () => (await manager.workers())[0]?.running === count, { timeout: 10_000 })
  const closed = manager.close()
  const told: string[] = []
  for (let next = await stream.next(); !next.done; next = await stream.next()) {
    const { message } = next.value
    if (message.case === 'start') told.push(...message.value.assignments.map(({ taskId }) => taskId))
    else if (message.case === 'goodbye') told.push(message.case)
  }
  await closed
  expect(new Set(told).size).toBe(count + 1)
  expect(told.at(-1)).toBe('goodbye')
})
