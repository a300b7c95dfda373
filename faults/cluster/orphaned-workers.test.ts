// The manager is gone for longer than workers may go on without one: they stop their work, and say so to the next.

import { describe, expect } from 'vitest'
import { monotonicMs } from '../journal.ts'
import { until } from '../wait.ts'
import type { Cluster } from './cluster.ts'
import { eventsOf, ORPHAN_GRACE_MS, clusterTest as test } from './cluster.ts'
import { auditAndClose } from './cluster-audit.ts'
import { apart, deaf, planner, stubborn, wait } from './cluster-work.ts'

const LIMIT = { timeout: 180_000 }
const LONG = 120_000
/** A renewal comes once a second, a look every half. */
const EARLIEST_MS = ORPHAN_GRACE_MS - 2_000
const LATEST_MS = ORPHAN_GRACE_MS + 3_000

const reached = (at: number) => until(`it is ${at}`, 60_000, () => monotonicMs() >= at)

async function nobodyComes(cluster: Cluster): Promise<void> {
  const [next] = await Promise.all([cluster.prepareManager(), cluster.startWorker()])
  const client = await cluster.connect()
  const inline = await client.schedule(wait, { ms: [LONG, 100] })
  const separate = await client.schedule(apart, { ms: [LONG, 100] })
  const killed = await client.schedule(deaf, { ms: [LONG, 100] })
  const planned = await client.start(planner, { ms: LONG })
  const handles = [inline, separate, killed]
  const ids = handles.map(({ id }) => id)
  await cluster.started(ids)
  await until('the side effect runs', 20_000, () => cluster.facts('effect_started').length > 0)

  const killedAt = await cluster.manager.kill()
  for (const { id } of [inline, separate]) {
    const [told] = await until('it is told to stop', 30_000, () => {
      const facts = cluster.facts('aborted', id)
      return facts.length > 0 ? facts : null
    })
    expect(told).toMatchObject({ code: 'lease_over' })
    expect((told?.mono ?? 0) - killedAt).toBeGreaterThan(EARLIEST_MS)
    expect((told?.mono ?? 0) - killedAt).toBeLessThan(LATEST_MS)
  }
  // It heeds nothing: its process is killed.
  const [{ pid } = { pid: 0 }] = cluster.facts('attempt_started', killed.id)
  await until('its process is gone', 10_000, () => !cluster.scratch.processes().includes(pid))
  expect(monotonicMs() - killedAt).toBeLessThan(LATEST_MS + 2_000)
  await reached(killedAt + 8_000)
  expect(cluster.facts('attempt_started').filter(({ attempt }) => attempt === 2)).toEqual([])

  await cluster.startManager(next)
  const openedAt = monotonicMs()
  const again = await cluster.started(ids, { attempt: 2 })
  // They were told of: nobody waits for a lease.
  expect(Math.max(...again.map(({ mono }) => mono)) - openedAt).toBeLessThan(8_000)
  for (const handle of handles) {
    expect(await handle.result()).toMatchObject({ attempt: 2 })
    const [first] = (await handle.explain()).attempts
    const receipt = handle === killed ? 'killed' : 'aborted'
    expect(first).toMatchObject({ attempt: 1, status: 'lost', receipt })
    expect(await eventsOf(client, handle.id, 'attempt_lost')).toMatchObject([{ attempt: 1 }])
  }
  expect(await planned.result()).toEqual({ tasks: [1, 1], effects: 2 })
  await auditAndClose(cluster, client)
}

describe.concurrent('a worker without a manager', LIMIT, () => {
  test('W1: it stops its work in its grace, and tells the manager that comes later (SQLite)', ({ file }) =>
    nobodyComes(file))

  test('W1: it stops its work in its grace, and tells the manager that comes later (PostgreSQL)', ({
    postgres,
  }) => nobodyComes(postgres))

  test('W2: a manager that comes back just when the grace is over: one outcome each', async ({
    file: cluster,
  }) => {
    const [next] = await Promise.all([cluster.prepareManager(), cluster.startWorker()])
    const client = await cluster.connect()
    // Enough for some of them to be told to stop, and some to have ended, in the same moment.
    const inputs = Array.from({ length: 12 }, (_, i) => ({ ms: [ORPHAN_GRACE_MS - 300 + i * 300, 100] }))
    const handles = await client.scheduleMany(wait, inputs)
    const ids = handles.map(({ id }) => id)
    await cluster.started(ids)
    const killedAt = await cluster.manager.kill()
    await reached(killedAt + ORPHAN_GRACE_MS - 500)
    await cluster.startManager(next)
    const attempts: number[] = []
    for (const handle of handles) {
      const { attempt } = await handle.result()
      // Whoever answers is the last that ran.
      expect(cluster.facts('attempt_started', handle.id)).toHaveLength(attempt)
      attempts.push(attempt)
    }
    console.log(`back when the grace was over: attempts ${attempts.join(' ')}`)
    expect(attempts.every((attempt) => attempt === 1 || attempt === 2)).toBe(true)
    await auditAndClose(cluster, client)
  })

  test('W2: what came to an end after it was stopped is kept as late, and changes nothing', async ({
    file: cluster,
  }) => {
    const [next] = await Promise.all([cluster.prepareManager(), cluster.startWorker()])
    const client = await cluster.connect()
    const handle = await client.schedule(stubborn, { ms: [ORPHAN_GRACE_MS + 7_000, 100] })
    await cluster.started([handle.id])
    const killedAt = await cluster.manager.kill()
    await until('it was told to stop', 30_000, () => cluster.facts('aborted', handle.id).length > 0)
    await reached(killedAt + ORPHAN_GRACE_MS + 2_000)
    await cluster.startManager(next)
    expect(await handle.result()).toMatchObject({ attempt: 2 })
    const [late] = await eventsOf(client, handle.id, 'late_result')
    expect(JSON.parse(String(late?.output))).toMatchObject({ attempt: 1 })
    const [first] = (await handle.explain()).attempts
    expect(first).toMatchObject({ attempt: 1, status: 'lost' })
    await auditAndClose(cluster, client)
  })
})
