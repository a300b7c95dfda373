/**
 * Random graphs with random histories: whatever order things happen in, the run stays sound, ends, and would come to
 * the same again. `npm run properties -- --seconds 600` plays for as long as one likes.
 */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { asMany, longest, within } from '../../scripts/acceptance/playing-time.ts'
import type { WorkflowModel } from '../definitions/workflow-model.ts'
import { planWorkflow } from '../definitions/workflow-plan.ts'
import { GRAPH_INPUT, graphModels } from './fixtures/graph-arbitraries.ts'
import { GraphHistory } from './fixtures/graph-history.ts'
import type { GraphHappening, WorkEnd } from './graph-types.ts'

const SHARE = 1 / 12
/** Graphs that grow and grow are stopped there. */
const MOST_TOKENS = 300

interface Choice {
  /** Which of what is open. */
  which: number
  end: WorkEnd
  /** A timer that was cleared, but had rung already. */
  stale: boolean
}

interface Stop {
  at: number
  reason: 'timed_out' | 'cancelled'
}

const COMPLETED: WorkEnd = { status: 'completed', output: 1 }
const failure = { code: 'broken', message: 'it broke', retryable: false }
const ends: fc.Arbitrary<WorkEnd> = fc.oneof(
  {
    weight: 20,
    arbitrary: fc
      .constantFrom<unknown>({ n: 0 }, { n: 1 }, { n: 2 }, { n: 3 }, { n: 2, list: [1, 2] }, [1, 2], null)
      .map((output): WorkEnd => ({ status: 'completed', output })),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom<WorkEnd>(
      { status: 'failed', failure, timeoutKind: null },
      { status: 'cancelled', failure, timeoutKind: null },
    ),
  },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom('execution', 'queue', 'total', 'workflow')
      .map((timeoutKind): WorkEnd => ({ status: 'timed_out', failure, timeoutKind })),
  },
)
const choices = fc.array(
  fc.record({ which: fc.nat(1_000), end: ends, stale: fc.constantFrom(false, false, false, false, true) }),
  { minLength: 1, maxLength: 40 },
)
const stops = fc.option(
  fc.record({ at: fc.nat(30), reason: fc.constantFrom('timed_out' as const, 'cancelled' as const) }),
  { freq: 3 },
)

/** What happens next, of what can. */
function next(history: GraphHistory, { which, end, stale }: Choice): GraphHappening {
  const { works, timers, timersMade } = history
  if (stale && timersMade > 0) return { type: 'time', timer: which % timersMade }
  const open = [...works, ...timers]
  const i = which % open.length
  if (i < works.size) return { type: 'ended', token: open[i]!, end }
  return { type: 'time', timer: open[i]! }
}

/** Until its end, which comes when all that was asked of it has been done. */
function play(model: WorkflowModel, chosen: readonly Choice[], stop: Stop | null) {
  const history = new GraphHistory(planWorkflow(model), GRAPH_INPUT)
  for (let step = 0; !history.run.end && history.problems.length === 0; step++) {
    const choice = chosen[step % chosen.length]!
    if (step === stop?.at) history.happen({ type: 'stopped', reason: stop.reason })
    else if (history.run.tokens.length > MOST_TOKENS) history.happen({ type: 'stopped', reason: 'cancelled' })
    else history.happen(next(history, { ...choice, stale: choice.stale && step < chosen.length }))
  }
  expect(history.problems).toEqual([])
  return history
}

const scale = { longestMs: 1_000, depth: 3, length: 3, executionLimits: true, calls: ['child'] }

test(
  'a random graph is sound after everything that happens, ends, changes no more, and comes to the same again',
  () => {
    const sound = (model: WorkflowModel, chosen: readonly Choice[], stop: Stop | null) => {
      const history = play(model, chosen, stop)
      const outcome = history.outcome()
      const late: GraphHappening[] = [
        ...[...history.works].map((token) => ({ type: 'ended', token, end: COMPLETED }) as const),
        ...Array.from({ length: history.timersMade }, (_, timer) => ({ type: 'time', timer }) as const),
        { type: 'stopped', reason: 'timed_out' },
      ]
      for (const happening of late) expect(history.run.happen(happening)).toEqual([])
      expect(history.outcome()).toBe(outcome)
      const stored = JSON.parse(JSON.stringify({ model, happenings: history.happenings }))
      const again = new GraphHistory(planWorkflow(stored.model), structuredClone(GRAPH_INPUT))
      for (const happening of stored.happenings) again.happen(happening)
      expect(again.outcome()).toBe(outcome)
    }
    fc.assert(fc.property(graphModels(scale), choices, stops, within(SHARE, sound)), asMany())
  },
  longest(SHARE),
)

/** Some joins only count. */
function counting(model: WorkflowModel, which: readonly boolean[]): WorkflowModel {
  const transitions = model.transitions.map((transition, i) =>
    transition.synchronization && which[i % which.length]
      ? {
          ...transition,
          synchronization: { ...transition.synchronization, collects: false, timeoutMs: null },
        }
      : transition,
  )
  return { ...model, transitions }
}

test(
  'one that forgets branches that only have to be counted asks for the same, and is as sound',
  () => {
    let forgotten = 0
    const alike = (
      drawn: WorkflowModel,
      which: readonly boolean[],
      chosen: readonly Choice[],
      stop: Stop | null,
    ) => {
      const model = counting(drawn, which)
      const { happenings, commands, run } = play(model, chosen, stop)
      const forgetful = new GraphHistory(planWorkflow(model), GRAPH_INPUT, { forgets: true })
      for (const happening of happenings) {
        forgetful.happen(happening)
        forgotten += forgetful.run.tokens.filter(({ no }, i) => no !== i).length
      }
      expect(forgetful.problems).toEqual([])
      expect(forgetful.commands).toEqual(commands)
      expect([forgetful.run.end, forgetful.run.values]).toEqual([run.end, run.values])
    }
    const property = fc.property(
      ...[graphModels(scale), fc.array(fc.boolean(), { minLength: 1 }), choices, stops],
      within(SHARE, alike),
    )
    fc.assert(property, asMany())
    expect(forgotten).toBeGreaterThan(0)
  },
  longest(SHARE),
)
