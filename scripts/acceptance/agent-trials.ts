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
  /** Killed or closed at a time, at rest, and opened again at once, or after `downMs`. */
  restarts: readonly { at: number; how: 'kill' | 'close'; downMs?: number }[]
  /** Of each process; enough unless set. */
  slots?: { turns: number; concurrency: number }
}

export interface Ended {
  works: Map<string, ExpectedWork>
  /** What must not be. */
  problems: string[]
  transactions: number
}

interface Process {
  generation: Generation
  /** Null while it is opened. */
  curfew: Curfew | null
}

class Killed extends Error {}

/** Has the code to start an agent, and runs nothing. */
const UNBORN: Generation = { no: 0, alive: false, clock: new VirtualClock() }

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
  /** Null once it is dead. */
  #process: Process | null = null
  #opened = 0
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
    const curfew = await this.#alive()
    const { program, timeout, cleanup } = this.#trial
    const options = { cleanup, ...(timeout !== null && { timeout }) }
    const isUp = this.#disturbances.restarts.every(({ downMs }) => !downMs)
    const since = this.#isExact && isUp ? this.#startedAt : null
    const definition = this.#outside.definitions(UNBORN).program
    const { id } = await curfew.start(definition, { program, since }, options)
    this.#rootId = id
    this.#counting = true
  }

  /** Times are kept; over PostgreSQL the leases of the dead have to be waited for. */
  get #isExact(): boolean {
    return this.#world.kind !== 'postgres'
  }

  #acts(): { at: number; act: () => Promise<void> }[] {
    const { signals, cancelAt } = this.#trial
    const acts = [
      ...signals.map(({ at, name }, i) => ({ at, act: () => this.#signal(name, { signal: i }) })),
      { at: cancelAt, act: () => this.#outsideCall((curfew) => curfew.agent(this.#rootId).cancel()) },
      ...this.#disturbances.restarts.map((restart) => ({
        at: restart.at,
        act: () => this.#restart(restart),
      })),
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
    const curfew = await this.#alive()
    this.#counting = false
    try {
      await call(curfew)
    } finally {
      this.#counting = true
    }
  }

  async #restart({ how, downMs }: Disturbances['restarts'][number]): Promise<void> {
    if (how === 'close') {
      await this.#outsideCall((curfew) => (this.#isExact ? curfew.close() : this.#world.close(curfew)))
      this.#bury()
    } else if (this.#world.kind === 'file') this.#kill()
    else {
      await this.#world.crash()
      this.#bury()
      await this.#alive()
      await this.#world.runFor(LEASE_SECONDS)
    }
    if (downMs) await this.#world.clock.advance(downMs)
  }

  async #advanceTo(at: number): Promise<void> {
    const time = this.#startedAt + at
    for (;;) {
      await this.#alive()
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

  /** One may be killed while it is opened. */
  async #alive(): Promise<Curfew> {
    while (!this.#process?.curfew) await this.#open()
    return this.#process.curfew
  }

  async #open(): Promise<void> {
    const generation = { no: ++this.#opened, alive: true, clock: this.#world.clock }
    const process: Process = { generation, curfew: null }
    this.#process = process
    this.#ofProcess = 0
    const { work, program } = this.#outside.definitions(generation)
    process.curfew = await this.#world.open({
      tasks: [work],
      agents: [program],
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
      if (generation.alive && !isDeath) this.#lines.push(`${message} ${JSON.stringify(fields)}`)
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
    world.store = copy
    world.clock = new VirtualClock(clock.wall())
    if (this.#driving) {
      clock.setTimer(0, () => {
        throw new Killed()
      })
    }
  }

  async #ended(): Promise<Ended> {
    const curfew = await this.#alive()
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
        if (!view.settled) problems.push(`${place}: is ${view.status}, not settled${view.parked ?? ''}`)
        const work = this.#workOf(view)
        if (work.kind === 'agent' && work.status === 'completed' && !this.#isTrue(view))
          problems.push(`${place}: ended with ${view.output}, not with what its code came to`)
        works.set(place, work)
      }
    } while (cursor !== null)
    return { works, problems, transactions: this.#transactions }
  }

  #isTrue({ id, output }: TaskView): boolean {
    const { output: value } = JSON.parse(output ?? '{}') as { output?: unknown }
    return JSON.stringify(value) === this.#outside.cameTo(id)
  }

  #workOf({ kind, status, endedAt, output, failure, timeoutKind }: TaskView): ExpectedWork {
    let detail: unknown = timeoutKind
    if (status === 'completed') detail = kind === 'agent' ? JSON.parse(output ?? 'null') : null
    if (status === 'failed') detail = describeCode(failure?.code ?? '')
    return {
      kind: kind as 'task' | 'agent',
      status,
      endedAt: this.#isExact ? (endedAt ?? Infinity) - this.#startedAt : 0,
      detail,
    }
  }
}
