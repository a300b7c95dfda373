/**
 * One SQLite file, one process. The connection holds the file's exclusive lock for as long as it lives, so the
 * kernel lets go of it when the process dies; a file beside it tells others who that process is.
 */
import { realpathSync, rmSync, statSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import type { Clock } from '../../core/clock.ts'
import { CurfewError } from '../../core/errors.ts'
import { META_TABLE, MIGRATIONS, schemaText } from '../migrations.ts'
import { refuseNewerSchema } from '../schema-version.ts'
import type { Work } from '../statement.ts'
import { Statements } from '../statements.ts'
import type { Store } from '../store.ts'
import { StoreError } from '../store-error.ts'
import type { FileLock } from './file-lock.ts'
import { lockedBy, writeFileLock } from './file-lock.ts'
import { isBusy, isCannotLock, sqliteError } from './sqlite-error.ts'
import { StatementRunner } from './statement-runner.ts'

/** Older versions can corrupt the write-ahead log. */
const OLDEST_VERSION = '3.51.3'

/** What stood there when it was opened. */
interface OpenedFile {
  path: string
  dev: number
  ino: number
}

export class SqliteStore implements Store {
  readonly dialect = 'sqlite'
  readonly statements = new Statements('sqlite')
  readonly #database: DatabaseSync
  readonly #clock: Clock
  readonly #runner: StatementRunner
  readonly lock: FileLock | null
  readonly #file: OpenedFile | null
  #broken: StoreError | null = null

  private constructor(database: DatabaseSync, clock: Clock, lock: FileLock | null) {
    this.#database = database
    this.#clock = clock
    this.lock = lock
    this.#file = lock && openedFile(database)
    this.#runner = new StatementRunner(database)
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
      if (isCannotLock(error)) throw cannotLock(file, error)
      throw isBusy(error) ? lockedBy(file) : sqliteError(error, file)
    }
  }

  async write<T>(_fence: null, work: () => Work<T>): Promise<T> {
    this.#refuseUnlessOpen()
    try {
      this.#database.exec('begin immediate')
      const result = this.#runner.drive(work())
      this.#refuseIfMoved()
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
      return this.#runner.drive(work())
    } catch (error) {
      throw error instanceof Error && 'errcode' in error ? sqliteError(error, 'the store') : error
    }
  }

  async readClock(): Promise<number> {
    return Math.floor(this.#clock.wall())
  }

  async close(): Promise<void> {
    this.#runner.clear()
    // While the database is still locked: afterwards the file may be another process's.
    this.lock?.remove()
    this.#database.close()
  }

  #refuseUnlessOpen(): void {
    if (this.#broken) throw this.#broken
    if (!this.#database.isOpen) throw new CurfewError('closed', 'this engine was closed')
  }

  /** What is written to a file that nobody finds any more is lost, however well it is synced. */
  #refuseIfMoved(): void {
    if (this.#file === null) return
    const { path, dev, ino } = this.#file
    const there = statSync(path, { throwIfNoEntry: false })
    if (there?.dev === dev && there.ino === ino) return
    const what = there ? 'was replaced by another file' : 'was removed or moved away'
    this.#broken = new StoreError('store_failed', `the store ${path} ${what}`, {
      hint: 'Nothing that came after it was kept. Put the file back, with its -wal file, and start again.',
    })
    throw this.#broken
  }

  #rollBack(error: unknown): unknown {
    if (this.#database.isOpen && this.#database.isTransaction) this.#database.exec('rollback')
    if (!(error instanceof Error && 'errcode' in error)) return error
    const fault = sqliteError(error, 'the store')
    // After an I/O error nobody knows what the disk holds: nothing is acknowledged any more.
    if (fault.code === 'store_failed') this.#broken = fault
    return fault
  }
}

function openedFile(database: DatabaseSync): OpenedFile {
  const path = database.location() as string
  const { dev, ino } = statSync(path)
  return { path, dev, ino }
}

function cannotLock(file: string, cause: unknown): StoreError {
  return new StoreError('store_unavailable', `the store ${file} cannot be locked`, {
    hint: 'The file and its folder must be writable, on a file system that has locks.',
    cause,
  })
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
  // Whoever read the log of a killed process left it. Nobody has it open now, and this connection does without.
  rmSync(`${realpathSync(file)}-shm`, { force: true })
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
