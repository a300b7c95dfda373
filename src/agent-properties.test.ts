/**
 * Random agents against a model in memory: whatever becomes of the processes that run them, they come to the same.
 * `CURFEW_AGENT_RUNS=5000 npx vitest run src/agent-properties.test.ts` runs as many programs as one likes;
 * `CURFEW_AGENT_SEED` and `CURFEW_AGENT_PATH` repeat one of them.
 */
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { disturbances, trials } from '../scripts/acceptance/agent-arbitraries.ts'
import type { Trial } from '../scripts/acceptance/agent-model.ts'
import { expectation } from '../scripts/acceptance/agent-model.ts'
import type { Disturbances } from '../scripts/acceptance/agent-trials.ts'
import { TrialRun } from '../scripts/acceptance/agent-trials.ts'
import { World } from '../scripts/acceptance/world.ts'

const RUNS = Number(process.env.CURFEW_AGENT_RUNS ?? 100)
const LONGEST_MS = 1_000_000
/** Nothing is really killed here, so nothing has to outlive the machine. */
const FOLDER = path.join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'curfew-agents-')

async function play(trial: Trial, disturbance: Disturbances, kind: 'memory' | 'file'): Promise<void> {
  const expected = await expectation(trial, 2, true)
  fc.pre(!expected.tied)
  const folder = await mkdtemp(FOLDER)
  const world = new World(kind, kind === 'file' ? path.join(folder, 'agents.db') : ':memory:', folder)
  try {
    const ended = await new TrialRun(world, trial, disturbance).run(expected.overAt)
    expect(ended.problems).toEqual([])
    expect(ended.works).toEqual(expected.works)
  } finally {
    await world.dispose()
    await rm(folder, { recursive: true, force: true })
  }
}

test('no disturbance changes what an agent comes to', async () => {
  const seed = process.env.CURFEW_AGENT_SEED
  await fc.assert(
    fc.asyncProperty(trials(LONGEST_MS), disturbances(LONGEST_MS, 40), (trial, disturbance) =>
      play(trial, disturbance, 'file'),
    ),
    { numRuns: RUNS, ...(seed && { seed: Number(seed), path: process.env.CURFEW_AGENT_PATH ?? '' }) },
  )
}, 600_000)
