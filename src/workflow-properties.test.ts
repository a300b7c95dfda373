/**
 * Random graphs against a model in memory: whatever becomes of the processes that run them, they come to the same, at
 * the same times. `CURFEW_GRAPH_SECONDS=600 npx vitest run src/workflow-properties.test.ts` plays for as long as one
 * likes; `CURFEW_GRAPH_SEED=… CURFEW_GRAPH_PATH=…` repeats one that failed, without shrinking it again.
 */
import { existsSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import fc from 'fast-check'
import { describe, expect, inject, test } from 'vitest'
import { delays, disturbances } from '../scripts/acceptance/agent-arbitraries.ts'
import type { Disturbances } from '../scripts/acceptance/disturbed-engine.ts'
import type { GraphTrial } from '../scripts/acceptance/graph-model.ts'
import { expectedRun } from '../scripts/acceptance/graph-model.ts'
import type { EndedRun } from '../scripts/acceptance/graph-trials.ts'
import { GraphTrialRun } from '../scripts/acceptance/graph-trials.ts'
import type { StoreKind } from '../scripts/acceptance/world.ts'
import { World } from '../scripts/acceptance/world.ts'
import { createDatabase, dropDatabase } from '../scripts/postgres/database.ts'
import type { WorkflowDefinition } from './definitions/workflow.ts'
import type { WorkflowModel } from './definitions/workflow-model.ts'
import { contentHash } from './definitions/workflow-model.ts'
import type { GraphScale } from './graph/fixtures/graph-arbitraries.ts'
import { graphModels } from './graph/fixtures/graph-arbitraries.ts'

const SECONDS = Number(process.env.CURFEW_GRAPH_SECONDS ?? 75)
/** Nothing is really killed here, so nothing has to outlive the machine. */
const FOLDER = path.join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'curfew-graphs-')
const LONGEST_MS = 1_000_000
/** Over PostgreSQL the lease of what died is waited for: no two things happen closer together than that can take. */
const LEASES_MS = 120_000
const MOST_TOKENS = 60

function trials(longestMs: number, size: Partial<GraphScale> = {}): fc.Arbitrary<GraphTrial> {
  const scale = { longestMs, depth: 2, length: 2, executionLimits: false, calls: [], ...size }
  const time = fc.noBias(fc.integer({ min: 1, max: longestMs }))
  return fc
    .record({
      models: fc.tuple(
        graphModels({ ...scale, calls: ['child', 'leaf'] }, 'root'),
        graphModels({ ...scale, depth: 1, calls: ['leaf'] }, 'child'),
        graphModels({ ...scale, depth: 1, length: 1 }, 'leaf'),
      ),
      seed: fc.nat(),
      totalMs: time,
      cancelAt: fc.noBias(fc.integer({ min: longestMs * 2, max: longestMs * 10 })),
    })
    .map(({ models, ...rest }) => ({
      ...rest,
      longestMs,
      workflows: models.map(definitionOf),
    }))
}

function definitionOf(model: WorkflowModel): WorkflowDefinition {
  const uses = { tasks: [], agents: [], workflows: [] }
  return {
    kind: 'workflow',
    name: model.name,
    model,
    hash: contentHash(model),
    schema: null,
    uses,
    warnings: [],
  }
}

async function play(trial: GraphTrial, disturbance: Disturbances, kind: StoreKind): Promise<EndedRun> {
  const isExact = kind !== 'postgres'
  const expected = expectedRun(trial, isExact ? 2 : LEASES_MS, isExact)
  fc.pre(!expected.tied && expected.tokens <= MOST_TOKENS)
  if (!isExact) fc.pre(disturbance.restarts.every(({ at }) => isQuiet(expected.moments, at)))
  const ended = await run(trial, disturbance, { kind, until: expected.overAt + (isExact ? 0 : LEASES_MS) })
  expect(ended.outcome).toEqual(expected.outcome)
  return ended
}

/** Nothing ends while the lease of the dead lasts: it would be done again. */
function isQuiet(moments: readonly number[], at: number): boolean {
  return moments.every((moment) => moment < at || moment > at + LEASES_MS)
}

