import { describe, expect, test } from 'vitest'
import { CurfewError } from '../core/errors.ts'
import type { TaskOptions } from './task.ts'
import { task } from './task.ts'
import { applyOptions, checkName, DEFAULT_POLICY, policyWarnings } from './task-policy.ts'

const run = () => 1

function refusal(definition: object): CurfewError {
  try {
    task({ name: 'resize', run, ...definition })
  } catch (error) {
    expect(error).toBeInstanceOf(CurfewError)
    return error as CurfewError
  }
  throw new Error('it was taken')
}

describe('an option that is not valid', () => {
  const bad: [key: string, value: unknown][] = [
    ...['timeout', 'attemptTimeout', 'queueTimeout', 'heartbeatTimeout', 'stuckAfter'].flatMap((key) =>
      [0, -1, NaN, 'soon', '401d', {}, true].map((value): [string, unknown] => [key, value]),
    ),
    ...['grace', 'softStop', 'retention'].flatMap((key) =>
      [-1, NaN, 'soon', '401d', null].map((value): [string, unknown] => [key, value]),
    ),
    ['onTimeout', 'again'],
    ['onTimeout', null],
    ['retries', -1],
    ['retries', 1.5],
    ['retries', NaN],
    ['retries', '3'],
    ['retries', 1_001],
    ['backoff', 5],
    ['backoff', null],
    ['backoff', '5s'],
    ['warnAt', 0],
    ['warnAt', 1.1],
    ['warnAt', NaN],
    ['warnAt', '80%'],
    ['queue', ''],
    ['queue', 5],
    ['queue', 5n],
    ['queue', 'a\u0000b'],
    ['queue', 'a\ud800'],
    ['queue', 'q'.repeat(201)],
    ['priority', 1.5],
    ['priority', 40_000],
    ['priority', -40_000],
    ['priority', 'high'],
    ['atMostOnce', 'no'],
    ['atMostOnce', 0],
    ['extensions', 5],
    ['extensions', null],
    ['isolation', 'thread'],
    ['input', 5],
    ['input', { parse: () => 1 }],
    ['timout', '5s'],
  ]
  test.each(bad)('names the task and the key: %s: %o', (key, value) => {
    const error = refusal({ [key]: value })
    expect(error.code).toMatch(/^invalid_(option|duration|name)$/)
    expect(error.message).toMatch(new RegExp(`^task resize: ${key}\\b`))
  })

  test.each<[string, object]>([
    ['backoff.initial', { backoff: { initial: -1 } }],
    ['backoff.max', { backoff: { max: 'late' } }],
    ['backoff.max', { backoff: { initial: '10s', max: '5s' } }],
    ['backoff.factor', { backoff: { factor: 0.5 } }],
    ['backoff.factor', { backoff: { factor: NaN } }],
    ['backoff.jitter', { backoff: { jitter: 2 } }],
    ['extensions.base', { extensions: { base: 0 } }],
    ['extensions.min', { extensions: { min: 'x' } }],
    ['extensions.max', { extensions: { max: -1 } }],
    ['extensions.max', { extensions: { max: 1.5 } }],
    ['extensions.warnAtRemaining', { extensions: { warnAtRemaining: 'one' } }],
  ])('names the place inside: %s', (key, options) => {
    expect(refusal(options).message).toMatch(new RegExp(`^task resize: ${key.replace('.', '\\.')}\\b`))
  })

  test('unknown keys inside are refused as well', () => {
    expect(refusal({ backoff: { inital: '1s' } }).message).toMatch(
      /^task resize: backoff: inital is not an option/,
    )
    expect(refusal({ extensions: { maximum: 1 } }).message).toMatch(
      /^task resize: extensions: maximum is not/,
    )
  })

  test('an unknown option is told with those there are', () => {
    expect(refusal({ timout: '5s' }).message).toMatch(
      /timout is not an option; there are timeout, attemptTimeout/,
    )
  })

  test('a task without a handler, and one without the file its process needs', () => {
    expect(refusal({ run: undefined }).message).toBe('task resize: run must be a function')
    expect(refusal({ isolation: 'process' }).message).toMatch(
      /^task resize: file is missing.*import\.meta\.url/,
    )
    expect(task({ name: 'resize', run, isolation: 'process', file: import.meta.url }).isolation).toBe(
      'process',
    )
  })

  test.each([[''], [undefined], [5], ['n'.repeat(201)], ['a\u0000'], ['\udc00']])(
    'a name like %o',
    (name) => {
      expect(() => task({ name: name as string, run })).toThrow(
        expect.objectContaining({ code: 'invalid_name', message: expect.stringMatching(/^task name /) }),
      )
    },
  )
})

