/** C1, C5: cancelling what runs on workers elsewhere: answered at once, complete when all of it has stopped. */
import { createClient } from '@connectrpc/connect'
import { expect } from 'vitest'
import type { WireWorld } from '../scripts/acceptance/wire-world.ts'
import { Gates, onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import type { Curfew } from './curfew.ts'
import { job, TaskCancelled, task } from './curfew.ts'
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
