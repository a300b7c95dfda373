/**
 * The thread that renews the leases of a process, over a connection of its own, so that a handler that blocks the
 * main loop loses nothing. It renews the leadership only while the main loop ticks. It also listens for hints from
 * other processes and sends those of this one, at most so many a second.
 */
import { parentPort, workerData } from 'node:worker_threads'
import pg from 'pg'
import { backoffMs } from '../core/backoff.ts'
import { sleep } from '../core/clock.ts'
import { assert } from '../core/errors.ts'
import { SystemClock, SystemRandomness } from '../core/system-clock.ts'
import { connectionOptions } from '../store/postgres/connection.ts'
import type { HeartbeatRow } from './heartbeat.ts'
import { heartbeatStatement } from './heartbeat.ts'
import { RENEW_EVERY_MS } from './lease-times.ts'
import type { FromThread, ThreadStart, ToThread } from './thread-driver.ts'

const CHANNEL = 'curfew'
/** NOTIFY takes a lock at commit: hints are gathered. */
const NOTIFY_EVERY_MS = 50
const RECONNECT = { initialMs: 100, factor: 2, maxMs: 1_000, jitter: 0.5 }

assert(parentPort, 'the lease thread is started by a process')
const port = parentPort
const start = workerData as ThreadStart
const ticks = new Int32Array(start.ticks)
const clock = new SystemClock()
const randomness = new SystemRandomness()

let { epoch } = start
let wanted: { queues: string[]; names: string[]; agents: string[] } = { queues: [], names: [], agents: [] }
let closing = false
const hints = new Set<string>()
const connection: { client: pg.Client | null } = { client: null }
/** Ends the pause until the next renewal. */
let interrupt: () => void = () => undefined

function send(message: FromThread): void {
  port.postMessage(message)
}

port.on('message', (message: ToThread) => {
  if (message.type === 'epoch') epoch = message.epoch
  else if (message.type === 'wanted')
    wanted = { queues: message.queues, names: message.names, agents: message.agents }
  else if (message.type === 'hint') hints.add(message.hint)
  else closing = true
  if (message.type === 'hint' || message.type === 'close') interrupt()
})

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => {
    const timer = clock.setTimer(Math.max(0, ms), resolve)
    interrupt = () => {
      timer.cancel()
      resolve()
    }
  })
}

async function connect(): Promise<pg.Client> {
  const next = new pg.Client({ ...connectionOptions(start.url), query_timeout: 2_500 })
  next.on('error', () => {
    // The next renewal connects again; one that was left by then is no matter.
    if (connection.client === next) connection.client = null
  })
  next.on('notification', ({ payload }) => send({ type: 'hint', hint: payload ?? '' }))
  try {
    await next.connect()
    await next.query(`listen ${CHANNEL}`)
    return next
  } catch (error) {
    // A standby lets everybody in and then refuses: one more each time, and nobody else would find room there.
    leave(next)
    throw error
  }
}

function leave(client: pg.Client): void {
  client.end().catch((error: Error) => send({ type: 'away', error: error.message }))
}

async function renew(seenTicks: number): Promise<void> {
  connection.client ??= await connect()
  const { client } = connection
  const lead = Atomics.load(ticks, 0) !== seenTicks
  const { sql, params } = heartbeatStatement({
    nodeId: start.nodeId,
    epoch,
    lead,
    ...wanted,
    virtualNow: null,
  })
  const sentAt = clock.monotonic()
  const { rows } = await client.query({ text: sql, values: params as unknown[] })
  const arrivedAt = clock.monotonic()
  const row = rows[0] as HeartbeatRow
  const behindMs = (row.mark ?? 0) - (row.raw + row.correction)
  // The database's clock went back: from now on so much is added to it.
  if (behindMs > 0) {
    await client.query(
      `insert into curfew.meta (key, value) values ('clock_correction', $1) on conflict (key) do update
       set value = greatest(curfew.meta.value::int8, excluded.value::int8)::text`,
      [String(row.correction + behindMs)],
    )
  }
  send({ type: 'beat', beat: { row, sentAt, arrivedAt, lead }, epoch })
}

async function notify(): Promise<void> {
  if (hints.size === 0) return
  connection.client ??= await connect()
  const { client } = connection
  const payloads = [...hints]
  hints.clear()
  await client.query(`select pg_notify('${CHANNEL}', h) from unnest($1::text[]) as h`, [payloads])
}

let tries = 0
let seenTicks = -1
let nextRenewal = clock.monotonic()
while (!closing) {
  try {
    await notify()
    if (clock.monotonic() >= nextRenewal) {
      nextRenewal = clock.monotonic() + RENEW_EVERY_MS
      const before = Atomics.load(ticks, 0)
      await renew(seenTicks)
      seenTicks = before
    }
    tries = 0
    if (hints.size === 0 && !closing) await pause(nextRenewal - clock.monotonic())
    if (hints.size > 0 && !closing) await sleep(clock, NOTIFY_EVERY_MS)
  } catch (error) {
    send({ type: 'away', error: (error as Error).message })
    const broken = connection.client
    connection.client = null
    if (broken) leave(broken)
    nextRenewal = clock.monotonic()
    await sleep(clock, backoffMs(RECONNECT, tries++, randomness.next()))
  }
}
try {
  // What this process has let go of need not wait for a poll.
  if (connection.client) await notify()
  await connection.client?.end()
} catch (error) {
  send({ type: 'away', error: (error as Error).message })
}
port.close()
