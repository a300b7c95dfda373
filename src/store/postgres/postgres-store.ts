/**
 * PostgreSQL behind the port. Works through a transaction pooler: no session state, no named statements.
 * A commit whose answer is lost is looked up by its transaction's number, never repeated.
 */
import pg from 'pg'
import type { Clock } from '../../core/clock.ts'
import { sleep } from '../../core/clock.ts'
import { CurfewError } from '../../core/errors.ts'
import type { Logger } from '../../core/logger.ts'
import type { Work } from '../statement.ts'
import { Statements } from '../statements.ts'
import type { Fence, ReadStore, Store } from '../store.ts'
import { StoreError } from '../store-error.ts'
import { connectionOptions, READ_CLOCK } from './connection.ts'
import { Conversation } from './conversation.ts'
import { postgresError } from './postgres-error.ts'
import { checkPostgresSchema, migratePostgres } from './postgres-migrate.ts'

/** Transactions that decide have connections of their own: however many read, deadlines do not wait for one. */
const WRITE_CONNECTIONS = 5
const READ_CONNECTIONS = 4
/** How long an unknown commit is asked for, over new connections. */
const LOOK_UP_MS = 10_000

export class PostgresStore implements Store {
  readonly dialect = 'postgres'
  readonly statements = new Statements('postgres')
  readonly url: string
  readonly #writes: pg.Pool
  readonly #reads: pg.Pool
  readonly #clock: Clock
  #closed = false

  private constructor(url: string, clock: Clock, logger: Logger) {
    this.url = url
    this.#writes = openPool(url, WRITE_CONNECTIONS, logger)
    this.#reads = openPool(url, READ_CONNECTIONS, logger)
    this.#clock = clock
  }

  static async open(url: string, clock: Clock, logger: Logger): Promise<PostgresStore> {
    const store = new PostgresStore(url, clock, logger)
    try {
      await migratePostgres(store.#writes, clock, logger)
      return store
    } catch (error) {
      await store.close()
      throw postgresError(error)
    }
  }

  /** Looks only: what is not there, or of another version, is refused and left as it is. */
  static async openToRead(url: string, clock: Clock, logger: Logger): Promise<ReadStore> {
    const store = new PostgresStore(url, clock, logger)
    try {
      await store.read(checkPostgresSchema)
      return store
    } catch (error) {
      await store.close()
      throw error
    }
  }

  async write<T>(fence: Fence | null, work: () => Work<T>): Promise<T> {
    const client = await this.#connect(this.#writes)
    let committing: string | null = null
    let broken: Error | undefined
    let result: T | undefined
    try {
      const talk = new Conversation(client)
      // What decides comes behind it in the same round trip; nothing of it stays if this process may not.
      const begun = talk.begin(fence)
      result = await talk.drive(work())
      committing = await begun
      await talk.commit()
      return result
    } catch (error) {
      broken = await rollBack(client, error)
      if (committing === null || !isLost(error)) throw postgresError(error)
    } finally {
      client.release(broken)
    }
    if (await this.#lookUp(committing)) return result as T
    throw new StoreError(
      'store_unavailable',
      'the connection was lost before the commit; nothing was written',
    )
  }

  async read<T>(work: () => Work<T>, { atOnce = false } = {}): Promise<T> {
    const client = await this.#connect(this.#reads)
    let broken: Error | undefined
    try {
      const talk = new Conversation(client)
      if (atOnce) talk.beginSnapshot()
      const result = await talk.drive(work())
      if (atOnce) await talk.commit()
      return result
    } catch (error) {
      if (atOnce) broken = await rollBack(client, error)
      else if (isLost(error)) broken = error as Error
      throw postgresError(error)
    } finally {
      client.release(broken)
    }
  }

  async readClock(): Promise<number> {
    const [row] = await this.read(function* () {
      return (yield { sql: READ_CLOCK, params: [] }) as { raw: number }[]
    })
    return row?.raw ?? 0
  }

  async close(): Promise<void> {
    this.#closed = true
    await Promise.all([this.#writes.end(), this.#reads.end()])
  }

  async #connect(pool: pg.Pool): Promise<pg.PoolClient> {
    if (this.#closed) throw new CurfewError('closed', 'this engine was closed')
    try {
      return await pool.connect()
    } catch (error) {
      throw postgresError(error)
    }
  }

  /** Whether that transaction was committed. */
  async #lookUp(xid: string): Promise<boolean> {
    const until = this.#clock.monotonic() + LOOK_UP_MS
    for (let delayMs = 50; this.#clock.monotonic() < until; delayMs = Math.min(delayMs * 2, 2_000)) {
      try {
        const { rows } = await this.#reads.query('select pg_xact_status($1::xid8) as status', [xid])
        const status = rows[0]?.status
        if (status === 'committed') return true
        if (status === 'aborted') return false
        if (status === null) break // too long ago for the server to know
      } catch (error) {
        if (!isLost(error)) throw error
      }
      await sleep(this.#clock, delayMs)
    }
    throw new StoreError('commit_unknown', `whether transaction ${xid} was committed could not be found out`)
  }
}

/** Not in the types yet. */
const PIPELINED: object = { pipeline: true }

function openPool(url: string, max: number, logger: Logger): pg.Pool {
  const pool = new pg.Pool({ ...connectionOptions(url), ...PIPELINED, max, idleTimeoutMillis: 30_000 })
  pool.on('error', (error) =>
    logger.warn({ error: error.message }, 'an idle connection to PostgreSQL was lost'),
  )
  // Between two statements of a transaction nobody else listens, and an error nobody hears ends the process. The
  // next statement tells whoever has the connection.
  pool.on('connect', (client) =>
    client.on('error', (error) =>
      logger.warn({ error: error.message }, 'a connection to PostgreSQL was lost'),
    ),
  )
  return pool
}

async function rollBack(client: pg.PoolClient, error: unknown): Promise<Error | undefined> {
  if (isLost(error)) return error as Error
  try {
    await client.query('rollback')
    return undefined
  } catch (failed) {
    return failed as Error // the connection is of no use; the server rolls back by itself
  }
}

function isLost(error: unknown): boolean {
  return (postgresError(error) as { code?: string }).code === 'store_unavailable'
}
