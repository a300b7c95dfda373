// Idle, with tasks scheduled for tomorrow: processor time of the process, and transactions in its database.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Benchmark } from '../benchmark.ts'
import { numbers } from '../benchmark.ts'
import { measureIdle } from '../process-usage.ts'

const TOMORROW_MS = 86_400_000

export const idle: Benchmark = {
  title: 'idle with tasks scheduled for tomorrow (10,000)',
  rounds: 1,
  metrics: {
    cpuPercent: { label: '% of a core', better: 'lower', digits: 2 },
    transactionsPerSecond: { label: 'transactions/s', better: 'lower', digits: 2 },
  },
  async run({ store, adminUrl, open, quick }) {
    const session = await open({ store, purpose: 'idle', concurrency: 10, handler: async () => {} })
    await session.scheduleMany(numbers(quick ? 1_000 : 10_000), { delayMs: TOMORROW_MS })
    await sleep(quick ? 2_000 : 10_000)
    return measureIdle({ store, adminUrl }, quick ? 5 : 20)
  },
}
