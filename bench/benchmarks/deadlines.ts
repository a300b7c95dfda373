// Waiting tasks whose deadlines fall in the same second: how long after the last of them was due until the
// store has ended them all. The only slot is held by a task that hangs, so none of them starts.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Benchmark } from '../benchmark.ts'
import { numbers } from '../benchmark.ts'

const HOG = -1

export const deadlines: Benchmark = {
  title: 'deadlines due in the same second (10,000)',
  rounds: 3,
  metrics: {
    spreadSeconds: { label: 's between the first and the last due', better: 'lower', digits: 2 },
    seconds: { label: 's after the last was due until all fired', better: 'lower', digits: 2 },
  },
  async run({ store, open, quick }) {
    const totalMs = quick ? 3_000 : 5_000
    let hogStarted: () => void = () => {}
    const hogged = new Promise<void>((resolve) => {
      hogStarted = resolve
    })
    const session = await open({
      store,
      purpose: 'throughput',
      concurrency: 1,
      handler: ({ n }) => {
        if (n !== HOG) throw new Error(`task ${n} has started, which was to wait`)
        hogStarted()
        return new Promise(() => {})
      },
    })
    await session.schedule(HOG)
    await hogged
    const firstDueAt = performance.now() + totalMs
    await session.scheduleMany(numbers(quick ? 1_000 : 10_000), { totalMs })
    const lastDueAt = performance.now() + totalMs
    await sleep(lastDueAt - performance.now())
    while ((await session.unfinished()) > 1) await sleep(10)
    return {
      spreadSeconds: (lastDueAt - firstDueAt) / 1000,
      seconds: (performance.now() - lastDueAt) / 1000,
    }
  },
}
