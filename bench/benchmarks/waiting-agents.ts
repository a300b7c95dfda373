// Agents that wait for a signal nobody sends: what the process costs meanwhile, and how much more memory it
// holds with very many of them than with 1,000.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Benchmark } from '../benchmark.ts'
import { heapMb, measureIdle } from '../process-usage.ts'

const FEW = 1_000

export const waitingAgents: Benchmark = {
  title: 'agents that wait for a signal (100,000), and the heap against that with 1,000',
  rounds: 1,
  metrics: {
    startedPerSecond: { label: 'started and waiting/s', better: 'higher', digits: 0 },
    cpuPercent: { label: '% of a core', better: 'lower', digits: 2 },
    transactionsPerSecond: { label: 'transactions/s', better: 'lower', digits: 2 },
    heapFewMb: { label: 'MB heap with 1,000', better: 'lower', digits: 1 },
    heapMoreMb: { label: 'MB more', better: 'lower', digits: 1 },
  },
  async run({ store, adminUrl, quick }) {
    const many = quick ? 5_000 : 100_000
    const settleMs = quick ? 2_000 : 10_000
    const { openWaitingAgents } = await import('../contenders/curfew-agents.ts')
    const agents = await openWaitingAgents(store, () => {})
    await agents.start(FEW)
    await sleep(settleMs)
    const heapFewMb = heapMb()
    const startedAt = performance.now()
    await agents.start(many - FEW)
    const startedPerSecond = (many - FEW) / ((performance.now() - startedAt) / 1000)
    await sleep(settleMs)
    const heapMoreMb = heapMb() - heapFewMb
    const idle = await measureIdle({ store, adminUrl }, quick ? 5 : 20)
    return { startedPerSecond, ...idle, heapFewMb, heapMoreMb }
  },
}
