import { describe, expect, test } from 'vitest'
import { parseText } from './definition-text.ts'

function refusal(text: string) {
  const { root, problems, place } = parseText(text)
  const [problem] = problems
  return { root: root?.value, code: problem?.code, message: problem?.message, ...place(problem?.offset ?? 0) }
}

describe('text from outside', () => {
  test('core schema: no dates, no yes and no, no merge keys', () => {
    const { root, problems } = parseText('a: 2020-01-01\nb: yes\nc: 0x1F\nd: 1_000\n<<: { e: 1 }\n3: x')
    expect(problems).toEqual([])
    expect(root!.value).toEqual({ a: '2020-01-01', b: 'yes', c: 31, d: '1_000', '<<': { e: 1 }, '3': 'x' })
  })

  test('JSON, with tabs', () => {
    expect(parseText('{\n\t"a": [1,\t"\\u00e9"],\n\t"b": null\n}').root!.value).toEqual({
      a: [1, 'é'],
      b: null,
    })
  })

  test('aliases are followed, and stand where they are used', () => {
    const { root, place } = parseText('a: &x { b: 1 }\nc: *x')
    expect(root!.value).toEqual({ a: { b: 1 }, c: { b: 1 } })
    expect(place(root!.children.get('c')!.offset)).toEqual({ line: 2, column: 4 })
  })

  test.each([
    ['a tag', 'a: 1\nb: !foo x', 'invalid_text', 2],
    ['an anchor that is not there', 'a: 1\nb: *x', 'invalid_text', 2],
    ['a key that is a list', 'a: 1\n? [b]\n: 2', 'invalid_text', 2],
    ['two documents', 'a: 1\n---\nb: 2', 'invalid_text', 2],
    ['an unsafe key', 'a: 1\nb:\n  constructor: 1', 'unsafe_key', 3],
    ['an unsafe key in JSON', '{"a": {\n"__proto__": 1}}', 'unsafe_key', 2],
    ['a number that is none', 'a: 1\nb: .inf', 'invalid_value', 2],
    ['a number that would become another', 'a: 1794850656139000000\nb: 9007199254740993', 'invalid_value', 2],
    ['one with a sign', 'a: +1794850656139000000\nb: +9007199254740993', 'invalid_value', 2],
    ['one in hexadecimal', 'a: 0x20000000000002\nb: 0x20000000000001', 'invalid_value', 2],
    ['one as a key', '9007199254740992: 1\n9007199254740993: 2', 'invalid_value', 2],
    ['deep flow', `a: 1\nb: ${'['.repeat(65)}${']'.repeat(65)}`, 'too_big', 2],
    ['deep lists', `${'- '.repeat(66)}a`, 'too_big', 1],
    ['a text of a million brackets', '['.repeat(1_000_000), 'too_big', 1],
    ['too many bytes', `a: ${'x'.repeat(1024 * 1024)}`, 'too_big', 1],
    ['too many bytes in few letters', `a: ${'é'.repeat(600_000)}`, 'too_big', 1],
    ['too many aliases', `a: &x 1\nb:\n${'  - *x\n'.repeat(101)}`, 'too_big', 103],
    ['too many tokens', '- 1\n'.repeat(150_000), 'too_big', expect.any(Number)],
  ])('%s is refused with its line', (_what, text, code, line) => {
    expect(refusal(text)).toMatchObject({ code, line })
  })

  test('a second document is told in words for whoever wrote it', () => {
    expect(refusal('a: 1\n---\nb: 2').message).toBe('a second document begins here (---); a file holds one')
  })

  test('aliases of aliases do not fill the memory', () => {
    const levels = Array.from(
      { length: 9 },
      (_, i) => `a${i + 1}: &a${i + 1} [${Array(10).fill(`*a${i}`).join(', ')}]`,
    )
    expect(refusal(`a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n${levels.join('\n')}`).code).toBe('too_big')
  })

  test('an alias to itself ends', () => {
    expect(refusal('a: &a [*a]').code).toBe('too_big')
  })

  test('many keys are read in a time that fits their number', () => {
    const text = Array.from({ length: 40_000 }, (_, i) => `key${i}: 1`).join('\n')
    expect(Object.keys(parseText(text).root!.value as object)).toHaveLength(40_000)
  })
})
