import { describe, expect, test } from 'vitest'
import { GraphMachine, planOf } from './fixtures/graph-machine.ts'
import { GraphRun } from './graph-run.ts'

/** start ⇒ read ⇒ end: `read` in branches that are joined before `end`. */
const fanOut = (fan: string, rules: string, more = '') =>
  planOf(
    'start read! end!',
    `{ id: fan, from: start, to: read, ${fan} }
     { id: join, from: read, to: end, synchronization: { sibling_group: fan, ${rules} } }`,
    more,
  )
const ALL = 'strategy: all'
const FOREACH = 'foreach: { collection: input }'

describe('how long a join waits', () => {
  const timeoutOf = (plan: ReturnType<typeof planOf>, input: unknown = null) => {
    const machine = new GraphMachine(plan, input)
    machine.complete('read.0')
    return machine.timers[0]
  }
  const actionOf = (ms: number) => `actions: { work: { kind: task, execution: { timeout_ms: ${ms} } } }`

  test('S10: an action of two minutes on ten branches makes half an hour', () => {
    expect(timeoutOf(fanOut('spawn_count: 10', ALL, actionOf(120_000)))).toBe(1_800_000)
  })

  test('S11: an action of ten seconds on four branches makes a minute', () => {
    expect(timeoutOf(fanOut('spawn_count: 4', ALL, actionOf(10_000)))).toBe(60_000)
  })

  test('S12: more than half an hour is capped', () => {
    expect(timeoutOf(fanOut('spawn_count: 10', ALL, actionOf(600_000)))).toBe(1_800_000)
  })

  test('S13: half an hour where no action has a timeout', () => {
    expect(timeoutOf(fanOut('spawn_count: 10', ALL))).toBe(1_800_000)
  })

  test('S14: the timeout of the node counts over that of its action, and the branches there are', () => {
    for (const fan of ['spawn_count: 2', FOREACH]) {
      const plan = fanOut(fan, ALL, actionOf(10_000))
      const node = plan.nodes.get('read')
      if (node) node.timeoutMs = 20_000
      const { model } = plan
      expect(timeoutOf(planAgain(model), ['a', 'b'])).toBe(60_000)
    }
  })
})
