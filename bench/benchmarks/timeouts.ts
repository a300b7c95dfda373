// Running tasks that hang, with limits spread over 1 to 5 s: how late the abort signal comes, and how many
// come early. A contender that knows whole seconds only gets whole seconds.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Benchmark } from '../benchmark.ts'
import { Countdown, numbers, percentile } from '../benchmark.ts'

/** Timers and clocks of a millisecond's resolution on both sides. */
const RESOLUTION_MS = 1

export const timeouts: Benchmark = {
  title: 'running tasks that hang, limits spread over 1 to 5 s (1,000): lateness of the signal',
  rounds: 3,
  metrics: {
    p50: { label: 'p50 ms', better: 'lower', digits: 1, compared: false },
    p99: { label: 'p99 ms', better: 'lower', digits: 1 },
    max: { label: 'max ms', better: 'lower', digits: 1, compared: false },
    decisionP99: { label: 'decision p99 ms', better: 'lower', digits: 1 },
    early: { label: 'early', better: 'lower', digits: 0, compared: false },
  },
  async run({ contender, store, open, quick }) {
    const count = quick ? 200 : 1_000
    const limit = (n: number) => {
      const ms = 1_000 + Math.round((n / (count - 1)) * 4_000)
      return contender === 'pg-boss' ? Math.round(ms / 1000) * 1000 : ms
    }
    const now = () => performance.timeOrigin + performance.now()
    const lateness: number[] = []
    const left = new Countdown(count)
    const session = await open({
      store,
      purpose: 'timeouts',
      concurrency: count,
      handler: async ({ n, signal, deadlineAt }) => {
        if (!signal) throw new Error(`${contender} gives its handlers no signal`)
        const limitAt = deadlineAt ?? now() + limit(n)
        await new Promise<void>((resolve) =>
          signal.addEventListener('abort', () => resolve(), { once: true }),
        )
        lateness.push(now() - limitAt)
        left.down()
      },
    })
    // In an order that mixes the limits, so that contenders which start tasks slowly do not line them up.
    const order = numbers(count).map((n) => (n * 7919) % count)
    await Promise.all(order.map((n) => session.schedule(n, { limitMs: limit(n) })))
    await left.done
    // The store is told after the signal.
    while ((await session.unfinished()) > 0) await sleep(50)
    const decisions = (await session.decisionLateness?.()) ?? []
    return {
      p50: percentile(lateness, 50),
      p99: percentile(lateness, 99),
      max: Math.max(...lateness),
      decisionP99: decisions.length > 0 ? percentile(decisions, 99) : 'not said',
      early: lateness.filter((ms) => ms < -RESOLUTION_MS).length,
    }
  },
}
