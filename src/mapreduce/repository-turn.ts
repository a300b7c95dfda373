/**
 * One at a time, in this process and among all processes of this machine: two gits that register worktrees at once
 * read each other's half-written files, and two that move one checkout leave it with the files of both.
 *
 * The lock is SQLite's on an empty file, so that it goes with the process that held it, however that ended.
 */
import { DatabaseSync } from 'node:sqlite'
import type { Clock } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'

const SQLITE_BUSY = 5
const LOOK_EVERY_MS = 20
/** Longer than what git may take for one of the things that are done in a turn. */
const GIVE_UP_AFTER_MS = 1_200_000

export class RepositoryTurn {
  readonly #file: string
  readonly #clock: Clock
  #last: Promise<unknown> = Promise.resolve()

  constructor(file: string, clock: Clock) {
    this.#file = file
    this.#clock = clock
  }

  /** Runs it when all that were asked for before it, here or in another process, are over. */
  take<T>(action: () => Promise<T>): Promise<T> {
    const turn = this.#last.then(() => this.#holding(action))
    this.#last = turn.catch((error: unknown) => error) // told to whoever asked for it; the next one goes on
    return turn
  }

  async #holding<T>(action: () => Promise<T>): Promise<T> {
    const database = new DatabaseSync(this.#file)
    try {
      await this.#lock(database)
      return await action()
    } finally {
      database.close()
    }
  }

  async #lock(database: DatabaseSync): Promise<void> {
    const giveUpAt = this.#clock.monotonic() + GIVE_UP_AFTER_MS
    while (!tryLock(database)) {
      if (this.#clock.monotonic() >= giveUpAt)
        throw new CurfewError('repository_busy', `another process has held ${this.#file} for too long`, {
          hint: 'Look for another curfew that works in this repository and hangs.',
        })
      await sleep(this.#clock, LOOK_EVERY_MS)
    }
  }
}

function tryLock(database: DatabaseSync): boolean {
  try {
    database.exec('BEGIN EXCLUSIVE')
    return true
  } catch (error) {
    if ((error as { errcode?: number }).errcode === SQLITE_BUSY) return false
    throw error
  }
}
