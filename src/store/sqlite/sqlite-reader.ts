/**
 * A SQLite file that nobody works on, to be looked at and left as it is: nothing is made, migrated, written or fired.
 * Each read opens the file and closes it again, so that between reads a process may come and work on it.
 *
 * A file at rest holds everything and is read without locks, which would need files beside it; one that was changed
 * meanwhile is read again. A log that a killed process left is read under SQLite's own locks: they keep whoever wants
 * to work on the store away for the moment, and leave a `-shm` that the next process removes.
 *
 * The file itself is only ever opened by SQLite: POSIX lets go of all locks a process has on a file when it closes
 * any handle of it, and this process may hold the store.
 */
import { realpathSync, statSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { pathToFileURL } from 'node:url'
import type { Clock } from '../../core/clock.ts'
import { CurfewError } from '../../core/errors.ts'
import { refuseOtherSchema } from '../schema-version.ts'
import type { Work } from '../statement.ts'
import { run } from '../statement.ts'
import { Statements } from '../statements.ts'
import type { ReadStore } from '../store.ts'
import { StoreError } from '../store-error.ts'
import { findHolder, lockedBy } from './file-lock.ts'
import { isBusy, isCannotOpen, sqliteError } from './sqlite-error.ts'
import { StatementRunner } from './statement-runner.ts'

/** Of a file that changes all the time somebody has the lock, or will in a moment. */
const MOST_TRIES = 3
/** For a process that is about to close the store. */
const BUSY_MS = 200

export class SqliteReader implements ReadStore {
  readonly dialect = 'sqlite'
  readonly statements = new Statements('sqlite')
  readonly #file: string
  readonly #clock: Clock
  #closed = false

  private constructor(file: string, clock: Clock) {
    this.#file = file
    this.#clock = clock
  }

  static open(file: string, clock: Clock): SqliteReader {
    const reader = new SqliteReader(file, clock)
    reader.#look(nothing)
    return reader
  }

  async read<T>(work: () => Work<T>): Promise<T> {
    // A loop of reads must not starve the event loop: without this it would be all microtasks.
    await new Promise<void>((resolve) => this.#clock.endOfTurn(resolve))
    if (this.#closed) throw new CurfewError('closed', 'this reader was closed')
    return this.#look(work)
  }

  async readClock(): Promise<number> {
    return Math.floor(this.#clock.wall())
  }

  async close(): Promise<void> {
    this.#closed = true
  }

  #look<T>(work: () => Work<T>): T {
    const file = this.#realFile()
    for (let tries = 0; tries < MOST_TRIES; tries++) {
      const state = stateAtRest(file)
      if (state === null) break
      let result: { value: T } | null = null
      let error: unknown
      try {
        const location = pathToFileURL(file)
        location.searchParams.set('immutable', '1')
        result = { value: this.#readFrom(location, 0, work) }
      } catch (thrown) {
        error = thrown
      }
      // Somebody came meanwhile: what was read, or why it could not be, may be half old and half new.
      if (stateAtRest(file) !== state) continue
      if (result === null) throw error
      return result.value
    }
    return this.#readFrom(file, findHolder(file) ? 0 : BUSY_MS, work)
  }

  #readFrom<T>(location: string | URL, busyMs: number, work: () => Work<T>): T {
    let database: DatabaseSync | null = null
    try {
      database = new DatabaseSync(location, { readOnly: true, timeout: busyMs })
      const runner = new StatementRunner(database)
      runner.drive(this.#checkSchema())
      return runner.drive(work())
    } catch (error) {
      throw error instanceof Error && 'errcode' in error ? this.#explained(error) : error
    } finally {
      database?.close()
    }
  }

  *#checkSchema(): Work<void> {
    const [found] = yield* run<{ tables: number; columns: number }>({
      sql: `select
        (select count(*) from sqlite_schema where type = 'table' and name in ('meta', 'nodes', 'tasks')) as tables,
        (select count(*) from pragma_table_info('meta') where name in ('key', 'value')) as columns`,
      params: [],
    })
    const isStore = found?.tables === 3 && found.columns === 2
    const [row] = isStore
      ? yield* run<{ value: string }>({
          sql: `select value from meta where key = 'schema_version'`,
          params: [],
        })
      : []
    if (!row) {
      throw new StoreError('store_refused', `${this.#file} is not a Curfew store`, {
        hint: 'It is empty, or a database of something else. Check the path.',
      })
    }
    refuseOtherSchema(Number(row.value), this.#file)
  }

  #realFile(): string {
    let cause: unknown = null
    try {
      const file = realpathSync(this.#file)
      if (statSync(file).isFile()) return file
    } catch (error) {
      cause = error
      const { code } = error as NodeJS.ErrnoException
      if (code === 'ENOENT' || code === 'ENOTDIR') {
        throw new StoreError('store_missing', `there is no store ${this.#file}`, {
          hint: 'Check the path and the folder you are in. A store is made by the first process that works on it.',
        })
      }
    }
    const why = cause === null ? 'it is not a file' : (cause as Error).message
    throw new StoreError('store_unavailable', `cannot read the store ${this.#file}: ${why}`, { cause })
  }

  #explained(error: Error): StoreError {
    if (isBusy(error)) {
      return lockedBy(this.#file, 'Ask that process: it has the newest. Or wait until it is closed.')
    }
    if (isCannotOpen(error)) {
      return new StoreError('store_unavailable', `cannot read the store ${this.#file}: ${error.message}`, {
        hint: 'It must be readable. If its last process was killed, its folder must be writable too, with space left: SQLite reads a log only with a file beside it.',
        cause: error,
      })
    }
    return sqliteError(error, this.#file)
  }
}

/** Which file it is and when it was changed last; null when it has a log or a holder, and is not at rest. */
function stateAtRest(file: string): string | null {
  const log = statSync(`${file}-wal`, { throwIfNoEntry: false })
  if ((log && log.size > 0) || findHolder(file)) return null
  const found = statSync(file, { bigint: true, throwIfNoEntry: false })
  return found ? [found.ino, found.size, found.mtimeNs, found.ctimeNs].join(' ') : null
}

function* nothing(): Work<void> {}
