// A network that cuts, swallows, delays and repeats, between a worker, a client and their manager.

import { describe, expect } from 'vitest'
import { monotonicMs } from '../journal.ts'
import { SeededRandom } from '../random.ts'
import { until } from '../wait.ts'
import type { Cluster } from './cluster.ts'
import { eventsOf, clusterTest as test } from './cluster.ts'
import { auditAndClose } from './cluster-audit.ts'
import { extending, listener, pair, planner, wait } from './cluster-work.ts'
import type { FaultyProxy } from './faulty-proxy.ts'

const LIMIT = { timeout: 180_000 }
/** Less than the orphan grace. */
const AWAY_MS = 2_500

/** Everything that changes something, whoever asks for it. */
const CHANGES = /\/(Report|Schedule|Submit|Signal|Extend|Cancel|Resume)$/

async function goesOn(cluster: Cluster, away: (proxy: FaultyProxy) => void): Promise<void> {
  const proxy = await cluster.startProxy()
  await cluster.startWorker({ via: proxy })
  const client = await cluster.connect()
  const planned = await client.start(planner, { ms: 8_000 })
  await until('the side effect runs', 30_000, () => cluster.facts('effect_started').length > 0)
  const handles = await client.scheduleMany(wait, Array(4).fill({ ms: [6_000] }))
  await cluster.started(handles.map(({ id }) => id))
  away(proxy)
  const cutAt = monotonicMs()
  const meanwhile = await client.schedule(wait, { ms: [10] })
  await until('the network was away', 30_000, () => monotonicMs() - cutAt > AWAY_MS)
  proxy.setRules({})
  for (const handle of [...handles, meanwhile]) expect(await handle.result()).toMatchObject({ attempt: 1 })
  for (const { id } of handles) expect(cluster.facts('attempt_started', id)).toHaveLength(1)
  expect(await planned.result()).toEqual({ tasks: [1, 1], effects: 1 })
  await auditAndClose(cluster, client)
}

/** Work of every kind, and everything a client can ask for; each of it once. */
async function workOnce(cluster: Cluster, proxy: FaultyProxy): Promise<void> {
  await cluster.startWorker({ via: proxy })
  const client = await cluster.connect(proxy)
  const listening = await client.start(listener, { signals: 3, within: '2s' })
  const inputs = Array.from({ length: 20 }, () => ({ ms: [100] }))
  const handles = await client.scheduleMany(wait, inputs)
  const extended = await client.schedule(extending, { ms: 300 })
  const long = await client.schedule(wait, { ms: [120_000] }, { timeout: '100s' })
  const named = await client.submitNamed({ task: 'wait', input: { ms: [50] } })
  const planned = await client.start(planner, { ms: 300 })
  const paired = await client.start(pair, { ms: [100] })
  const { deadlineAt } = await long.view()
  expect(await long.extend('10s')).toEqual({ deadlineAt: (deadlineAt ?? 0) + 10_000 })
  for (const value of ['a', 'b', 'c']) await listening.signal('news', value)
  for (const handle of handles) expect(await handle.result()).toMatchObject({ attempt: 1 })
  // Half of its base, then half of that: each of the two was granted once.
  expect(await extended.result()).toEqual([5_000, 2_500])
  expect(await eventsOf(client, extended.id, 'extension_answered')).toHaveLength(2)
  expect(await client.task(named.id).result()).toMatchObject({ attempt: 1 })
  expect(await planned.result()).toEqual({ tasks: [1, 1], effects: 1 })
  expect(await paired.result()).toEqual({ first: 1, second: 1 })
  expect(await listening.result()).toEqual(['a', 'b', 'c'])
  // It is cancelled once; who asks again because the answer was lost is told that it was already.
  expect(await long.cancel()).toMatch(/^(already_)?cancelled$/)
  expect(await eventsOf(client, long.id, 'task_cancelled')).toHaveLength(1)
  expect(await long.cancelled({ timeout: '1m' })).toMatchObject({ success: true })
  expect(await long.view()).toMatchObject({ deadlineAt: (deadlineAt ?? 0) + 10_000 })

  // What the client scheduled, the named one, two of the agent, two of the workflow; none twice.
  const { tasks } = await client.list({ kind: 'task', limit: 1_000 })
  expect(tasks).toHaveLength(handles.length + 2 + 1 + 2 + 2)
  for (const { id } of tasks) expect(cluster.facts('attempt_started', id)).toHaveLength(1)
  expect((await client.list({ kind: 'agent' })).tasks).toHaveLength(2)
  for (const handle of handles.slice(0, 5))
    expect(await eventsOf(client, handle.id, 'task_completed')).toHaveLength(1)
  proxy.setRules({})
  await auditAndClose(cluster, client)
}

