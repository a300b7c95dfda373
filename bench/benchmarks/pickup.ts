// Pickup by an idle engine: from the schedule call to the start of the handler, one task at a time with a few
// milliseconds between them.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Benchmark } from '../benchmark.ts'
import { percentile } from '../benchmark.ts'

const WARM_UP = 30

export const pickup: Benchmark = {
  title: 'pickup by an idle engine, from schedule to the start of the handler',
  rounds: 3,
  metrics: {
    p50: { label: 'p50 ms', better: 'lower', digits: 2 },
    p99: { label: 'p99 ms', better: 'lower', digits: 2 },
  },
  async run({ store, open, quick }) {
    let started: (at: number) => void = () => {}
    const session = await open({
      store,
      purpose: 'pickup',
      concurrency: 10,
      handler: async () => started(performance.now()),
    })
    const samples: number[] = []
    for (let n = 0; n < WARM_UP + (quick ? 50 : 300); n++) {
      const start = new Promise<number>((resolve) => {
        started = resolve
      })
      const scheduledAt = performance.now()
      const [startedAt] = await Promise.all([start, session.schedule(n)])
      if (n >= WARM_UP) samples.push(startedAt - scheduledAt)
      await sleep(5 + Math.random() * 15)
    }
    return { p50: percentile(samples, 50), p99: percentile(samples, 99) }
  },
}
