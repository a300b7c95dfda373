/** A stream that says something every so often, so that its reader can tell one that is quiet from one that is dead. */
import type { Clock } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'

/** `again`: what is said when there is nothing new, made of the last message. */
export async function* withSignsOfLife<T>(
  source: AsyncIterable<T>,
  clock: Clock,
  everyMs: number,
  again: (last: T) => T,
): AsyncGenerator<T> {
  const iterator = source[Symbol.asyncIterator]()
  let last: T | null = null
  try {
    for (let next = iterator.next(); ; ) {
      const over = new AbortController()
      const quiet = sleep(clock, everyMs, over.signal).then(() => null)
      const result = await Promise.race([next, quiet])
      over.abort()
      if (result === null) {
        if (last !== null) yield again(last)
        continue
      }
      if (result.done) return
      last = result.value
      yield last
      next = iterator.next()
    }
  } finally {
    await iterator.return?.()
  }
}
