import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { OutputTail } from './output-tail.ts'

function tailOf(maxBytes: number, ...chunks: (string | Buffer)[]): OutputTail {
  const tail = new OutputTail(maxBytes)
  for (const chunk of chunks) tail.add(Buffer.from(chunk as string))
  return tail
}

describe('the end of a stream', () => {
  test('is all of it while it is short', () => {
    expect(tailOf(10).text(10)).toBe('')
    expect(tailOf(10, 'abc', '', 'def').text(10)).toBe('abcdef')
    expect(tailOf(10, 'abcde', 'fghij').text(10)).toBe('abcdefghij')
  })

  test('is its last bytes when it is longer, and says so', () => {
    expect(tailOf(10, 'abcde', 'fghijk').text(10)).toBe('…bcdefghijk')
    expect(tailOf(10, 'abcdefghij').text(4)).toBe('…ghij')
    // What was dropped on the way is as gone as what is cut now.
    expect(tailOf(4, 'abcdefghi').text(100)).toBe('…fghi')
  })

  test('begins with a whole character', () => {
    const letters = 'x'.repeat(40)
    for (const cut of [1, 2, 3]) expect(tailOf(100, `😀${letters}`).text(40 + cut)).toBe(`…${letters}`)
    expect(tailOf(100, 'xx😀ü').text(6)).toBe('…😀ü')
    expect(tailOf(100, Buffer.from('ü').subarray(0, 1), Buffer.from('ü').subarray(1)).text(9)).toBe('ü')
  })

  test('is bounded as JSON, whatever was printed', () => {
    const bytes = fc.uint8Array({ maxLength: 300 })
    const property = fc.property(
      fc.array(bytes, { maxLength: 20 }),
      fc.integer({ min: 8, max: 200 }),
      (all, max) => {
        const tail = tailOf(max, ...all.map((chunk) => Buffer.from(chunk)))
        const text = tail.text(max)
        expect(Buffer.byteLength(JSON.stringify(text))).toBeLessThanOrEqual(1.5 * max + 8)
        const whole = Buffer.concat(all)
        const plain = whole.every((byte) => byte > 31 && byte < 128 && byte !== 34 && byte !== 92)
        if (plain && whole.length <= max) expect(text).toBe(whole.toString())
        if (plain && whole.length > max) expect(text).toBe(`…${whole.subarray(-max)}`)
      },
    )
    fc.assert(property, { numRuns: 500 })
  })

  test('costs no more in many small chunks than in few', () => {
    const tail = new OutputTail(1_000)
    for (let i = 0; i < 300_000; i++) tail.add(Buffer.from('x'))
    expect(tail.text(1_000)).toBe(`…${'x'.repeat(1_000)}`)
  })
})
