/**
 * Random graphs against a model in memory: whatever becomes of the processes that run them, they come to the same, at
 * the same times. `npm run properties -- --seconds 600` plays for as long as one likes.
 */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { delays, disturbances } from '../scripts/acceptance/agent-arbitraries.ts'
import type { Disturbances } from '../scripts/acceptance/disturbed-engine.ts'
import type { ExpectedRun, GraphTrial } from '../scripts/acceptance/graph-model.ts'
import { expectedRun } from '../scripts/acceptance/graph-model.ts'
import type { EndedRun } from '../scripts/acceptance/graph-trials.ts'
import { GraphTrialRun } from '../scripts/acceptance/graph-trials.ts'
import { asMany, longest, within } from '../scripts/acceptance/playing-time.ts'
import { inTrialWorld } from '../scripts/acceptance/trial-world.ts'
import type { StoreKind } from '../scripts/acceptance/world.ts'
import type { WorkflowDefinition } from './definitions/workflow.ts'
import { loadWorkflow } from './definitions/workflow.ts'
import type { WorkflowModel } from './definitions/workflow-model.ts'
import { contentHash } from './definitions/workflow-model.ts'
import type { GraphScale } from './graph/fixtures/graph-arbitraries.ts'
import { graphModels } from './graph/fixtures/graph-arbitraries.ts'

/** Of the playing time. */
const SHARES = { undisturbed: 1 / 6, killed: 1 / 4, everywhere: 1 / 5, postgres: 1 / 8, late: 1 / 11 }
const LONGEST_MS = 1_000_000
/** Over PostgreSQL the lease of what died is waited for: no two things happen closer together than that can take. */
const LEASES_MS = 120_000
/** Enough for something to happen, few enough to be quick. */
const TOKENS = { fewest: 4, most: 60 }

function trials(longestMs: number, size: Partial<GraphScale> = {}): fc.Arbitrary<GraphTrial> {
  const scale = { longestMs, depth: 2, length: 2, executionLimits: false, calls: [], ...size }
  const time = fc.noBias(fc.integer({ min: Math.ceil(longestMs / 16), max: longestMs }))
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
  fc.pre(!expected.tied && isFitting(expected.tokens))
  if (!isExact) fc.pre(disturbance.restarts.every(({ at }) => isQuiet(expected.moments, at)))
  return compare(trial, disturbance, kind, expected)
}

async function compare(
  trial: GraphTrial,
  disturbance: Disturbances,
  kind: StoreKind,
  expected: ExpectedRun,
): Promise<EndedRun> {
  const isExact = kind !== 'postgres'
  const ended = await run(trial, disturbance, { kind, until: expected.overAt + (isExact ? 0 : LEASES_MS) })
  expect(ended.outcome).toEqual(expected.outcome)
  return ended
}

function isFitting(tokens: number): boolean {
  return tokens >= TOKENS.fewest && tokens <= TOKENS.most
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
  return inTrialWorld(kind, async (world) => {
    const ended = await new GraphTrialRun(world, trial, disturbance).run(until)
    expect(ended.problems).toEqual([])
    return ended
  })
}

function assertAll(
  all: fc.Arbitrary<GraphTrial>,
  disturbing: fc.Arbitrary<Disturbances>,
  share: number,
  check: (trial: GraphTrial, disturbance: Disturbances) => Promise<unknown>,
): Promise<void> {
  return fc.assert(
    fc.asyncProperty(
      all,
      disturbing,
      within(share, async (trial, disturbance) => void (await check(trial, disturbance))),
    ),
    asMany(),
  )
}

const UNDISTURBED: Disturbances = { residents: 1_000, kills: [], restarts: [] }
const EVICTED: Disturbances = { ...UNDISTURBED, residents: 0 }

describe('random graphs come to what they would come to in memory', () => {
  test(
    'undisturbed, or evicted at every wait',
    () =>
      assertAll(
        trials(LONGEST_MS, { executionLimits: true }),
        fc.constantFrom(UNDISTURBED, EVICTED),
        SHARES.undisturbed,
        (trial, disturbance) => play(trial, disturbance, 'memory'),
      ),
    longest(SHARES.undisturbed),
  )

  test(
    'killed at any transaction and at any time, closed, evicted',
    () =>
      assertAll(trials(LONGEST_MS), disturbances(LONGEST_MS, 40), SHARES.killed, (trial, disturbance) =>
        play(trial, disturbance, 'file'),
      ),
    longest(SHARES.killed),
  )

  test(
    'small ones killed before and after every transaction',
    () =>
      assertAll(
        trials(LONGEST_MS, { depth: 1, length: 1 }),
        fc.constant(EVICTED),
        SHARES.everywhere,
        async (trial) => {
          const { transactions } = await play(trial, EVICTED, 'file')
          for (let transaction = 1; transaction <= transactions; transaction++) {
            for (const committed of [false, true]) {
              await play(trial, { ...EVICTED, kills: [{ transaction, committed }] }, 'file')
            }
          }
        },
      ),
    longest(SHARES.everywhere),
  )

  test(
    'over PostgreSQL, killed at any time, closed, evicted',
    () => {
      const longestMs = LEASES_MS * 500
      const disturbing = disturbances(longestMs, 1).map((one) => ({ ...one, kills: [] }))
      return assertAll(trials(longestMs), disturbing, SHARES.postgres, (trial, disturbance) =>
        play(trial, disturbance, 'postgres'),
      )
    },
    longest(SHARES.postgres),
  )
})

test(
  'where everything happens at once and late, random graphs end, and leave nothing behind',
  () =>
    assertAll(trials(20, { executionLimits: true }), delays(20, 40), SHARES.late, (trial, disturbance) => {
      fc.pre(isFitting(expectedRun(trial, 0, true).tokens))
      return run(trial, disturbance, { kind: 'file', until: 10_000 })
    }),
  longest(SHARES.late),
)

/** Calls a workflow, and stops it in the same moment. */
const HASTY = `
name: root
nodes:
  - { id: a, action_id: work, input: "'a'" }
  - { id: b, action_id: work, input: branch.index }
  - { id: c, action_id: call }
  - { id: d, action_id: work, input: "'d'" }
actions:
  call: { kind: workflow_call, workflow: child }
transitions:
  - { id: fan, from: a, to: b, spawn_count: 2 }
  - { from: b, to: c }
  - { from: b, to: d, synchronization: { strategy: any, sibling_group: fan, late: cancel } }`

/** Each a graph that once came to something else; the first is started. */
const FOUND: Record<string, string[]> = {
  'a workflow that is stopped before it began has no token': [
    HASTY,
    `{ name: child, nodes: [{ id: a, action_id: work, input: "'child'" }] }`,
  ],
  'nor has one that has no work': [HASTY, '{ name: child, nodes: [{ id: a }] }'],
}

describe('found by random graphs', () => {
  test.each(Object.entries(FOUND))('%s', async (_, texts) => {
    const workflows = texts.map((text) => loadWorkflow(text))
    const trial = { workflows, seed: 3, longestMs: 8_000, totalMs: 100_000, cancelAt: 1_000_000 }
    const expected = expectedRun(trial, 1, true)
    expect([expected.tied, expected.outcome.status]).toEqual([false, 'completed'])
    for (const disturbance of [UNDISTURBED, EVICTED]) {
      await compare(trial, disturbance, 'memory', expected)
    }
  })
})
