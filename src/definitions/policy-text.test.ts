import { expect, test } from 'vitest'
import { decodePolicy, encodePolicy } from './policy-text.ts'
import { task } from './task.ts'
import { DEFAULT_POLICY } from './task-policy.ts'

test('only what differs from the defaults is kept, and comes back whole', () => {
  const { policy } = task({
    name: 'resize',
    run: () => 1,
    timeout: '2m',
    retries: 3,
    backoff: { max: '5m' },
    extensions: { max: 1 },
  })
  const text = encodePolicy(policy)
  expect(Object.keys(JSON.parse(text)).sort()).toEqual([
    'backoff',
    'extensions',
    'origins',
    'retries',
    'timeoutMs',
  ])
  expect(decodePolicy(text)).toEqual(policy)
  expect(encodePolicy(policy)).toBe(text)
})

test('the defaults are nothing at all', () => {
  expect(encodePolicy({ ...DEFAULT_POLICY })).toBe('{}')
  expect(decodePolicy('{}')).toEqual(DEFAULT_POLICY)
})

test('however many policies there are, each is read as itself', () => {
  for (let retries = 1; retries <= 1_000; retries++) {
    for (const timeoutMs of [retries, null]) {
      const policy = { ...DEFAULT_POLICY, retries, timeoutMs }
      expect(decodePolicy(encodePolicy(policy))).toEqual(policy)
    }
  }
})

test('a text that is no policy throws, so that its record is parked and not guessed at', () => {
  expect(() => decodePolicy('rubbish')).toThrow(SyntaxError)
})
