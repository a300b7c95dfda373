// The manager is killed with -9 and comes back on the same port: workers come back with what they run, clients go on.

import { describe, expect } from 'vitest'
import type { ConnectedCurfew, WatchView } from '../../src/curfew.ts'
import { monotonicMs } from '../journal.ts'
import { until } from '../wait.ts'
import type { Cluster } from './cluster.ts'
import { eventsOf, clusterTest as test } from './cluster.ts'
import { auditAndClose } from './cluster-audit.ts'
import { apart, pair, planner, wait } from './cluster-work.ts'

const LIMIT = { timeout: 180_000 }
const LONG = 120_000

async function watchToItsEnd(client: ConnectedCurfew, id: string, seen: WatchView[]): Promise<void> {
  for await (const view of client.watch(id)) seen.push(view)
}

/** Work of every kind goes through a restart, and nothing of it is done twice. */
async function restart(cluster: Cluster): Promise<void> {
  const [next] = await Promise.all([cluster.prepareManager(), cluster.startWorker(), cluster.startWorker()])
  const client = await cluster.connect()
  const separate = await client.schedule(apart, { ms: [10_000] })
  const planned = await client.start(planner, { ms: 10_000 })
  await cluster.started([separate.id])
  await until('the side effect runs', 20_000, () => cluster.facts('effect_started').length > 0)
  const running = await client.scheduleMany(wait, Array(4).fill({ ms: [7_000] }))
  const limited = await client.schedule(wait, { ms: [LONG] }, { timeout: '8s' })
  const paired = await client.start(pair, { ms: [4_000] })
  const ids = [...running, separate, limited].map(({ id }) => id)
  await cluster.started(ids)
  const { deadlineAt } = await limited.view()
  // X4: both are open when the manager dies.
  const result = running[0]?.result()
  const seen: WatchView[] = []
  const watching = watchToItsEnd(client, running[1]?.id as string, seen)
  await until('the watch has begun', 10_000, () => seen.length > 0)

  await cluster.manager.kill()
  await cluster.startManager(next)

  expect(await result).toMatchObject({ attempt: 1 })
  await watching
  expect(seen.filter(({ final }) => final)).toHaveLength(1)
  expect(seen.at(-1)).toMatchObject({ final: true, truncated: false, work: { status: 'completed' } })
  expect(seen.flatMap(({ events }) => events.map(({ type }) => type))).toEqual([
    'task_scheduled',
    'attempt_started',
    'task_completed',
  ])
  expect(client.counters.reconnects).toBeGreaterThan(0)
  for (const handle of [...running, separate]) expect(await handle.result()).toMatchObject({ attempt: 1 })
  expect(await planned.result()).toEqual({ tasks: [1, 1], effects: 1 })
  expect(await paired.result()).toEqual({ first: 1, second: 1 })
  await expect(limited.result()).rejects.toMatchObject({ code: 'task_timed_out' })
  expect(await limited.view()).toMatchObject({ attempts: 1, deadlineAt, receipt: 'aborted' })
  const [fired] = await eventsOf(client, limited.id, 'task_timed_out')
  expect(fired).toMatchObject({ deadlineAt, kind: 'total' })
  expect(fired?.lateMs).toBeLessThan(3_000)
  // One attempt each, in the process that began it.
  for (const id of ids) expect(cluster.facts('attempt_started', id)).toHaveLength(1)
  await auditAndClose(cluster, client)
}

async function restartUnderLoad(cluster: Cluster): Promise<void> {
  await Promise.all([cluster.startWorker({ concurrency: 10 }), cluster.startWorker({ concurrency: 10 })])
  const client = await cluster.connect()
  const next = await cluster.prepareManager()
  const handles = await client.scheduleMany(wait, Array(500).fill({ ms: [20] }))
  const ids = handles.map(({ id }) => id)
  await until('a part of them is done', 30_000, () => cluster.facts('attempt_ended').length > 80)
  const killedAt = await cluster.manager.kill()
  const before = cluster.facts('attempt_ended').length
  await cluster.startManager(next)
  for (const id of ids) await client.task(id).result({ timeout: '1m' })
  const tookMs = monotonicMs() - killedAt
  const { tasks } = await client.list({ name: 'wait', limit: 1_000 })
  expect(tasks.map(({ id }) => id).toSorted()).toEqual(ids.toSorted())
  expect(new Set(tasks.map(({ status }) => status))).toEqual(new Set(['completed']))
  const again = tasks.filter(({ attempts }) => attempts > 1).length
  console.log(
    `500 tasks: ${before} had ended at the kill, all after ${tookMs.toFixed(0)} ms, ${again} of them repeated`,
  )
  expect(before).toBeLessThan(500)
  // Only what was claimed and had not reached its worker is repeated: one claim at most.
  expect(again).toBeLessThanOrEqual(20)
  await auditAndClose(cluster, client)
}

// One pair after the other: whoever comes back has to do it in time.
describe('a manager that is killed and comes back', LIMIT, () => {
  test.concurrent('W2, X4: attempts, an agent and a workflow go on (SQLite)', ({ file }) => restart(file))
  test.concurrent('W2, X4: attempts, an agent and a workflow go on (PostgreSQL)', ({ postgres }) =>
    restart(postgres))
})

describe('a manager that is killed under load', LIMIT, () => {
  test.concurrent('500 short tasks complete once each (SQLite)', ({ file }) => restartUnderLoad(file))
  test.concurrent('500 short tasks complete once each (PostgreSQL)', ({ postgres }) =>
    restartUnderLoad(postgres))
})
