import pg from 'pg'
import { afterEach, beforeEach, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase } from '../../scripts/postgres/database.ts'
import { MAX_SHARED_BATCH_ROWS } from '../core/limits.ts'
import { Curfew, task } from '../curfew.ts'
import { SILENT } from '../store/fixtures/stores.ts'
import { VirtualClock } from '../testing/virtual-clock.ts'
import { ClaimSize } from './claim-size.ts'

/** What the first two claims ask for. */
const size = new ClaimSize(MAX_SHARED_BATCH_ROWS)
const FIRST = size.most
size.claimed([{ input: '1', details: null }])
const SLOTS = FIRST + size.most
const LEFT = 1_900
const TASKS = SLOTS + LEFT

let url: string
let other: pg.Client
let renewals: pg.Client
let ran: number[]

const noop = task({
  name: 'noop',
  run: (n: number) => {
    ran.push(n)
  },
})

/** Commits of claims wait while this connection has the lock. */
const HOLD = `
create function hold() returns trigger language plpgsql as
  $$ begin perform pg_advisory_xact_lock_shared(1); return null; end $$;
create constraint trigger hold after insert on curfew.light_claims deferrable initially deferred
  for each row execute function hold();
select pg_advisory_lock(1)`

beforeEach(async () => {
  ran = []
  url = await createDatabase(inject('postgresUrl'))
  other = new pg.Client({ connectionString: url })
  await other.connect()
  renewals = new pg.Client({ connectionString: url })
  await renewals.connect()
  await using curfew = await Curfew.open({ store: url, concurrency: 0, logger: SILENT })
  await curfew.scheduleMany(
    noop,
    Array.from({ length: TASKS }, (_, n) => n),
  )
  await other.query(HOLD)
})

afterEach(async () => {
  await renewals.end()
  await other.end()
  await dropDatabase(url)
})

/** The processes of the server whose commits wait. */
async function untilTwoWait(): Promise<number[]> {
  for (;;) {
    const { rows } = await other.query<{ pid: number }>(
      `select pid from pg_stat_activity where datname = current_database() and wait_event = 'advisory' order by xact_start`,
    )
    if (rows.length === 2) return rows.map(({ pid }) => pid)
  }
}

async function untilEnded(): Promise<void> {
  for (;;) {
    const { rows } = await other.query(
      `select count(*)::int as count from curfew.tasks where status <> 'completed'`,
    )
    if (rows[0].count === 0) return
  }
}

const free = `select count(*)::int as count
  from (select 1 from curfew.light_ready for update skip locked) as t`

test('the next claim goes on behind one that is not committed, and nothing runs before its own commit', async () => {
  await using _ = await Curfew.open({
    store: url,
    tasks: [noop],
    concurrency: SLOTS,
    logger: SILENT,
  })
  // Its renewals tell of work that waits, and would be followed by a claim as well.
  await renewals.query('begin; select 1 from curfew.nodes for no key update')
  await untilTwoWait()
  expect((await other.query(free)).rows[0].count).toBe(LEFT)
  expect(ran).toEqual([])
  await renewals.query('rollback')
  await other.query('select pg_advisory_unlock(1)')
  await untilEnded()
  expect(ran.toSorted((a, b) => a - b)).toEqual(Array.from({ length: TASKS }, (_, n) => n))
})

test('what a claim did not commit is claimed again, however far others have gone on', async () => {
  // No renewal tells of it within this time.
  const clock = new VirtualClock()
  await using _ = await Curfew.open({
    ...{ store: url, tasks: [noop], concurrency: SLOTS, logger: SILENT, clock },
  })
  const [first] = await untilTwoWait()
  await other.query('select pg_terminate_backend($1)', [first])
  await other.query('select pg_advisory_unlock(1)')
  for (let i = 0; i < 9; i++) await clock.advance(100)
  await untilEnded()
  expect(ran.toSorted((a, b) => a - b)).toEqual(Array.from({ length: TASKS }, (_, n) => n))
})
