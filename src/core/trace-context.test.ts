import { describe, expect, test } from 'vitest'
import { CurfewError } from './errors.ts'
import { checkTrace, traceOfHeaders } from './trace-context.ts'

const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
const zeros = (count: number) => '0'.repeat(count)

function refusal(trace: unknown): CurfewError {
  try {
    checkTrace('task fetch', trace)
  } catch (error) {
    return error as CurfewError
  }
  throw new Error(`${JSON.stringify(trace)} was taken`)
}

describe('a trace context', () => {
  test('is kept as it was given', () => {
    expect(checkTrace('x', { traceparent })).toEqual({ traceparent })
    const tracestate = 'rojo=00f067aa0ba902b7,congo=t61rcWkgMzE'
    expect(checkTrace('x', { traceparent, tracestate })).toEqual({ traceparent, tracestate })
    const longest = 'x'.repeat(512)
    expect(checkTrace('x', { traceparent, tracestate: longest }).tracestate).toBe(longest)
  })

  test('with a state that says nothing has none', () => {
    expect(checkTrace('x', { traceparent, tracestate: '' })).toEqual({ traceparent })
    expect(checkTrace('x', { traceparent, tracestate: undefined })).toEqual({ traceparent })
  })

  test.each([
    ['missing', undefined],
    ['a number', 7],
    ['empty', ''],
    ['in upper case', traceparent.toUpperCase()],
    ['of another version', traceparent.replace(/^00/, '01')],
    ['with a short trace id', traceparent.replace('0af7', '0af')],
    ['with something after it', `${traceparent}-00`],
    ['with a line after it', `${traceparent}\n`],
    ['with a trace id of zeros', `00-${zeros(32)}-b7ad6b7169203331-01`],
    ['with a parent id of zeros', `00-0af7651916cd43dd8448eb211c80319c-${zeros(16)}-01`],
    ['with letters that are no digits', traceparent.replace('0af7', '0ag7')],
  ])('is refused when its traceparent is %s', (_, value) => {
    const error = refusal({ traceparent: value })
    expect(error).toBeInstanceOf(CurfewError)
    expect(error).toMatchObject({ code: 'invalid_option', fields: { key: 'trace.traceparent' } })
    expect(error.message).toMatch(/^task fetch: trace\.traceparent must be 00-<32 hex>-<16 hex>-<2 hex>/)
  })

  test.each([
    ['null', null],
    ['too long', 'x'.repeat(513)],
    ['over two lines', 'a=1\nb=2'],
    ['not ASCII', 'größe=1'],
    ['cut short by a NUL', 'a=1\0'],
  ])('is refused when its tracestate is %s', (_, tracestate) => {
    expect(refusal({ traceparent, tracestate })).toMatchObject({
      code: 'invalid_option',
      message: expect.stringMatching(/trace\.tracestate must be at most 512 printable ASCII characters/),
    })
  })

  test('is refused when it is none, or more than one', () => {
    expect(refusal(null).message).toBe('task fetch: trace must be { traceparent, tracestate? }, got null')
    expect(refusal(traceparent).code).toBe('invalid_option')
    expect(refusal({ traceparent, baggage: 'a=1' }).message).toMatch(/trace\.baggage is not known/)
  })

  test('that is far too long is not repeated in the error about it', () => {
    expect(refusal({ traceparent: 'x'.repeat(1_000_000) }).message.length).toBeLessThan(200)
  })

  test('of headers is what is whole of them', () => {
    expect(traceOfHeaders(null, 'a=1')).toBe(null)
    expect(traceOfHeaders('broken', 'a=1')).toBe(null)
    expect(traceOfHeaders(traceparent, 'a=1')).toEqual({ traceparent, tracestate: 'a=1' })
    for (const tracestate of [null, '', 'a=1\0', 'x'.repeat(513)])
      expect(traceOfHeaders(traceparent, tracestate)).toEqual({ traceparent })
  })
})
