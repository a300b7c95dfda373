import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Variables } from './expression.ts'
import { compileExpression, isFault } from './expression.ts'
import {
  evaluateCondition,
  evaluateExpression,
  evaluateMapping,
  evaluateTemplate,
  parseTemplate,
} from './mapping.ts'

const many = Array.from({ length: 10_000 }, (_, id) => ({ id, inner: { value: id } }))
const variables: Variables = {
  input: { n: 7, text: 'héllo', zero: 0 },
  state: {
    list: [3, 1, 2],
    nothing: null,
    many,
    lookup: Object.fromEntries(many.map(({ id }) => [`k${id}`, id])),
    long: 'x'.repeat(500_000),
  },
  output: {},
  result: [1],
  branch: { item: 'a', index: 0 },
}

function evaluate(text: string, over: Variables = variables) {
  const expression = compileExpression(text)
  if (isFault(expression)) throw new Error(expression.message)
  return expression.evaluate(over, 'here')
}

function value(text: string, over?: Variables): unknown {
  const evaluated = evaluate(text, over)
  if (!evaluated.ok) throw new Error(evaluated.failure.message)
  return evaluated.value
}

function failure(text: string, over?: Variables): string {
  const evaluated = evaluate(text, over)
  if (evaluated.ok) throw new Error(`it gave ${JSON.stringify(evaluated.value)}`)
  expect(evaluated.failure).toMatchObject({ code: 'expression_failed', retryable: false })
  return evaluated.failure.message
}

describe('numbers of JSON and whole numbers mix', () => {
  test.each<[string, unknown]>([
    ['1 + 1', 2],
    ['input.n + 1', 8],
    ['1 + input.n', 8],
    ['input.n - 1', 6],
    ['input.n * 2', 14],
    ['input.n / 2', 3.5],
    ['7 / 2', 3],
    ['input.n % 2', 1],
    ['8 % input.n', 1],
    ['input.n % input.n', 0],
    ['-input.n', -7],
    ['input.n == 7', true],
    ['input.n in [1, 7]', true],
    ['input.n > 6 && input.n <= 7', true],
    ['size(state.list) - 1', 2],
    ['state.list[input.n - 6]', 1],
    ['state.list[size(state.list) - 1]', 2],
    ['input.text.substring(1, input.n - 3)', 'éll'],
    ['string(input.n)', '7'],
    ['9007199254740991', 9007199254740991],
  ])('%s is %o', (text, expected) => expect(value(text)).toBe(expected))
})

describe('an expression gives JSON', () => {
  test.each<[string, unknown]>([
    ['{"a": state.list, "b": {"c": 1}}', { a: [3, 1, 2], b: { c: 1 } }],
    ['{1: 2}', { '1': 2 }],
    ['state.nothing', null],
    ['has(state.missing)', false],
    ['_branch.item + branch.item', 'aa'],
    ['[1, 2, 3].map(x, x > 1, x * 2)', [4, 6]],
    ['[1, 2].exists_one(x, x == 1)', true],
    ['state.list.filter(x, x > 1)', [3, 2]],
    ['[1] + [2] + state.list', [1, 2, 3, 1, 2]],
    ['"a,b".split(",")', ['a', 'b']],
    ['["a", "b"].join("-")', 'a-b'],
    ['"aXbXc".replace("X", "--")', 'a--b--c'],
    ['"aXbXc".replace("X", "-", 1)', 'a-bXc'],
    ['"abc".replace("", "-")', '-a-b-c-'],
    ['"%s is %d".format([input.text, 3])', 'héllo is 3'],
    ['input.text.matches("^h.*o$")', true],
    ['state.many.map(x, state.lookup["k" + string(x.id)])[9999]', 9999],
    ['state.many.map(x, x.inner.value + 1)[9999]', 10_000],
    ['state.many.filter(x, x.id > 9990).map(x, x.id)[0]', 9991],
    ['type(input.n) == double', true],
    ['string(timestamp("2020-01-01T00:00:00Z"))', '2020-01-01T00:00:00Z'],
  ])('%s', (text, expected) => expect(value(text)).toEqual(expected))

  test('a list that is built grows apart from what it was built from', () => {
    expect(value('[state.list.map(x, x), state.list.map(x, x + 1), state.list]')).toEqual([
      [3, 1, 2],
      [4, 2, 3],
      [3, 1, 2],
    ])
  })

  test.each([
    ['1.0 / 0.0', 'Infinity, which is not JSON'],
    ['timestamp("2020-01-01T00:00:00Z")', 'not JSON'],
    ['b"abc"', 'not JSON'],
    ['{"__proto__": 1}', "the key '__proto__'"],
    ['9223372036854775807', 'too large'],
    ['input.n % 0', 'modulus by zero'],
    ['1 / 0', 'divide by zero'],
  ])('%s fails: %s', (text, why) => expect(failure(text)).toContain(why))

  test.each([
    fc.constant(null),
    fc.boolean(),
    fc.string(),
    fc.integer(),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.jsonValue({ maxDepth: 4 }),
  ])('any JSON comes out as it went in', (arbitrary) => {
    fc.assert(
      fc.property(arbitrary as fc.Arbitrary<unknown>, (json) => {
        fc.pre(!/"(__proto__|constructor|prototype)":/.test(JSON.stringify(json)))
        expect(value('input', { input: json })).toEqual(json)
        expect(value('[input].map(x, {"k": x})', { input: json })).toEqual([{ k: json }])
      }),
      { numRuns: 50 },
    )
  })
})

