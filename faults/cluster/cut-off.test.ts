// A worker that is cut off for longer than it may go on: it stops in time, and what it has to say later changes nothing.

import { describe, expect } from 'vitest'
import { monotonicMs } from '../journal.ts'
import { until } from '../wait.ts'
import { eventsOf, LEASE_MS, ORPHAN_GRACE_MS, clusterTest as test } from './cluster.ts'
import { auditAndClose } from './cluster-audit.ts'
import { planner, wait } from './cluster-work.ts'

const LIMIT = { timeout: 180_000 }
const LONG = 120_000

describe.concurrent('a worker that is cut off', LIMIT, () => {
  test('W2: beyond its lease: another has its work, it stopped before that, and nothing of it comes back', async ({
    file: cluster,
  }) => {
    const proxy = await cluster.startProxy()
    const alone = await cluster.startWorker({ via: proxy })
    const client = await cluster.connect()
    const handles = await client.scheduleMany(wait, Array(3).fill({ ms: [LONG, 5_000] }))
    const planned = await client.start(planner, { ms: LONG })
    const ids = handles.map(({ id }) => id)
    await cluster.started(ids)
    await until('the side effect runs', 30_000, () => cluster.facts('effect_started').length > 0)
    const other = await cluster.startWorker()
    proxy.setRules({ hold: true })
    const cutAt = monotonicMs()
    const again = await cluster.started(ids, { attempt: 2 })
    for (const { owner, taskId, mono } of again) {
      expect(owner).toBe(other.pid)
      expect(mono - cutAt).toBeGreaterThan(LEASE_MS - 1_500)
      const [told] = cluster.facts('aborted', taskId)
      expect(told).toMatchObject({ attempt: 1, code: 'lease_over', pid: alone.pid })
      expect((told?.mono ?? 0) - cutAt).toBeLessThan(ORPHAN_GRACE_MS + 3_000)
    }
    proxy.setRules({})
    await until('both are attached', 30_000, async () => {
      const workers = await client.workers()
      return workers.length === 2 && workers.every(({ status }) => status === 'attached')
    })
    for (const handle of handles) {
      expect(await handle.result()).toMatchObject({ attempt: 2, pid: other.pid })
      const [first] = (await handle.explain()).attempts
      expect(first).toMatchObject({ attempt: 1, status: 'lost', receipt: 'unreachable' })
      // It had stopped within its lease: nothing ran beside it.
      expect(await eventsOf(client, handle.id, 'attempt_overlapped')).toEqual([])
    }
    expect(await planned.result()).toEqual({ tasks: [1, 1], effects: 2 })
    await auditAndClose(cluster, client)
  })

  test('it hears its manager, which does not hear it: it stops its work, and works on when it is heard again', async ({
    file: cluster,
  }) => {
    const proxy = await cluster.startProxy()
    const worker = await cluster.startWorker({ via: proxy })
    const client = await cluster.connect()
    const handle = await client.schedule(wait, { ms: [LONG, 100] })
    await cluster.started([handle.id])
    // The stream is there already; nothing else gets through.
    proxy.setRules({ loseUp: () => true })
    const cutAt = monotonicMs()
    const [told] = await until('it is told to stop', 30_000, () => {
      const facts = cluster.facts('aborted', handle.id)
      return facts.length > 0 ? facts : null
    })
    expect(told).toMatchObject({ code: 'lease_over' })
    expect((told?.mono ?? 0) - cutAt).toBeLessThan(ORPHAN_GRACE_MS + 3_000)
    // What it is handed meanwhile does not run without a lease.
    const meanwhile = await client.schedule(wait, { ms: [100] })
    await until('some time has passed', 30_000, () => monotonicMs() - cutAt > 7_000)
    expect(cluster.facts('attempt_ended', meanwhile.id).filter(({ attempt }) => attempt === 1)).toEqual([])
    proxy.setRules({})
    expect(await handle.result()).toMatchObject({ attempt: 2, pid: worker.pid })
    expect(await meanwhile.result()).toMatchObject({ pid: worker.pid })
    await auditAndClose(cluster, client)
  })
})
