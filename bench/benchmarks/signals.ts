// Signals to waiting agents of an idle engine: from the signal call until the agent's code goes on, another
// agent each time, with a few milliseconds between them.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Benchmark } from '../benchmark.ts'
import { percentile } from '../benchmark.ts'

const WAITING = 1_000
const WARM_UP = 30

export const signals: Benchmark = {
  title: 'a signal to one of 1,000 waiting agents, until its code goes on',
  rounds: 3,
  metrics: {
    p50: { label: 'p50 ms', better: 'lower', digits: 2 },
    p99: { label: 'p99 ms', better: 'lower', digits: 2 },
  },
  async run({ store, quick }) {
    let wentOn: (at: number) => void = () => {}
    const { openWaitingAgents } = await import('../contenders/curfew-agents.ts')
    const agents = await openWaitingAgents(store, () => wentOn(performance.now()))
    const handles = await agents.start(WAITING)
    await sleep(2_000)
    const samples: number[] = []
    for (const [n, handle] of handles.slice(0, WARM_UP + (quick ? 50 : 300)).entries()) {
      const goingOn = new Promise<number>((resolve) => {
        wentOn = resolve
      })
      const signalledAt = performance.now()
      const [at] = await Promise.all([goingOn, handle.signal('go', n)])
      if (n >= WARM_UP) samples.push(at - signalledAt)
      await sleep(5 + Math.random() * 15)
    }
    return { p50: percentile(samples, 50), p99: percentile(samples, 99) }
  },
}
