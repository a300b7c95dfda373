// graphile-worker in the configuration of its own performance page (localQueue, batched completion), and
// without the local queue where one task at a time counts.
// Where a process dies its jobs stay locked for 4 hours unless an operator calls forceUnlockWorkers.

import { numbers } from '../benchmark.ts'
import type { ClusterContender, OpenSession, ScheduleOptions } from '../contender.ts'
import { probeDatabase } from '../database-probe.ts'
import { importPeer } from '../peers/install.ts'

interface JobSpec {
  identifier: string
  payload: { n: number }
  runAt?: Date
}

interface GraphileWorker {
  run(options: {
    preset: { worker: Record<string, unknown> }
    taskList: Record<string, (payload: { n: number }) => Promise<void>>
    logger: unknown
    noHandleSignals: boolean
  }): Promise<{ stop(): Promise<void> }>
  makeWorkerUtils(options: { connectionString: string; maxPoolSize: number; logger: unknown }): Promise<{
    addJob(identifier: string, payload: unknown, spec?: { runAt?: Date }): Promise<unknown>
    addJobs(specs: JobSpec[]): Promise<unknown>
    migrate(): Promise<void>
    release(): Promise<void>
  }>
  Logger: new (factory: () => () => void) => unknown
}

/** The configuration of https://worker.graphile.org/docs/performance. */
const FASTEST = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
}

const UNFINISHED = 'select count(*)::int from graphile_worker._private_jobs'

export const openGraphileWorker: OpenSession = async ({ store, purpose, concurrency, handler }) => {
  const { run, makeWorkerUtils, Logger } = await importPeer<GraphileWorker>('graphile-worker')
  const logger = new Logger(() => () => {})
  const utils = await makeWorkerUtils({ connectionString: store, maxPoolSize: 16, logger })
  const batched = purpose === 'throughput' || purpose === 'schedule' || purpose === 'idle'
  const runner = await run({
    preset: {
      worker: {
        connectionString: store,
        concurrentJobs: concurrency,
        maxPoolSize: Math.min(concurrency + 2, 25),
        ...(batched ? FASTEST : {}),
      },
    },
    taskList: { noop: ({ n }) => handler({ n }) },
    logger,
    noHandleSignals: true,
  })
  const probe = await probeDatabase(store)
  const runAt = ({ delayMs }: ScheduleOptions) => (delayMs ? { runAt: new Date(Date.now() + delayMs) } : {})
  return {
    schedule: (n, options = {}) => utils.addJob('noop', { n }, runAt(options)),
    scheduleMany: (numbers, options = {}) =>
      utils.addJobs(numbers.map((n) => ({ identifier: 'noop', payload: { n }, ...runAt(options) }))),
    unfinished: () => probe.value<number>(UNFINISHED),
    close: async () => {
      await runner.stop()
      await utils.release()
      await probe.end()
    },
  }
}

/** Jobs that are stored in one call; more of them make a statement of many megabytes. */
const AT_ONCE = 10_000

/** As many jobs at a time, each fetched and ended by itself, as it does unless it is told otherwise. */
const PLAIN = { concurrentJobs: 24, maxPoolSize: 25 }

export const graphileCluster = clusterOf(FASTEST)
export const graphilePlainCluster: ClusterContender = { ...clusterOf(PLAIN), most: 20_000 }

function clusterOf(settings: object): ClusterContender {
  return {
    work: async ({ store }, handler) => {
      const { run, Logger } = await importPeer<GraphileWorker>('graphile-worker')
      const runner = await run({
        preset: { worker: { connectionString: store, ...settings } },
        taskList: { noop: async () => handler() },
        logger: new Logger(() => () => {}),
        noHandleSignals: true,
      })
      return { close: () => runner.stop() }
    },
    connect: async ({ store }) => {
      const { makeWorkerUtils, Logger } = await importPeer<GraphileWorker>('graphile-worker')
      const logger = new Logger(() => () => {})
      const utils = await makeWorkerUtils({ connectionString: store, maxPoolSize: 2, logger })
      await utils.migrate()
      return {
        schedule: async (count) => {
          const specs = numbers(count).map((n) => ({ identifier: 'noop', payload: { n } }))
          for (let i = 0; i < count; i += AT_ONCE) await utils.addJobs(specs.slice(i, i + AT_ONCE))
        },
        close: async () => {
          await utils.release()
        },
      }
    },
    unfinished: UNFINISHED,
  }
}
