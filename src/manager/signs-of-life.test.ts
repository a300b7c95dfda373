import { expect, test } from 'vitest'
import { VirtualClock } from '../testing/virtual-clock.ts'
import { withSignsOfLife } from './signs-of-life.ts'

test('what comes is told as it comes, and again while nothing does, until its end', async () => {
  const clock = new VirtualClock()
  const from = clock.wall()
  async function* source() {
    await clock.sleep('7s')
    yield 'a'
    await clock.sleep('11s')
    yield 'b'
    await clock.sleep('1s')
  }
  const heard: string[] = []
  const reading = (async () => {
    const stream = withSignsOfLife<string>(source(), clock, 5_000, (last) => `${last} again`)
    for await (const message of stream) heard.push(`${(clock.wall() - from) / 1_000} ${message}`)
    heard.push('end')
  })()
  for (let second = 0; second < 30; second++) await clock.advance('1s')
  await reading
  expect(heard).toEqual(['7 a', '12 a again', '17 a again', '18 b', 'end'])
})

test('a reader that stops ends what it reads', async () => {
  const clock = new VirtualClock()
  let ended = false
  async function* source() {
    try {
      yield 1
      yield 2
    } finally {
      ended = true
    }
  }
  for await (const _ of withSignsOfLife(source(), clock, 5_000, (last) => last)) break
  expect(ended).toBe(true)
})

test('what goes wrong is told too', async () => {
  // biome-ignore lint/correctness/useYield: it has nothing to say
  async function* source(): AsyncGenerator<number> {
    throw new Error('broken')
  }
  const stream = withSignsOfLife(source(), new VirtualClock(), 5_000, (last) => last)
  await expect(stream.next()).rejects.toThrow('broken')
})

test('one that is quiet for days keeps nothing of each time that it said so', async () => {
  const clock = new VirtualClock()
  const waiting = Promise.withResolvers<IteratorResult<string>>()
  let listeners = 0
  const { then } = waiting.promise
  // biome-ignore lint/suspicious/noThenProperty: whoever listens is counted
  waiting.promise.then = (...both) => {
    listeners++
    return Promise.prototype.then.apply(waiting.promise, both as Parameters<typeof then>) as never
  }
  const told: Promise<IteratorResult<string>>[] = [
    Promise.resolve({ done: false, value: 'a' }),
    waiting.promise,
  ]
  const source = { [Symbol.asyncIterator]: () => ({ next: () => told.shift() as (typeof told)[number] }) }
  const heard: string[] = []
  const reading = (async () => {
    for await (const message of withSignsOfLife<string>(source, clock, 5_000, (last) => last))
      heard.push(message)
  })()
  for (let i = 0; i < 10; i++) await clock.advance('5s')
  expect(heard).toHaveLength(11)
  expect(listeners).toBe(1)
  waiting.resolve({ done: true, value: undefined })
  await reading
})
