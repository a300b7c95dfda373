/** Claims that begin behind what was claimed before: whatever comes to stand in front of it is found all the same. */
import pg from 'pg'
import { afterEach, beforeEach, expect, inject, test, vi } from 'vitest'
import { createDatabase, dropDatabase } from '../../scripts/postgres/database.ts'
import { MAX_SHARED_BATCH_ROWS } from '../core/limits.ts'
import { Curfew, task } from '../curfew.ts'
import { OutdatedRows } from '../engine/task-batch.ts'
import { SILENT } from '../store/fixtures/stores.ts'
import { PostgresStore } from '../store/postgres/postgres-store.ts'
import { VirtualClock } from '../testing/virtual-clock.ts'

const MANY = 4_500

let url: string
let other: pg.Client
let ran: number[]
let open: Curfew[]
/** It stands still: renewals, which tell of work that waits, do not come. */
let clock: VirtualClock

/** Those that hold a slot until they are let go. */
let holding: (() => void)[]

const noop = task({
  name: 'noop',
  run: (n: number) => {
    ran.push(n)
  },
})
const urgent = task({
  name: 'urgent',
  run: (n: number) => {
    ran.push(n)
  },
})
const hold = task({
  name: 'hold',
  run: () =>
    new Promise<void>((resolve) => {
      holding.push(resolve)
    }),
})

beforeEach(async () => {
  ran = []
  holding = []
  open = []
  clock = new VirtualClock()
  url = await createDatabase(inject('postgresUrl'))
  other = new pg.Client({ connectionString: url })
  await other.connect()
})

afterEach(async () => {
  vi.restoreAllMocks()
  await other.query('rollback')
  await Promise.all(open.map((curfew) => curfew.close()))
  await other.end()
  await dropDatabase(url)
})

async function openCurfew(options: { concurrency: number }): Promise<Curfew> {
  const curfew = await Curfew.open({
    ...{ store: url, tasks: [noop, urgent, hold], listen: '127.0.0.1:0', logger: SILENT, clock },
    ...options,
  })
  open.push(curfew)
  return curfew
}

const unended = async () =>
  (await other.query(`select count(*)::int as count from curfew.tasks where status <> 'completed'`)).rows[0]
    .count

async function untilLeft(count: number): Promise<void> {
  while ((await unended()) > count);
}

/** Stored first, so that it goes through claims that look for what waits. */
async function storeMany(): Promise<void> {
  await using curfew = await Curfew.open({ store: url, concurrency: 0, logger: SILENT, clock })
  await curfew.scheduleMany(
    noop,
    Array.from({ length: MANY }, (_, n) => n),
  )
}

/** With an id that stands before all others. */
async function scheduleFirst(curfew: Curfew, input: number): Promise<void> {
  const id = `t_${String(input).padStart(26, '0')}`
  const policy = { queue: 'default' }
  const answer = await fetch(`${curfew.url}/curfew.v1.JobService/Schedule`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      kind: 'task',
      name: 'noop',
      policy,
      delayMs: 0,
      tasks: [{ input: `${input}`, id }],
    }),
  })
  expect(await answer.json()).toMatchObject({ tasks: [{ id }] })
}

/** The first says what is looked for, the second finds it. */
async function renewals(): Promise<void> {
  for (let i = 0; i < 2; i++) await clock.advance(1_000)
}

const SLOTS = 500

test('what is stored before it by the same process', async () => {
  await storeMany()
  const curfew = await openCurfew({ concurrency: SLOTS })
  await untilLeft(0)
  // It has to wait for a slot, or it would be started where it is stored.
  await curfew.scheduleMany(hold, new Array(SLOTS).fill(undefined))
  await scheduleFirst(curfew, 90_001)
  expect(ran).toHaveLength(MANY)
  for (const letGo of holding) letGo()
  await untilLeft(0)
  expect(ran.slice(MANY)).toEqual([90_001])
})

