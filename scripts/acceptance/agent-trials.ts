// A program of agent-programs.ts through the public API, on the virtual clock, while its process is killed, closed and
// opened again, and its runs are evicted.

import type { TaskView } from '../../src/curfew.ts'
import { CurfewError } from '../../src/curfew.ts'
import { VirtualClock } from '../../src/testing/testing.ts'
import type { ExpectedWork, Trial } from './agent-model.ts'
import type { Generation } from './agent-outside.ts'
import { Outside } from './agent-outside.ts'
import { describeCode } from './agent-programs.ts'
import type { Disturbances } from './disturbed-engine.ts'
import { DisturbedEngine } from './disturbed-engine.ts'
import type { World } from './world.ts'

export interface Ended {
  works: Map<string, ExpectedWork>
  /** What must not be. */
  problems: string[]
  transactions: number
}

/** Has the code to start an agent, and runs nothing. */
const UNBORN: Generation = { no: 0, alive: false, clock: new VirtualClock() }

export class TrialRun {
  readonly #trial: Trial
  readonly #disturbances: Disturbances
  readonly #engine: DisturbedEngine
  readonly #outside = new Outside()
  #rootId = ''

  constructor(world: World, trial: Trial, disturbances: Disturbances) {
    this.#trial = trial
    this.#disturbances = disturbances
    this.#engine = new DisturbedEngine(world, disturbances, (generation) => {
      const { work, program } = this.#outside.definitions(generation)
      return { tasks: [work], agents: [program] }
    })
  }

  run(overAt: number): Promise<Ended> {
    return this.#engine.watch(async () => {
      await this.#start()
      await this.#engine.perform(this.#acts(), overAt + 1)
      return this.#ended()
    })
  }

  async #start(): Promise<void> {
    const engine = this.#engine
    const curfew = await engine.alive()
    const { program, timeout, cleanup } = this.#trial
    const options = { cleanup, ...(timeout !== null && { timeout }) }
    const isUp = this.#disturbances.restarts.every(({ downMs }) => !downMs)
    const since = engine.isExact && isUp ? engine.startedAt : null
    const definition = this.#outside.definitions(UNBORN).program
    const { id } = await curfew.start(definition, { program, since }, options)
    this.#rootId = id
    engine.counting = true
  }

  #acts(): { at: number; act: () => Promise<unknown> }[] {
    const { signals, cancelAt } = this.#trial
    return [
      ...signals.map(({ at, name }, i) => ({ at, act: () => this.#signal(name, { signal: i }) })),
      { at: cancelAt, act: () => this.#engine.call((curfew) => curfew.agent(this.#rootId).cancel()) },
    ]
  }

  async #signal(name: string, value: unknown): Promise<void> {
    try {
      await this.#engine.call((curfew) => curfew.agent(this.#rootId).signal(name, value))
    } catch (error) {
      if (!(error instanceof CurfewError && error.code === 'refused')) throw error // it has ended
    }
  }

  async #ended(): Promise<Ended> {
    const engine = this.#engine
    const curfew = await engine.alive()
    engine.counting = false
    const works = new Map<string, ExpectedWork>()
    const problems = [...this.#outside.problems, ...engine.lines]
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
          problems.push(`${place}: ended with ${JSON.stringify(view.output)}, not with what its code came to`)
        works.set(place, work)
      }
    } while (cursor !== null)
    return { works, problems, transactions: engine.transactions }
  }

  #isTrue({ id, output }: TaskView): boolean {
    const { output: value } = (output ?? {}) as { output?: unknown }
    return JSON.stringify(value) === this.#outside.cameTo(id)
  }

  #workOf({ kind, status, endedAt, output, failure, timeoutKind }: TaskView): ExpectedWork {
    let detail: unknown = timeoutKind
    if (status === 'completed') detail = kind === 'agent' ? output : null
    if (status === 'failed') detail = describeCode(failure?.code ?? '')
    return {
      kind: kind as 'task' | 'agent',
      status,
      endedAt: this.#engine.isExact ? (endedAt ?? Infinity) - this.#engine.startedAt : 0,
      detail,
    }
  }
}
