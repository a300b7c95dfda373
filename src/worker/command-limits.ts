/**
 * The limits of a command: how long it may take, and how long it may say nothing. Never early, and whatever happened
 * while this process could not look (busy, or stopped itself) is seen before anything is said to be over.
 */
import type { Clock, Timer } from '../core/clock.ts'

export type CommandLimit = 'limit' | 'idle'

interface Limits {
  limitMs: number | null
  idleMs: number | null
}

/** Of a command that has said nothing. */
export function firstLimit({ limitMs, idleMs }: Limits): { which: CommandLimit; ms: number } | null {
  if (idleMs !== null && (limitMs === null || idleMs < limitMs)) return { which: 'idle', ms: idleMs }
  return limitMs === null ? null : { which: 'limit', ms: limitMs }
}

export class CommandLimits {
  readonly #clock: Clock
  readonly #over: (which: CommandLimit) => void
  readonly #timers = new Map<CommandLimit, Timer>()
  #saidAt: number
  #cancelled = false

  /** Counts from now on. Calls back once, unless cancelled. */
  constructor(clock: Clock, { limitMs, idleMs }: Limits, over: (which: CommandLimit) => void) {
    this.#clock = clock
    this.#over = over
    this.#saidAt = clock.monotonic()
    if (limitMs !== null) this.#arm('limit', limitMs, () => 0)
    if (idleMs !== null) this.#arm('idle', idleMs, () => this.#saidAt + idleMs - clock.monotonic())
  }

  /** It printed something. */
  said(): void {
    this.#saidAt = this.#clock.monotonic()
  }

  cancel(): void {
    this.#cancelled = true
    for (const timer of this.#timers.values()) timer.cancel()
  }

  #arm(which: CommandLimit, waitMs: number, leftMs: () => number): void {
    const look = () => {
      if (this.#cancelled) return
      const left = leftMs()
      if (left > 0) return this.#arm(which, left, leftMs)
      this.cancel()
      this.#over(which)
    }
    // At the end of the turn: its exit and its output may be waiting to be read.
    this.#timers.set(
      which,
      this.#clock.setTimer(waitMs, () => this.#clock.endOfTurn(look)),
    )
  }
}