describe('a failing expression', () => {
  test('tells itself, the place and the values it names, cut to size', () => {
    const message = failure('state.many[input.n].missing > input.zero')
    expect(message).toContain('expression at here failed: field not found: missing')
    expect(message).toContain('state.many[input.n].missing > input.zero')
    expect(message).toContain('input.zero = 0')
    expect(message).toMatch(/state\.many = \[\{"id":0.*… \(\d+ characters\)/)
    expect(message.length).toBeLessThan(1_000)
  })

  test('says which variable does not exist', () => {
    expect(failure('join.arrived > 1')).toContain("'join' does not exist here")
  })
})

describe('the budget', () => {
  test.each([
    'state.many.all(x, state.many.all(y, true))',
    'state.many.all(x, state.many.all(y, true)) || true',
    'state.many.exists(x, state.many.exists(y, x.id + y.id < 0.0)) || true',
    'state.many.map(x, state.many.exists(y, true))',
    'state.many.exists(x, state.many == [0] + state.many.map(y, y))',
    'state.long.matches("(a|b)*x{1000}y")',
    'state.many.map(x, state.long.contains("y"))',
  ])('stops %s', (text) => expect(failure(text)).toContain('too many steps'))

  test.each([
    ['[state.long + state.long].map(a, a + a)', 'text becomes too long'],
    ['state.long.replace("x", "yyyyyyyyyyyyy")', 'text becomes too long'],
    [
      '[state.many + state.many].map(a, [a + a].map(b, [b + b].map(c, size(c + c))))',
      'list becomes too long',
    ],
    ['int(state.long)', 'too long for int'],
  ])('stops %s', (text, why) => expect(failure(text)).toContain(why))

  test('is whole again for the next evaluation', () => {
    failure('state.many.all(x, state.many.all(y, true))')
    expect(value('state.many.all(x, true)')).toBe(true)
  })

  test('the same expression always has the same outcome', () => {
    const text = 'state.many.all(x, state.many.all(y, true))'
    expect(failure(text)).toBe(failure(text))
  })
})

describe('a text that is no expression', () => {
  test.each<[string, string, number]>([
    ['', 'missing', 0],
    ['state.pages ==', 'not a CEL expression', 12],
    ['a b', 'not a CEL expression', 2],
    ['1 + fou(1)', "no function 'fou'", 7],
    ['google.protobuf.Value{}', 'no type', 0],
    ['('.repeat(3_000), 'nested too deeply', 0],
    [Array(500).fill('1').join('+'), 'nested too deeply', 0],
    [`'${'x'.repeat(5_000)}'`, 'at most 4096', 0],
  ])('%s', (text, message, offset) => {
    const fault = compileExpression(text)
    expect(isFault(fault) && fault).toMatchObject({ message: expect.stringContaining(message) })
    if (isFault(fault) && fault.offset > 0) expect(Math.abs(fault.offset - offset)).toBeLessThanOrEqual(3)
  })

  test('suggests the function that was meant', () => {
    expect(compileExpression('input.text.lowerAscci()')).toMatchObject({
      suggestion: "Did you mean 'lowerAscii'?",
      offset: 10,
    })
  })

  test('nothing that is compiled or evaluated throws', () => {
    const words = [
      'state',
      '.list',
      '[0]',
      '(',
      ')',
      '+',
      '-',
      '!',
      '?',
      ':',
      '"a"',
      '1',
      'map(x,',
      'x',
      '{',
      '}',
      '&&',
    ]
    const texts = fc.oneof(
      fc.string({ maxLength: 30 }),
      fc.array(fc.constantFrom(...words), { maxLength: 15 }).map((parts) => parts.join('')),
    )
    fc.assert(
      fc.property(texts, (text) => {
        const expression = compileExpression(text)
        if (!isFault(expression)) expression.evaluate(variables, 'here')
      }),
      { numRuns: 1_000 },
    )
  })
})

test('references are found with their paths; names of loops are none', () => {
  const expression = compileExpression(
    'state.pages.map(p, p.size + input.n)[0] == strings.quote("a") || has(join.x)',
  )
  expect(isFault(expression) ? expression : expression.references).toEqual([
    { name: 'state', path: ['pages'], offset: 0 },
    { name: 'input', path: ['n'], offset: 28 },
    { name: 'join', path: ['x'], offset: expect.any(Number) },
  ])
})

describe('mappings and templates', () => {
  test('every text of a mapping is an expression, the rest stands for itself', () => {
    const mapping = { n: 'input.n + 1', fixed: 10, flag: true, none: null, list: ['input.n', { t: "'x'" }] }
    expect(evaluateMapping(mapping, variables, 'here')).toEqual({
      ok: true,
      value: { n: 8, fixed: 10, flag: true, none: null, list: [7, { t: 'x' }] },
    })
  })

  test('the first that fails decides, and says where', () => {
    const evaluated = evaluateMapping({ a: ['input.n', 'input.missing'] }, variables, 'nodes[0].input')
    expect(evaluated).toMatchObject({ ok: false, failure: { details: { place: 'nodes[0].input.a[1]' } } })
  })

  test('what is not there is told with what is there instead', () => {
    const values = (text: string) => {
      const evaluated = evaluateExpression(
        text,
        { input: { a: { b: 1, c: 2 }, list: [1], text: 'x' } },
        'here',
      )
      return evaluated.ok ? null : (evaluated.failure.details as { values: object }).values
    }
    expect(values('input.a.d.e')).toEqual({ 'input.a.d.e': 'nothing', 'input.a': '{ b, c }' })
    expect(values('input.list.d')).toEqual({ 'input.list.d': 'nothing', 'input.list': 'a list of 1' })
    expect(values('input.text.d')).toEqual({ 'input.text.d': 'nothing', 'input.text': '"x"' })
    expect(values('state.a')).toEqual({ 'state.a': 'nothing' })
  })

  test('a stored text that no longer compiles is a failure, not an exception', () => {
    expect(evaluateExpression('a b', variables, 'here')).toMatchObject({
      ok: false,
      failure: { code: 'expression_failed', details: { expression: 'a b', place: 'here' } },
    })
  })

  test('a condition is true or false, nothing else', () => {
    expect(evaluateCondition('input.n > 1', variables, 'c')).toEqual({ ok: true, value: true })
    expect(evaluateCondition(undefined, variables, 'c')).toEqual({ ok: true, value: true })
    expect(evaluateCondition('input.n', variables, 'c')).toMatchObject({
      ok: false,
      failure: {
        message: expect.stringContaining('must be true or false, got 7'),
        details: { expression: 'input.n', place: 'c', values: { 'input.n': '7' } },
      },
    })
  })

  test.each([
    ['plain', 'plain'],
    ['', ''],
    ['--id=${input.n}/${branch.item}', '--id=7/a'],
    ['${{"a": "}"}}', '{"a":"}"}'],
    ["${'it''s' == 'x' ? 1 : 2}", null],
    ['$HOME and $$', '$HOME and $$'],
  ])('the template %s', (text, expected) => {
    const evaluated = evaluateTemplate(text, variables, 'argv')
    expect(evaluated.ok ? evaluated.value : null).toBe(expected)
  })

  test('an expression that is not closed is a fault', () => {
    expect(parseTemplate('a ${b')).toMatchObject({ message: "'${' is not closed", offset: 2 })
  })
})
