// What a process costs that has nothing to do: processor time, transactions in its database, memory.

import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { probeDatabase } from './database-probe.ts'

/** Of this process, and of everybody in its database. */
export async function measureIdle({ store, adminUrl }: { store: string; adminUrl: string }, seconds: number) {
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
    transactionsPerSecond: onPostgres ? ((await transactions()) - before) / (elapsedMs / 1000) : 'no server',
  }
}

/** What is left after a collection. */
export function heapMb(): number {
  setFlagsFromString('--expose-gc')
  const collectGarbage = runInNewContext('gc') as () => void
  collectGarbage()
  return process.memoryUsage().heapUsed / 2 ** 20
}
