/** Many waits share few streams, and each has its answer, its limit and its error; on a virtual clock. */
import type { ServiceImpl } from '@connectrpc/connect'
import { Code, ConnectError, createRouterTransport } from '@connectrpc/connect'
import { expect, test } from 'vitest'
import { CurfewError } from '../core/errors.ts'
import { VirtualClock } from '../testing/virtual-clock.ts'
import type { Waited } from '../wire/gen/curfew/v1/jobs_pb.ts'
import { JobService } from '../wire/gen/curfew/v1/jobs_pb.ts'
import type { Endpoint } from '../wire/http-client.ts'
import { newCounters } from './client-counters.ts'
import { GatheredWaits } from './gathered-waits.ts'
import { ManagerCalls } from './manager-calls.ts'

/** A manager that ends what it is told to, and knows who asked for what. */
class Manager {
  readonly asked: string[][] = []
  readonly #ended = new Map<string, Waited['how']>()
  readonly #streams = new Set<() => void>()
  refusal: Error | null = null
  /** What streams named that ended before their reader went. */
  readonly over: string[][] = []
  #fault: Error | null = null

  get streams(): number {
    return this.#streams.size
  }

  end(...ids: string[]): void {
    for (const id of ids) this.#ended.set(id, { case: 'output', value: `"${id}"` })
    for (const wake of this.#streams) wake()
  }

  miss(id: string): void {
    const value = { $typeName: 'curfew.v1.ErrorDetail', code: 'not_found', message: `no ${id}`, fields: {} }
    this.#ended.set(id, { case: 'error', value: value as never })
    for (const wake of this.#streams) wake()
  }

  cut(): void {
    this.#fault = new ConnectError('connect ECONNRESET', Code.Unavailable)
    for (const wake of this.#streams) wake()
    this.#fault = null
  }

  readonly waitMany: ServiceImpl<typeof JobService>['waitMany'] = ({ ids }, { signal }) =>
    this.#ends(ids, signal)

  readonly wait: ServiceImpl<typeof JobService>['wait'] = async ({ id }, { signal }) => {
    for await (const { ends } of this.#ends([id], signal)) {
      if (ends.length === 0) continue
      const how = ends[0]?.how
      return { settled: true, ...(how?.case === 'output' && { output: how.value }) }
    }
    throw new ConnectError('gone', Code.Canceled)
  }

  async *#ends(ids: string[], signal: AbortSignal) {
    this.asked.push(ids)
    if (this.refusal) throw this.refusal
    const left = new Set(ids)
    let looked = false
    let wake = () => {}
    let fault: Error | null = null
    const woken = () => {
      fault ??= this.#fault
      wake()
    }
    this.#streams.add(woken)
    signal.addEventListener('abort', woken)
    try {
      while (left.size > 0 && !signal.aborted) {
        const next = new Promise<void>((resolve) => {
          wake = resolve
        })
        if (fault) throw fault
        const ends = [...left].filter((id) => this.#ended.has(id))
        for (const id of ends) left.delete(id)
        const all = ends.map((id) => ({ id, how: this.#ended.get(id) })) as Waited[]
        if (ends.length > 0 || !looked) yield { ends: all, looked: true }
        else await next
        looked = true
      }
      if (!signal.aborted) this.over.push(ids)
    } finally {
      this.#streams.delete(woken)
    }
  }
}

function setUp() {
  const manager = new Manager()
  const clock = new VirtualClock()
  const counters = newCounters()
  const transport = createRouterTransport(({ service }) => {
    service(JobService, { wait: manager.wait, waitMany: manager.waitMany })
  })
  const endpoint: Endpoint = {
    url: 'http://manager',
    transport,
    request: null as never,
    close: () => undefined,
  }
  const parts = {
    endpoints: [endpoint],
    clock,
    counters,
    randomness: { next: () => 0, bytes: () => new Uint8Array() },
  }
  const calls = new ManagerCalls(parts)
  const waits = new GatheredWaits(parts, calls)
  return { manager, clock, counters, calls, waits }
}

async function until(clock: VirtualClock, is: () => boolean): Promise<void> {
  for (let i = 0; i < 5_000 && !is(); i++) await clock.advance(1)
  expect(is()).toBe(true)
}

const names = (count: number, prefix = 't') => Array.from({ length: count }, (_, i) => `${prefix}_${i}`)
const output = (id: string) => ({ status: 'completed', output: `"${id}"` })

test('those that begin together are one request, and each ends by itself', async () => {
  const { manager, clock, waits, counters } = setUp()
  const settled = ['t_1', 't_2', 't_1', 't_3'].map((id) => waits.settled(id, null))
  await until(clock, () => manager.streams === 1)
  expect(manager.asked).toEqual([['t_1', 't_2', 't_3']])
  manager.end('t_1')
  expect(await Promise.all([settled[0], settled[2]])).toEqual([output('t_1'), output('t_1')])
  manager.miss('t_2')
  await expect(settled[1]).rejects.toMatchObject({ code: 'not_found', message: 'no t_2' })
  expect(manager.streams).toBe(1)
  manager.end('t_3')
  expect(await settled[3]).toEqual(output('t_3'))
  await until(clock, () => manager.streams === 0)
  expect(counters).toMatchObject({ requests: 4, failures: 1, reconnects: 0 })
})

test('a stream that has told of all ends by itself, so that its connection serves again', async () => {
  const { manager, clock, waits, counters } = setUp()
  const settled = [waits.settled('t_1', null), waits.settled('t_2', null)]
  await until(clock, () => manager.streams === 1)
  manager.end('t_1')
  await settled[0]
  manager.end('t_2')
  await settled[1]
  await until(clock, () => manager.streams === 0)
  expect(manager.over).toEqual([['t_1', 't_2']])
  // Of one of these nobody wants to know any more, and the manager would wait for it.
  const limited = waits.settled('t_3', 100)
  const other = waits.settled('t_4', null)
  await until(clock, () => manager.streams === 1)
  await clock.advance(100)
  expect(await limited).toBeNull()
  manager.end('t_4')
  expect(await other).toEqual(output('t_4'))
  await until(clock, () => manager.streams === 0)
  expect(manager.over).toHaveLength(1)
  expect(counters).toMatchObject({ reconnects: 0, retries: 0, failures: 0 })
})

test('each has its own limit, and the last that goes takes the stream with it', async () => {
  const { manager, clock, waits } = setUp()
  const ends: string[] = []
  const follow = (id: string, settled: Promise<unknown>) =>
    void settled.then((value) => ends.push(`${id} ${JSON.stringify(value)} ${clock.monotonic() - from}`))
  const from = clock.monotonic()
  follow('a', waits.settled('a', 1_000))
  follow('b', waits.settled('b', 2_000))
  follow('c', waits.settled('c', 1_500))
  await until(clock, () => manager.streams === 1)
  await clock.advance(1_500 - (clock.monotonic() - from))
  expect(ends).toEqual(['a null 1000', 'c null 1500'])
  expect(manager.streams).toBe(1)
  await clock.advance(1_000)
  expect(ends).toEqual(['a null 1000', 'c null 1500', 'b null 2000'])
  await until(clock, () => manager.streams === 0)
})

test.each([[['t_1']], [['t_1', 't_2']]])(
  'what has settled is told however short the limit is, nothing else is waited for: %j',
  async (ids) => {
    const { manager, clock, waits } = setUp()
    manager.end(...ids)
    const settled = ids.map((id) => waits.settled(id, 0))
    const open = waits.settled('t_9', 0)
    const alone = waits.settled('t_1', 0)
    await until(clock, () => manager.streams === 0 && manager.asked.length > 0)
    expect(await Promise.all(settled)).toEqual(ids.map(output))
    expect([await open, await alone]).toEqual([null, output('t_1')])
    const later = waits.settled('t_1', 0)
    await clock.advance(1)
    expect(await later).toEqual(output('t_1'))
  },
)

test('a refusal is told however short the limit is; that nobody answers is not', async () => {
  const { manager, clock, waits } = setUp()
  manager.refusal = new ConnectError('not you', Code.PermissionDenied)
  const codeOf = (wait: Promise<unknown>) => wait.catch(({ code }: CurfewError) => code)
  const refused = [codeOf(waits.settled('t_1', 0)), codeOf(waits.settled('t_2', 0))]
  await clock.advance(10)
  const alone = codeOf(waits.settled('t_1', 0))
  await clock.advance(10)
  expect(await Promise.all([...refused, alone])).toEqual(Array(3).fill('permission_denied'))
  manager.refusal = new ConnectError('connect ECONNREFUSED', Code.Unavailable)
  const unanswered = ['t_1', 't_2'].map((id) => codeOf(waits.settled(id, 0)))
  await clock.advance(10)
  expect(await Promise.all(unanswered)).toEqual([null, null])
})

test('however many come one after the other, the streams stay few, and nobody is lost', async () => {
  const { manager, clock, waits } = setUp()
  const settled: Promise<unknown>[] = []
  for (const id of names(400)) {
    settled.push(waits.settled(id, null))
    await clock.advance(1)
  }
  await clock.advance(100)
  expect(manager.streams).toBe(50)
  manager.end(...names(400))
  expect(await Promise.all(settled)).toEqual(names(400).map(output))
  await until(clock, () => manager.streams === 0)
})

test('more than one request may name are several', async () => {
  const { manager, clock, waits } = setUp()
  const settled = names(12_000).map((id) => waits.settled(id, null))
  await until(clock, () => manager.streams === 3)
  expect(manager.asked.map((ids) => ids.length)).toEqual([5_000, 5_000, 2_000])
  manager.end(...names(12_000))
  expect(await Promise.all(settled)).toHaveLength(12_000)
})

test('after a connection that was cut only those are asked for that have not ended', async () => {
  const { manager, clock, waits, counters } = setUp()
  const settled = ['t_1', 't_2', 't_3'].map((id) => waits.settled(id, null))
  await until(clock, () => manager.streams === 1)
  manager.end('t_2')
  await settled[1]
  manager.cut()
  await until(clock, () => manager.asked.length === 2)
  expect(manager.asked[1]).toEqual(['t_1', 't_3'])
  manager.end('t_1', 't_3')
  expect(await Promise.all(settled)).toEqual(['t_1', 't_2', 't_3'].map(output))
  expect(counters).toMatchObject({ retries: 1, reconnects: 1, failures: 0 })
})

test('a client that is closed says so to all who wait', async () => {
  const { manager, clock, waits, calls } = setUp()
  const settled = names(3).map((id) => waits.settled(id, null))
  const ended = Promise.allSettled(settled)
  await until(clock, () => manager.streams === 1)
  calls.close()
  const reasons = (await ended).map((one) => (one as PromiseRejectedResult).reason)
  expect(reasons.map(({ code }) => code)).toEqual(['closed', 'closed', 'closed'])
  expect(reasons[0]).toBeInstanceOf(CurfewError)
  const late = waits.settled('t_9', null)
  const refused = expect(late).rejects.toMatchObject({ code: 'closed' })
  await clock.advance(10)
  await refused
})
