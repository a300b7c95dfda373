/** C1, C5: cancelling what runs on workers elsewhere: answered at once, complete when all of it has stopped. */
import { createClient } from '@connectrpc/connect'
import { expect } from 'vitest'
import { tcpProxy } from '../scripts/acceptance/tcp-proxy.ts'
import type { WireWorld } from '../scripts/acceptance/wire-world.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import type { Curfew } from './curfew.ts'
import { agent, job, TaskCancelled, task } from './curfew.ts'
import { JobService } from './wire/gen/curfew/v1/jobs_pb.ts'
import { endpointOf } from './wire/http-client.ts'
import { fromConnectError } from './wire/wire-error.ts'

const NEVER = new AbortController().signal

/** Work that is held by one gate, and by another one when it is told to stop. */
function slowToStop(gates: Gates) {
  return task({
    ...{ name: 'slow', grace: '20s' },
    run: (name: string, { signal }) =>
      gates.pass(name, signal).catch(async (reason: unknown) => {
        await gates.pass(`${name} stops`, NEVER)
        throw reason
      }),
  })
}

function rpcTo(wire: WireWorld, manager: Curfew) {
  const endpoint = endpointOf(manager.url as string)
  wire.atEnd(async () => endpoint.close())
  return createClient(JobService, endpoint.transport)
}

