// PostgreSQL goes away under a manager and its worker, and comes back.

import { expect, test } from 'vitest'
import type { PostgresServer } from '../../scripts/postgres/postgres.ts'
import { startPostgres } from '../../scripts/postgres/postgres.ts'
import type { ConnectedCurfew } from '../../src/curfew.ts'
import { monotonicMs } from '../journal.ts'
import { until } from '../wait.ts'
import { Cluster, eventsOf, LEASE_MS, ORPHAN_GRACE_MS } from './cluster.ts'
import { auditAndClose } from './cluster-audit.ts'
import { apart, planner, wait } from './cluster-work.ts'

const LIMIT = { timeout: 240_000 }
const LONG = 120_000
const AWAY_MS = 8_000

async function withCluster(work: (cluster: Cluster, server: PostgresServer) => Promise<void>): Promise<void> {
  const server = await startPostgres()
  let cluster: Cluster | null = null
  try {
    cluster = await Cluster.start(await server.createDatabase())
    await work(cluster, server)
  } finally {
    await cluster?.end()
    await server.remove()
  }
}

/** Answers when the last of them was told to stop. */
async function toldToStop(cluster: Cluster, ids: readonly string[]): Promise<number> {
  const facts = await until('they are told to stop', 60_000, () => {
    const told = ids.map((id) => cluster.facts('aborted', id).at(-1))
    return told.every((fact) => fact !== undefined) ? told : null
  })
  for (const fact of facts) expect(fact).toMatchObject({ code: 'lease_over' })
  return Math.max(...facts.map((fact) => fact?.mono ?? 0))
}

async function workersOf(client: ConnectedCurfew) {
  return (await client.workers()).map(({ pid, status }) => ({ pid, status }))
}

test('attempts are stopped in time while the store is away, and everything goes on after it', LIMIT, () =>
  withCluster(async (cluster, server) => {
    const worker = await cluster.startWorker()
    const client = await cluster.connect()
    const inline = await client.scheduleMany(wait, Array(3).fill({ ms: [LONG, 100] }))
    const separate = await client.schedule(apart, { ms: [LONG, 100] })
    const ending = await client.schedule(wait, { ms: [2_000] })
    const planned = await client.start(planner, { ms: LONG })
    const handles = [...inline, separate]
    const ids = handles.map(({ id }) => id)
    await cluster.started([...ids, ending.id])
    await until('the side effect runs', 30_000, () => cluster.facts('effect_started').length > 0)

    await server.stop('immediate')
    const stoppedAt = monotonicMs()
    const toldMs = (await toldToStop(cluster, ids)) - stoppedAt
    console.log(`the store is away: attempts are stopped after ${toldMs.toFixed(0)} ms`)
    expect(toldMs).toBeGreaterThan(ORPHAN_GRACE_MS - 2_500)
    expect(toldMs).toBeLessThan(LEASE_MS - 1_000)
    await until('it was away', 30_000, () => monotonicMs() - stoppedAt > AWAY_MS)
    expect(cluster.facts('attempt_started').filter(({ attempt }) => attempt === 2)).toEqual([])
    // Nobody is declared dead: the worker is still attached.
    expect(await workersOf(client)).toEqual([{ pid: worker.pid, status: 'attached' }])
    await server.start()

    for (const handle of handles) {
      expect(await handle.result({ timeout: '1m' })).toMatchObject({ attempt: 2 })
      const [first] = (await handle.explain()).attempts
      expect(first).toMatchObject({ attempt: 1, status: 'lost', receipt: 'aborted' })
      expect(await eventsOf(client, handle.id, 'attempt_overlapped')).toEqual([])
    }
    // It had come to its end meanwhile: that was kept, and told when there was somebody to tell.
    expect(await ending.result({ timeout: '1m' })).toMatchObject({ attempt: 1 })
    expect(await planned.result({ timeout: '1m' })).toEqual({ tasks: [1, 1], effects: 2 })
    expect(await workersOf(client)).toEqual([{ pid: worker.pid, status: 'attached' }])

    // The lease that was over once is watched again.
    const last = await client.schedule(wait, { ms: [LONG, 100] })
    await cluster.started([last.id])
    const next = await cluster.prepareManager()
    const killedAt = await cluster.manager.kill()
    const againMs = (await toldToStop(cluster, [last.id])) - killedAt
    expect(againMs).toBeLessThan(LEASE_MS - 1_000)
    await cluster.startManager(next)
    expect(await last.result({ timeout: '1m' })).toMatchObject({ attempt: 2 })
    await auditAndClose(cluster, client)
  }),
)
