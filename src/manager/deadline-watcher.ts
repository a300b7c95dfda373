/**
 * Sleeps until the next moment anything is due, and fires it. Timers are hints: the truth is in the store and is
 * asked each time. One that comes early looks at the clock and sleeps again.
 */
import type { Clock, Timer } from '../core/clock.ts'
import { hearingMs } from '../core/clock.ts'

export interface WatcherOptions {
  clock: Clock
  /** The store's time. */
  now(): number
  /** Fires what is due; answers whether there may be more at once, and whether some of it was busy. */
  fire(): Promise<{ more: boolean; busy: boolean }>
  /** The next moment anything is due, as far as the store tells. */
  nextDue(): Promise<number | null>
  failed(error: unknown): void
}

/** Until what somebody else has locked is looked at again. */
const BUSY_MS = 25

export class DeadlineWatcher {
  readonly #options: WatcherOptions
  #timer: Timer | null = null
  #nextAt = Infinity
  #firing = false
  #closed = false

  constructor(options: WatcherOptions) {
    this.#options = options
  }

  get idle(): boolean {
    return !this.#firing
  }

  /** Something is due at this moment. */
  hint(dueAt: number): void {
    if (this.#closed || dueAt >= this.#nextAt) return
    this.#nextAt = dueAt
    if (!this.#firing) this.#arm()
  }

  /** Looks at the store now. */
  look(): void {
    this.hint(this.#options.now())
  }

  close(): void {
    this.#closed = true
    this.#timer?.cancel()
  }

  #arm(): void {
    this.#timer?.cancel()
    if (this.#nextAt === Infinity || this.#closed) return
    const { clock, now } = this.#options
    this.#timer = clock.setTimer(Math.max(0, this.#nextAt - now()), () => {
      if (now() < this.#nextAt) return this.#arm()
      // An end that was reported meanwhile comes before the deadline that has passed.
      const waitMs = hearingMs(clock)
      if (waitMs === 0) void this.#fire()
      else this.#timer = clock.setTimer(waitMs, () => void this.#fire())
    })
  }

  async #fire(): Promise<void> {
    if (this.#firing || this.#closed) return
    this.#firing = true
    try {
      this.#nextAt = Infinity
      let fired = await this.#options.fire()
      while (fired.more && !this.#closed) fired = await this.#options.fire()
      const next = await this.#options.nextDue()
      // What is busy is due still: whoever has it locked needs a moment.
      const soonest = fired.busy ? this.#options.now() + BUSY_MS : 0
      if (next !== null) this.#nextAt = Math.min(this.#nextAt, Math.max(next, soonest))
    } catch (error) {
      if (!this.#closed) this.#options.failed(error)
    } finally {
      this.#firing = false
      this.#arm()
    }
  }
}
