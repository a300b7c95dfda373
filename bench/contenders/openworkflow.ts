// OpenWorkflow on PostgreSQL: a workflow of steps. A step runs in the workflow's process, with a commit at its
// start and another at its end. A worker claims one run per slot and statement, and looks for more only after
// a pause when all its slots were taken; so ten workers of five slots are faster than one of many. The pool is
// of 20 connections (10 by default, which the URL changes).

import { setTimeout as sleep } from 'node:timers/promises'
import { Countdown, numbers } from '../benchmark.ts'
import type { OpenAgents } from '../contender.ts'
import { probeDatabase } from '../database-probe.ts'
import { importPeer } from '../peers/install.ts'

interface Step {
  run(config: { name: string }, step: () => Promise<void>): Promise<void>
}

interface Worker {
  start(): Promise<void>
  stop(): Promise<void>
}

interface OpenWorkflowPackage {
  OpenWorkflow: new (options: {
    backend: Backend
  }) => {
    defineWorkflow(
      spec: { name: string },
      run: (params: { step: Step }) => Promise<void>,
    ): { run(input: { n: number }): Promise<unknown> }
    newWorker(options: { concurrency: number }): Worker
  }
}

interface Backend {
  stop(): Promise<void>
}

interface PostgresPackage {
  BackendPostgres: { connect(url: string): Promise<Backend> }
}

const WORKERS = 10
const SLOTS = 5
const CONNECTIONS = 20

export const openOpenWorkflowAgents: OpenAgents = async ({ store, steps }) => {
  const { OpenWorkflow } = await importPeer<OpenWorkflowPackage>('openworkflow')
  const { BackendPostgres } = await importPeer<PostgresPackage>('openworkflow/postgres')
  const url = new URL(store)
  url.searchParams.set('max', String(CONNECTIONS))
  const backend = await BackendPostgres.connect(url.href)
  const openWorkflow = new OpenWorkflow({ backend })
  let left = new Countdown(0)
  const workflow = openWorkflow.defineWorkflow({ name: 'steps' }, async ({ step }) => {
    for (let n = 0; n < steps; n++) await step.run({ name: 'noop' }, async () => {})
    left.down()
  })
  const workers = numbers(WORKERS).map(() => openWorkflow.newWorker({ concurrency: SLOTS }))
  await Promise.all(workers.map((worker) => worker.start()))
  const probe = await probeDatabase(store)
  const unfinished = () =>
    probe.value<number>(`select count(*)::int from openworkflow.workflow_runs where status <> 'completed'`)
  return {
    runAgents: async (count) => {
      left = new Countdown(count)
      await Promise.all(numbers(count).map((n) => workflow.run({ n })))
      await left.done
      while ((await unfinished()) > 0) await sleep(1)
    },
    close: async () => {
      await Promise.all(workers.map((worker) => worker.stop()))
      await backend.stop()
      await probe.end()
    },
  }
}
