// PostgreSQL stops in the middle and comes back: clear errors in between, then everything goes on by itself.

import { afterEach, beforeEach, expect, test } from 'vitest'
import type { PostgresServer } from '../scripts/postgres/postgres.ts'
import { startPostgres } from '../scripts/postgres/postgres.ts'
import { findOverlaps, spansOf } from './chaos/attempt-spans.ts'
import type { CallFailed } from './engine-process.ts'
import { EngineProcess, factsOf, journalOf, started } from './engine-process.ts'
import { monotonicMs, readJournal } from './journal.ts'
import { Scratch } from './scratch.ts'
import { until } from './wait.ts'

const TASKS = ['wait', 'wait-once', 'stubborn']
const LIMIT = { timeout: 240_000 }
/** A caller waits 10 s for a store that is away. */
const CALLER_WAITS_MS = 10_000

let scratch: Scratch
let server: PostgresServer
let url: string
let engines: EngineProcess[]

beforeEach(async () => {
  scratch = new Scratch()
  server = await startPostgres()
  url = await server.createDatabase()
  engines = []
})

afterEach(async () => {
  await Promise.all(engines.map((engine) => engine.end()))
  await scratch.remove()
  await server.remove()
})

async function open(): Promise<EngineProcess> {
  const engine = await EngineProcess.open(scratch, { store: url, tasks: TASKS, concurrency: 50 })
  engines.push(engine)
  return engine
}

/** Schedules until it is told to stop; answers what was acknowledged and what was refused. */
function scheduleAllTheTime(engine: EngineProcess) {
  const acknowledged: string[] = []
  const refused: CallFailed[] = []
  let going = true
  const caller = async () => {
    while (going) {
      await engine.call.schedule('wait', { ms: 5 }).then(
        (id) => acknowledged.push(id),
        (error: CallFailed) => {
          refused.push(error)
          if (error.code === 'process_ended') going = false
        },
      )
    }
  }
  const callers = Promise.all(Array.from({ length: 8 }, caller))
  return {
    acknowledged,
    refused,
    stop: async () => {
      going = false
      await callers
    },
  }
}

test('a short stop of PostgreSQL goes unnoticed by callers, handlers and attempts', LIMIT, async () => {
  const engine = await open()
  const long = await engine.call.scheduleMany('wait', Array(10).fill({ ms: 6_000 }))
  await started(scratch, long, 1, 20_000)
  const load = scheduleAllTheTime(engine)
  await until('there is load', 20_000, () => load.acknowledged.length > 50)
  await server.stop('immediate')
  await server.start()
  const before = load.acknowledged.length
  await until('it goes on', 20_000, () => load.acknowledged.length > before + 50)
  await load.stop()
  expect(load.refused).toEqual([])
  for (const id of long) expect(await engine.call.result(id, 30_000)).toEqual({ attempt: 1 })
  for (const id of load.acknowledged) expect(await engine.call.result(id, 30_000)).toEqual({ attempt: 1 })
})

test(
  'a long one brings clear errors within their bound, and everything goes on after it',
  LIMIT,
  async () => {
    const [engine, other] = await Promise.all([open(), open()])
    const running = await engine.call.scheduleMany('wait', Array(10).fill({ ms: 3_000 }))
    const hanging = await engine.call.schedule('wait', { ms: 120_000 }, { timeout: 4_000 })
    const waiting = await engine.call.schedule('wait', { ms: 1 }, { delay: 3_000 })
    await started(scratch, [...running, hanging], 1, 20_000)
    const load = scheduleAllTheTime(engine)
    await until('there is load', 20_000, () => load.acknowledged.length > 50)
    await server.stop('immediate')
    const stoppedAt = monotonicMs()
    await until('callers were refused', 40_000, () => load.refused.length >= 8)
    const boundMs = monotonicMs() - stoppedAt
    console.log(`callers were refused ${boundMs.toFixed(0)} ms after the stop`)
    expect(boundMs).toBeLessThan(CALLER_WAITS_MS + 8_000)
    for (const { code, message, tookMs } of load.refused) {
      // Of a commit that was in flight nobody can tell.
      expect({ code, message }).toMatchObject({
        code: expect.stringMatching(/^(store_unavailable|commit_unknown)$/),
        message: expect.stringMatching(/\S/),
      })
      expect(tookMs).toBeLessThan(CALLER_WAITS_MS + 8_000)
    }
    await expect(other.call.schedule('wait', { ms: 1 })).rejects.toMatchObject({ code: 'store_unavailable' })
    await expect(other.call.view(waiting)).rejects.toMatchObject({ code: 'store_unavailable' })
    // The limit is over; nothing can be decided, but the work is stopped.
    await until(
      'the handler was told to stop',
      30_000,
      () => factsOf(scratch, 'aborted', [hanging]).length > 0,
    )
    await server.start()
    const before = load.acknowledged.length
    await until('it goes on', 40_000, () => load.acknowledged.length > before + 50)
    await load.stop()
    // Those that ended during the outage were told when it was over, or were stopped with the lease and repeated.
    for (const id of [...running, waiting])
      expect(await other.call.result(id, 60_000)).toMatchObject({ attempt: expect.any(Number) })
    await expect(other.call.result(hanging, 60_000)).rejects.toMatchObject({ code: 'task_timed_out' })
    for (const id of load.acknowledged)
      expect(await other.call.result(id, 60_000)).toMatchObject({ attempt: expect.any(Number) })
    for (const engineProcess of [engine, other]) {
      const id = await engineProcess.call.schedule('wait', { ms: 1 })
      expect(await engineProcess.call.result(id, 30_000)).toEqual({ attempt: 1 })
    }
    expect(findOverlaps(spansOf(readJournal(journalOf(scratch))))).toEqual([])
  },
)

test('a process that starts while PostgreSQL is away says so at once', LIMIT, async () => {
  await server.stop('immediate')
  await expect(open()).rejects.toMatchObject({ code: 'store_unavailable' })
})

test('a handler that ignores the stop of a long one is not run beside itself', LIMIT, async () => {
  const engine = await open()
  const id = await engine.call.schedule('stubborn', { ms: 20_000 })
  await started(scratch, [id], 1, 20_000)
  const other = await open()
  await server.stop('immediate')
  await until('it was told to stop', 30_000, () => factsOf(scratch, 'aborted', [id]).length > 0)
  await server.start()
  await until('it has ended', 60_000, async () => {
    const { status } = await other.call.view(id).catch(() => ({ status: 'unknown' }))
    return ['completed', 'failed', 'timed_out', 'cancelled'].includes(status)
  })
  console.log(`a stubborn handler after an outage: ${(await other.call.explain(id)).summary}`)
  expect(findOverlaps(spansOf(readJournal(journalOf(scratch))))).toEqual([])
})
