/**
 * One SQLite file, one process. The connection holds the file's exclusive lock for as long as it lives, so the
 * kernel lets go of it when the process dies; a file beside it tells others who that process is.
 */
import type { StatementSync } from 'node:sqlite'
import { DatabaseSync } from 'node:sqlite'
import type { Clock } from '../../core/clock.ts'
import { CurfewError } from '../../core/errors.ts'
import { META_TABLE, MIGRATIONS, schemaText } from '../migrations.ts'
import { refuseNewerSchema } from '../schema-version.ts'
import type { Statement, Work } from '../statement.ts'
import { Statements } from '../statements.ts'
import type { Store } from '../store.ts'
import { StoreError } from '../store-error.ts'
import type { FileLock } from './file-lock.ts'
import { lockedBy, writeFileLock } from './file-lock.ts'

/** Older versions can corrupt the write-ahead log. */
const OLDEST_VERSION = '3.51.3'

export class SqliteStore implements Store {
  readonly dialect = 'sqlite'
  readonly statements = new Statements('sqlite')
  readonly #database: DatabaseSync
  readonly #clock: Clock
  readonly #prepared = new Map<string, StatementSync>()
  readonly #lock: FileLock | null
  #broken: StoreError | null = null

  private constructor(database: DatabaseSync, clock: Clock, lock: FileLock | null) {
    this.#database = database
    this.#clock = clock
    this.#lock = lock
  }

  static open(file: string, clock: Clock, nodeId: string): SqliteStore {
    const inMemory = file === ':memory:'
    let database: DatabaseSync
    try {
      database = new DatabaseSync(file)
    } catch (error) {
      throw new StoreError(
        'store_unavailable',
        `cannot open the store ${file}: ${(error as Error).message}`,
        {
          hint: 'The folder must exist and be writable.',
          cause: error,
        },
      )
    }
    try {
      // Before anything looks at the file: without it a log that a killed process left needs shared memory, and so space
      // on a disk that may be full.
      if (!inMemory) database.exec('pragma busy_timeout = 500; pragma locking_mode = exclusive')
      const { version } = database.prepare('select sqlite_version() as version').get() as { version: string }
      refuseOldSqlite(version)
      if (!inMemory) prepareFile(database, file)
      migrate(database, file)
      return new SqliteStore(database, clock, inMemory ? null : writeFileLock(file, nodeId))
    } catch (error) {
      database.close()
      if (error instanceof StoreError) throw error
      throw primaryCode(error) === SQLITE_BUSY ? lockedBy(file) : storeError(error, file)
    }
  }

  async write<T>(_fence: null, work: () => Work<T>): Promise<T> {
    this.#refuseUnlessOpen()
    try {
      this.#database.exec('begin immediate')
      const result = this.#drive(work())
      this.#database.exec('commit')
      return result
    } catch (error) {
      throw this.#rollBack(error)
    }
  }

