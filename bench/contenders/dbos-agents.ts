// DBOS: a workflow of steps. A step runs in the workflow's process, its result is one row with a commit of its
// own. Everything may run at once: fewer at a time, or another size of the pool, were not faster.

import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { Countdown, numbers } from '../benchmark.ts'
import type { AgentSession, AgentSessionOptions, OpenAgents } from '../contender.ts'
import { probeDatabase } from '../database-probe.ts'
import { COUNT_UNFINISHED, importDbos } from './dbos.ts'

const QUEUE = 'agents'
const CONCURRENCY = 1_000

/** Through a queue, enqueued in one batch: any process may take them up. */
export const openDbosAgents: OpenAgents = (options) => open(options, 'queue')

/** Started where they are called: no other process may run them. */
export const openDbosAgentsDirect: OpenAgents = (options) => open(options, 'direct')

async function open({ store, steps }: AgentSessionOptions, way: 'queue' | 'direct'): Promise<AgentSession> {
  const { DBOS, prepareEnqueuedWorkflow, enqueueWorkflows } = await importDbos(store)
  let left = new Countdown(0)
  const workflow = DBOS.registerWorkflow(
    async () => {
      for (let step = 0; step < steps; step++) await DBOS.runStep(async () => {}, { name: 'noop' })
      left.down()
    },
    { name: 'steps' },
  )
  await DBOS.launch()
  await DBOS.registerQueue(QUEUE, {
    workerConcurrency: CONCURRENCY,
    minPollingIntervalMs: 1,
    onConflict: 'always_update',
  })
  const probe = await probeDatabase(store)
  const start = async (count: number) => {
    if (way === 'direct') return Promise.all(numbers(count).map((n) => DBOS.startWorkflow(workflow, {})(n)))
    const prepared = numbers(count).map((n) =>
      prepareEnqueuedWorkflow(workflow, [n], { queueName: QUEUE, workflowID: randomUUID() }),
    )
    return enqueueWorkflows(await Promise.all(prepared))
  }
  return {
    runAgents: async (count) => {
      left = new Countdown(count)
      await start(count)
      await left.done
      while ((await probe.value<number>(COUNT_UNFINISHED)) > 0) await sleep(1)
    },
    close: async () => {
      await DBOS.shutdown()
      await probe.end()
    },
  }
}
