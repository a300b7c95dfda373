// pg-boss with LISTEN/NOTIFY, batches where throughput counts and a worker per task where tasks run long.
// A dead process is noticed by its jobs' heartbeats: 10 s is the shortest it takes, looked at every second.

import type { OpenSession, Purpose, ScheduleOptions } from '../contender.ts'
import { probeDatabase } from '../database-probe.ts'
import { importPeer } from '../peers/install.ts'

interface Job {
  data: { n: number }
  signal: AbortSignal
}

interface Boss {
  on(event: 'error', listener: (error: Error) => void): void
  start(): Promise<unknown>
  createQueue(name: string, options: Record<string, unknown>): Promise<void>
  work(
    name: string,
    options: Record<string, unknown>,
    handler: (jobs: Job[]) => Promise<void>,
  ): Promise<string>
  send(name: string, data: object, options?: Record<string, unknown>): Promise<string | null>
  insert(name: string, jobs: Record<string, unknown>[]): Promise<unknown>
  stop(options: { graceful: boolean; close: boolean }): Promise<void>
}

interface PgBossPackage {
  PgBoss: new (options: Record<string, unknown>) => Boss
}

const QUEUE = 'noop'

function workOptions(purpose: Purpose, concurrency: number): Record<string, unknown> {
  // A job that is retried is not notified of.
  const polling = { pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5 }
  switch (purpose) {
    case 'throughput':
    case 'schedule':
      return { ...polling, batchSize: 1000, localConcurrency: 2, burstWhenBatchFull: true }
    case 'pickup':
      return { ...polling, batchSize: 1, localConcurrency: 1 }
    case 'crash':
      return { ...polling, batchSize: concurrency, heartbeatRefreshSeconds: 2 }
    case 'timeouts':
      return { ...polling, batchSize: 1, localConcurrency: concurrency }
    case 'idle':
      return { batchSize: concurrency }
  }
}

export const openPgBoss: OpenSession = async ({ store, purpose, concurrency, handler }) => {
  const { PgBoss } = await importPeer<PgBossPackage>('pg-boss')
  const watching = purpose === 'crash' ? { superviseIntervalSeconds: 1, monitorIntervalSeconds: 1 } : {}
  const boss = new PgBoss({ connectionString: store, max: 20, useListenNotify: true, ...watching })
  boss.on('error', (error) => console.error('pg-boss:', error.message))
  await boss.start()
  await boss.createQueue(QUEUE, {
    notify: true,
    retryLimit: purpose === 'crash' ? 3 : 0,
    retryDelay: 0,
    ...(purpose === 'crash' ? { heartbeatSeconds: 10 } : {}),
  })
  await boss.work(QUEUE, workOptions(purpose, concurrency), async (jobs) => {
    await Promise.all(jobs.map(({ data, signal }) => handler({ n: data.n, signal })))
  })
  const probe = await probeDatabase(store)
  const jobOptions = ({ delayMs, limitMs }: ScheduleOptions) => ({
    ...(delayMs ? { startAfter: new Date(Date.now() + delayMs) } : {}),
    ...(limitMs ? { expireInSeconds: limitMs / 1000 } : {}),
  })
  return {
    schedule: (n, options = {}) => boss.send(QUEUE, { n }, jobOptions(options)),
    scheduleMany: (numbers, options = {}) =>
      boss.insert(
        QUEUE,
        numbers.map((n) => ({ data: { n }, ...jobOptions(options) })),
      ),
    unfinished: () =>
      probe.value<number>(`select count(*)::int from pgboss.job where name = $1 and state < 'completed'`, [
        QUEUE,
      ]),
    decisionLateness: async () =>
      (
        await probe.rows<{ ms: number }>(
          `select (extract(epoch from completed_on - started_on) - expire_seconds)::float8 * 1000 as ms
          from pgboss.job where name = $1 and state = 'failed'`,
          [QUEUE],
        )
      ).map(({ ms }) => ms),
    close: async () => {
      await boss.stop({ graceful: false, close: true })
      await probe.end()
    },
  }
}
