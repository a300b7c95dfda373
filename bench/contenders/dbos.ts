// DBOS: a workflow without steps is the task. Bulk goes through the batch enqueue of its event receivers,
// the one way it has to write many rows in one transaction. Its queues are polled; the interval is what the
// purpose needs (1 ms is the least it takes). A dead process is recovered by Conductor, a paid service, or
// when a process with the same executor id starts again: nothing is done by a process beside it.

import { randomUUID } from 'node:crypto'
import type { OpenSession, Purpose, ScheduleOptions, SessionOptions } from '../contender.ts'
import { probeDatabase } from '../database-probe.ts'
import { importPeer } from '../peers/install.ts'

type Workflow = (n: number, limitMs?: number) => Promise<void>

interface Dbos {
  setConfig(config: Record<string, unknown>): void
  registerWorkflow(workflow: Workflow, config: { name: string }): Workflow
  launch(): Promise<void>
  registerQueue(name: string, options: Record<string, unknown>): Promise<unknown>
  startWorkflow(
    workflow: Workflow,
    params: { queueName?: string; timeoutMS?: number; enqueueOptions?: { delaySeconds: number } },
  ): (n: number, limitMs?: number) => Promise<unknown>
  runStep(step: () => Promise<void>, config: { name: string; timeoutMS?: number }): Promise<void>
  workflowID: string | undefined
  stepStatus: { timeoutSignal?: AbortSignal; cancelSignal: AbortSignal } | undefined
  shutdown(): Promise<void>
}

interface EventReceiver {
  prepareEnqueuedWorkflow(
    workflow: Workflow,
    args: [number],
    options: { queueName: string; workflowID: string },
  ): Promise<unknown>
  enqueueWorkflows(workflows: unknown[]): Promise<unknown>
}

const QUEUE = 'bench'

/** The default where polling only costs. */
function pollingMs(purpose: Purpose): number {
  return purpose === 'idle' || purpose === 'schedule' ? 1000 : 1
}

const SILENT = { debug: ignore, info: ignore, warn: ignore, error: ignore }
function ignore(): void {}

export const COUNT_UNFINISHED = `select count(*)::int from dbos.workflow_status
  where status in ('ENQUEUED', 'PENDING', 'DELAYED')`

export async function importDbos(store: string): Promise<{ DBOS: Dbos } & EventReceiver> {
  const { DBOS } = await importPeer<{ DBOS: Dbos }>('@dbos-inc/dbos-sdk')
  DBOS.setConfig({
    name: 'bench',
    applicationVersion: 'bench',
    executorID: randomUUID(),
    systemDatabaseUrl: store,
    systemDatabasePoolSize: 20,
    logger: SILENT,
  })
  const { prepareEnqueuedWorkflow, enqueueWorkflows } = await importPeer<EventReceiver>(
    '@dbos-inc/dbos-sdk/eventreceiver',
  )
  return { DBOS, prepareEnqueuedWorkflow, enqueueWorkflows }
}

/** Through a queue: the durable way that any process may take up. Limits are the workflow's, kept in the store. */
export const openDbos: OpenSession = (options) => open(options, { queue: QUEUE, limit: 'workflow' })

/** Started where it is scheduled, without a queue: no other process may run it, and nothing limits how many run. */
export const openDbosDirect: OpenSession = (options) => open(options, { limit: 'workflow' })

/** Limits are the step's: a timer of the process alone, the store is told when the step has failed. */
export const openDbosStep: OpenSession = (options) => open(options, { queue: QUEUE, limit: 'step' })

async function open(
  { store, purpose, concurrency, handler }: SessionOptions,
  way: { queue?: string; limit: 'workflow' | 'step' },
) {
  const { DBOS, prepareEnqueuedWorkflow, enqueueWorkflows } = await importDbos(store)
  const probe = await probeDatabase(store)
  const deadlineOf = (id: string) =>
    probe.value<number>(
      'select workflow_deadline_epoch_ms::float8 from dbos.workflow_status where workflow_uuid = $1',
      [id],
    )
  const noop = DBOS.registerWorkflow(
    async (n, limitMs) => {
      if (purpose !== 'timeouts') return handler({ n })
      await DBOS.runStep(
        async () => {
          const { timeoutSignal, cancelSignal } = DBOS.stepStatus!
          if (way.limit === 'step') return handler({ n, signal: timeoutSignal! })
          await handler({ n, signal: cancelSignal, deadlineAt: await deadlineOf(DBOS.workflowID!) })
        },
        { name: 'hang', ...(way.limit === 'step' ? { timeoutMS: limitMs! } : {}) },
      )
    },
    { name: 'noop' },
  )
  await DBOS.launch()
  await DBOS.registerQueue(QUEUE, {
    workerConcurrency: concurrency,
    minPollingIntervalMs: pollingMs(purpose),
    onConflict: 'always_update',
  })
  const schedule = (n: number, { delayMs, limitMs }: ScheduleOptions = {}) =>
    DBOS.startWorkflow(noop, {
      ...(way.queue ? { queueName: way.queue } : {}),
      ...(delayMs ? { enqueueOptions: { delaySeconds: delayMs / 1000 } } : {}),
      ...(limitMs && way.limit === 'workflow' ? { timeoutMS: limitMs } : {}),
    })(n, limitMs)
  return {
    schedule,
    scheduleMany: async (numbers: readonly number[], options: ScheduleOptions = {}) => {
      // The batch enqueue knows neither delays nor limits.
      if (options.delayMs || options.limitMs) return inLanes(16, numbers, (n) => schedule(n, options))
      const workflows = numbers.map((n) =>
        prepareEnqueuedWorkflow(noop, [n], { queueName: QUEUE, workflowID: randomUUID() }),
      )
      await enqueueWorkflows(await Promise.all(workflows))
    },
    unfinished: () => probe.value<number>(COUNT_UNFINISHED),
    decisionLateness: async () =>
      (
        await probe.rows<{ ms: number }>(
          `select (updated_at - workflow_deadline_epoch_ms)::float8 as ms
          from dbos.workflow_status where status = 'CANCELLED'`,
        )
      ).map(({ ms }) => ms),
    close: async () => {
      await DBOS.shutdown()
      await probe.end()
    },
  }
}

async function inLanes(
  lanes: number,
  numbers: readonly number[],
  call: (n: number) => Promise<unknown>,
): Promise<void> {
  const rest = numbers.values()
  await Promise.all(
    Array.from({ length: lanes }, async () => {
      for (const n of rest) await call(n)
    }),
  )
}
