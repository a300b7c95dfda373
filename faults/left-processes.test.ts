// Over a SQLite file the next engine ends what a killed one left running before it runs it again.

import { afterEach, beforeEach, expect, test } from 'vitest'
import { findOverlaps, spansOf } from './chaos/attempt-spans.ts'
import { EngineProcess, factsOf, journalOf, started } from './engine-process.ts'
import { readJournal } from './journal.ts'
import { Scratch } from './scratch.ts'
import { until } from './wait.ts'

let scratch: Scratch
let engine: EngineProcess | null

beforeEach(() => {
  scratch = new Scratch()
  engine = null
})

afterEach(async () => {
  await engine?.end()
  await scratch.remove()
})

test.each([
  ['with its supervisor', false],
  ['with its supervisor killed first', true],
])(
  'what a killed engine left is ended, lost at once and repeated (%s)',
  { timeout: 60_000 },
  async (_, alone) => {
    const options = { store: scratch.path('store.db'), tasks: ['deaf'], concurrency: 10 }
    engine = await EngineProcess.open(scratch, options)
    const ids = await engine.call.scheduleMany('deaf', Array(3).fill({ ms: 120_000 }))
    const { facts } = await started(scratch, ids, 1, 30_000)
    const handlers = facts.map(({ pid }) => pid)
    if (alone) {
      // Nobody is left to tidy up: what remains is found by its mark.
      const supervisors = scratch.processes().filter((pid) => pid !== engine!.pid && !handlers.includes(pid))
      const all = [engine.pid, ...supervisors]
      for (const pid of all) process.kill(pid, 'SIGSTOP')
      for (const pid of supervisors) process.kill(pid, 'SIGKILL')
    }
    const killedAt = await engine.kill()
    engine = await EngineProcess.open(scratch, options)
    const { lastAt } = await started(scratch, ids, 2, 30_000)
    console.log(`run again ${(lastAt - killedAt).toFixed(0)} ms after the kill`)
    for (const id of ids) {
      expect(await engine.call.result(id, 30_000)).toEqual({ attempt: 2 })
      const [first] = (await engine.call.explain(id)).attempts
      expect(first).toMatchObject({ attempt: 1, status: 'lost', receipt: 'killed' })
    }
    const running = scratch.processes()
    expect(handlers.filter((pid) => running.includes(pid))).toEqual([])
    expect(findOverlaps(spansOf(readJournal(journalOf(scratch))))).toEqual([])
    expect(factsOf(scratch, 'attempt_ended', ids).filter(({ attempt }) => attempt === 1)).toEqual([])
    await engine.call.close()
    await until('nothing is left but the program', 10_000, () => scratch.processes().length === 1)
  },
)
