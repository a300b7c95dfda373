/**
 * Random agents against a model in memory: whatever becomes of the processes that run them, they come to the same, at
 * the same times, and no effect of theirs is had again once its result was used.
 * `CURFEW_AGENT_RUNS=5000 npx vitest run src/agent-properties.test.ts` plays as many programs as one likes;
 * `CURFEW_AGENT_SEED=… CURFEW_AGENT_PATH=…` repeats one that failed, without shrinking it again.
 */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { delays, disturbances, trials } from '../scripts/acceptance/agent-arbitraries.ts'
import type { Trial } from '../scripts/acceptance/agent-model.ts'
import { expectation } from '../scripts/acceptance/agent-model.ts'
import type { Member, Program } from '../scripts/acceptance/agent-programs.ts'
import type { Ended } from '../scripts/acceptance/agent-trials.ts'
import { TrialRun } from '../scripts/acceptance/agent-trials.ts'
import type { Disturbances } from '../scripts/acceptance/disturbed-engine.ts'
import { inTrialWorld } from '../scripts/acceptance/trial-world.ts'
import type { StoreKind } from '../scripts/acceptance/world.ts'

const RUNS = Number(process.env.CURFEW_AGENT_RUNS ?? 100)
const TEST_MS = 60_000 + RUNS * 1_000
const LONGEST_MS = 1_000_000
/** Over PostgreSQL the lease of what died is waited for: no two things happen closer together than that can take. */
const LEASES_MS = 120_000

async function play(trial: Trial, disturbance: Disturbances, kind: StoreKind): Promise<Ended> {
  const isExact = kind !== 'postgres'
  const expected = await expectation(trial, isExact ? 2 : LEASES_MS, isExact)
  fc.pre(!expected.tied)
  const ended = await run(trial, disturbance, { kind, until: expected.overAt + (isExact ? 0 : LEASES_MS) })
  expect(ended.works).toEqual(expected.works)
  return ended
}

/** Without problems: everything settled, nothing seen in two ways, no effect had again. */
async function run(
  trial: Trial,
  disturbance: Disturbances,
  { kind, until }: { kind: StoreKind; until: number },
): Promise<Ended> {
  return inTrialWorld(kind, async (world) => {
    const ended = await new TrialRun(world, trial, disturbance).run(until)
    expect(ended.problems).toEqual([])
    return ended
  })
}

function assertAll(
  all: fc.Arbitrary<Trial>,
  disturbing: fc.Arbitrary<Disturbances>,
  runs: number,
  check: (trial: Trial, disturbance: Disturbances) => Promise<Ended>,
): Promise<void> {
  const { CURFEW_AGENT_SEED: seed, CURFEW_AGENT_PATH: at } = process.env
  return fc.assert(
    fc.asyncProperty(all, disturbing, async (trial, disturbance) => void (await check(trial, disturbance))),
    {
      numRuns: Math.ceil(runs),
      // One that failed is made smaller for as long as there is time, then told.
      interruptAfterTimeLimit: TEST_MS - 20_000,
      markInterruptAsFailure: true,
      ...(seed !== undefined && { seed: Number(seed), path: at ?? '', endOnFailure: at !== undefined }),
    },
  )
}

const UNDISTURBED: Disturbances = { residents: 1_000, kills: [], restarts: [] }
const EVICTED: Disturbances = { ...UNDISTURBED, residents: 0 }

describe('random agents come to what they would come to in memory', () => {
  test(
    'killed at any transaction and at any time, closed, evicted',
    () =>
      assertAll(trials(LONGEST_MS), disturbances(LONGEST_MS, 40), RUNS, (trial, disturbance) =>
        play(trial, disturbance, 'file'),
      ),
    TEST_MS,
  )

  test(
    'undisturbed, or evicted at every wait',
    () =>
      assertAll(
        trials(LONGEST_MS, true),
        fc.constantFrom(UNDISTURBED, EVICTED),
        RUNS / 2,
        (trial, disturbance) => play(trial, disturbance, 'memory'),
      ),
    TEST_MS,
  )

  test(
    'over PostgreSQL, killed at any time, closed, evicted',
    () => {
      const longestMs = LEASES_MS * 2_000
      const disturbing = disturbances(longestMs, 1).map((one) => ({ ...one, kills: [] }))
      return assertAll(trials(longestMs), disturbing, RUNS / 15, (trial, disturbance) =>
        play(trial, disturbance, 'postgres'),
      )
    },
    TEST_MS,
  )
})

test(
  'where everything happens at once and late, random agents see the same in every replay, and end',
  () =>
    assertAll(trials(5), delays(5, 40), RUNS / 2, (trial, disturbance) =>
      run(trial, disturbance, { kind: 'file', until: 100_000 }),
    ),
  TEST_MS,
)

