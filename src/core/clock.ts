/**
 * The ports of time and chance. Everything that waits, measures or draws goes through these,
 * so that the whole engine can run on a virtual clock.
 */

import { onAbort } from './on-abort.ts'

export interface Timer {
  cancel(): void
}

export interface TimerOptions {
  /**
   * A background timer (lease renewal, sweep) has no effect of its own on the work: a virtual clock that jumps
   * over several of its periods runs it once.
   */
  background?: boolean
}

export interface Clock {
  /** Milliseconds since the epoch by this machine's clock; may jump when somebody sets it. */
  wall(): number
  /** Milliseconds that only ever grow, time asleep included. */
  monotonic(): number
  /** Calls back once, never before `delayMs` have passed. Any delay is allowed, also above 2^31-1 ms. */
  setTimer(delayMs: number, callback: () => void, options?: TimerOptions): Timer
  /** Calls back at the end of this turn of the event loop. */
  endOfTurn(callback: () => void): void
  /** When it was last seen that this process had stood still: stopped, asleep, or too busy to look. */
  readonly stoodStillAt?: number
  /**
   * A virtual clock is the store's clock as well, and it asks those who take part whether they are idle.
   * Absent on the system's clock.
   */
  readonly virtual?: VirtualTime
}

export interface VirtualTime {
  /** Registers a participant; the clock advances only while every participant is idle. */
  join(participant: { idle(): boolean }): () => void
}

export interface Randomness {
  /** Uniform in [0, 1). */
  next(): number
  /** Bytes nobody can guess. */
  bytes(count: number): Uint8Array
}

/** After a process stood still it hears so long of what happened meanwhile, before it takes anything for too late. */
const HEAR_MS = 250

/** How much longer that is; 0: it did not stand still. */
export function hearingMs(clock: Clock): number {
  const now = clock.monotonic() // first: it may find that the machine slept
  return Math.max(0, (clock.stoodStillAt ?? -Infinity) + HEAR_MS - now)
}

/** Resolves after `delayMs`, or at once when the signal aborts. */
export function sleep(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve()
    const timer = clock.setTimer(delayMs, () => {
      stopListening?.()
      resolve()
    })
    const stopListening =
      signal &&
      onAbort(signal, () => {
        timer.cancel()
        resolve()
      })
  })
}

/** What comes of it within `limitMs`, or null. */
export async function within<T>(clock: Clock, limitMs: number, work: Promise<T>): Promise<T | null> {
  if (limitMs === Infinity) return work
  const over = new AbortController()
  try {
    return await Promise.race([work, sleep(clock, limitMs, over.signal).then(() => null)])
  } finally {
    over.abort()
  }
}
