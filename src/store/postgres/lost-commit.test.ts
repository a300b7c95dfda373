// The connection breaks at a commit, and nobody hears what became of it.

import pg from 'pg'
import { afterAll, afterEach, beforeAll, beforeEach, expect, inject, test, vi } from 'vitest'
import { createDatabase } from '../../../scripts/postgres/database.ts'
import { startPostgres } from '../../../scripts/postgres/postgres.ts'
import { SystemClock } from '../../core/system-clock.ts'
import { newRow, newTask } from '../../engine/fixtures/task-rows.ts'
import { CommitCutter } from '../fixtures/commit-cutter.ts'
import { SharedDatabase } from '../fixtures/shared-database.ts'
import type { TestStore } from '../fixtures/stores.ts'
import { SILENT } from '../fixtures/stores.ts'
import { run, runAll } from '../statement.ts'
import { PostgresStore } from './postgres-store.ts'

let shared: SharedDatabase
let db: TestStore
let other: pg.Client
beforeAll(async () => {
  shared = await SharedDatabase.open(() => createDatabase(inject('postgresUrl')))
  ;({ db, other } = shared)
})
afterAll(() => shared[Symbol.asyncDispose]())
beforeEach(() => db.clear())

let cutter: CommitCutter
let store: PostgresStore
let opened = 0
beforeEach(async () => {
  cutter = await CommitCutter.start(db.location)
  store = await PostgresStore.open(cutter.url, new SystemClock(), SILENT, `n_of_${++opened}`)
})
afterEach(async () => {
  await store.close()
  await cutter[Symbol.asyncDispose]()
})

test('is found to have been done, and the work answers as if nothing had happened', async () => {
  cutter.cut = 'after the server did it'
  const ids = await store.write(null, function* () {
    yield* runAll(store.statements.hot.insertTasks([newTask()]))
    return 'done'
  })
  expect(cutter.cuts).toBe(1)
  expect(ids).toBe('done')
  expect(await db.all()).toEqual([newRow()])
})

test('is found not to have been done, and nothing was written', async () => {
  cutter.cut = 'before the server sees it'
  const work = store.write(null, () => runAll(store.statements.hot.insertTasks([newTask()])))
  await expect(work).rejects.toMatchObject({ code: 'store_unavailable' })
  expect(cutter.cuts).toBe(1)
  expect(await db.all()).toEqual([])
  await store.write(null, () => runAll(store.statements.hot.insertTasks([newTask()])))
  expect(await db.all()).toHaveLength(1)
})

test('is looked up whatever was heard at its end, when that is no answer', async () => {
  const fields = Buffer.from('SPANIC\0VPANIC\0C53100\0Mcould not write to file\0\0')
  const length = Buffer.alloc(4)
  length.writeInt32BE(fields.length + 4)
  cutter.lastWords = Buffer.concat([Buffer.from('E'), length, fields])
  cutter.cut = 'after the server did it'
  await store.write(null, () => runAll(store.statements.hot.insertTasks([newTask()])))
  expect([cutter.cuts, await db.all()]).toEqual([1, [newRow()]])
})

test('is asked for again when the server refuses to tell', async () => {
  await store.write(null, () => run({ sql: 'select 1', params: [] }))
  const { rows } = await other.query(`select pid from pg_stat_activity where application_name = 'curfew'`)
  cutter.cut = 'after the server did it'
  const work = store.write(null, function* () {
    yield* runAll(store.statements.hot.insertTasks([newTask()]))
    cutter.shut = true
  })
  const answer = expect(work).resolves.toBeUndefined()
  await vi.waitUntil(() => cutter.cuts === 1, { interval: 1 })
  await other.query('alter table curfew.lanes rename to lanes_away')
  cutter.shut = false
  const seen = rows.map(({ pid }) => pid)
  const refused = `select 1 from pg_stat_activity where application_name = 'curfew' and query = 'rollback' and pid <> all ($1)`
  await vi.waitUntil(async () => (await other.query(refused, [seen])).rows.length > 0, { interval: 5 })
  await other.query('alter table curfew.lanes_away rename to lanes')
  await answer
  expect(await db.all()).toEqual([newRow()])
})

