// Schedule in bulk and run: from the first schedule call until the last handler has returned and the store
// knows of no task that has not ended.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Benchmark } from '../benchmark.ts'
import { Countdown, numbers } from '../benchmark.ts'

export const bulk: Benchmark = {
  title: 'schedule no-op tasks in bulk and run them (10,000)',
  rounds: 3,
  metrics: { tasksPerSecond: { label: 'tasks/s', better: 'higher', digits: 0 } },
  async run({ store, open, quick }) {
    const count = quick ? 2_000 : 10_000
    let left = new Countdown(count)
    const session = await open({
      store,
      purpose: 'throughput',
      concurrency: 500,
      handler: async () => left.down(),
    })
    const runAll = async (tasks: number) => {
      left = new Countdown(tasks)
      const startedAt = performance.now()
      await session.scheduleMany(numbers(tasks))
      await left.done
      while ((await session.unfinished()) > 0) await sleep(1)
      return tasks / ((performance.now() - startedAt) / 1000)
    }
    // Statement caches, compiled code, pools: the third run of the same work is measured, for everybody.
    await runAll(count)
    await runAll(count)
    return { tasksPerSecond: await runAll(count) }
  },
}
