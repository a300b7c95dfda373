// A program of agent-programs.ts through the public API, on the virtual clock, while its process is killed, closed and
// opened again, and its runs are evicted. What is outside (effects, the work of tasks) has a memory of its own and
// takes the same time however often it is asked, so that disturbances change no time.

import { copyFileSync, existsSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { HandlerError } from '../../src/core/failure.ts'
import type { Logger, TaskContext, TaskView } from '../../src/curfew.ts'
import { agent, Curfew, CurfewError, task } from '../../src/curfew.ts'
import { VirtualClock } from '../../src/testing/testing.ts'
import type { ExpectedWork, Trial } from './agent-model.ts'
import { ROOT } from './agent-model.ts'
import type { Probe, ProgramInput, RunNode } from './agent-programs.ts'
import { BACKOFF_MS, childOptions, interpret, taskOptions } from './agent-programs.ts'

export interface Disturbances {
  /** Suspended runs that stay in memory. */
  residents: number
  /** Killed at its so-manieth transaction since it was opened, before it or once it is committed. */
  kills: readonly { transaction: number; committed: boolean }[]
  /** Killed or closed at a time, at rest. */
  restarts: readonly { at: number; how: 'kill' | 'close' }[]
}

export interface Ended {
  works: Map<string, ExpectedWork>
  /** What no run may do. */
  problems: string[]
  transactions: number
}

interface TaskInput {
  ms: number
  end: 'ok' | 'fail' | 'hang'
  flaky: number
}

/** One process. What a dead one still says or does was never said or done. */
interface Generation {
  no: number
  alive: boolean
  clock: VirtualClock
  curfew: Curfew | null
}

class Killed extends Error {}

export class TrialRun {
  readonly #trial: Trial
  readonly #disturbances: Disturbances
  readonly #startedAt: number
  readonly #outside: Outside
  #store: string
  #copies = 0
  #generation: Generation
  #rootId = ''
  #kills: Disturbances['kills'][number][]
  #counting = false
  #driving = false
  #sinceOpen = 0
  #transactions = 0
  readonly #dead = new WeakSet<DatabaseSync>()
  readonly problems: string[] = []

  /** `store`: a file, or `:memory:`, over which nothing can be killed. */
  constructor(trial: Trial, disturbances: Disturbances, store: string) {
    this.#trial = trial
    this.#disturbances = disturbances
    this.#store = store
    this.#kills = [...disturbances.kills]
    const clock = new VirtualClock()
    this.#startedAt = clock.wall()
    this.#generation = { no: 0, alive: false, clock, curfew: null }
    this.#outside = new Outside((problem) => this.problems.push(problem))
  }
}
