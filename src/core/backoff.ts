/** How long to wait before the next try: exponential, capped, with full jitter. Used wherever anything is retried. */

export interface Backoff {
  initialMs: number
  factor: number
  maxMs: number
  /** 0: exactly; 1: anywhere between zero and the computed delay. */
  jitter: number
}

export const DEFAULT_BACKOFF: Backoff = { initialMs: 1_000, factor: 2, maxMs: 60_000, jitter: 1 }

/** `tries` counts from 0: the delay after the first failure. `chance` is uniform in [0, 1). */
export function backoffMs(backoff: Backoff, tries: number, chance: number): number {
  // The power is cut before it is infinite: nothing times infinity is not a number.
  const grown = backoff.initialMs * Math.min(backoff.factor ** tries, Number.MAX_VALUE)
  const full = Math.min(backoff.maxMs, grown)
  return Math.min(backoff.maxMs, Math.ceil(full * (1 - backoff.jitter) + full * backoff.jitter * chance))
}
