import { expect, test } from 'vitest'
import { heavy, leftBehind } from './fixtures/old-space.ts'
import { onAbort } from './on-abort.ts'

test('each hears it once, but for those that have stopped listening', () => {
  const stop = new AbortController()
  const heard: string[] = []
  const listen = (name: string) => onAbort(stop.signal, () => heard.push(name))
  const [first, second, third, fourth] = ['first', 'second', 'third', 'fourth'].map(listen)
  second?.()
  fourth?.()
  fourth?.()
  stop.abort()
  first?.()
  third?.()
  stop.abort()
  expect(heard.sort()).toEqual(['first', 'third'])
})

test('one that stops others, or listens again, while it is told', () => {
  const stop = new AbortController()
  const heard: string[] = []
  const forgetLast = onAbort(stop.signal, () => heard.push('never'))
  onAbort(stop.signal, () => {
    heard.push('told')
    forgetLast()
  })
  stop.abort()
  expect(heard).toEqual(['told'])
})

test('a listener that has stopped does not keep what came after it', async () => {
  const { signal } = new AbortController()
  let forget = () => {}
  const megabytes = await leftBehind(() => {
    for (let i = 0; i < 100; i++) {
      const request = heavy()
      const before = forget
      forget = onAbort(signal, () => request.push([]))
      before()
    }
  })
  expect(megabytes).toBeLessThan(10)
})
