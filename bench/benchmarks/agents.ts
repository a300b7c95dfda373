// Agents of ten steps that do nothing, one after the other: all are started at once, and it is measured from
// the first start until the last has ended in the store. The raw limit writes the same rows without an engine.

import type { Benchmark } from '../benchmark.ts'

const STEPS = 10

export const agents: Benchmark = {
  title: 'agents of ten sequential no-op steps (1,000), all started at once',
  rounds: 3,
  metrics: {
    stepsPerSecond: { label: 'steps/s', better: 'higher', digits: 0 },
    coldStepsPerSecond: { label: 'steps/s of the first run', better: 'higher', digits: 0 },
  },
  async run({ store, openAgents, quick }) {
    const count = quick ? 200 : 1_000
    const session = await openAgents({ store, steps: STEPS })
    const rate = async () => {
      const startedAt = performance.now()
      await session.runAgents(count)
      return (count * STEPS) / ((performance.now() - startedAt) / 1000)
    }
    // Compiled code, statement caches, pools: the third run of the same work is measured, for everybody, as in bulk.
    const coldStepsPerSecond = await rate()
    await rate()
    const stepsPerSecond = await rate()
    await session.close()
    return { stepsPerSecond, coldStepsPerSecond }
  },
}
