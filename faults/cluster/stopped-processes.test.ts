// Processes that stand still (SIGSTOP) for longer than anybody waits, and go on as if nothing had been.

import { describe, expect } from 'vitest'
import { monotonicMs } from '../journal.ts'
import { until } from '../wait.ts'
import type { Cluster } from './cluster.ts'
import { eventsOf, LEASE_MS, clusterTest as test } from './cluster.ts'
import { auditAndClose } from './cluster-audit.ts'
import { apart, planner, wait } from './cluster-work.ts'

const LIMIT = { timeout: 180_000 }
const LONG = 120_000
const STOPPED_MS = 12_000
/** How late a deadline may be on a busy machine. */
const LATE_MS = 2_500

// The other half of T11, wall clocks that jump, is the store's time: "does not follow this machine's wall clock" in
// src/store/store-time.test.ts, 'a clock that was set back …' in src/curfew-clock.test.ts.
async function managerStandsStill(cluster: Cluster): Promise<void> {
  await cluster.startWorker()
  const client = await cluster.connect()
  const inTime = await client.schedule(wait, { ms: [2_000] })
  const overtaken = await client.schedule(wait, { ms: [LONG, 100] })
  // Its limit is over in the middle of the stop, the other one's after it.
  const during = await client.schedule(wait, { ms: [LONG] }, { timeout: '6s' })
  const after = await client.schedule(wait, { ms: [LONG] }, { timeout: '22s' })
  const planned = await client.start(planner, { ms: LONG })
  const handles = [inTime, overtaken, during, after]
  await cluster.started(handles.map(({ id }) => id))
  await until('the side effect runs', 20_000, () => cluster.facts('effect_started').length > 0)

  const stoppedAt = cluster.manager.stop()
  await until('it stood still', 60_000, () => monotonicMs() - stoppedAt > STOPPED_MS)
  // Without it the worker let go of everything, in time.
  for (const { id } of [overtaken, after]) {
    const [told] = cluster.facts('aborted', id)
    expect(told).toMatchObject({ code: 'lease_over' })
    expect((told?.mono ?? 0) - stoppedAt).toBeLessThan(LEASE_MS - 1_000)
  }
  expect(cluster.facts('attempt_started').filter(({ attempt }) => attempt === 2)).toEqual([])
  const continuedAt = cluster.manager.continue()

  expect(await inTime.result()).toMatchObject({ attempt: 1 })
  expect(await overtaken.result()).toMatchObject({ attempt: 2 })
  const [lost] = (await overtaken.explain()).attempts
  expect(lost).toMatchObject({ attempt: 1, status: 'lost', receipt: 'aborted' })
  for (const handle of [during, after])
    await expect(handle.result()).rejects.toMatchObject({ code: 'task_timed_out' })
  const [lateOne] = await eventsOf(client, during.id, 'task_timed_out')
  const [punctual] = await eventsOf(client, after.id, 'task_timed_out')
  // Late by what was left of the stop, and by nothing else.
  expect(lateOne?.lateMs).toBeLessThan(STOPPED_MS - 4_000 + LATE_MS)
  expect(lateOne?.lateMs).toBeGreaterThanOrEqual(0)
  expect(punctual).toMatchObject({ kind: 'total', timeoutMs: 22_000 })
  expect(punctual?.lateMs).toBeLessThan(LATE_MS)
  expect(await planned.result()).toEqual({ tasks: [1, 1], effects: 2 })
  // It works on as if nothing had been.
  expect(await (await client.schedule(wait, { ms: [10] })).result()).toMatchObject({ attempt: 1 })
  expect(await client.workers()).toMatchObject([{ status: 'attached', running: 0 }])
  console.log(`after a manager's stop everything had ended in ${(monotonicMs() - continuedAt).toFixed(0)} ms`)
  await auditAndClose(cluster, client)
}

describe.concurrent('a process that stands still', LIMIT, () => {
  test('T11: the manager: no deadline is early or later than the stop, and it is not confused (SQLite)', ({
    file,
  }) => managerStandsStill(file))

  test('T11: the manager: no deadline is early or later than the stop, and it is not confused (PostgreSQL)', ({
    postgres,
  }) => managerStandsStill(postgres))

  test('a worker, past its lease: it stops its attempts before anything else, and the overlap is on record', async ({
    file: cluster,
  }) => {
    const stopped = await cluster.startWorker()
    const client = await cluster.connect()
    const inline = await client.scheduleMany(wait, Array(3).fill({ ms: [LONG, 8_000] }))
    const separate = await client.schedule(apart, { ms: [LONG, 8_000] })
    const planned = await client.start(planner, { ms: LONG })
    const handles = [...inline, separate]
    const ids = handles.map(({ id }) => id)
    await cluster.started(ids)
    await until('the side effect runs', 20_000, () => cluster.facts('effect_started').length > 0)
    const other = await cluster.startWorker()
    const stoppedAt = stopped.stop()
    const again = await cluster.started(ids, { attempt: 2 })
    expect(new Set(again.map(({ owner }) => owner))).toEqual(new Set([other.pid]))
    expect(Math.min(...again.map(({ mono }) => mono)) - stoppedAt).toBeGreaterThan(LEASE_MS - 1_500)
    const continuedAt = stopped.continue()
    await until('it has let go of everything', 20_000, () =>
      inline.every(({ id }) => cluster.facts('attempt_ended', id).some(({ attempt }) => attempt === 1)),
    )
    for (const { id } of inline) {
      const [told] = cluster.facts('aborted', id)
      expect(told).toMatchObject({ attempt: 1, code: 'lease_over', pid: stopped.pid })
      expect((told?.mono ?? 0) - continuedAt).toBeLessThan(2_000)
      // A timer of the handler that was due may have come first; it did not get to the next.
      const alive = cluster
        .facts('alive', id)
        .filter(({ attempt, mono }) => attempt === 1 && mono > continuedAt)
      expect(alive.length).toBeLessThanOrEqual(1)
    }
    for (const handle of handles) expect(await handle.result()).toMatchObject({ attempt: 2 })
    for (const handle of inline) {
      const [overlap] = await until('the overlap is on record', 20_000, async () => {
        const events = await eventsOf(client, handle.id, 'attempt_overlapped')
        return events.length > 0 ? events : null
      })
      expect(overlap).toMatchObject({ attempt: 2, receipt: 'aborted' })
      expect(overlap?.silentMs).toBeGreaterThan(LEASE_MS)
    }
    expect(await planned.result()).toEqual({ tasks: [1, 1], effects: 2 })
    // The woken one is back, and works.
    await until('both are attached', 20_000, async () => {
      const workers = await client.workers()
      return workers.length === 2 && workers.every(({ status }) => status === 'attached')
    })
    const more = await client.scheduleMany(wait, Array(40).fill({ ms: [500] }))
    for (const handle of more) expect(await handle.result()).toMatchObject({ attempt: 1 })
    const moreIds = more.map(({ id }) => id)
    const byWoken = cluster
      .facts('attempt_started')
      .filter(({ taskId, pid }) => moreIds.includes(taskId ?? '') && pid === stopped.pid)
    expect(byWoken.length).toBeGreaterThan(0)
    // The one in a process of its own was ended by the supervisor while its worker could not: it ran beside nothing.
    await auditAndClose(cluster, client, { overlapping: inline.map(({ id }) => id) })
  })
})
