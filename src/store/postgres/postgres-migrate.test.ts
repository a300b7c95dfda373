import pg from 'pg'
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase } from '../../../scripts/postgres/database.ts'
import { SystemClock } from '../../core/system-clock.ts'
import { newRow, newTask } from '../../engine/fixtures/task-rows.ts'
import { VirtualClock } from '../../testing/virtual-clock.ts'
import { HELD_WRONGLY, SILENT } from '../fixtures/stores.ts'
import { META_TABLE, MIGRATIONS, schemaText } from '../migrations.ts'
import { run, runAll } from '../statement.ts'
import { migratePostgres } from './postgres-migrate.ts'
import { PostgresStore } from './postgres-store.ts'

let url: string
beforeEach(async () => {
  url = await createDatabase(inject('postgresUrl'))
})
afterEach(() => dropDatabase(url))

const open = (clock = new SystemClock(), nodeId = 'n_1') => PostgresStore.open(url, clock, SILENT, nodeId)

async function query(sql: string): Promise<unknown[]> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query(sql)).rows
  } finally {
    await client.end()
  }
}

describe('migrations', () => {
  test('of many that open an empty database at once one migrates, and all can work', async () => {
    const stores = await Promise.all(Array.from({ length: 8 }, (_, i) => open(undefined, `n_${i}`)))
    await Promise.all(
      stores.map((store, i) =>
        store.write(null, () => runAll(store.statements.hot.insertTasks([newTask({ id: `t_${i}` })]))),
      ),
    )
    expect(await query('select count(*)::int as count from curfew.tasks')).toEqual([{ count: 8 }])
    expect(await query(`select value from curfew.meta where key = 'schema_version'`)).toEqual([
      { value: String(MIGRATIONS.length) },
    ])
    await Promise.all(stores.map((store) => store.close()))
  })

  test('opening again keeps what is there', async () => {
    const first = await open()
    await first.write(null, () => runAll(first.statements.hot.insertTasks([newTask()])))
    await first.close()
    const second = await open()
    expect(await second.read(() => run(second.statements.readTasks(['t_1'])))).toEqual([newRow()])
    await second.close()
  })

  test('what an earlier version stored and ran is found by the indexes of this one', async () => {
    await query('create schema curfew')
    const old = MIGRATIONS.slice(0, 5)
    for (const text of [META_TABLE, ...old]) await query(schemaText(text, 'postgres'))
    await query(`insert into curfew.meta values ('schema_version', '${old.length}')`)
    const columns =
      'id, name, queue, priority, status, ready, live, held, kind, input, policy, node_id, settled_at'
    await query(`insert into curfew.tasks (${columns}, created_at, start_at, grace_ms, token) values
      ('t_1', 'work', 'default', 0, 'pending', 1, 0, 0, 'task', '1', '{}', 'n_1', null, 0, 0, 5000, null),
      ('t_2', 'work', 'default', 0, 'running', 0, 1, 1, 'task', '2', '{}', 'n_1', null, 0, 0, 5000, 'a_1'),
      ('t_3', 'work', 'default', 0, 'failed', 0, 0, 0, 'task', '3', '{}', 'n_1', 5, 0, 0, 5000, 'a_2'),
      ('a_4', 'walk', '', 0, 'running', 0, 1, 0, 'agent', '4', '{}', 'n_1', null, 0, 0, 0, 'a_3')`)
    const store = await open()
    expect(await query(`select id from curfew.tasks where ${HELD_WRONGLY.postgres}`)).toEqual([])
    const { statements } = store
    const live = await store.read(() => run(statements.liveAttempts('n_1')))
    expect(live.map(({ id }) => id).sort()).toEqual(['a_4', 't_2'])
    const request = { now: 1, nodeId: 'n_2', token: 'a_9', queues: ['default'], names: ['work'], limit: 9 }
    const claimed = await store.write(null, () => statements.hot.claimTasks(request))
    expect(claimed).toMatchObject([{ id: 't_1', input: '1', light: 0 }])
    const filter = { name: null, queue: null, timeoutKind: null, kind: null, parentId: null, parked: null }
    const listed = await store.read(() =>
      run(statements.listTasks({ ...filter, statuses: ['failed'], after: null, limit: 9 })),
    )
    expect(listed.map(({ id }) => id)).toEqual(['t_3'])
    await store.close()
  })

  test('opening removes what transactions of processes long gone left, and nothing of this hour', async () => {
    const first = await open()
    await first.write(null, () => runAll(first.statements.hot.insertTasks([newTask()])))
    await query(`insert into curfew.lanes select 'old', 1, at - 3600000 from curfew.lanes`)
    await (await open()).close()
    expect(await query('select batch::int from curfew.lanes')).toEqual([{ batch: 1 }])
    expect(await query(`select id from curfew.lanes where id = 'old'`)).toEqual([])
    await first.close()
  })

  test('a newer schema is refused, says what it is and what is known, and is left alone', async () => {
    await (await open()).close()
    await query(`update curfew.meta set value = '99' where key = 'schema_version'`)
    await expect(open()).rejects.toMatchObject({
      code: 'store_refused',
      message: expect.stringMatching(
        new RegExp(
          `has schema version 99; this version of curfew knows up to ${MIGRATIONS.length}\\n.*Upgrade`,
        ),
      ),
    })
    expect(await query(`select value from curfew.meta where key = 'schema_version'`)).toEqual([
      { value: '99' },
    ])
  })

  test('one that fails leaves the database as it was', async () => {
    await query('create schema curfew; create table curfew.events (in_the_way int)')
    await expect(open()).rejects.toMatchObject({ code: 'store_refused' })
    expect(
      await query(`select to_regclass('curfew.tasks') as tasks, to_regclass('curfew.meta') as meta`),
    ).toEqual([{ tasks: null, meta: null }])
  })
})

