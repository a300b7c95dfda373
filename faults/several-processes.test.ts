// Several processes on one PostgreSQL: each of them may be killed, blocked, stopped or closed, and the others carry on.

import { afterEach, beforeEach, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase } from '../scripts/postgres/database.ts'
import { findOverlaps, findOverload, spansOf } from './chaos/attempt-spans.ts'
import { EngineProcess, factsOf, journalOf, started } from './engine-process.ts'
import type { EngineOptions } from './engine-program.ts'
import { monotonicMs, readJournal } from './journal.ts'
import { Scratch } from './scratch.ts'
import { until } from './wait.ts'

const LONG = { ms: 120_000 }
/** Without a renewal for 5 s its own process stops an attempt; 5 s later others may have it. */
const LEASE_MS = 10_000
const LEADERSHIP_MS = 3_000
const TASKS = ['wait', 'wait-once', 'block']
/** Generous: the machine may be busy with other things. */
const LIMIT = { timeout: 120_000 }

let scratch: Scratch
let url: string
let engines: EngineProcess[]

beforeEach(async () => {
  scratch = new Scratch()
  url = await createDatabase(inject('postgresUrl'))
  engines = []
})

afterEach(async () => {
  await Promise.all(engines.map((engine) => engine.end()))
  await scratch.remove()
  await dropDatabase(url)
})

async function open(options: Partial<EngineOptions> = {}): Promise<EngineProcess> {
  const engine = await EngineProcess.open(scratch, { store: url, tasks: TASKS, concurrency: 20, ...options })
  engines.push(engine)
  return engine
}

function expectNoOverlap(): void {
  expect(findOverlaps(spansOf(readJournal(journalOf(scratch))))).toEqual([])
}

test(
  'what a killed process ran is run again after the lease of its attempts, and not before',
  LIMIT,
  async () => {
    const doomed = await open()
    const ids = await doomed.call.scheduleMany('wait-once', Array(20).fill(LONG))
    await started(scratch, ids, 1, 20_000)
    const other = await open()
    const killedAt = await doomed.kill()
    const { lastAt, facts } = await started(scratch, ids, 2, 60_000)
    const first = Math.min(...facts.map(({ mono }) => mono)) - killedAt
    console.log(
      `without a witness: first after ${first.toFixed(0)} ms, all after ${(lastAt - killedAt).toFixed(0)} ms`,
    )
    // The last renewal was at most a second, and its answer's delay, before the kill.
    expect(first).toBeGreaterThan(LEASE_MS - 3_000)
    expect(lastAt - killedAt).toBeLessThan(LEASE_MS + 20_000)
    for (const id of ids) expect(await other.call.result(id, 20_000)).toEqual({ attempt: 2 })
    expectNoOverlap()
  },
)

test('with a witness they are run again at once', LIMIT, async () => {
  const doomed = await open({ witness: true, concurrency: 100 })
  const ids = await doomed.call.scheduleMany('wait-once', Array(100).fill(LONG))
  await started(scratch, ids, 1, 20_000)
  const other = await open({ witness: true, concurrency: 100 })
  const killedAt = await doomed.kill()
  const { lastAt } = await started(scratch, ids, 2, 30_000)
  console.log(`with a witness: all 100 again after ${(lastAt - killedAt).toFixed(0)} ms`)
  expect(lastAt - killedAt).toBeLessThan(5_000)
  for (const id of ids) expect(await other.call.result(id, 20_000)).toEqual({ attempt: 2 })
  expectNoOverlap()
})

test(
  'a handler that blocks its process keeps its attempt; overdue deadlines are fired by peers',
  LIMIT,
  async () => {
    const blocked = await open()
    const beside = await blocked.call.schedule('wait', LONG, { timeout: 3_500 })
    await started(scratch, [beside], 1, 20_000)
    // Scheduled by one that cannot run it: the blocked one could not even answer.
    const other = await open({ tasks: ['wait'] })
    const id = await other.call.schedule('block', { ms: 12_000 }, { retries: 3 })
    await started(scratch, [id], 1, 20_000)
    const view = await until('a peer fired the deadline', 30_000, async () => {
      const seen = await other.call.view(beside)
      return seen.status === 'timed_out' ? seen : null
    })
    // While the other one was still blocked, and only when it was overdue by the lease.
    expect(factsOf(scratch, 'attempt_ended', [id])).toEqual([])
    const event = (await other.call.events(beside)).find(({ type }) => type === 'task_timed_out')
    console.log(`a blocked process's deadline was fired by a peer, ${event?.lateMs} ms late`)
    expect(view.timeoutKind).toBe('total')
    // Its warning, at 80 %, was overdue by the lease.
    expect(event?.lateMs).toBeGreaterThanOrEqual(LEADERSHIP_MS - 700)
    expect(event?.lateMs).toBeLessThan(LEADERSHIP_MS + 8_000)
    expect(await other.call.result(id, 60_000)).toEqual({ attempt: 1 })
    expect(await blocked.call.result(id, 60_000)).toEqual({ attempt: 1 })
    await until(
      'its peer-decided stop has a receipt',
      20_000,
      async () => (await other.call.view(beside)).settled,
    )
    expect(await blocked.call.result(await blocked.call.schedule('wait', { ms: 1 }), 20_000)).toEqual({
      attempt: 1,
    })
    expectNoOverlap()
  },
)

