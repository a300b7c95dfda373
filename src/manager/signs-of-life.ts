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
  const asked: { arrived: Promise<IteratorResult<T>> | null; wake(): void } = { arrived: null, wake() {} }
  // Listened to once: a promise that stays open for days keeps something of everybody who does.
  const ask = () => {
    const next = iterator.next()
    const tell = () => {
      asked.arrived = next
      asked.wake()
    }
    next.then(tell, tell)
  }
  let last: T | null = null
  try {
    for (ask(); ; ) {
      const over = new AbortController()
      asked.wake = () => over.abort()
      if (!asked.arrived) await sleep(clock, everyMs, over.signal)
      if (!asked.arrived) {
        if (last !== null) yield again(last)
        continue
      }
      const result = await asked.arrived
      asked.arrived = null
      if (result.done) return
      last = result.value
      yield last
      ask()
    }
  } finally {
    await iterator.return?.()
  }
}
