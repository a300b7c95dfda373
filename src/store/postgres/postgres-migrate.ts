/** What is looked at and set up before anything else is done with a PostgreSQL database. */
import type pg from 'pg'
import type { Clock } from '../../core/clock.ts'
import { formatDuration } from '../../core/duration.ts'
import type { Logger } from '../../core/logger.ts'
import { META_TABLE, MIGRATIONS, schemaText } from '../migrations.ts'
import { refuseNewerSchema, refuseOtherSchema } from '../schema-version.ts'
import type { Work } from '../statement.ts'
import { run } from '../statement.ts'
import { StoreError } from '../store-error.ts'
import { READ_CLOCK } from './connection.ts'

const OLDEST_VERSION = 150_000
/** Only told: deadlines go by the database's clock alone. */
const TELL_CLOCK_DIFFERENCE_MS = 5_000
/** Nobody asks for a commit after so long. */
const LANE_SECS = 3_600
/** Any number, as long as every version uses the same. */
const MIGRATION_LOCK = 7_225_091

export async function migratePostgres(pool: pg.Pool, clock: Clock, logger: Logger): Promise<void> {
  const client = await pool.connect()
  try {
    await checkServer(client, clock, logger)
    await client.query('begin')
    try {
      // Held until the end of the transaction: of several processes that open at once one migrates.
      await client.query(`select pg_advisory_xact_lock(${MIGRATION_LOCK})`)
      await client.query('create schema if not exists curfew')
      await client.query(schemaText(META_TABLE, 'postgres'))
      const { rows } = await client.query(`select value from curfew.meta where key = 'schema_version'`)
      const version = Number(rows[0]?.value ?? 0)
      refuseNewerSchema(version, 'the database')
      for (const text of MIGRATIONS.slice(version)) await client.query(schemaText(text, 'postgres'))
      await client.query(
        `delete from curfew.lanes where id in (select id from curfew.lanes
          where at < (extract(epoch from now()) - ${LANE_SECS}) * 1000 for update skip locked)`,
      )
      await client.query(
        `insert into curfew.meta values ('schema_version', $1) on conflict (key) do update set value = excluded.value`,
        [String(MIGRATIONS.length)],
      )
      await client.query('commit')
    } catch (error) {
      await client.query('rollback')
      throw error
    }
  } finally {
    client.release()
  }
}

/** Whether a reader can make sense of the database. */
export function* checkPostgresSchema(): Work<void> {
  const [meta] = yield* run<{ there: boolean }>({
    sql: `select to_regclass('curfew.meta') is not null as there`,
    params: [],
  })
  if (!meta?.there) {
    throw new StoreError('store_missing', 'the database has no Curfew store', {
      hint: 'Check the URL. A store is made by the first process that works on it.',
    })
  }
  const [row] = yield* run<{ value: string }>({
    sql: `select value from curfew.meta where key = 'schema_version'`,
    params: [],
  })
  refuseOtherSchema(Number(row?.value ?? 0), 'the database')
}

async function checkServer(client: pg.PoolClient, clock: Clock, logger: Logger): Promise<void> {
  const { rows } = await client.query(
    `select current_setting('server_version_num')::int as version, current_setting('server_version') as text,
      pg_is_in_recovery() as recovering`,
  )
  const { version, text, recovering } = rows[0]
  if (version < OLDEST_VERSION) {
    throw new StoreError('store_refused', `PostgreSQL ${text} is too old: 15 or newer is needed`)
  }
  if (recovering) {
    throw new StoreError('store_refused', 'this PostgreSQL is a standby and takes no writes', {
      hint: 'Connect to the primary.',
    })
  }
  const { rows: clocks } = await client.query(READ_CLOCK)
  const differenceMs = clocks[0].raw - clock.wall()
  if (!clock.virtual && Math.abs(differenceMs) > TELL_CLOCK_DIFFERENCE_MS) {
    logger.warn(
      { differenceMs },
      `this machine's clock and the database's differ by ${formatDuration(Math.abs(differenceMs))}; deadlines follow the database's`,
    )
  }
}
