// What processes cost: processor time, transactions in their database, memory.

import { existsSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { DatabaseProbe } from './database-probe.ts'
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

/**
 * Counts the processor time of the server that a probe is connected to, from now on; it runs on this machine. Null:
 * not Linux.
 */
export async function countPostgresCpu(probe: DatabaseProbe): Promise<(() => Promise<number>) | null> {
  if (process.platform !== 'linux') return null
  const pids = async () =>
    (await probe.rows<{ pid: number }>('select pid from pg_stat_activity')).map(({ pid }) => pid)
  const before = new Map((await pids()).map((pid) => [pid, cpuMsOf(pid)]))
  // Whoever came meanwhile did all of its work meanwhile.
  return async () => (await pids()).reduce((total, pid) => total + cpuMsOf(pid) - (before.get(pid) ?? 0), 0)
}

/** A hundredth of a second is what the kernel counts in. */
const TICK_MS = 10

function cpuMsOf(pid: number): number {
  const file = `/proc/${pid}/stat`
  if (!existsSync(file)) return 0
  const stat = readFileSync(file, 'utf8')
  // The name of the command is in brackets and may hold anything.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS
}
