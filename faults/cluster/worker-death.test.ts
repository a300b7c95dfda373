// A worker is killed with -9, with and without the supervisor beside it: what it ran is repeated elsewhere, and nothing of it is left.

import { describe, expect } from 'vitest'
import { until } from '../wait.ts'
import { LEASE_MS, clusterTest as test } from './cluster.ts'
import { auditAndClose } from './cluster-audit.ts'
import { apart, deaf, planner, wait } from './cluster-work.ts'

const LIMIT = { timeout: 180_000 }
const LONG = 120_000
const TWICE = { ms: [LONG, 100] }
/** What a lease is counted from is a beat old. */
const BEAT_MS = 1_500

describe.concurrent('a worker that is killed', LIMIT, () => {
  test('T4: its supervisor tells: the attempts are repeated at once, and its processes are dead', async ({
    file: cluster,
  }) => {
    const doomed = await cluster.startWorker()
    const client = await cluster.connect()
    const inline = await client.scheduleMany(wait, Array(4).fill(TWICE))
    const separate = await client.scheduleMany(deaf, Array(2).fill(TWICE))
    const planned = await client.start(planner, { ms: LONG })
    const handles = [...inline, ...separate]
    const ids = handles.map(({ id }) => id)
    const first = await cluster.started(ids)
    await until('the side effect runs', 20_000, () => cluster.facts('effect_started').length > 0)
    const other = await cluster.startWorker()
    const killedAt = await doomed.kill()
    const again = await cluster.started(ids, { attempt: 2 })
    const lastMs = Math.max(...again.map(({ mono }) => mono)) - killedAt
    console.log(`a killed worker: all ${ids.length} again after ${lastMs.toFixed(0)} ms`)
    expect(lastMs).toBeLessThan(LEASE_MS - 2_000)
    expect(new Set(again.map(({ owner }) => owner))).toEqual(new Set([other.pid]))
    for (const handle of handles) {
      expect(await handle.result()).toMatchObject({ attempt: 2 })
      const [before] = (await handle.explain()).attempts
      expect(before).toMatchObject({ attempt: 1, status: 'lost', receipt: 'killed' })
    }
    expect(await planned.result()).toEqual({ tasks: [1, 1], effects: 2 })
    const left = cluster.scratch.processes()
    expect(first.filter(({ pid }) => left.includes(pid))).toEqual([])
    expect(await client.workers()).toMatchObject([{ pid: other.pid, status: 'attached' }])
    await auditAndClose(cluster, client)
  })

  test('T4: with nobody left to tell they are repeated when the lease is over, and not before', async ({
    postgres: cluster,
  }) => {
    const doomed = await cluster.startWorker()
    const client = await cluster.connect()
    const inline = await client.scheduleMany(wait, Array(4).fill(TWICE), { grace: '1s' })
    const separate = await client.schedule(apart, TWICE, { grace: '1s' })
    const handles = [...inline, separate]
    const ids = handles.map(({ id }) => id)
    await cluster.started(ids)
    await cluster.startWorker()
    const killedAt = await doomed.kill({ withSupervisor: true })
    const again = await cluster.started(ids, { attempt: 2, within: 60_000 })
    const times = again.map(({ mono }) => mono - killedAt)
    console.log(
      `without a word: from ${Math.min(...times).toFixed(0)} ms to ${Math.max(...times).toFixed(0)} ms`,
    )
    expect(Math.min(...times)).toBeGreaterThan(LEASE_MS + 1_000 - BEAT_MS)
    expect(Math.max(...times)).toBeLessThan(LEASE_MS + 15_000)
    for (const handle of handles) {
      expect(await handle.result()).toMatchObject({ attempt: 2 })
      const [before] = (await handle.explain()).attempts
      expect(before).toMatchObject({ attempt: 1, status: 'lost', receipt: 'unreachable' })
    }
    await auditAndClose(cluster, client)
  })

  test('one that starts again on the same host ends what its predecessor left, and tells', async ({
    file: cluster,
  }) => {
    const doomed = await cluster.startWorker()
    const client = await cluster.connect()
    const handles = [await client.schedule(wait, TWICE), await client.schedule(deaf, TWICE)]
    const ids = handles.map(({ id }) => id)
    const first = await cluster.started(ids)
    const next = await cluster.prepareWorker()
    const killedAt = await doomed.kill({ withSupervisor: true })
    await next.open()
    const again = await cluster.started(ids, { attempt: 2 })
    const lastMs = Math.max(...again.map(({ mono }) => mono)) - killedAt
    console.log(`started again on the same host: all again after ${lastMs.toFixed(0)} ms`)
    expect(lastMs).toBeLessThan(LEASE_MS - 2_000)
    for (const handle of handles) {
      expect(await handle.result()).toMatchObject({ attempt: 2 })
      const [before] = (await handle.explain()).attempts
      expect(before).toMatchObject({ attempt: 1, status: 'lost', receipt: 'killed' })
    }
    const left = cluster.scratch.processes()
    expect(first.filter(({ pid }) => left.includes(pid))).toEqual([])
    await auditAndClose(cluster, client)
  })
})
