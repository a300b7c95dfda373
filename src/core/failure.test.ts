import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { CurfewError } from './errors.ts'
import { failureOf, HandlerError } from './failure.ts'
import { REVOKED } from './fixtures/revoked.ts'
import { MAX_FAILURE_TEXT } from './limits.ts'

describe('failureOf', () => {
  test('an error keeps its message, its stack and its code, and may be tried again', () => {
    const error = Object.assign(new Error('no such file'), { code: 'ENOENT' })
    const failure = failureOf(error)
    expect(failure).toMatchObject({ code: 'ENOENT', message: 'no such file', retryable: true })
    expect(failure.stack).toContain('failure.test.ts')
  })

  test('a handler says with HandlerError that another attempt is no use, and why', () => {
    const error = new HandlerError('card declined', {
      code: 'declined',
      retryable: false,
      details: { card: 4 },
      cause: new Error('402'),
    })
    expect(failureOf(error)).toMatchObject({
      code: 'declined',
      message: 'card declined',
      retryable: false,
      details: { card: 4 },
      cause: { code: 'failed', message: '402' },
    })
  })

  test('a code that is no text is not taken for one', () => {
    expect(failureOf(Object.assign(new Error('x'), { code: 7, retryable: 'no' }))).toMatchObject({
      code: 'failed',
      retryable: true,
    })
    expect(failureOf(new CurfewError('invalid_input', 'x'))).toMatchObject({ code: 'invalid_input' })
  })

  test.each<[unknown, string]>([
    ['out of paper', 'out of paper'],
    [undefined, 'undefined'],
    [null, 'null'],
    [42, '42'],
    [{ reason: 'x' }, '{"reason":"x"}'],
    [10n, '10'],
    [Symbol('s'), 'Symbol(s)'],
  ])('anything may be thrown: %o', (thrown, message) => {
    expect(failureOf(thrown)).toEqual({ code: 'failed', message, retryable: true })
  })

  test('causes are followed five deep, also around a circle', () => {
    const loop = new Error('loop')
    loop.cause = loop
    let depth = 0
    for (let cause = failureOf(loop).cause; cause; cause = cause.cause) depth++
    expect(depth).toBe(5)
    expect(failureOf(loop).cause?.stack).toBeUndefined()
  })

  test('long texts are cut and say how long they were', () => {
    const failure = failureOf(new Error('x'.repeat(100_000)))
    expect(failure.message.length).toBeLessThan(MAX_FAILURE_TEXT + 100)
    expect(failure.message).toMatch(/… \(100000 characters\)$/)
  })

  test('details that cannot be kept say so instead of breaking the failure', () => {
    const loop: { self?: unknown } = {}
    loop.self = loop
    const details = (value: unknown) => failureOf(Object.assign(new Error('x'), { details: value })).details
    expect(details(loop)).toMatch(/^details could not be kept: .*circular/)
    expect(details({ n: 10n })).toMatch(/^details could not be kept: /)
    expect(details({ toJSON: () => fail(undefined) })).toBe('details could not be kept: undefined')
    expect(details({ fine: [1] })).toEqual({ fine: [1] })
    expect(JSON.stringify(details('y'.repeat(100_000))).length).toBeLessThan(MAX_FAILURE_TEXT + 100)
  })

  const hostile: [string, unknown][] = [
    ['an object without a prototype that refers to itself', selfish()],
    ['a message that is no text', Object.assign(new Error('x'), { message: 42 })],
    ['a stack that is no text', Object.assign(new Error('x'), { stack: { frames: [] } })],
    [
      'a property that throws',
      Object.defineProperty(new Error('x'), 'details', {
        get: () => {
          throw new Error('no')
        },
      }),
    ],
    [
      'a text that throws',
      { toJSON: () => fail(new Error('json')), toString: () => fail(new Error('text')) },
    ],
    ['a proxy that was revoked', REVOKED],
    [
      'a property that throws one',
      Object.defineProperty(new Error('x'), 'code', { get: () => fail(REVOKED) }),
    ],
  ]
  test.each(hostile)('%s still makes a failure', (_, thrown) => {
    const failure = failureOf(thrown)
    expect(failure).toMatchObject({ code: 'failed', retryable: true })
    expect(typeof failure.message).toBe('string')
    expect(JSON.parse(JSON.stringify(failure))).toEqual(failure)
  })

  test('whatever is thrown, the failure survives being stored', () => {
    const errors = fc
      .record({ message: fc.string({ unit: 'binary' }), code: fc.anything(), details: fc.anything() })
      .map(({ message, ...rest }) => Object.assign(new Error(message), rest))
    fc.assert(
      fc.property(fc.oneof(fc.anything({ withBigInt: true, withNullPrototype: true }), errors), (thrown) => {
        const failure = failureOf(thrown)
        expect(JSON.parse(JSON.stringify(failure))).toEqual(failure)
        expect(failure.message.isWellFormed()).toBe(true)
      }),
    )
  })
})

function selfish(): unknown {
  const value = Object.create(null) as Record<string, unknown>
  value.self = value
  return value
}

function fail(thrown: unknown): never {
  throw thrown
}
