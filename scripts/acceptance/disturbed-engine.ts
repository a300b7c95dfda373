// An engine on the virtual clock whose process is killed, closed and opened again, and whose runs are evicted. Whoever
// uses it is not disturbed: there is always one to be asked, and the clock is advanced over every death.

import { copyFileSync, existsSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import type { Curfew, Logger, OpenOptions } from '../../src/curfew.ts'
import { VirtualClock } from '../../src/testing/testing.ts'
import type { Generation } from './agent-outside.ts'
import type { World } from './world.ts'

export interface Disturbances {
  /** Suspended runs that stay in memory. */
  residents: number
  /** Killed at this transaction of its process, before it begins or once it is committed. Files only. */
  kills: readonly { transaction: number; committed: boolean }[]
  /** Killed or closed at a time, at rest, and opened again at once, or after `downMs`. */
  restarts: readonly { at: number; how: 'kill' | 'close'; downMs?: number }[]
  /** Of each process; enough unless set. */
  slots?: { turns: number; concurrency: number }
}

type Code = Pick<OpenOptions, 'tasks' | 'agents' | 'workflows'>

interface Process {
  generation: Generation
  /** Null while it is opened. */
  curfew: Curfew | null
}

class Killed extends Error {}

/** Until the lease of an attempt is over. */
const LEASE_SECONDS = 20

export class DisturbedEngine {
  readonly startedAt: number
  /** What its processes warned of. */
  readonly lines: string[] = []
  /** Transactions, and deaths, count from here on. */
  counting = false
  transactions = 0
  readonly #world: World
  readonly #disturbances: Disturbances
  readonly #code: (generation: Generation) => Code
  readonly #left: (file: string) => void
  readonly #kills: Disturbances['kills'][number][]
  readonly #deadDatabases = new WeakSet<DatabaseSync>()
  /** Null once it is dead. */
  #process: Process | null = null
  #opened = 0
  #database: DatabaseSync | null = null
  #driving = false
  #ofProcess = 0

  /** `code`: what each process has the code of. `left`: told of the file that a process left when it was killed. */
  constructor(
    world: World,
    disturbances: Disturbances,
    code: (generation: Generation) => Code,
    left: (file: string) => void = () => undefined,
  ) {
    this.#world = world
    this.#disturbances = disturbances
    this.#code = code
    this.#left = left
    this.#kills = [...disturbances.kills]
    this.startedAt = world.now
  }

  /** Transactions are seen while it lasts. */
  async watch<T>(work: () => Promise<T>): Promise<T> {
    const { exec } = DatabaseSync.prototype
    const watch = (database: DatabaseSync, sql: string) => this.#watched(database, sql, exec)
    DatabaseSync.prototype.exec = function (sql: string) {
      watch(this, sql)
    }
    try {
      return await work()
    } finally {
      DatabaseSync.prototype.exec = exec
    }
  }

  /** Times are kept; over PostgreSQL the leases of the dead have to be waited for. */
  get isExact(): boolean {
    return this.#world.kind !== 'postgres'
  }

  /** Each at its time, between them the clock runs. */
  async perform(acts: readonly { at: number; act: () => Promise<unknown> }[], overAt: number): Promise<void> {
    const restarts = this.#disturbances.restarts.map((restart) => ({
      at: restart.at,
      act: () => this.#restart(restart),
    }))
    for (const { at, act } of [...acts, ...restarts].sort((a, b) => a.at - b.at)) {
      await this.#advanceTo(at)
      await act()
    }
    await this.#advanceTo(overAt)
  }

  /** A caller whose process does not die while it asks. */
  async call<T>(call: (curfew: Curfew) => Promise<T>): Promise<T> {
    const curfew = await this.alive()
    const { counting } = this
    this.counting = false
    try {
      return await call(curfew)
    } finally {
      this.counting = counting
    }
  }

  /** One may be killed while it is opened. */
  async alive(): Promise<Curfew> {
    while (!this.#process?.curfew) await this.#open()
    return this.#process.curfew
  }

  async #restart({ how, downMs }: Disturbances['restarts'][number]): Promise<void> {
    if (how === 'close') {
      await this.call((curfew) => (this.isExact ? curfew.close() : this.#world.close(curfew)))
      this.#bury()
    } else if (this.#world.kind === 'file') this.#kill()
    else {
      await this.#world.crash()
      this.#bury()
      await this.alive()
      await this.#world.runFor(LEASE_SECONDS)
    }
    if (downMs) await this.#world.clock.advance(downMs)
  }

  async #advanceTo(at: number): Promise<void> {
    const time = this.startedAt + at
    for (;;) {
      await this.alive()
      const { clock } = this.#world
      this.#driving = true
      try {
        if (clock.wall() < time) await clock.advanceTo(time)
        else await clock.settle()
      } catch (error) {
        if (!(error instanceof Killed)) throw error
      } finally {
        this.#driving = false
      }
      if (this.#process) return
    }
  }

  async #open(): Promise<void> {
    const generation = { no: ++this.#opened, alive: true, clock: this.#world.clock }
    const process: Process = { generation, curfew: null }
    this.#process = process
    this.#ofProcess = 0
    process.curfew = await this.#world.open({
      ...this.#code(generation),
      ...(this.#disturbances.slots ?? { concurrency: 1_000 }),
      residents: { count: this.#disturbances.residents },
      logger: this.#logger(generation),
    })
  }

  #bury(): void {
    if (this.#process) this.#process.generation.alive = false
    this.#process = null
  }

  /** Whatever happens, nothing is worth a warning, but for the deaths of others. */
  #logger(generation: Generation): Logger {
    const quiet = () => undefined
    const loud = (fields: object, message: string) => {
      const isDeath = 'silentMs' in fields
      if (generation.alive && !isDeath) this.lines.push(`${message} ${JSON.stringify(fields)}`)
    }
    return { debug: quiet, info: quiet, warn: loud, error: loud }
  }

  #watched(database: DatabaseSync, sql: string, exec: DatabaseSync['exec']): void {
    const mine = this.counting && !this.#deadDatabases.has(database)
    if (mine && sql === 'begin immediate') {
      this.#database = database
      this.transactions++
      this.#ofProcess++
      if (this.#isKilled(false)) this.#kill()
    }
    exec.call(database, sql)
    if (mine && sql === 'commit' && this.#isKilled(true)) this.#kill()
  }

  #isKilled(committed: boolean): boolean {
    const [next] = this.#kills
    if (!this.#process) return false
    if (next?.transaction !== this.#ofProcess || next.committed !== committed) return false
    this.#kills.shift()
    return true
  }

  /** Its file is as it is at this moment; it never acts again. */
  #kill(): void {
    const world = this.#world
    const { clock } = world
    if (this.#database) this.#deadDatabases.add(this.#database)
    this.#bury()
    const copy = `${world.store}+`
    copyFileSync(world.store, copy)
    if (existsSync(`${world.store}-wal`)) copyFileSync(`${world.store}-wal`, `${copy}-wal`)
    this.#left(copy)
    world.store = copy
    world.clock = new VirtualClock(clock.wall())
    if (this.#driving) {
      clock.setTimer(0, () => {
        throw new Killed()
      })
    }
  }
}