onEachWire('cancelling over the wire', (test) => {
  test('C1: a job on several workers is complete when all of them have stopped', async ({ wire }) => {
    const gates = new Gates()
    const slow = slowToStop(gates)
    const manager = await wire.manager()
    for (const _ of [1, 2, 3]) await wire.work(manager, { tasks: [slow], concurrency: 2 })
    const client = await wire.connect(manager)
    const names = ['a', 'b', 'c', 'd', 'e', 'f']
    const workflows = [...names, 'waits', 'waits too'].map((id) => ({ id, task: slow, input: id }))
    const after = { id: 'after', task: slow, input: 'after', dependsOn: ['a'] }
    const handle = await client.submit(job({ workflows: [...workflows, after] }))
    await until(() => gates.entered.length === 6)
    const running = await until(async () => {
      const workers = await client.workers()
      return workers.every((worker) => worker.running === 2) ? workers : null
    })
    expect(running).toHaveLength(3)

    expect(await handle.cancel()).toBe('cancelled')
    expect(await handle.cancel()).toBe('already_cancelled')
    await until(() => gates.entered.filter((name) => name.endsWith('stops')).length === 6)
    let told = false
    const outcome = handle.cancelled({ timeout: '25s' }).finally(() => {
      told = true
    })
    for (const name of names.slice(1)) gates.open(`${name} stops`)
    await until(async () => (await client.workers()).reduce((sum, worker) => sum + worker.running, 0) === 1)
    expect(await handle.status()).toBe('cancelling')
    expect(told).toBe(false)
    gates.open('a stops')
    const { success, errors, ledger } = await outcome
    expect([success, errors]).toEqual([true, []])
    // Only what ran has something to show.
    expect(ledger.map(({ status, receipt }) => `${status} ${receipt}`)).toEqual(
      Array.from({ length: 6 }, () => 'cancelled aborted'),
    )
    const statuses = (await handle.workflows()).map(({ status }) => status)
    expect(statuses).toEqual(Array.from({ length: 9 }, () => 'cancelled'))
    await expect(handle.result()).rejects.toBeInstanceOf(TaskCancelled)
    expect(gates.entered.filter((name) => !name.endsWith('stops')).toSorted()).toEqual(names)
    expect(await handle.cancel()).toBe('already_cancelled')
  })

  test('C1: one that ends by itself meanwhile keeps its result, and its handler is not asked twice', async ({
    wire,
  }) => {
    const gates = new Gates()
    const slow = slowToStop(gates)
    const manager = await wire.manager()
    await wire.work(manager, { tasks: [slow] })
    const client = await wire.connect(manager)
    const [first, second] = await client.scheduleMany(slow, ['a', 'b'])
    await until(() => gates.entered.length === 2)
    gates.open('a', 'done')
    expect(await first?.result()).toBe('done')
    expect(await first?.cancel()).toBe('already_completed')
    expect(await first?.cancelled()).toMatchObject({
      success: false,
      errors: [expect.stringContaining('completed')],
    })
    expect([await second?.cancel(), await second?.cancel()]).toEqual(['cancelled', 'already_cancelled'])
    await until(() => gates.entered.includes('b stops'))
    gates.open('b stops')
    expect(await second?.cancelled()).toMatchObject({ success: true, ledger: [{ receipt: 'aborted' }] })
    expect(gates.entered.filter((name) => name === 'b stops')).toHaveLength(1)
  })

  test('C1: a cancel that comes twice is answered as it was the first time, also after a restart', async ({
    wire,
  }) => {
    const gates = new Gates()
    const slow = slowToStop(gates)
    const never = agent({ name: 'never', run: () => null })
    const waits = agent({ name: 'waits', run: (_: null, ctx) => ctx.waitForSignal('go') })
    const manager = await wire.manager()
    const worker = await wire.work(manager, { tasks: [slow], agents: [waits], concurrency: 2 })
    const client = await wire.connect(manager)
    const ran = await client.schedule(slow, 'ran')
    const ended = await client.schedule(slow, 'ended')
    const pending = await client.schedule(slow, 'pending', { delay: '1h' })
    const waiting = await client.start(waits, null)
    const unknown = await client.start(never, null)
    await until(async () => gates.entered.length === 2 && (await waiting.explain()).waits.length === 1)
    gates.open('ended')
    await ended.result()
    const answers = [
      [ran.id, 'cancelled'],
      [pending.id, 'pending_cancelled'],
      [waiting.id, 'cancelled'],
      [unknown.id, 'pending_cancelled'],
      [ended.id, 'already_completed'],
      ['t_nobody', 'not_found'],
    ]
    const ask = async (to: Curfew, requestId: string) => {
      const jobs = rpcTo(wire, to)
      const cancel = async ([id = '']: string[]) => [id, (await jobs.cancel({ jobId: id, requestId })).status]
      return Promise.all(answers.map(cancel))
    }
    // Together, and one after the other.
    expect(await Promise.all([ask(manager, 'a'), ask(manager, 'a')])).toEqual([answers, answers])
    expect(await ask(manager, 'a')).toEqual(answers)
    const later = answers.map(([id = '', status = '']) => [
      id,
      status.replace(/^.*cancelled$/, 'already_cancelled'),
    ])
    expect(await ask(manager, 'b')).toEqual(later)
    expect(await ask(manager, '')).toEqual(later)
    await until(() => gates.entered.includes('ran stops'))
    gates.open('ran stops')
    expect(await ran.cancelled()).toMatchObject({ success: true, ledger: [{ receipt: 'aborted' }] })
    await waiting.cancelled()
    await worker.close()
    await manager.close()
    const next = await wire.manager()
    expect(await ask(next, 'a')).toEqual(answers)
    expect(await ask(next, 'b')).toEqual(later)
    const events = await next.task(ran.id).events()
    expect(events.filter(({ type }) => type === 'task_cancelled')).toHaveLength(1)
  })

  test('C1: a client whose connection is cut before the answer hears that it has cancelled', async ({
    wire,
  }) => {
    const manager = await wire.manager()
    const proxy = await tcpProxy(manager.url as string)
    wire.atEnd(() => proxy.close())
    const { id } = await manager.schedule(slowToStop(new Gates()), 'a')
    const client = await wire.connect(proxy.url)
    expect(await client.task(id).status()).toBe('pending')
    proxy.cutAnswers(1)
    expect(await client.task(id).cancel()).toBe('pending_cancelled')
    expect(client.counters.retries).toBe(1)
    expect(await client.task(id).cancel()).toBe('already_cancelled')
  })

  test('C5: a stale fence is refused with the current one, none and the current one are not', async ({
    wire,
  }) => {
    const manager = await wire.manager()
    const jobs = rpcTo(wire, manager)
    const { fence } = await manager.serverStatus()
    expect(fence).toBeGreaterThan(0)
    const later = slowToStop(new Gates())
    const [a, b, c] = await manager.scheduleMany(later, ['a', 'b', 'c'])
    const cancel = (id = '', fenceToken = 0) => jobs.cancel({ jobId: id, fenceToken: BigInt(fenceToken) })
    for (const stale of [fence + 1, fence - 1 || fence + 2]) {
      const error = fromConnectError(await cancel(a?.id, stale).catch((thrown: unknown) => thrown))
      expect(error).toMatchObject({ code: 'stale_fence', fields: { fence } })
    }
    expect(await a?.status()).toBe('pending')
    expect((await cancel(a?.id)).status).toBe('pending_cancelled')
    expect((await cancel(b?.id, fence)).status).toBe('pending_cancelled')
    expect((await cancel('t_nobody', 0)).status).toBe('not_found')

    // Whoever led before does not any more.
    await manager.close()
    const next = await wire.manager()
    const status = await next.serverStatus()
    expect(status.fence).toBeGreaterThan(fence)
    const deposed = rpcTo(wire, next).cancel({ jobId: c?.id as string, fenceToken: BigInt(fence) })
    const error = fromConnectError(await deposed.catch((thrown: unknown) => thrown))
    expect(error).toMatchObject({ code: 'stale_fence', fields: { fence: status.fence } })
    expect(await next.task(c?.id as string).status()).toBe('pending')
  })
})
