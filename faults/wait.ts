/** Waits for a condition, within a bound. */
import { setTimeout as pause } from 'node:timers/promises'
import { monotonicMs } from './journal.ts'

const POLL_MS = 20

/** Resolves with the first answer that is not null, undefined or false; rejects when the bound is over. */
export async function until<T>(
  what: string,
  timeoutMs: number,
  look: () => T | Promise<T>,
): Promise<NonNullable<Exclude<T, false>>> {
  const endsAt = monotonicMs() + timeoutMs
  for (;;) {
    const answer = await look()
    if (answer !== null && answer !== undefined && answer !== false) {
      return answer as NonNullable<Exclude<T, false>>
    }
    if (monotonicMs() > endsAt) throw new Error(`within ${timeoutMs} ms it did not happen: ${what}`)
    await pause(POLL_MS)
  }
}

/** Rejects when the promise has not settled within the bound. */
export async function within<T>(what: string, timeoutMs: number, promise: Promise<T>): Promise<T> {
  const over = new AbortController()
  const bound = pause(timeoutMs, null, { signal: over.signal }).then(
    () => {
      throw new Error(`within ${timeoutMs} ms it did not happen: ${what}`)
    },
    () => new Promise<never>(() => undefined), // it came in time
  )
  try {
    return await Promise.race([promise, bound])
  } finally {
    over.abort()
  }
}
