import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { CurfewError } from './errors.ts'
import { REVOKED } from './fixtures/revoked.ts'
import { checkJsonText, decodeJson, encodeJson } from './json.ts'

function refusal(value: unknown, maxBytes?: number): CurfewError {
  try {
    encodeJson(value, 'output', maxBytes)
  } catch (error) {
    expect(error).toBeInstanceOf(CurfewError)
    return error as CurfewError
  }
  throw new Error('nothing was refused')
}

function nested(depth: number, inside: unknown = 1): unknown {
  let value = inside
  for (let i = 0; i < depth; i++) value = i % 2 ? { a: value } : [value]
  return value
}

describe('what is kept', () => {
  test('comes back as it was', () => {
    // Not in a payload: keys that are refused, and -0, which JSON does not know.
    const json = fc
      .jsonValue()
      .filter((value) => !/__proto__|"constructor"|"prototype"/.test(JSON.stringify(value)))
    fc.assert(
      fc.property(json, (value) => {
        const text = encodeJson(value, 'input')
        expect(decodeJson(text)).toEqual(JSON.parse(JSON.stringify(value)))
      }),
    )
  })

  test.each([
    ['NUL', 'a\u0000b'],
    ['half a character', 'a\ud800b'],
    ['the other half', '\udc00'],
    ['a whole one', '😀'],
  ])('%s survives, and the text holds nothing a database would refuse', (_, value) => {
    const text = encodeJson({ value, [`key ${value}`]: 1 }, 'input')
    expect(text.isWellFormed()).toBe(true)
    expect(text).not.toContain('\u0000')
    expect(decodeJson(text)).toEqual({ value, [`key ${value}`]: 1 })
  })

  test('any text survives, and is well formed as JSON', () => {
    fc.assert(
      fc.property(
        fc.string({ unit: 'binary' }),
        fc.array(fc.integer({ min: 0, max: 0xffff })),
        (text, units) => {
          const value = text + String.fromCharCode(...units)
          const encoded = encodeJson(value, 'input')
          expect(encoded.isWellFormed()).toBe(true)
          expect(encoded.includes('\u0000')).toBe(false)
          expect(decodeJson(encoded)).toBe(value)
        },
      ),
    )
  })

  test('nothing is null', () => {
    expect(encodeJson(undefined, 'output')).toBe('null')
    expect(encodeJson(null, 'output')).toBe('null')
  })

  test('a value that says itself how it is written may write null', () => {
    expect(encodeJson({ at: new Date(NaN) }, 'output')).toBe('{"at":null}')
    expect(encodeJson({ text: 'null', nothing: null }, 'output')).toBe('{"text":"null","nothing":null}')
  })
})

describe('what is refused', () => {
  test.each([NaN, Infinity, -Infinity])('%d, which JSON would turn into null without a word', (number) => {
    expect(refusal(number)).toMatchObject({ code: 'invalid_json' })
    const deep = refusal({ items: [1, { share: number }] })
    expect(deep).toMatchObject({ code: 'invalid_json', fields: { path: '.items.1.share' } })
    expect(deep.message).toMatch(/^output at \.items\.1\.share cannot be kept: -?(NaN|Infinity) is not JSON/)
  })

  test('a bigint, a function, a symbol', () => {
    for (const value of [10n, { a: 10n }, () => 1, Symbol('a')]) {
      expect(refusal(value)).toMatchObject({ code: 'invalid_json' })
    }
  })

  test('what throws while it is written, whatever it throws', () => {
    for (const thrown of [undefined, 'no', new Error('no'), REVOKED]) {
      const value = { toJSON: () => fail(thrown) }
      expect(refusal(value)).toMatchObject({ code: 'invalid_json' })
      expect(refusal({ a: [value] }).message).toMatch(/^output cannot be kept: /)
    }
  })

  test('a cycle', () => {
    const loop: Record<string, unknown> = {}
    loop.self = { loop }
    expect(refusal(loop)).toMatchObject({ code: 'invalid_json' })
    expect(refusal(loop).message).toMatch(/^output cannot be kept: .*circular/)
  })

  test('nesting deeper than 100', () => {
    expect(decodeJson(encodeJson(nested(100), 'output'))).toEqual(nested(100))
    expect(refusal(nested(101))).toMatchObject({ code: 'invalid_json' })
    expect(refusal(nested(101)).message).toMatch(/nested deeper than 100/)
  })

  test.each([1_000, 3_000, 6_000, 100_000])('nesting of %i, whatever it holds', (depth) => {
    expect(refusal(nested(depth, null))).toMatchObject({ code: 'invalid_json' })
    expect(refusal(nested(depth, { constructor: 1 }))).toMatchObject({ code: 'invalid_json' })
  })

  test('brackets inside texts are no nesting', () => {
    const value = { text: '[{'.repeat(200), quoted: `\\"${'['.repeat(200)}` }
    expect(decodeJson(encodeJson(value, 'output'))).toEqual(value)
  })

  test('more bytes than allowed, counted as they are stored', () => {
    const fits = 'ä'.repeat(49)
    expect(encodeJson(fits, 'details', 100)).toBe(`"${fits}"`)
    expect(refusal(`${fits}ä`, 100)).toMatchObject({ code: 'too_big', fields: { bytes: 102, maxBytes: 100 } })
    expect(refusal('x'.repeat(1024 * 1024))).toMatchObject({ code: 'too_big' })
    expect(refusal('€'.repeat(34), 100).message).toMatch(/^output is 104 bytes; at most 100/)
  })

  test.each([`{"__proto__" : 1}`, `{"a":[{"\\u005f_proto__":1}]}`, `{"constr\\u0075ctor"\n:1}`])(
    'a key that is spelled otherwise: %s',
    (text) => expect(() => checkJsonText(text, 'the input')).toThrow('is not allowed'),
  )

  test.each(['__proto__', 'constructor', 'prototype'])('the key %s, wherever it stands', (key) => {
    const parsed = JSON.parse(`{"list":[{"${key}":{"admin":true}}]}`)
    expect(refusal(parsed)).toMatchObject({ code: 'invalid_json', fields: { path: '.list.0' } })
    expect(refusal(parsed).message).toContain(`the key '${key}' is not allowed`)
  })

  test('but those words as values, or quoted in a text, are fine', () => {
    const value = { word: '__proto__', quoted: '{"constructor":1}', prototypes: ['prototype'] }
    expect(decodeJson(encodeJson(value, 'output'))).toEqual(value)
  })
})

function fail(thrown: unknown): never {
  throw thrown
}