test(
  'a process that was stopped for longer than its lease finds its work gone, and works on',
  LIMIT,
  async () => {
    const stopped = await open()
    // Half of them are through when it wakes, half would go on.
    const inputs = Array.from({ length: 10 }, (_, i) => ({ ms: i % 2 === 0 ? 8_000 : 120_000 }))
    const ids = await stopped.call.scheduleMany('wait-once', inputs)
    await started(scratch, ids, 1, 20_000)
    const other = await open({ concurrency: 5 })
    stopped.stop()
    const { facts } = await started(scratch, ids, 2, 60_000)
    expect(facts.every(({ pid }) => pid === other.pid)).toBe(true)
    for (const id of ids) expect(await other.call.result(id, 20_000)).toEqual({ attempt: 2 })
    stopped.continue()
    // What it still had to say comes too late and changes nothing.
    await until('the attempts of the woken process have ended', 20_000, () => {
      const ended = factsOf(scratch, 'attempt_ended', ids).filter(({ pid }) => pid === stopped.pid)
      return ended.length === ids.length
    })
    for (const id of ids) expect((await other.call.view(id)).output).toEqual({ attempt: 2 })
    // It has signed in again: what it schedules it also runs, while the other one is full.
    const busy = await other.call.scheduleMany('wait', Array(5).fill({ ms: 15_000 }))
    await started(scratch, busy, 1, 20_000)
    const again = await stopped.call.scheduleMany('wait', Array(10).fill({ ms: 200 }))
    for (const id of again) expect(await stopped.call.result(id, 30_000)).toEqual({ attempt: 1 })
    const byWoken = factsOf(scratch, 'attempt_started', again).filter(({ pid }) => pid === stopped.pid)
    expect(byWoken.length).toBeGreaterThan(0)
  },
)

test('a process stopped in the middle of its writes holds nobody up', LIMIT, async () => {
  const stopped = await open()
  const other = await open()
  // Stopped again and again under load, until a stop falls into a transaction.
  for (let round = 0; round < 3; round++) {
    const ids: string[] = []
    let loading = true
    const load = (async () => {
      while (loading) ids.push(...(await stopped.call.scheduleMany('wait', Array(50).fill({ ms: 1 }))))
    })().catch((error: { code?: string }) => {
      // What was in flight when it was stopped may find that its lease is somebody else's.
      if (!['store_unavailable', 'not_leading', 'process_ended'].includes(error.code ?? '')) throw error
    })
    await until('there is load', 20_000, () => ids.length > 300 + round * 37)
    loading = false
    stopped.stop()
    const settled = async () =>
      (await other.call.count('pending')) === 0 && (await other.call.count('running')) === 0
    await until('the others have done everything', 60_000, settled)
    stopped.continue()
    await load
  }
})

test('a process that closes hands its tasks over at once', LIMIT, async () => {
  const closing = await open({ concurrency: 10 })
  const ids = await closing.call.scheduleMany('wait-once', Array(10).fill(LONG))
  await started(scratch, ids, 1, 20_000)
  const other = await open()
  // It listens: what the full one has no room for it takes.
  await other.call.result(await closing.call.schedule('wait', { ms: 1 }), 20_000)
  await other.call.result(await closing.call.schedule('wait', { ms: 1 }), 20_000)
  const askedAt = monotonicMs()
  const closed = closing.call.close()
  const { lastAt } = await started(scratch, ids, 2, 30_000)
  await closed
  console.log(`handed over by close after ${(lastAt - askedAt).toFixed(0)} ms`)
  expect(lastAt - askedAt).toBeLessThan(5_000)
  for (const id of ids) expect(await other.call.result(id, 20_000)).toEqual({ attempt: 2 })
  expectNoOverlap()
})

test('the limit of a queue holds over processes, whatever happens to them', LIMIT, async () => {
  const limit = 4
  const options = { witness: true, queues: { narrow: { concurrency: limit } } }
  const [first, , third] = await Promise.all([
    open(options),
    open(options),
    open({ ...options, tasks: ['wait'] }),
  ])
  const ids = await first.call.scheduleMany('wait', Array(120).fill({ ms: 150 }), { queue: 'narrow' })
  await started(scratch, ids.slice(0, 10), 1, 20_000)
  await first.kill()
  // The second is blocked, one closes, a new one comes.
  const blocking = await third.call.schedule('block', { ms: 4_000 })
  // Whatever it had claimed and not begun when it was killed is begun by its second attempt.
  await started(scratch, ids.slice(0, 30), 'any', 60_000)
  const closed = third.call.close()
  const fourth = await open(options)
  await closed
  for (const id of [...ids, blocking]) await fourth.call.result(id, 60_000)
  const spans = spansOf(readJournal(journalOf(scratch)))
  const most = findOverload(spans.filter(({ taskId }) => ids.includes(taskId)))
  expect(most).toBeGreaterThan(1)
  expect(most).toBeLessThanOrEqual(limit)
  expectNoOverlap()
})