/** Without problems: everything settled, nothing seen in two ways, no deadline left. */
async function run(
  trial: GraphTrial,
  disturbance: Disturbances,
  { kind, until }: { kind: StoreKind; until: number },
): Promise<EndedRun> {
  const folder = await mkdtemp(FOLDER)
  const file = kind === 'file' ? path.join(folder, 'graphs.db') : ':memory:'
  const store = kind === 'postgres' ? await createDatabase(inject('postgresUrl')) : file
  const world = new World(kind, store, folder)
  try {
    const ended = await new GraphTrialRun(world, trial, disturbance).run(until)
    expect(ended.problems).toEqual([])
    return ended
  } finally {
    await world.dispose()
    if (kind === 'postgres') await dropDatabase(store)
    await rm(folder, { recursive: true, force: true })
  }
}

function assertAll(
  all: fc.Arbitrary<GraphTrial>,
  disturbing: fc.Arbitrary<Disturbances>,
  share: number,
  check: (trial: GraphTrial, disturbance: Disturbances) => Promise<unknown>,
): Promise<void> {
  const { CURFEW_GRAPH_SEED: seed, CURFEW_GRAPH_PATH: at } = process.env
  return fc.assert(
    fc.asyncProperty(all, disturbing, async (trial, disturbance) => void (await check(trial, disturbance))),
    {
      numRuns: 1_000_000,
      maxSkipsPerRun: 1_000,
      interruptAfterTimeLimit: SECONDS * share * 1_000,
      ...(seed !== undefined && { seed: Number(seed), path: at ?? '', endOnFailure: at !== undefined }),
    },
  )
}

const TEST_MS = SECONDS * 1_000 + 60_000
const UNDISTURBED: Disturbances = { residents: 1_000, kills: [], restarts: [] }
const EVICTED: Disturbances = { ...UNDISTURBED, residents: 0 }

describe('random graphs come to what they would come to in memory', () => {
  test(
    'undisturbed, or evicted at every wait',
    () =>
      assertAll(
        trials(LONGEST_MS, { executionLimits: true }),
        fc.constantFrom(UNDISTURBED, EVICTED),
        0.2,
        (trial, disturbance) => play(trial, disturbance, 'memory'),
      ),
    TEST_MS,
  )

  test(
    'killed at any transaction and at any time, closed, evicted',
    () =>
      assertAll(trials(LONGEST_MS), disturbances(LONGEST_MS, 40), 0.3, (trial, disturbance) =>
        play(trial, disturbance, 'file'),
      ),
    TEST_MS,
  )

  test(
    'small ones killed before and after every transaction',
    () =>
      assertAll(trials(LONGEST_MS, { depth: 1, length: 1 }), fc.constant(EVICTED), 0.3, async (trial) => {
        const { transactions } = await play(trial, EVICTED, 'file')
        for (let transaction = 1; transaction <= transactions; transaction++) {
          for (const committed of [false, true]) {
            await play(trial, { ...EVICTED, kills: [{ transaction, committed }] }, 'file')
          }
        }
      }),
    TEST_MS,
  )

  test(
    'over PostgreSQL, killed at any time, closed, evicted',
    () => {
      const longestMs = LEASES_MS * 500
      const disturbing = disturbances(longestMs, 1).map((one) => ({ ...one, kills: [] }))
      return assertAll(trials(longestMs), disturbing, 0.1, (trial, disturbance) =>
        play(trial, disturbance, 'postgres'),
      )
    },
    TEST_MS,
  )
})

test(
  'where everything happens at once and late, random graphs end, and leave nothing behind',
  () =>
    assertAll(trials(20, { executionLimits: true }), delays(20, 40), 0.1, (trial, disturbance) => {
      fc.pre(expectedRun(trial, 0, true).tokens <= MOST_TOKENS)
      return run(trial, disturbance, { kind: 'file', until: 10_000 })
    }),
  TEST_MS,
)
