// A program of agent-programs.ts through the public API, on the virtual clock, while its process is killed, closed and
// opened again, and its runs are evicted.

import { copyFileSync, existsSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import type { Curfew, Logger, TaskView } from '../../src/curfew.ts'
import { CurfewError } from '../../src/curfew.ts'
import { VirtualClock } from '../../src/testing/testing.ts'
import type { ExpectedWork, Trial } from './agent-model.ts'
import type { Generation } from './agent-outside.ts'
import { Outside } from './agent-outside.ts'
import { describeCode } from './agent-programs.ts'
import type { World } from './world.ts'

export interface Disturbances {
  /** Suspended runs that stay in memory. */
  residents: number
  /** Killed at this transaction of its process, before it begins or once it is committed. Files only. */
  kills: readonly { transaction: number; committed: boolean }[]
  /** Killed or closed at a time, at rest, and opened again at once. */
  restarts: readonly { at: number; how: 'kill' | 'close' }[]
}

export interface Ended {
  works: Map<string, ExpectedWork>
  /** What must not be. */
  problems: string[]
  transactions: number
}

class Killed extends Error {}

/** Until the lease of an attempt is over. */
const LEASE_SECONDS = 20

export class TrialRun {
  readonly #world: World
  readonly #trial: Trial
  readonly #disturbances: Disturbances
  readonly #outside = new Outside()
  readonly #kills: Disturbances['kills'][number][]
  readonly #startedAt: number
  readonly #deadDatabases = new WeakSet<DatabaseSync>()
  readonly #lines: string[] = []
  #generation: Generation = { no: 0, alive: false, clock: new VirtualClock() }
  #curfew: Curfew | null = null
  #database: DatabaseSync | null = null
  #rootId = ''
  #counting = false
  #driving = false
  #ofProcess = 0
  #transactions = 0

  constructor(world: World, trial: Trial, disturbances: Disturbances) {
    this.#world = world
    this.#trial = trial
    this.#disturbances = disturbances
    this.#kills = [...disturbances.kills]
    this.#startedAt = world.now
  }

  async run(overAt: number): Promise<Ended> {
    const { exec } = DatabaseSync.prototype
    const watch = (database: DatabaseSync, sql: string) => this.#watched(database, sql, exec)
    DatabaseSync.prototype.exec = function (sql: string) {
      watch(this, sql)
    }
    try {
      await this.#start()
      for (const { at, act } of this.#acts()) {
        await this.#advanceTo(at)
        await act()
      }
      await this.#advanceTo(overAt + 1)
      return await this.#ended()
    } finally {
      DatabaseSync.prototype.exec = exec
    }
  }

  async #start(): Promise<void> {
    const curfew = await this.#open()
    const { program, timeout, cleanup } = this.#trial
    const options = { cleanup, ...(timeout !== null && { timeout }) }
    const definition = this.#outside.definitions(this.#generation).program
    const { id } = await curfew.start(definition, { program, since: this.#startedAt }, options)
    this.#rootId = id
    this.#counting = true
  }

  #acts(): { at: number; act: () => Promise<void> }[] {
    const { signals, cancelAt } = this.#trial
    const acts = [
      ...signals.map(({ at, name }, i) => ({ at, act: () => this.#signal(name, { signal: i }) })),
      { at: cancelAt, act: () => this.#outsideCall((curfew) => curfew.agent(this.#rootId).cancel()) },
      ...this.#disturbances.restarts.map(({ at, how }) => ({ at, act: () => this.#restart(how) })),
    ]
    return acts.sort((a, b) => a.at - b.at)
  }

  async #signal(name: string, value: unknown): Promise<void> {
    try {
      await this.#outsideCall((curfew) => curfew.agent(this.#rootId).signal(name, value))
    } catch (error) {
      if (!(error instanceof CurfewError && error.code === 'refused')) throw error // it has ended
    }
  }

  /** A caller whose process does not die while it asks. */
  async #outsideCall(call: (curfew: Curfew) => Promise<unknown>): Promise<void> {
    const curfew = await this.#opened()
    this.#counting = false
    try {
      await call(curfew)
    } finally {
      this.#counting = true
    }
  }

  async #restart(how: 'kill' | 'close'): Promise<void> {
    const curfew = await this.#opened()
    if (how === 'close') {
      this.#counting = false
      await curfew.close()
      this.#counting = true
      this.#generation.alive = false
      return
    }
    if (this.#world.kind === 'file') return this.#kill()
    await this.#world.crash()
    this.#generation.alive = false
    await this.#opened()
    await this.#world.runFor(LEASE_SECONDS)
  }

  async #advanceTo(at: number): Promise<void> {
    const time = this.#startedAt + at
    for (;;) {
      await this.#opened()
      const { clock } = this.#generation
      this.#driving = true
      try {
        if (clock.wall() < time) await clock.advanceTo(time)
        else await clock.settle()
      } catch (error) {
        if (!(error instanceof Killed)) throw error
      } finally {
        this.#driving = false
      }
      if (this.#generation.alive) return
    }
  }

  async #opened(): Promise<Curfew> {
    while (!this.#generation.alive || !this.#curfew) await this.#open()
    return this.#curfew
  }

  async #open(): Promise<Curfew> {
    const generation = { no: this.#generation.no + 1, alive: true, clock: this.#world.clock }
    this.#generation = generation
    this.#ofProcess = 0
    const { work, program } = this.#outside.definitions(generation)
    this.#curfew = await this.#world.open({
      tasks: [work],
      agents: [program],
      concurrency: 1_000,
      residents: { count: this.#disturbances.residents },
      logger: this.#logger(generation),
    })
    return this.#curfew
  }

  /** Nothing that is worth a warning happens, whatever happens. */
  #logger(generation: Generation): Logger {
    const quiet = () => undefined
    const loud = (fields: object, message: string) => {
      if (generation.alive) this.#lines.push(`${message} ${JSON.stringify(fields)}`)
    }
    return { debug: quiet, info: quiet, warn: loud, error: loud }
  }

  #watched(database: DatabaseSync, sql: string, exec: DatabaseSync['exec']): void {
    const mine = this.#counting && !this.#deadDatabases.has(database)
    if (mine && sql === 'begin immediate') {
      this.#database = database
      this.#transactions++
      this.#ofProcess++
      if (this.#isKilled(false)) this.#kill()
    }
    exec.call(database, sql)
    if (mine && sql === 'commit' && this.#isKilled(true)) this.#kill()
  }

  #isKilled(committed: boolean): boolean {
    const [next] = this.#kills
    if (!this.#generation.alive || next?.transaction !== this.#ofProcess || next.committed !== committed)
      return false
    this.#kills.shift()
    return true
  }

  /** Its file is as it is at this moment; it never acts again. */
  #kill(): void {
    const world = this.#world
    const { clock } = this.#generation
    if (this.#database) this.#deadDatabases.add(this.#database)
    this.#generation.alive = false
    const copy = `${world.store}+`
    copyFileSync(world.store, copy)
    if (existsSync(`${world.store}-wal`)) copyFileSync(`${world.store}-wal`, `${copy}-wal`)
    world.store = copy
    world.clock = new VirtualClock(clock.wall())
    if (this.#driving) {
      clock.setTimer(0, () => {
        throw new Killed()
      })
    }
  }

  async #ended(): Promise<Ended> {
    const curfew = await this.#opened()
    this.#counting = false
    const works = new Map<string, ExpectedWork>()
    const problems = [...this.#outside.problems, ...this.#lines]
    let cursor: string | null = null
    do {
      const page: { tasks: TaskView[]; cursor: string | null } = await curfew.list({
        limit: 1_000,
        ...(cursor !== null && { cursor }),
      })
      cursor = page.cursor
      for (const view of page.tasks) {
        const place = this.#outside.placeOf(view.id, this.#rootId)
        if (works.has(place)) problems.push(`${place}: is there twice`)
        if (!view.settled) problems.push(`${place}: is ${view.status}, and not settled`)
        works.set(place, this.#workOf(view))
      }
    } while (cursor !== null)
    return { works, problems, transactions: this.#transactions }
  }

  #workOf({ kind, status, endedAt, output, failure, timeoutKind, parked }: TaskView): ExpectedWork {
    const completed = kind === 'agent' ? JSON.parse(output ?? 'null') : null
    const detail =
      parked ??
      (status === 'completed'
        ? completed
        : status === 'failed'
          ? describeCode(failure?.code ?? '')
          : timeoutKind)
    return { kind, status, endedAt: (endedAt ?? Infinity) - this.#startedAt, detail }
  }
}
