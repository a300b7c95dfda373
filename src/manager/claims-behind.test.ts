/** Claims that begin behind what was claimed before: whatever comes to stand in front of it is found all the same. */
import pg from 'pg'
import { afterEach, beforeEach, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase } from '../../scripts/postgres/database.ts'
import { Curfew, task } from '../curfew.ts'
import { SILENT } from '../store/fixtures/stores.ts'
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
  await other.query('rollback')
  await Promise.all(open.map((curfew) => curfew.close()))
  await other.end()
  await dropDatabase(url)
})

async function openCurfew(options: { concurrency: number }): Promise<Curfew> {
  const curfew = await Curfew.open({
    ...{ store: url, tasks: [noop, hold], listen: '127.0.0.1:0', logger: SILENT, clock },
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
