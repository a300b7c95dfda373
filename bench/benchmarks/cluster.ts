// Two worker processes, for Curfew attached to a manager in a third. Tasks that were stored beforehand: the rate
// while the last four fifths of them are run, until the store knows of none that has not ended. And tasks that are
// stored while the workers are there: from the schedule call until then.

import { setTimeout as sleep } from 'node:timers/promises'
import type { Benchmark, Place } from '../benchmark.ts'
import { numbers } from '../benchmark.ts'
import type { Child } from '../child.ts'
import { startChild } from '../child.ts'
import type { BeginOrder } from '../cluster-process.ts'
import { probeDatabase } from '../database-probe.ts'
import { countPostgresCpu } from '../process-usage.ts'

const WORKERS = 2
/** Tasks that a worker has at a time. */
const CONCURRENCY = 2000
const WARM_UP = 20_000
/** As many as graphile-worker's own performance test has. */
const STORED = 200_000
/** A backlog that is worked off within two seconds. */
const FEW = 60_000
const SCHEDULED = 20_000
/** Of what was stored: engines that have just been opened still load and compile. */
const NOT_MEASURED = 0.2
const LOOK_EVERY_MS = 20

const perThousand = (who: string) =>
  ({ label: `ms of ${who} for 1,000`, better: 'lower', digits: 0, compared: false }) as const

export const cluster: Benchmark = {
  title:
    'no-op tasks run by two worker processes: stored beforehand (200,000, and 60,000), and stored meanwhile (20,000)',
  rounds: 5,
  metrics: {
    tasksPerSecond: { label: 'tasks/s', better: 'higher', digits: 0 },
    managerMs: perThousand('the manager'),
    workersMs: perThousand('the workers'),
    postgresMs: perThousand('PostgreSQL'),
    fewPerSecond: { label: 'tasks/s of 60,000', better: 'higher', digits: 0 },
    scheduledPerSecond: { label: 'scheduled and run/s', better: 'higher', digits: 0 },
  },
  async run(place) {
    const processes = await openProcesses(place)
    const size = (count: number) => Math.min(place.quick ? count / 10 : count, processes.most)
    for (let i = 0; i < 2; i++) {
      await processes.runStored(size(WARM_UP))
      await processes.end()
    }
    const { tasksPerSecond: fewPerSecond } = await processes.runStored(size(FEW))
    await processes.end()
    const stored = await processes.runStored(size(STORED))
    const scheduledPerSecond = await processes.runScheduled(size(SCHEDULED))
    await processes.close()
    return { ...stored, fewPerSecond, scheduledPerSecond }
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
  const all = <T>(method: string, argument?: unknown) =>
    Promise.all(workers.map((worker) => worker.ask<T>(method, argument)))
  const ran = async () => sum(await all<number>('ran'))
  const untilRan = async (count: number) => {
    for (;;) {
      const now = await ran()
      if (now >= count) return now
      await sleep(LOOK_EVERY_MS)
    }
  }
  const untilEnded = async () => {
    while ((await probe.value<number>(cluster.unfinished)) > 0) await sleep(1)
  }
  return {
    most: cluster.most ?? Infinity,
    async runStored(count: number) {
      // Nobody has to pass what an earlier run has left.
      await probe.rows('vacuum')
      await client.schedule(count)
      // As autovacuum does within a minute; whether it has come by now must not decide which plans are made.
      await probe.rows('analyze')
      await all('begin', order)
      const before = await untilRan(count * NOT_MEASURED)
      const startedAt = performance.now()
      const usage = await countUsage({ manager, workers, postgres: await countPostgresCpu(probe) })
      await untilRan(count)
      await untilEnded()
      const seconds = (performance.now() - startedAt) / 1000
      const measured = count - before
      return { tasksPerSecond: measured / seconds, ...(await usage(measured)) }
    },
    async runScheduled(count: number) {
      const before = await ran()
      const startedAt = performance.now()
      await client.schedule(count)
      await untilRan(before + count)
      await untilEnded()
      return count / ((performance.now() - startedAt) / 1000)
    },
    end: () => all('end'),
    async close() {
      await client.close()
      await probe.end()
      for (const child of [...workers, ...(manager ? [manager] : [])]) await child.kill()
    },
  }
}

/** Of the processor, from now on, for a thousand tasks. */
async function countUsage(of: {
  manager: Child | null
  workers: readonly Child[]
  postgres: (() => Promise<number>) | null
}) {
  const read = async () => ({
    manager: (await of.manager?.usage())?.cpuMs ?? 0,
    workers: sum((await Promise.all(of.workers.map((worker) => worker.usage()))).map(({ cpuMs }) => cpuMs)),
  })
  const before = await read()
  return async (tasks: number) => {
    const after = await read()
    const each = (ms: number) => (ms / tasks) * 1000
    return {
      managerMs: of.manager ? each(after.manager - before.manager) : 'none',
      workersMs: each(after.workers - before.workers),
      postgresMs: of.postgres ? each(await of.postgres()) : 'not measured',
    }
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0)
}