describe('the server', () => {
  /** A server as it would answer; everything it is asked is kept. */
  function server(answer: { version: number; text: string; recovering: boolean }) {
    const asked: string[] = []
    let released = false
    const client = {
      query: async (sql: string) => {
        asked.push(sql)
        return { rows: sql.includes('pg_is_in_recovery') ? [answer] : [{ raw: 0 }] }
      },
      release: () => {
        released = true
      },
    }
    const pool = { connect: async () => client } as unknown as pg.Pool
    return { pool, asked, released: () => released }
  }

  test.each([
    [
      'is too old',
      { version: 140_011, text: '14.11', recovering: false },
      /PostgreSQL 14\.11 is too old: 15/,
    ],
    ['is a standby', { version: 180_000, text: '18.0', recovering: true }, /is a standby.*\n.*primary/],
  ])('that %s is refused before anything is written', async (_, answer, message) => {
    const { pool, asked, released } = server(answer)
    await expect(migratePostgres(pool, new SystemClock(), SILENT)).rejects.toMatchObject({
      code: 'store_refused',
      message: expect.stringMatching(message),
    })
    expect(asked).toHaveLength(1)
    expect(released()).toBe(true)
  })

  test('of the oldest version that is supported, and a primary, is taken', async () => {
    const { pool, asked } = server({ version: 150_000, text: '15.0', recovering: false })
    await migratePostgres(pool, new SystemClock(), SILENT)
    expect(asked.at(-1)).toBe('commit')
  })

  test('whose clock differs from this one is told about, and taken', async () => {
    const told: object[] = []
    const logger = { ...SILENT, warn: (fields: object) => told.push(fields) }
    const clock = new SystemClock()
    const late = Object.assign(Object.create(clock), {
      wall: () => clock.wall() - 3_600_000,
      monotonic: () => clock.monotonic(),
    }) as SystemClock
    await (await PostgresStore.open(url, late, logger, 'n_1')).close()
    expect(told).toHaveLength(1)
    const { differenceMs } = told[0] as { differenceMs: number }
    expect(Math.abs(differenceMs - 3_600_000)).toBeLessThan(60_000)
    await (await PostgresStore.open(url, clock, logger, 'n_1')).close()
    await (await PostgresStore.open(url, new VirtualClock(0), logger, 'n_1')).close()
    expect(told).toHaveLength(1)
  })
})
