// Random programs, what is sent to them, and what happens to the processes that run them.

import fc from 'fast-check'
import type { Trial } from './agent-model.ts'
import type { ChildNode, How, Member, Program, RunNode, TaskNode } from './agent-programs.ts'
import type { Disturbances } from './disturbed-engine.ts'

const SIGNAL_NAMES = ['a', 'b'] as const
const DEPTH = 5

const sometimes = <T>(values: fc.Arbitrary<T>, otherwise: fc.Arbitrary<T>, [some, other]: [number, number]) =>
  fc.oneof({ weight: some, arbitrary: values }, { weight: other, arbitrary: otherwise })
const maybe = <T>(values: fc.Arbitrary<T>, weights: [number, number]) =>
  sometimes<T | null>(values, fc.constant(null), weights)
const often = fc.constantFrom(true, true, true, false)
const rarely = fc.constantFrom(false, false, false, false, true)

/**
 * `longestMs`: no wait and no try is longer. The longer it may be, the fewer programs have no order.
 * `runLimits`: runs may have one, which does not outlive a process.
 */
export function trials(longestMs: number, runLimits = false): fc.Arbitrary<Trial> {
  const time = fc.noBias(fc.integer({ min: 1, max: longestMs * 3 }))
  return fc.record({
    program: programs(longestMs, runLimits),
    timeout: maybe(time, [1, 3]),
    cleanup: sometimes(time, fc.constant(0), [3, 1]),
    signals: fc.array(fc.record({ at: time, name: fc.constantFrom(...SIGNAL_NAMES) }), { maxLength: 5 }),
    // Whatever waits for ever ends with this.
    cancelAt: fc.noBias(fc.integer({ min: longestMs * 2, max: longestMs * 10 })),
  })
}

export function disturbances(longestMs: number, transactions: number): fc.Arbitrary<Disturbances> {
  const time = fc.noBias(fc.integer({ min: 1, max: longestMs * 3 }))
  // Three at most: what kills its process four times in a row is not tried again.
  const kill = fc.record({
    transaction: fc.noBias(fc.integer({ min: 1, max: transactions })),
    committed: fc.boolean(),
  })
  return fc.record({
    residents: fc.constantFrom(0, 0, 1, 1_000),
    kills: fc.array(kill, { maxLength: 2 }),
    restarts: fc
      .tuple(
        fc.array(fc.record({ at: time, how: fc.constant('kill' as const) }), { maxLength: 1 }),
        fc.array(fc.record({ at: time, how: fc.constant('close' as const) }), { maxLength: 2 }),
      )
      .map((lists) => lists.flat()),
  })
}

/** What changes times as well: processes that are away for a while, and that have few slots. */
export function delays(longestMs: number, transactions: number): fc.Arbitrary<Disturbances> {
  const few = fc.integer({ min: 1, max: 3 })
  return fc
    .record({
      disturbance: disturbances(longestMs, transactions),
      slots: maybe(fc.record({ turns: few, concurrency: few }), [1, 1]),
      downMs: fc.array(fc.nat(longestMs * 3), { minLength: 3, maxLength: 3 }),
    })
    .map(({ disturbance: { restarts, ...rest }, slots, downMs }) => ({
      ...rest,
      restarts: restarts.map((restart, i) => ({ ...restart, downMs: downMs[i] ?? 0 })),
      ...(slots && { slots }),
    }))
}

