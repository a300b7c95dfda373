// Tasks stored beforehand and run by two worker processes, for Curfew through a manager in a third: from the start
// of the first one until the store knows of none that has not ended.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Benchmark, Place } from '../benchmark.ts'
import { numbers } from '../benchmark.ts'
import type { Child } from '../child.ts'
import { sharedNow, startChild } from '../child.ts'
import type { BeginOrder, Ran } from '../cluster-process.ts'
import { probeDatabase } from '../database-probe.ts'
import { countPostgresCpu } from '../process-usage.ts'

const WORKERS = 2
/** Of each worker. */
const CONCURRENCY = 500
const LOOK_EVERY_MS = 20

const perThousand = (who: string) =>
  ({ label: `ms of ${who} for 1,000`, better: 'lower', digits: 0, compared: false }) as const

export const cluster: Benchmark = {
  title: 'no-op tasks stored beforehand (20,000), run by two worker processes',
  rounds: 5,
  metrics: {
    tasksPerSecond: { label: 'tasks/s', better: 'higher', digits: 0 },
    managerMs: perThousand('the manager'),
    workersMs: perThousand('the workers'),
    postgresMs: perThousand('PostgreSQL'),
  },
  async run(place) {
    const count = place.quick ? 5_000 : 20_000
    const processes = await openProcesses(place)
    // As in bulk, the third run is measured.
    await processes.run(count)
    await processes.run(count)
    const { seconds, manager, workers, postgres } = await processes.run(count)
    await processes.close()
    const each = (ms: number | null) => (ms === null ? 'none' : (ms / count) * 1000)
    return {
      tasksPerSecond: count / seconds,
      managerMs: each(manager),
      workersMs: each(workers),
      postgresMs: each(postgres),
    }
  },
}

async function openProcesses({ contender, store, loadCluster }: Place) {
  const cluster = await loadCluster()
  const start = () => startChild(new URL('../cluster-process.ts', import.meta.url))
  const manager = cluster.manage ? await start() : null
  const url = (await manager?.ask<string>('manage', { contender, store })) ?? null
  const client = await cluster.connect({ store, manager: url })
  const workers = await Promise.all(numbers(WORKERS).map(start))
  const probe = await probeDatabase(store)
  const order: BeginOrder = { contender, store, manager: url, concurrency: CONCURRENCY }
  return {
    async run(count: number) {
      await client.schedule(count)
      const countPostgres = await countPostgresCpu(probe)
      const before = await usageOf(manager, workers)
      const unfinished = () => probe.value<number>(cluster.unfinished)
      const seconds = await timed(workers, order, { count, unfinished })
      const after = await usageOf(manager, workers)
      const postgres = (await countPostgres?.()) ?? null
      await Promise.all(workers.map((worker) => worker.ask('end')))
      return {
        ...{ seconds, postgres, workers: after.workers - before.workers },
        manager: manager && after.manager - before.manager,
      }
    },
    async close() {
      await client.close()
      await probe.end()
      for (const child of [...workers, ...(manager ? [manager] : [])]) await child.kill()
    },
  }
}

async function usageOf(manager: Child | null, workers: readonly Child[]) {
  const usages = await Promise.all(workers.map((worker) => worker.usage()))
  return { manager: (await manager?.usage())?.cpuMs ?? 0, workers: sum(usages, ({ cpuMs }) => cpuMs) }
}

/** Opening an engine is not what is measured: the time counts from the first task that starts. */
async function timed(
  workers: readonly Child[],
  order: BeginOrder,
  { count, unfinished }: { count: number; unfinished(): Promise<number> },
): Promise<number> {
  await Promise.all(workers.map((worker) => worker.ask('begin', order)))
  for (;;) {
    const ran = await Promise.all(workers.map((worker) => worker.ask<Ran>('ran')))
    if (sum(ran, (one) => one.count) < count) {
      await sleep(LOOK_EVERY_MS)
      continue
    }
    while ((await unfinished()) > 0) await sleep(1)
    return (sharedNow() - Math.min(...ran.map(({ firstAt }) => firstAt ?? Infinity))) / 1000
  }
}

function sum<T>(items: readonly T[], of: (item: T) => number): number {
  return items.reduce((total, item) => total + of(item), 0)
}