  async read<T>(work: () => Work<T>): Promise<T> {
    // A loop of reads must not starve the event loop: without this it would be all microtasks.
    await new Promise<void>((resolve) => this.#clock.endOfTurn(resolve))
    this.#refuseUnlessOpen()
    try {
      return this.#drive(work())
    } catch (error) {
      throw error instanceof Error && 'errcode' in error ? storeError(error, 'the store') : error
    }
  }

  async readClock(): Promise<number> {
    return Math.floor(this.#clock.wall())
  }

  async close(): Promise<void> {
    this.#prepared.clear()
    // While the database is still locked: afterwards the file may be another process's.
    this.#lock?.remove()
    this.#database.close()
  }

  #refuseUnlessOpen(): void {
    if (this.#broken) throw this.#broken
    if (!this.#database.isOpen) throw new CurfewError('closed', 'this engine was closed')
  }

  #drive<T>(work: Work<T>): T {
    let step = work.next()
    while (!step.done) {
      const request = step.value
      if ('start' in request) request.ticket.rows = this.#run(request.start)
      step = work.next('sql' in request ? this.#run(request) : [])
    }
    return step.value
  }

  #run({ sql, params, each, changed }: Statement): unknown[] {
    let prepared = this.#prepared.get(sql)
    if (!prepared) {
      prepared = this.#database.prepare(sql.replace(/\$(\d+)/g, '?$1'))
      this.#prepared.set(sql, prepared)
    }
    if (!each) return prepared.all(...(params as never[]))
    const rows: unknown[] = []
    // A count is much cheaper than `returning`, which goes through a table of its own.
    if (changed) {
      for (const set of each) if (prepared.run(...(set as never[])).changes === 1) rows.push({ id: set[0] })
      return rows
    }
    for (const set of each) {
      const row = prepared.get(...(set as never[]))
      if (row !== undefined) rows.push(row)
    }
    return rows
  }

  #rollBack(error: unknown): unknown {
    if (this.#database.isOpen && this.#database.isTransaction) this.#database.exec('rollback')
    if (!(error instanceof Error && 'errcode' in error)) return error
    const fault = storeError(error, 'the store')
    // After an I/O error nobody knows what the disk holds: nothing is acknowledged any more.
    if (fault.code === 'store_failed') this.#broken = fault
    return fault
  }
}

export function refuseOldSqlite(version: string): void {
  const parts = (text: string) => text.split('.').map(Number)
  const found = parts(version)
  const oldest = parts(OLDEST_VERSION)
  const at = oldest.findIndex((part, i) => part !== (found[i] ?? 0))
  if (at >= 0 && (found[at] ?? 0) < (oldest[at] ?? 0)) {
    throw new StoreError(
      'store_failed',
      `SQLite ${version} is too old: ${OLDEST_VERSION} or newer is needed`,
      {
        hint: 'Older versions can corrupt the write-ahead log. Use Node ^22.22.3 or >= 24.15.',
      },
    )
  }
}

function prepareFile(database: DatabaseSync, file: string): void {
  const [mode] = Object.values(database.prepare('pragma journal_mode = wal').get() ?? {})
  if (mode !== 'wal') {
    throw new StoreError(
      'store_failed',
      `${file} cannot be put into WAL mode (it is in ${String(mode)} mode)`,
      {
        hint: 'Network file systems do not support it: keep the store on a local disk.',
      },
    )
  }
  database.exec('pragma synchronous = full; pragma foreign_keys = on; pragma mmap_size = 0')
  // The exclusive lock is taken with the first transaction and kept.
  database.exec('begin immediate; commit')
}

function migrate(database: DatabaseSync, file: string): void {
  database.exec('pragma foreign_keys = on')
  database.exec('begin immediate')
  try {
    database.exec(schemaText(META_TABLE, 'sqlite'))
    const row = database.prepare(`select value from meta where key = 'schema_version'`).get() as
      | { value: string }
      | undefined
    const version = Number(row?.value ?? 0)
    refuseNewerSchema(version, file)
    for (const text of MIGRATIONS.slice(version)) database.exec(schemaText(text, 'sqlite'))
    database
      .prepare(
        `insert into meta values ('schema_version', ?) on conflict (key) do update set value = excluded.value`,
      )
      .run(String(MIGRATIONS.length))
    database.exec('commit')
  } catch (error) {
    database.exec('rollback')
    throw error
  }
}

const SQLITE_BUSY = 5
const SQLITE_IOERR = 10
const SQLITE_CORRUPT = 11
const SQLITE_FULL = 13
const SQLITE_NOTADB = 26

function primaryCode(error: unknown): number {
  return ((error as { errcode?: number }).errcode ?? 0) & 0xff
}

function storeError(error: unknown, where: string): StoreError {
  const message = (error as Error).message
  switch (primaryCode(error)) {
    case SQLITE_FULL:
      return new StoreError('store_full', `${where}: the disk is full, nothing was written`, {
        hint: 'Work goes on by itself once there is space.',
        cause: error,
      })
    case SQLITE_BUSY:
      return new StoreError('store_conflict', `${where}: ${message}`, { cause: error })
    case SQLITE_NOTADB:
      return new StoreError('store_failed', `${where} is not a SQLite database`, { cause: error })
    case SQLITE_IOERR:
    case SQLITE_CORRUPT:
      return new StoreError('store_failed', `${where}: ${message}`, {
        hint: 'The disk or the file is damaged; nothing is acknowledged any more.',
        cause: error,
      })
    default:
      return new StoreError('store_refused', `${where}: ${message}`, { cause: error })
  }
}