test('what is stored before it by another process', async () => {
  await storeMany()
  await openCurfew({ concurrency: SLOTS })
  const peer = await openCurfew({ concurrency: 0 })
  await untilLeft(0)
  await scheduleFirst(peer, 90_001)
  await renewals()
  await untilLeft(0)
  expect(ran.slice(MANY)).toEqual([90_001])
})

test('what somebody had locked, and has let go', async () => {
  await storeMany()
  await other.query('begin')
  await other.query('select 1 from curfew.light_ready order by id limit 10 for update')
  await openCurfew({ concurrency: SLOTS })
  await untilLeft(10)
  expect(ran).toHaveLength(MANY - 10)
  await other.query('rollback')
  await renewals()
  await untilLeft(0)
  expect(ran.toSorted((a, b) => a - b)).toEqual(Array.from({ length: MANY }, (_, n) => n))
})

/** Those that hold its slots, all of them. */
async function holdAll(curfew: Curfew, slots: number): Promise<string[]> {
  const handles = await curfew.scheduleMany(hold, new Array(slots).fill(undefined))
  await vi.waitUntil(() => holding.length === slots, { timeout: 20_000 })
  return handles.map(({ id }) => id)
}

const numbers = (from: number, count: number) => Array.from({ length: count }, (_, i) => from + i)

test('what a transaction had claimed before it was decided again', async () => {
  await storeMany()
  const curfew = await openCurfew({ concurrency: SLOTS })
  await untilLeft(0)
  const held = await holdAll(curfew, SLOTS)
  await curfew.scheduleMany(noop, numbers(90_000, SLOTS))
  // Somebody else has decided about one of them: that is found when the claim has answered.
  await other.query(
    `update curfew.tasks set light = 0, attempt = 2, token = 'a_x', status = 'running' where id = $1`,
    [held.at(-1)],
  )
  const { write } = PostgresStore.prototype
  let stored: Promise<unknown> | undefined
  vi.spyOn(PostgresStore.prototype, 'write').mockImplementation(async function (
    this: PostgresStore,
    ...args
  ) {
    try {
      return await write.apply(this, args)
    } catch (error) {
      // What is stored in that moment takes all the slots instead.
      if (error instanceof OutdatedRows) {
        stored ??= curfew.scheduleMany(urgent, numbers(80_000, SLOTS), { priority: -5 })
        await stored
      }
      throw error
    }
  })
  for (const letGo of holding) letGo()
  await untilLeft(1)
  expect(stored).toBeDefined()
  expect(ran.slice(MANY).toSorted((a, b) => a - b)).toEqual([
    ...numbers(80_000, SLOTS),
    ...numbers(90_000, SLOTS),
  ])
})

test('what is stored with a claim that is committed after those that followed it', async () => {
  const slots = MAX_SHARED_BATCH_ROWS + 500
  const curfew = await openCurfew({ concurrency: slots })
  await other.query(`
    create function hold() returns trigger language plpgsql as
      $$ begin if new.input = '7' then perform pg_advisory_xact_lock_shared(1); end if; return null; end $$;
    create constraint trigger hold after insert on curfew.tasks deferrable initially deferred
      for each row execute function hold()`)
  await holdAll(curfew, slots)
  await curfew.scheduleMany(noop, numbers(90_000, MAX_SHARED_BATCH_ROWS))
  await other.query('select pg_advisory_lock(1)')
  for (const letGo of holding) letGo()
  await new Promise((resolve) => setImmediate(resolve))
  const special = curfew.schedule(noop, 7)
  const count = async (sql: string) => (await other.query(sql)).rows[0].count
  while ((await count(`select count(*)::int from pg_stat_activity where wait_event = 'advisory'`)) === 0);
  // Until the claims behind it are committed, and nothing else is.
  const commits = () => count('select sum(batch)::int as count from curfew.lanes')
  for (let same = 0, last = -1; same < 50; ) {
    const now = await commits()
    same = now === last ? same + 1 : 0
    last = now
  }
  await other.query('select pg_advisory_unlock(1)')
  await special
  await untilLeft(0)
  expect(ran).toHaveLength(MAX_SHARED_BATCH_ROWS + 1)
})
