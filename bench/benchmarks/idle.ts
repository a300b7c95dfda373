// Idle, with tasks scheduled for tomorrow: processor time of the process, and transactions in its database.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Benchmark } from '../benchmark.ts'
import { numbers } from '../benchmark.ts'
import { probeDatabase } from '../database-probe.ts'

const TOMORROW_MS = 86_400_000

export const idle: Benchmark = {
  title: 'idle with tasks scheduled for tomorrow (10,000)',
  rounds: 1,
  metrics: {
    cpuPercent: { label: '% of a core', better: 'lower', digits: 2 },
    transactionsPerSecond: { label: 'transactions/s', better: 'lower', digits: 2 },
  },
  async run({ store, adminUrl, open, quick }) {
    const seconds = quick ? 5 : 20
    const session = await open({ store, purpose: 'idle', concurrency: 10, handler: async () => {} })
    await session.scheduleMany(numbers(quick ? 1_000 : 10_000), { delayMs: TOMORROW_MS })
    await sleep(quick ? 2_000 : 10_000)
    const onPostgres = store.startsWith('postgres')
    const probe = await probeDatabase(adminUrl)
    const transactions = () =>
      probe.value<number>(
        'select (xact_commit + xact_rollback)::float8 from pg_stat_database where datname = $1',
        [decodeURIComponent(new URL(store).pathname.slice(1))],
      )
    const before = onPostgres ? await transactions() : 0
    const cpuBefore = process.cpuUsage()
    const startedAt = performance.now()
    await sleep(seconds * 1000)
    const elapsedMs = performance.now() - startedAt
    const cpu = process.cpuUsage(cpuBefore)
    return {
      cpuPercent: ((cpu.user + cpu.system) / 1000 / elapsedMs) * 100,
      transactionsPerSecond: onPostgres
        ? ((await transactions()) - before) / (elapsedMs / 1000)
        : 'no server',
    }
  },
}
