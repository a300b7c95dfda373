/**
 * The store's time as this process knows it: a lower bound, so that nothing fires early.
 * It is a reading plus the monotonic time since its answer arrived, and it never goes back.
 */
import type { Clock } from '../core/clock.ts'

/** Two clocks run apart by less, also while both are being adjusted: a millisecond in a second. */
const MOST_DRIFT = 0.001

export class StoreTime {
  readonly #clock: Clock
  #reading: number
  #arrivedAt: number
  #last = 0

  constructor(clock: Clock, reading: number, arrivedAt = clock.monotonic()) {
    this.#clock = clock
    this.#reading = reading
    this.#arrivedAt = arrivedAt
  }

  now(): number {
    const estimate = this.#clock.virtual
      ? this.#clock.wall()
      : this.#reading + (this.#clock.monotonic() - this.#arrivedAt)
    this.#last = Math.max(this.#last, Math.floor(estimate))
    return this.#last
  }

  /**
   * A newer reading; the monotonic times are those at which it was asked for and answered. One that took long says
   * little: what was known before is then the higher bound, less what the clocks may have run apart since.
   */
  update(reading: number, { sentAt, arrivedAt }: { sentAt: number; arrivedAt: number }): void {
    const known = this.#reading + (arrivedAt - this.#arrivedAt) * (1 - MOST_DRIFT)
    // It cannot be later now. Above that, the clock of the store stood still or was set.
    const latest = reading + (arrivedAt - sentAt)
    this.#reading = known <= latest ? Math.max(reading, known) : reading
    this.#arrivedAt = arrivedAt
  }
}
