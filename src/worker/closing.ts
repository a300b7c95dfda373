/** The end of a process with a worker: once, in this order, whether it works for a manager of its own or for others. */

import type { Clock } from '../core/clock.ts'
import { within } from '../core/clock.ts'
import type { Duration } from '../core/duration.ts'
import { durationMs } from '../core/duration.ts'
import { checkKnown } from '../core/known-options.ts'
import type { Worker } from './worker.ts'

/** `drain`: what runs may end first, at most so long; `true`: as long as it takes. */
export interface CloseOptions {
  drain?: boolean | Duration
}

export interface ClosingSteps {
  /** Nothing new is begun. */
  stopTaking(): void
  /** Resolves when what was stopped is known where it has to be. */
  reported(): Promise<void>
  /** The rest, with what still runs left behind. */
  end(): Promise<void>
}

/** Beyond the grace, for the last reports: a store or manager that is away must not hold its host. */
const CLOSE_MS = 10_000

export class Closing {
  readonly closed: Promise<void>
  readonly #worker: Worker
  readonly #clock: Clock
  readonly #hurry = Promise.withResolvers<void>()
  readonly #end = Promise.withResolvers<void>()
  #closing: Promise<void> | null = null

  constructor(worker: Worker, clock: Clock) {
    this.#worker = worker
    this.#clock = clock
    this.closed = this.#end.promise
  }

  close(options: CloseOptions, steps: ClosingSteps): Promise<void> {
    checkKnown('close', options, ['drain'])
    const { drain = false } = options
    const drainMs =
      drain === true ? Infinity : drain === false || drain === 0 ? 0 : durationMs(drain, 'drain')
    // A second call that does not want to wait ends the waiting of the first.
    if (drainMs === 0) this.#hurry.resolve()
    this.#closing ??= this.#run(drainMs, steps).finally(() => this.#end.resolve())
    return this.#closing
  }

  async #run(drainMs: number, steps: ClosingSteps): Promise<void> {
    const reason = { code: 'closing', message: 'the process that runs it is closing' } as const
    const worker = this.#worker
    steps.stopTaking()
    worker.refuseTasks(reason)
    if (drainMs > 0) await within(this.#clock, drainMs, Promise.race([worker.drained(), this.#hurry.promise]))
    worker.refuse(reason)
    worker.stopAll(reason)
    await within(this.#clock, worker.longestGraceMs + CLOSE_MS, steps.reported())
    await steps.end()
  }
}
