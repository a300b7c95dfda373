/**
 * PostgreSQL behind the port. Works through a transaction pooler: no session state, no named statements.
 * A commit whose answer is lost is looked up by the mark that its transaction left, never repeated. (A transaction's
 * own number tells nothing: after a crash the server gives those out again that were not on disk yet.)
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
import type { Mark } from './conversation.ts'
import { Conversation } from './conversation.ts'
import { postgresError, postgresOpenError } from './postgres-error.ts'
import { checkPostgresSchema, migratePostgres } from './postgres-migrate.ts'

/** Transactions that decide have connections of their own: however many read, deadlines do not wait for one. */
const WRITE_CONNECTIONS = 5
const READ_CONNECTIONS = 4
/** How long an unknown commit is asked for, over new connections. */
const LOOK_UP_MS = 10_000
/** While somebody reads for long every version of a row stays, and each write passes all of them. */
const LONGEST_LANE = 1_000

export class PostgresStore implements Store {
  readonly dialect = 'postgres'
  readonly statements = new Statements('postgres')
  readonly url: string
  readonly #writes: pg.Pool
  readonly #reads: pg.Pool
  readonly #clock: Clock
  readonly #nodeId: string
  /** That no transaction is in: the last mark of each. */
  readonly #lanes: Mark[] = []
  #lanesMade = 0
  #closed = false

  private constructor(url: string, clock: Clock, logger: Logger, nodeId: string) {
    this.#nodeId = nodeId
    this.url = url
    const options = { ...connectionOptions(url), ...OF_CONVERSATIONS }
    this.#writes = openPool(options, WRITE_CONNECTIONS, logger)
    this.#reads = openPool(options, READ_CONNECTIONS, logger)
    this.#clock = clock
  }

  /** No two stores have the same `nodeId`. */
  static async open(url: string, clock: Clock, logger: Logger, nodeId: string): Promise<PostgresStore> {
    const store = new PostgresStore(url, clock, logger, nodeId)
    const pool = openPool(connectionOptions(url), 1, logger)
    try {
      await migratePostgres(pool, clock, logger)
      return store
    } catch (error) {
      await store.close()
      throw postgresOpenError(error)
    } finally {
      await pool.end()
    }
  }

  /** Looks only: what is not there, or of another version, is refused and left as it is. */
  static async openToRead(url: string, clock: Clock, logger: Logger): Promise<ReadStore> {
    const store = new PostgresStore(url, clock, logger, 'n_reader')
    try {
      await store.read(checkPostgresSchema)
      return store
    } catch (error) {
      await store.close()
      throw postgresOpenError(error)
    }
  }

  async write<T>(fence: Fence | null, work: () => Work<T>): Promise<T> {
    const client = await this.#connect(this.#writes)
    const mark = this.#nextMark()
    let committing = false
    let broken: Error | undefined
    let result: T | undefined
    const talk = new Conversation(client)
    try {
      // What decides comes behind it in the same round trip; nothing of it stays if this process may not.
      const begun = talk.begin(fence, mark)
      result = await talk.drive(work())
      await begun
      committing = true
      await talk.commit()
      return result
    } catch (error) {
      broken = await rollBack(talk, error)
      // A server that takes a rollback has said what became of it. Whatever else is heard at a commit says nothing.
      if (!committing || !broken) throw postgresError(error)
    } finally {
      client.release(broken)
      // The server may still be at what was sent over a connection that broke: nobody comes behind that.
      if (!broken) this.#lanes.push(mark)
    }
    if (await this.#lookUp(mark)) return result as T
    throw new StoreError(
      'store_unavailable',
      'the connection was lost before the commit; nothing was written',
    )
  }

  async read<T>(work: () => Work<T>, { atOnce = false } = {}): Promise<T> {
    const client = await this.#connect(this.#reads)
    let broken: Error | undefined
    const talk = new Conversation(client)
    try {
      if (atOnce) talk.beginSnapshot()
      const result = await talk.drive(work())
      if (atOnce) await talk.commit()
      return result
    } catch (error) {
      if (atOnce) broken = await rollBack(talk, error)
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

  #nextMark(): Mark {
    const last = this.#lanes.pop()
    if (last && last.batch < LONGEST_LANE) return { lane: last.lane, batch: last.batch + 1, insteadOf: null }
    return { lane: `${this.#nodeId}/${++this.#lanesMade}`, batch: 1, insteadOf: last?.lane ?? null }
  }

  async #connect(pool: pg.Pool): Promise<pg.PoolClient> {
    if (this.#closed) throw new CurfewError('closed', 'this engine was closed')
    try {
      return await pool.connect()
    } catch (error) {
      throw postgresError(error)
    }
  }

  /** Whether that transaction was committed. Why it cannot be told says nothing of the transaction. */
  async #lookUp(mark: Mark): Promise<boolean> {
    const until = this.#clock.monotonic() + LOOK_UP_MS
    let cause: unknown
    for (let delayMs = 50; this.#clock.monotonic() < until; delayMs = Math.min(delayMs * 2, 2_000)) {
      try {
        return await this.#askFor(mark)
      } catch (error) {
        cause = error
      }
      if (this.#closed) break
      await sleep(this.#clock, delayMs)
    }
    throw new StoreError('commit_unknown', 'whether it was committed could not be found out', { cause })
  }

  async #askFor(mark: Mark): Promise<boolean> {
    // It may have to wait for whoever still has the row: not over a connection that deadlines wait for.
    const client = await this.#connect(this.#reads)
    let broken: Error | undefined
    const talk = new Conversation(client)
    try {
      return await talk.wasCommitted(mark)
    } catch (error) {
      broken = await rollBack(talk, error)
      throw postgresError(error)
    } finally {
      client.release(broken)
    }
  }
}

/** They wait for answers by themselves. (The first is not in the types yet.) */
const OF_CONVERSATIONS: object = { pipeline: true, query_timeout: undefined }

function openPool(options: pg.PoolConfig, max: number, logger: Logger): pg.Pool {
  const pool = new pg.Pool({ ...options, max, idleTimeoutMillis: 30_000 })
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

async function rollBack(talk: Conversation, error: unknown): Promise<Error | undefined> {
  if (isLost(error)) return error as Error
  try {
    await talk.rollBack()
    return undefined
  } catch (failed) {
    return failed as Error // the connection is of no use; the server rolls back by itself
  }
}

function isLost(error: unknown): boolean {
  return (postgresError(error) as { code?: string }).code === 'store_unavailable'
}
