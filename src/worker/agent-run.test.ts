import { expect, test } from 'vitest'
import { IdSource } from '../core/id.ts'
import { SystemRandomness } from '../core/system-clock.ts'
import { agent } from '../definitions/agent.ts'
import { VirtualClock } from '../testing/virtual-clock.ts'
import type { TurnReport } from '../wire/worker-port.ts'
import { AgentRun } from './agent-run.ts'

test('nobody sees less time pass than was slept, also where whoever starts the turn is behind whoever fired', async () => {
  const clock = new VirtualClock()
  const randomness = new SystemRandomness()
  const ids = new IdSource(randomness)
  const nap = agent({
    name: 'nap',
    run: async (_: null, ctx) => {
      const before = ctx.now()
      await ctx.sleep(1_000)
      return ctx.now() - before
    },
  })
  const reports: TurnReport[] = []
  const turn = {
    ...{ agentId: 'g_1', rootId: 'g_1', name: 'nap', token: 'a_1', trace: null, input: 'null' },
    ...{ turn: 1, now: 50_000, steps: 0, seen: 0, upTo: 0, results: [] },
  }
  const run = new AgentRun(nap, turn, null, {
    ...{ clock, randomness, registry: {}, nextId: (prefix, now) => ids.next(prefix, now) },
    logger: { debug() {}, info() {}, warn() {}, error() {} },
    report: async (report) => {
      reports.push(report)
      return { type: report.state.type === 'returned' ? 'gone' : 'suspended' } as never
    },
    ...{ wake() {}, start() {}, suspended() {}, gone() {} },
  })
  run.start('null')
  await clock.advance(1)
  const sleep = reports.flatMap(({ steps }) => steps).find(({ kind }) => kind === 'sleep')
  expect(sleep).toMatchObject({ kind: 'sleep', ms: 1_000 })
  const fired = { seq: 1, type: 'time' as const, step: sleep?.no as number, at: 51_001 }
  run.resume({ ...turn, turn: 2, token: 'a_2', now: 50_900, steps: 2, upTo: 1, results: [fired] })
  await clock.advance(1)
  const state = reports.at(-1)?.state
  expect(state?.type === 'returned' && JSON.parse(state.output)).toBeGreaterThanOrEqual(1_000)
})