function programs(longestMs: number, runLimits: boolean): fc.Arbitrary<Program> {
  const ms = fc.noBias(fc.integer({ min: 1, max: longestMs }))
  const how = fc.constantFrom<How>('all', 'allSettled', 'any', 'race')
  const task: fc.Arbitrary<TaskNode> = fc
    .record({
      do: fc.constant('task' as const),
      // Few different ones: tasks with the same input, told apart by their delay.
      ms: fc.constantFrom(1, Math.ceil(longestMs / 7)),
      end: fc.constantFrom('ok', 'ok', 'ok', 'fail', 'hang'),
      flaky: fc.constantFrom(0, 0, 0, 1, 2),
      delay: ms,
      timeout: maybe(ms, [1, 2]),
      detached: rarely,
    })
    .map((node) => (node.detached && node.end === 'hang' ? { ...node, end: 'ok' } : node))
  const run: fc.Arbitrary<RunNode> = fc.record({
    do: fc.constant('run' as const),
    ms,
    end: fc.constantFrom('ok', 'ok', 'ok', 'fail'),
    flaky: fc.constantFrom(0, 0, 1),
    timeout: runLimits ? maybe(ms, [1, 1]) : fc.constant(null),
  })
  const sleep: fc.Arbitrary<Member> = fc.record({ do: fc.constant('sleep' as const), ms })
  const signal: fc.Arbitrary<Member> = fc.record({
    do: fc.constant('signal' as const),
    name: fc.constantFrom(...SIGNAL_NAMES),
    timeout: maybe(ms, [5, 1]),
  })
  const leaf: fc.Arbitrary<Member> = fc.oneof(
    { weight: 4, arbitrary: task },
    { weight: 3, arbitrary: run },
    { weight: 1, arbitrary: sleep },
    { weight: 2, arbitrary: signal },
  )
  const few = <T>(values: fc.Arbitrary<T>, minLength = 1) =>
    fc.array(values, { minLength, maxLength: 4, size: 'max' })

  const member = fc.memo((depth): fc.Arbitrary<Member> => {
    if (depth <= 1) return leaf
    const child: fc.Arbitrary<ChildNode> = fc
      .record({
        do: fc.constant('child' as const),
        body: program(depth - 1),
        timeout: maybe(ms, [1, 2]),
        cleanup: fc.oneof(fc.constant(0), ms, fc.constant(longestMs * 20)),
        detached: rarely,
        /** Of one that is detached: nobody else would end it. */
        atLatest: ms,
      })
      .map(({ atLatest, ...node }) => (node.detached ? { ...node, timeout: node.timeout ?? atLatest } : node))
    const group: fc.Arbitrary<Member> = fc.record({
      do: fc.constant('group' as const),
      how,
      members: few(member(depth - 1)),
      timeout: maybe(ms, [1, 1]),
      cancelRest: fc.constantFrom(null, null, true, false),
    })
    return fc.oneof(
      { weight: 5, arbitrary: leaf },
      { weight: 4, arbitrary: child },
      { weight: 4, arbitrary: group },
    )
  })

  const program = fc.memo((depth): fc.Arbitrary<Program> => {
    if (depth <= 1) return leaf
    const inner = program(depth - 1)
    return fc.oneof(
      { weight: 4, arbitrary: member(depth) },
      {
        weight: 6,
        arbitrary: fc.record({ do: fc.constant('seq' as const), parts: few(inner, 2), stubborn: often }),
      },
      { weight: 6, arbitrary: fc.record({ do: fc.constant('native' as const), how, branches: few(inner) }) },
      {
        weight: 5,
        arbitrary: fc.record({
          do: fc.constant('try' as const),
          body: inner,
          rescue: maybe(inner, [3, 1]),
          final: maybe(inner, [1, 3]),
        }),
      },
      { weight: 1, arbitrary: fc.record({ do: fc.constant('forget' as const), member: member(depth) }) },
      {
        weight: 3,
        arbitrary: fc.record({
          do: fc.constant('later' as const),
          member: member(depth - 1),
          body: inner,
          cancel: fc.boolean(),
        }),
      },
      { weight: 1, arbitrary: fc.record({ do: fc.constant('chance' as const), ms }) },
      { weight: 1, arbitrary: fc.constant<Program>({ do: 'now' }) },
      { weight: 1, arbitrary: fc.constant<Program>({ do: 'throw' }) },
    )
  })
  return program(DEPTH)
}
