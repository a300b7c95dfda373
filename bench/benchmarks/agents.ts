// Agents of ten steps that do nothing, one after the other: all are started at once, and it is measured from
// the first start until the last has ended in the store. The raw limit writes the same rows without an engine.

import type { Benchmark } from '../benchmark.ts'

const STEPS = 10

export const agents: Benchmark = {
  title: 'agents of ten sequential no-op steps (1,000), all started at once',
  rounds: 3,
  metrics: { stepsPerSecond: { label: 'steps/s', better: 'higher', digits: 0 } },
  async run({ store, openAgents, quick }) {
    const count = quick ? 200 : 1_000
    const session = await openAgents({ store, steps: STEPS })
    await session.runAgents(count / 4)
    const startedAt = performance.now()
    await session.runAgents(count)
    const seconds = (performance.now() - startedAt) / 1000
    await session.close()
    return { stepsPerSecond: (count * STEPS) / seconds }
  },
}
