// Agents on one PostgreSQL whose processes are killed or stopped: others carry on, and nothing is done beside it.

import { afterEach, beforeEach, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase } from '../scripts/postgres/database.ts'
import { EngineProcess, factsOf, journalOf } from './engine-process.ts'
import type { EngineOptions } from './engine-program.ts'
import type { Fact } from './journal.ts'
import { monotonicMs, readJournal } from './journal.ts'
import { Scratch } from './scratch.ts'
import { until } from './wait.ts'

const LEASE_MS = 10_000
const AGENTS = ['two-marks', 'relay']
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
  const engine = await EngineProcess.open(scratch, { store: url, tasks: [], agents: AGENTS, ...options })
  engines.push(engine)
  return engine
}

function marks(agentId: string, effect: string, type = 'effect_started'): Fact[] {
  return readJournal(journalOf(scratch)).filter(
    (fact) => fact.type === type && fact.agentId === agentId && fact.effect === effect,
  )
}

function marked(agentId: string, effect: string, times = 1, timeoutMs = 60_000): Promise<Fact> {
  return until(`${effect} of ${agentId} has begun, ${times} times`, timeoutMs, () => {
    const found = marks(agentId, effect)
    return found.length >= times ? (found[times - 1] ?? null) : null
  })
}

test('the turn of a killed process is taken up after its lease, and not before', LIMIT, async () => {
  const doomed = await open()
  const id = await doomed.call.start('two-marks', { ms: 120_000 })
  await marked(id, 'first')
  const other = await open()
  const killedAt = await doomed.kill()
  const again = await marked(id, 'first', 2)
  console.log(`without a witness: again after ${(again.mono - killedAt).toFixed(0)} ms`)
  // The last renewal was at most a second, and its answer's delay, before the kill.
  expect(again.mono - killedAt).toBeGreaterThan(LEASE_MS - 3_000)
  expect(again.mono - killedAt).toBeLessThan(LEASE_MS + 20_000)
  expect(await other.call.result(id, 20_000)).toEqual([other.pid, other.pid])
})

test('with a witness it is taken up at once; what waits is not waited for', LIMIT, async () => {
  const doomed = await open({ witness: true })
  const other = await open({ witness: true })
  const id = await doomed.call.start('two-marks', { ms: 120_000 })
  const waiting = await doomed.call.start('relay', { rounds: 1 })
  await marked(id, 'first')
  await until(
    'the other one waits',
    20_000,
    async () => (await doomed.call.explain(waiting)).waits.length > 0,
  )
  const killedAt = await doomed.kill()
  const again = await marked(id, 'first', 2)
  console.log(`with a witness: again after ${(again.mono - killedAt).toFixed(0)} ms`)
  expect(again.mono - killedAt).toBeLessThan(5_000)
  expect(await other.call.result(id, 20_000)).toEqual([other.pid, other.pid])
  // Nobody had the code of its task so far.
  await open({ tasks: ['wait'], agents: [] })
  expect(await other.call.result(waiting, 20_000)).toEqual([doomed.pid, other.pid])
  expect(marks(waiting, 'begin')).toHaveLength(1)
})

test(
  'a process that was stopped in the middle of a turn finds it gone, and changes nothing',
  LIMIT,
  async () => {
    const stopped = await open()
    const id = await stopped.call.start('two-marks', { ms: 3_000 })
    await marked(id, 'first')
    const other = await open()
    stopped.stop()
    expect(await other.call.result(id, 60_000)).toEqual([other.pid, other.pid])
    stopped.continue()
    await until('the stopped process has done its step', 20_000, () =>
      marks(id, 'first', 'effect_ended').some(({ pid }) => pid === stopped.pid),
    )
    // It is heard of after its report: by then that was refused.
    expect(await stopped.call.result(id, 20_000)).toEqual([other.pid, other.pid])
    const next = await stopped.call.start('two-marks', { ms: 0 })
    await stopped.call.result(next, 20_000)
    expect(marks(id, 'second').map(({ pid }) => pid)).toEqual([other.pid])
    const events = await other.call.events(id)
    expect(events.filter(({ type }) => type === 'turn_lost')).toHaveLength(1)
    expect(events.filter(({ type }) => type === 'agent_completed')).toHaveLength(1)
    expect((await other.call.view(id)).attempts).toBe(2)
  },
)

test('an agent goes on at once where it is, whoever ends what it waits for or starts it', LIMIT, async () => {
  const client = await open({ agents: [] })
  const home = await open()
  // It has the code too, and a free turn: the agent is left to the one that has it in memory.
  const worker = await open({ tasks: ['wait'] })
  await until('they know each other', 20_000, async () => {
    const id = await home.call.start('relay', { rounds: 3 })
    const processes = (await worker.call.result(id, 20_000)) as number[]
    return processes.length === 1
  })
  const delays: Record<'start' | 'wake', number[]> = { start: [], wake: [] }
  for (let i = 0; i < 5; i++) {
    const startedAt = monotonicMs()
    const id = await client.call.start('relay', { rounds: 5 })
    const begun = await marked(id, 'begin')
    delays.start.push(begun.mono - startedAt)
    expect(await client.call.result(id, 30_000)).toEqual([begun.pid])
    const ends = factsOf(scratch, 'attempt_ended').filter(({ mono }) => mono > startedAt)
    for (const [round, { mono }] of ends.entries()) {
      const [next] = marks(id, `round ${round}`)
      if (next) delays.wake.push(next.mono - mono)
    }
  }
  for (const [what, list] of Object.entries(delays)) {
    const inOrder = list.toSorted((a, b) => a - b)
    const median = inOrder[Math.floor(inOrder.length / 2)] ?? Infinity
    console.log(`${what}: after ${median.toFixed(0)} ms (median), ${inOrder.at(-1)?.toFixed(0)} ms at most`)
    // Without a hint it would be found by the next renewal, half a second later on the average.
    expect(median).toBeLessThan(300)
  }
})