test('stays unknown when the store is closed before that was told', async () => {
  const closing = await PostgresStore.open(cutter.url, new SystemClock(), SILENT, 'n_closing')
  cutter.cut = 'after the server did it'
  const work = closing.write(null, function* () {
    yield* runAll(closing.statements.hot.insertTasks([newTask()]))
    cutter.shut = true
  })
  const answer = expect(work).rejects.toMatchObject({ code: 'commit_unknown' })
  await vi.waitUntil(() => cutter.cuts === 1, { interval: 1 })
  await closing.close()
  await answer
})

test('leaves no row that is written for ever: while somebody reads for long, all its versions stay', async () => {
  const busy = await PostgresStore.open(db.location, new SystemClock(), SILENT, 'n_busy')
  for (let n = 0; n < 1_001; n++) await busy.write(null, () => run({ sql: 'select 1', params: [] }))
  await busy.close()
  const { rows } = await other.query(`select id, batch::int from curfew.lanes where id like 'n\\_busy/%'`)
  expect(rows).toEqual([{ id: 'n_busy/2', batch: 1 }])
})

test.each(['the first', 'a later'])(
  'of %s transaction is waited for while the server is still at it',
  async (which) => {
    if (which === 'a later') await store.write(null, () => run({ sql: 'select 1', params: [] }))
    cutter.cut = 'the server sees it late'
    let isOver = false
    const work = store.write(null, () => runAll(store.statements.hot.insertTasks([newTask()])))
    const over = work.finally(() => (isOver = true))
    await shared.untilWaiting('transactionid')
    expect([isOver, await db.all()]).toEqual([false, []])
    cutter.deliver()
    await over
    expect(await db.all()).toHaveLength(1)
  },
)

test('other transactions go on meanwhile', async () => {
  cutter.cut = 'the server sees it late'
  const insert = (n: number) =>
    store.write(null, () => runAll(store.statements.hot.insertTasks([newTask({ id: `t_${n}` })])))
  const work = insert(1)
  await shared.untilWaiting('transactionid')
  for (let n = 2; n < 10; n++) await insert(n)
  cutter.deliver()
  await work
  expect(await db.all()).toHaveLength(9)
})

test('is not taken for another one that got its number when the server had crashed', async () => {
  // Nothing reaches its disk before a commit.
  const server = await startPostgres({ settings: { wal_writer_delay: '10s' } })
  try {
    const url = await server.createDatabase()
    await using crashing = await CommitCutter.start(url)
    const there = await PostgresStore.open(crashing.url, new SystemClock(), SILENT, 'n_2')
    try {
      crashing.cut = 'before the server sees it'
      const work = there.write(null, () => runAll(there.statements.hot.insertTasks([newTask()])))
      const answer = expect(work).rejects.toMatchObject({ code: 'store_unavailable' })
      await vi.waitUntil(() => crashing.cuts === 1, { interval: 1 })
      crashing.shut = true
      await server.stop('immediate')
      await server.start()
      const client = new pg.Client({ connectionString: url })
      await client.connect()
      for (let n = 0; n < 50; n++) await client.query('insert into curfew.queues values ($1)', [`q${n}`])
      await client.end()
      crashing.shut = false
      await answer
    } finally {
      await there.close()
    }
  } finally {
    await server.remove()
  }
})

test('a connection that ends in the middle leaves nothing, and the next work has a new one', async () => {
  const work = store.write(null, function* () {
    yield* runAll(store.statements.hot.insertTasks([newTask()]))
    yield* run({ sql: 'select pg_terminate_backend(pg_backend_pid())', params: [] })
  })
  await expect(work).rejects.toMatchObject({ code: 'store_unavailable' })
  expect(await db.all()).toEqual([])
  expect(await store.readClock()).toBeGreaterThan(0)
})