const task = (delay: number, rest: Partial<Extract<Member, { do: 'task' }>> = {}): Member => ({
  ...{ do: 'task', ms: 1, end: 'ok', flaky: 0, delay, timeout: null, detached: false },
  ...rest,
})
const effect = (ms: number, flaky = 0): Member => ({ do: 'run', ms, end: 'ok', flaky, timeout: null })
const signal = (name: string, timeout: number): Member => ({ do: 'signal', name, timeout })
const sleep = (ms: number): Member => ({ do: 'sleep', ms })
const child = (body: Program, rest: Partial<Extract<Member, { do: 'child' }>> = {}): Member => ({
  ...{ do: 'child', body, timeout: null, cleanup: 1_000, detached: false },
  ...rest,
})
type GroupNode = Extract<Member, { do: 'group' }>
const group = (how: GroupNode['how'], members: Member[], rest: Partial<GroupNode> = {}): Member => ({
  ...{ do: 'group', how, members, timeout: null, cancelRest: null },
  ...rest,
})
const seq = (...parts: Program[]): Program => ({ do: 'seq', parts, stubborn: true })
const rescued = (body: Program, rescue: Program): Program => ({ do: 'try', body, rescue, final: null })
const trialOf = (program: Program, rest: Partial<Trial> = {}): Trial => ({
  ...{ program, timeout: null, cleanup: 1_000, signals: [], cancelAt: 100_000 },
  ...rest,
})

test('a process may be killed before and after every single transaction', async () => {
  const program = seq(
    { do: 'chance', ms: 3 },
    {
      do: 'native',
      how: 'allSettled',
      branches: [
        seq(effect(10, 1), task(7, { flaky: 1 }), signal('a', 5_000)),
        rescued(child(seq(effect(23), task(500)), { timeout: 200 }), effect(31)),
        group('race', [task(90), child(effect(5_000)), sleep(9_000)], { cancelRest: true }),
      ],
    },
    group('allSettled', [task(40), task(50, { timeout: 3, ms: 100 }), effect(5_000)], { timeout: 77 }),
    group('all', [task(19), task(5_000), task(29, { end: 'fail' })]),
    group('any', [task(37, { end: 'fail' }), task(41), task(5_000)]),
    { do: 'forget', member: task(11) },
  )
  const trial = trialOf(program, { signals: [{ at: 1_700, name: 'a' }] })
  const { transactions } = await play(trial, EVICTED, 'file')
  expect(transactions).toBeGreaterThan(30)
  for (let transaction = 1; transaction <= transactions; transaction++) {
    for (const committed of [false, true]) {
      await play(trial, { ...EVICTED, kills: [{ transaction, committed }] }, 'file')
    }
  }
}, 120_000)

test('what ends at the same moment is seen in the same order by a replay', async () => {
  const race: Program = { do: 'native', how: 'race', branches: [task(10), task(10), task(10), task(10)] }
  const restarts = [{ at: 100, how: 'close' as const }]
  await run(trialOf(seq(race, sleep(500))), { ...UNDISTURBED, restarts }, { kind: 'file', until: 1_000 })
})

/** Each a program that once came to something else. */
const FOUND: Record<string, Trial> = {
  'what waits for something detached waits for something': trialOf(task(99_000, { detached: true })),
  'a run that was stopped is not run again on replay': trialOf(seq(effect(5_000), task(7), task(9)), {
    timeout: 1_000,
  }),
  'a run that is cancelled between two tries is not tried again': trialOf({
    do: 'later',
    member: effect(10, 1),
    body: sleep(50),
    cancel: true,
  }),
  'a wait that nobody waits for yet cancels the rest in time': trialOf({
    do: 'later',
    member: group('race', [task(10), task(5_000)], { cancelRest: true }),
    body: sleep(500),
    cancel: false,
  }),
  'a stop ends waits from the outer to the inner': trialOf(
    rescued(group('allSettled', [group('all', [sleep(90_000)])]), task(7)),
    { timeout: 1_000 },
  ),
  'what a wait has left behind is not cancelled with the wait around it': trialOf(
    seq(
      group('race', [task(500), group('any', [task(5_000), group('all', [task(9_000), signal('a', 10)])])], {
        cancelRest: true,
      }),
      sleep(20_000),
    ),
  ),
}

describe('found by random agents', () => {
  test.each(Object.entries(FOUND))('%s', async (_, trial) => {
    await play(trial, EVICTED, 'memory')
    await play(trial, UNDISTURBED, 'memory')
  })
})