describe('a policy', () => {
  test('has no limit, no retry and five seconds of grace unless something is said', () => {
    expect(task({ name: 'resize', run }).policy).toEqual(DEFAULT_POLICY)
    expect(DEFAULT_POLICY).toMatchObject({
      timeoutMs: null,
      attemptTimeoutMs: null,
      queueTimeoutMs: null,
      heartbeatTimeoutMs: null,
      stuckAfterMs: null,
      retries: 0,
      backoff: { initialMs: 1_000, factor: 2, maxMs: 60_000, jitter: 1 },
      graceMs: 5_000,
      queue: 'default',
      priority: 0,
      warnAt: 0.8,
      retentionMs: 7 * 86_400_000,
    })
  })

  const options: TaskOptions = {
    timeout: '2m',
    attemptTimeout: '30s',
    queueTimeout: '1m',
    heartbeatTimeout: 10_000,
    stuckAfter: { minutes: 1 },
    onTimeout: 'fail',
    retries: 3,
    backoff: { initial: 0, factor: 3, max: '5m', jitter: 0 },
    grace: 0,
    softStop: '5s',
    warnAt: 0.5,
    queue: 'images',
    priority: -5,
    atMostOnce: true,
    retention: '1d',
    extensions: { base: '10s', min: '2s', max: 1, warnAtRemaining: 0 },
  }

  test('takes every option, in milliseconds', () => {
    const { policy } = task({ name: 'resize', run, ...options })
    const { cleanupMs, inherit, reserveMs, boundBy, keptBackMs, ownTimeoutMs } = DEFAULT_POLICY
    const { label, failsOnTimeout, retriedAbove } = DEFAULT_POLICY
    expect(policy).toEqual({
      trace: null,
      // Not for tasks of their own.
      ...{ cleanupMs, inherit, reserveMs, boundBy, keptBackMs, ownTimeoutMs },
      ...{ label, failsOnTimeout, retriedAbove },
      timeoutMs: 120_000,
      attemptTimeoutMs: 30_000,
      queueTimeoutMs: 60_000,
      heartbeatTimeoutMs: 10_000,
      stuckAfterMs: 60_000,
      onTimeout: 'fail',
      retries: 3,
      backoff: { initialMs: 0, factor: 3, maxMs: 300_000, jitter: 0 },
      graceMs: 0,
      softStopMs: 5_000,
      warnAt: 0.5,
      queue: 'images',
      priority: -5,
      atMostOnce: true,
      retentionMs: 86_400_000,
      extensions: {
        ...DEFAULT_POLICY.extensions,
        baseMs: 10_000,
        minMs: 2_000,
        maxGrants: 1,
        warnAtRemaining: 0,
      },
      origins: {
        timeout: 'definition',
        attemptTimeout: 'definition',
        queueTimeout: 'definition',
        heartbeatTimeout: 'definition',
        stuckAfter: 'definition',
      },
    })
  })

  test('a call changes what it names, says so, and leaves the definition alone', () => {
    const { policy } = task({ name: 'resize', run, ...options })
    const before = structuredClone(policy)
    const called = applyOptions(
      'task resize',
      policy,
      { timeout: '1h', stuckAfter: null, retries: undefined, backoff: { max: '1m' } },
      'call',
    )
    expect(called).toMatchObject({
      timeoutMs: 3_600_000,
      stuckAfterMs: null,
      retries: 3,
      attemptTimeoutMs: 30_000,
    })
    expect(called.backoff).toEqual({ initialMs: 0, factor: 3, maxMs: 60_000, jitter: 0 })
    expect(called.origins).toMatchObject({
      timeout: 'call',
      stuckAfter: 'call',
      attemptTimeout: 'definition',
    })
    expect(policy).toEqual(before)
  })

  test('the default policy is not touched by definitions', () => {
    const before = structuredClone(DEFAULT_POLICY)
    task({ name: 'resize', run, ...options })
    expect(DEFAULT_POLICY).toEqual(before)
  })
})

test('names may be anything people write, within their length', () => {
  for (const name of ['a', 'send-mail', 'größe', '📧', 'x'.repeat(200)])
    expect(checkName('key', name)).toBe(name)
})

test('limits that cannot hold together are told', () => {
  const warningsOf = (options: TaskOptions) =>
    policyWarnings(applyOptions('task t', DEFAULT_POLICY, options, 'definition'))
  expect(warningsOf({ timeout: '1m', attemptTimeout: '30s', retries: 0 })).toEqual([])
  expect(
    warningsOf({
      timeout: '1m',
      attemptTimeout: '30s',
      retries: 1,
      grace: '5s',
      backoff: { initial: '10s', jitter: 0 },
    }),
  ).toEqual(['2 attempts of 30s with grace and backoff may take 1m20s; timeout allows 1m'])
  expect(warningsOf({ attemptTimeout: '10s', heartbeatTimeout: '10s', stuckAfter: '5s' })).toEqual([
    'heartbeatTimeout of 10s never fires: attemptTimeout is 10s',
  ])
})

test('a first delay above the usual maximum is kept', () => {
  expect(task({ name: 'slow', run, backoff: { initial: '10m' } }).policy.backoff).toMatchObject({
    initialMs: 600_000,
    maxMs: 600_000,
  })
})