describe.concurrent('a network', LIMIT, () => {
  test('W2: cut for less than the orphan grace: everything goes on', ({ file }) =>
    goesOn(file, (proxy) => {
      proxy.setRules({ refuse: true })
      proxy.cut()
    }))

  test('W2: silent in both directions for less than the orphan grace: everything goes on', ({ file }) =>
    goesOn(file, (proxy) => proxy.setRules({ hold: true })))

  test('half open: the worker is heard and hears nothing: it attaches again, and gets what it missed', async ({
    file: cluster,
  }) => {
    const proxy = await cluster.startProxy()
    await cluster.startWorker({ via: proxy })
    const client = await cluster.connect()
    const running = await client.schedule(wait, { ms: [12_000] })
    await cluster.started([running.id])
    proxy.setRules({ loseDown: (path) => path.endsWith('/Attach') })
    const missed = await client.scheduleMany(wait, Array(5).fill({ ms: [100] }))
    const stopped = await client.schedule(wait, { ms: [100] })
    await until('they were handed out', 30_000, async () => {
      const views = await Promise.all([...missed, stopped].map((handle) => handle.view()))
      return views.every(({ status }) => status === 'running')
    })
    // Of a task that was handed out and never arrived the worker says that it does not run.
    expect(await stopped.cancel()).toBe('cancelled')
    expect(cluster.facts('attempt_started')).toHaveLength(1)
    proxy.setRules({})
    for (const handle of [...missed, running]) expect(await handle.result()).toMatchObject({ attempt: 1 })
    for (const { id } of missed) expect(cluster.facts('attempt_started', id)).toHaveLength(1)
    expect(await stopped.cancelled({ timeout: '1m' })).toMatchObject({ ledger: [{ attempt: 1 }] })
    await auditAndClose(cluster, client)
  })

  test('I1, E8: every request arrives twice: each counts once', async ({ file: cluster }) => {
    const proxy = await cluster.startProxy()
    proxy.setRules({ duplicate: (path) => CHANGES.test(path) })
    await workOnce(cluster, proxy)
    const repeated = new Set(proxy.done.duplicated.map((path) => path.split('/').at(-1)))
    expect([...repeated].toSorted()).toEqual(['Cancel', 'Extend', 'Report', 'Schedule', 'Signal', 'Submit'])
  })

  test('I1, C7: answers are lost: requests are repeated and answered as the first', async ({
    postgres: cluster,
  }) => {
    const proxy = await cluster.startProxy()
    const asked = new Map<string, number>()
    const loseAnswer = (path: string) => {
      const times = asked.get(path) ?? 0
      asked.set(path, times + 1)
      return CHANGES.test(path) && times % 2 === 0
    }
    proxy.setRules({ loseAnswer })
    await workOnce(cluster, proxy)
    const lost = new Set(proxy.done.lost.map((path) => path.split('/').at(-1)))
    expect([...lost].toSorted()).toEqual(['Cancel', 'Extend', 'Report', 'Schedule', 'Signal', 'Submit'])
  })

  test('late by up to 300 ms in both directions: slow, and nothing else', async ({ file: cluster }) => {
    const proxy = await cluster.startProxy()
    const random = new SeededRandom(6)
    proxy.setRules({ delay: () => random.between(0, 300) })
    await workOnce(cluster, proxy)
  })
})
