import { create } from '@bufbuild/protobuf'
import { createClient } from '@connectrpc/connect'
import { expect, test, vi } from 'vitest'
import { Curfew, task } from '../curfew.ts'
import { AttachRequestSchema, WorkerService } from '../wire/gen/curfew/v1/workers_pb.ts'
import { endpointOf } from '../wire/http-client.ts'

const work = task({ name: 'work', run: () => 'done' })

test('a worker that was silent for some seconds is given work again when it is heard of', async () => {
  const manager = await Curfew.open({ store: ':memory:', concurrency: 0, listen: '127.0.0.1:0' })
  const endpoint = endpointOf(manager.url as string)
  const rpc = createClient(WorkerService, endpoint.transport)
  const machine = { host: 'here', bootId: '', pidSpace: '', pid: 1, pidStarted: '' }
  const hello = create(AttachRequestSchema, {
    ...{ workerId: 'n_silent', session: 1, version: '1', protocolMin: 1, protocolMax: 1, machine },
    ...{ allQueues: true, concurrency: 1, turns: 1, definitions: [{ kind: 'task', name: 'work', body: {} }] },
  })
  const hangUp = new AbortController()
  const told: string[] = []
  const stream = (async () => {
    for await (const { message } of rpc.attach(hello, { signal: hangUp.signal })) told.push(`${message.case}`)
  })().catch((error: Error) => told.push(error.message))
  const status = async () => (await manager.workers())[0]?.status
  const free = async () =>
    (await manager.metrics())
      .find(({ name }) => name === 'curfew_slots')
      ?.values.find(({ labels }) => labels.state === 'free')?.value
  try {
    await vi.waitUntil(() => told.includes('welcome'))
    await vi.waitUntil(async () => (await status()) === 'silent' && (await free()) === 0, { timeout: 8_000 })
    await rpc.beat({ workerId: 'n_silent' })
    await manager.schedule(work, null)
    await vi.waitUntil(() => told.includes('start'), { timeout: 5_000 })
    expect(await status()).toBe('attached')
  } finally {
    hangUp.abort()
    await stream
    endpoint.close()
    await manager.close()
  }
})

test('what a worker was given and never got is sent again when it comes back; what was decided meanwhile is not', async () => {
  const manager = await Curfew.open({ store: ':memory:', concurrency: 0, listen: '127.0.0.1:0' })
  const endpoint = endpointOf(manager.url as string)
  const rpc = createClient(WorkerService, endpoint.transport)
  const machine = { host: 'here', bootId: '', pidSpace: '', pid: 1, pidStarted: '' }
  const definitions = [{ kind: 'task', name: 'work', body: {} }]
  const attach = (session: number) => {
    const hello = create(AttachRequestSchema, {
      ...{ workerId: 'n_cut', session, version: '1', protocolMin: 1, protocolMax: 1, machine },
      ...{ allQueues: true, concurrency: 5, turns: 1, definitions },
    })
    const hangUp = new AbortController()
    const started: string[] = []
    const told: string[] = []
    const ended = (async () => {
      for await (const { message } of rpc.attach(hello, { signal: hangUp.signal })) {
        told.push(`${message.case}`)
        if (message.case === 'start') started.push(...message.value.assignments.map(({ taskId }) => taskId))
      }
    })().catch((error: Error) => told.push(error.message))
    return { hangUp, started, told, ended }
  }
  const first = attach(1)
  try {
    await vi.waitUntil(() => first.told.includes('welcome'))
    const [kept, cancelled] = await manager.scheduleMany(work, [null, null])
    if (!kept || !cancelled) throw new Error('two were scheduled')
    await vi.waitUntil(() => first.started.length === 2)
    first.hangUp.abort()
    await first.ended
    expect(await cancelled.cancel()).toBe('cancelled')
    const again = attach(2)
    await vi.waitUntil(() => again.started.length > 0)
    expect((await cancelled.cancelled()).ledger).toMatchObject([{ receipt: 'exited' }])
    expect(again.started).toEqual([kept.id])
    again.hangUp.abort()
    await again.ended
  } finally {
    first.hangUp.abort()
    endpoint.close()
    await manager.close()
  }
})
