// A cancel whose worker does not answer: the request is answered at once, the end comes within its bound, and says so.

import { describe, expect } from 'vitest'
import type { ConnectedCurfew } from '../../src/curfew.ts'
import { monotonicMs } from '../journal.ts'
import { until } from '../wait.ts'
import type { Cluster } from './cluster.ts'
import { eventsOf, clusterTest as test } from './cluster.ts'
import { auditAndClose } from './cluster-audit.ts'
import { pair, wait } from './cluster-work.ts'

const LIMIT = { timeout: 180_000 }
const LONG = 120_000
/** Of `wait`. */
const GRACE_MS = 1_000
/** Beyond the grace a receipt is waited for so long. */
const RECEIPT_MS = 2_000
/** For a busy machine. */
const SLACK_MS = 4_000

async function runOne(cluster: Cluster, client: ConnectedCurfew) {
  const handle = await client.schedule(wait, { ms: [LONG] })
  await cluster.started([handle.id])
  return handle
}

/** Answered at once, ended in its bound; answers what `cancelled()` does. */
async function cancelInTime(handle: Awaited<ReturnType<typeof runOne>>) {
  const askedAt = monotonicMs()
  expect(await handle.cancel()).toBe('cancelled')
  expect(monotonicMs() - askedAt).toBeLessThan(SLACK_MS)
  const outcome = await handle.cancelled({ timeout: '1m' })
  expect(monotonicMs() - askedAt).toBeLessThan(GRACE_MS + RECEIPT_MS + SLACK_MS)
  expect(await handle.status()).toBe('cancelled')
  expect(await handle.cancel()).toBe('already_cancelled')
  return outcome
}

const NOBODY_ANSWERED = {
  success: false,
  errors: ['attempt 1: its worker did not answer'],
  ledger: [{ attempt: 1, status: 'cancelled', receipt: 'unreachable' }],
}

/** The worker is back: what it knew of the attempt is on record, and changes nothing. */
async function toldLater(client: ConnectedCurfew, id: string): Promise<void> {
  await until('its receipt came', 30_000, async () => {
    const stops = await eventsOf(client, id, 'attempt_stopped')
    return stops.some(({ receipt }) => receipt === 'aborted')
  })
  expect(await client.task(id).view()).toMatchObject({ status: 'cancelled', settled: true })
}

describe.concurrent('a cancel', LIMIT, () => {
  test('C3: the worker hangs', async ({ file: cluster }) => {
    const worker = await cluster.startWorker()
    const client = await cluster.connect()
    const handle = await runOne(cluster, client)
    worker.stop()
    expect(await cancelInTime(handle)).toMatchObject(NOBODY_ANSWERED)
    worker.continue()
    await toldLater(client, handle.id)
    await auditAndClose(cluster, client)
  })

  test('C3: the worker is dead, and nobody tells', async ({ postgres: cluster }) => {
    const worker = await cluster.startWorker()
    const client = await cluster.connect()
    const handle = await runOne(cluster, client)
    await worker.kill({ withSupervisor: true })
    expect(await cancelInTime(handle)).toMatchObject(NOBODY_ANSWERED)
    await auditAndClose(cluster, client)
  })

  test('C3: the worker is out of reach, a workflow above it', async ({ file: cluster }) => {
    const proxy = await cluster.startProxy()
    await cluster.startWorker({ via: proxy })
    const client = await cluster.connect()
    const handle = await runOne(cluster, client)
    const run = await client.start(pair, { ms: [LONG] })
    await until('its first node runs', 30_000, () => cluster.facts('attempt_started').length === 2)
    proxy.setRules({ hold: true })
    const [outcome, ofRun] = await Promise.all([
      cancelInTime(handle),
      run.cancel().then(() => run.cancelled({ timeout: '1m' })),
    ])
    expect(outcome).toMatchObject(NOBODY_ANSWERED)
    expect(ofRun).toMatchObject({ success: false, errors: [expect.stringContaining('did not answer')] })
    expect(await run.status()).toBe('cancelled')
    proxy.setRules({})
    await toldLater(client, handle.id)
    await until('the worker has let go of both', 30_000, () => cluster.facts('attempt_ended').length === 2)
    await auditAndClose(cluster, client)
  })

  test("C7: the worker's report that it stopped is lost on its way: it comes again", async ({
    file: cluster,
  }) => {
    const proxy = await cluster.startProxy()
    await cluster.startWorker({ via: proxy })
    const client = await cluster.connect()
    const handle = await runOne(cluster, client)
    let lost = 0
    proxy.setRules({
      cutUp: (path) => path.endsWith('/Report') && lost++ < 2,
    })
    expect(await cancelInTime(handle)).toMatchObject({
      success: true,
      errors: [],
      ledger: [{ attempt: 1, status: 'cancelled', receipt: 'aborted' }],
    })
    expect(lost).toBeGreaterThanOrEqual(3)
    await auditAndClose(cluster, client)
  })

  test('C7: the outcome of a task whose report was lost arrives', async ({ file: cluster }) => {
    const proxy = await cluster.startProxy()
    await cluster.startWorker({ via: proxy })
    const client = await cluster.connect()
    const handle = await client.schedule(wait, { ms: [500] })
    let lost = 0
    proxy.setRules({ cutUp: (path) => path.endsWith('/Report') && lost++ < 2 })
    expect(await handle.result({ timeout: '1m' })).toMatchObject({ attempt: 1 })
    expect(cluster.facts('attempt_started', handle.id)).toHaveLength(1)
    await auditAndClose(cluster, client)
  })
})
