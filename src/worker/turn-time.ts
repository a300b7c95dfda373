/** The store's time, as far as the turns of an agent tell it: never behind what its code was told before. */
import type { Clock } from '../core/clock.ts'

export class TurnTime {
  readonly #clock: Clock
  /** What it is ahead of this process's monotonic time, at least. */
  #aheadMs: number

  constructor(clock: Clock, now: number) {
    this.#clock = clock
    this.#aheadMs = now - clock.monotonic()
  }

  now(): number {
    return Math.floor(this.#clock.monotonic() + this.#aheadMs)
  }

  atLeast(now: number): void {
    this.#aheadMs = Math.max(this.#aheadMs, now - this.#clock.monotonic())
  }
}
