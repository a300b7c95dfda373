// Graphs of ten nodes that do nothing, one after the other: all are started at once, and it is measured from the
// first start until the last has ended in the store. Agents of ten such steps take turns with them in the same
// process: the ratio is what the graph costs over the agent that drives it.

import type { Benchmark } from '../benchmark.ts'

const STEPS = 10

export const graphs: Benchmark = {
  title: 'graphs of ten sequential no-op nodes (1,000), all started at once',
  rounds: 3,
  metrics: {
    stepsPerSecond: { label: 'steps/s', better: 'higher', digits: 0 },
    agentStepsPerSecond: { label: 'steps/s of agents', better: 'higher', digits: 0 },
    toAgents: { label: 'to agents', better: 'higher', digits: 2 },
    coldStepsPerSecond: { label: 'steps/s of the first run', better: 'higher', digits: 0 },
  },
  async run({ store, quick }) {
    const count = quick ? 200 : 1_000
    const { openChains } = await import('../contenders/curfew-graphs.ts')
    const chains = await openChains(store, STEPS)
    const rate = async (runAll: (count: number) => Promise<void>) => {
      const startedAt = performance.now()
      await runAll(count)
      return (count * STEPS) / ((performance.now() - startedAt) / 1000)
    }
    // As in agents: the third run is measured, of both.
    const coldStepsPerSecond = await rate(chains.runGraphs)
    await rate(chains.runAgents)
    await rate(chains.runGraphs)
    await rate(chains.runAgents)
    const stepsPerSecond = await rate(chains.runGraphs)
    const agentStepsPerSecond = await rate(chains.runAgents)
    await chains.close()
    const toAgents = stepsPerSecond / agentStepsPerSecond
    return { stepsPerSecond, agentStepsPerSecond, toAgents, coldStepsPerSecond }
  },
}
