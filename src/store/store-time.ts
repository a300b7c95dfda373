/**
 * The store's time as this process knows it: a lower bound, so that nothing fires early.
 * It is the last reading plus the monotonic time since its answer arrived, and it never goes back.
 */
import type { Clock } from '../core/clock.ts'

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

  /** A newer reading; `arrivedAt` is the monotonic time at which its answer came. */
  update(reading: number, arrivedAt: number): void {
    this.#reading = reading
    this.#arrivedAt = arrivedAt
  }
}
