import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { CurfewError } from '../core/errors.ts'
import type { Selecting } from './item-selection.ts'
import { parseItems, selectItems } from './item-selection.ts'
import { loadMapreduce } from './mapreduce.ts'

/** What a map with these keys selects. */
function select(keys: string, input: unknown) {
  return selectItems(read(keys), input)
}

function read(keys: string): Selecting {
  const text = `name: m\nmap:\n  input: items.json\n  agent_template: [{ shell: a }]\n  ${keys}`
  return loadMapreduce(text).model.map
}
const items = (keys: string, input: unknown) => select(keys, input).items.map(({ item }) => item)

const people = [
  { name: 'eve', age: 30, tags: ['a'] },
  { name: 'bob', age: 20 },
  { name: 'amy', age: 30, tags: [] },
  { name: 'dan', age: 25 },
]

describe('items are found', () => {
  test('in a list, or by json_path', () => {
    expect(items('', [1, 'a', null])).toEqual([1, 'a', null])
    expect(items('json_path: "$.items[*]"', { items: [1, 2] })).toEqual([1, 2])
    expect(items('json_path: "$..id"', { a: { id: 1 }, b: [{ id: 2 }] })).toEqual([1, 2])
    expect(items('json_path: "$[?@.age > 25].name"', people)).toEqual(['eve', 'amy'])
    expect(items(`json_path: "$[?match(@.name, '[a-d].*')].name"`, people)).toEqual(['bob', 'amy', 'dan'])
    expect(items(`json_path: "$[?search(@.name, 'a')].name"`, people)).toEqual(['amy', 'dan'])
  })

  test('a pattern that takes for ever elsewhere does not', () => {
    expect(items(`json_path: "$[?match(@, '(a+)+b')]"`, ['a'.repeat(5_000)])).toEqual([])
  })

  test('a path that finds nothing gives no items, and tells so', () => {
    expect(select('json_path: "$.itms[*]"', { items: [1] })).toMatchObject({
      items: [],
      found: 0,
      warnings: ["json_path: '$.itms[*]' finds nothing"],
    })
  })

  test('a path that finds one list tells how to get at its elements', () => {
    const { items: found, warnings } = select('json_path: "$.items"', { items: [1, 2] })
    expect(found).toHaveLength(1)
    expect(warnings[0]).toContain("'$.items[*]' finds its elements")
  })

  test('an input that is no list needs a path', () => {
    const error = thrown(() => select('', { count: 2, tasks: [1, 2] }))
    expect(error).toMatchObject({ code: 'invalid_items', hint: "Set json_path: '$.tasks[*]'." })
  })
})

describe('filter, sort_by, offset and max_items', () => {
  const names = (keys: string) => select(keys, people).items.map(({ name }) => name)

  test.each([
    ['filter: item.age > 25', ['eve', 'amy']],
    ['filter: has(item.tags) && size(item.tags) > 0', ['eve']],
    ['sort_by: name', ['amy', 'bob', 'dan', 'eve']],
    ['sort_by: age', ['bob', 'dan', 'eve', 'amy']],
    ['sort_by: item.age desc', ['eve', 'amy', 'dan', 'bob']],
    ['sort_by: -age', ['eve', 'amy', 'dan', 'bob']],
    ['sort_by: -age, name', ['amy', 'eve', 'dan', 'bob']],
    ['sort_by: [item.age DESC, name asc]', ['amy', 'eve', 'dan', 'bob']],
    ['sort_by: "tags[0]"', ['eve', 'bob', 'amy', 'dan']],
    ['offset: 1\n  max_items: 2', ['bob', 'amy']],
    ['sort_by: name\n  offset: 3', ['eve']],
    ['filter: item.age < 30\n  sort_by: -name\n  max_items: 1', ['dan']],
  ])('%s', (keys, expected) => {
    expect(names(keys)).toEqual(expected)
  })

  test('values of several types have an order: flags, numbers, texts, others; nothing is last either way', () => {
    const mixed = ['b', 10, null, true, { x: 1 }, 9, 'B', false, [1], 'a']
    const ascending = [false, true, 9, 10, 'B', 'a', 'b', { x: 1 }, [1], null]
    expect(items('sort_by: item', mixed)).toEqual(ascending)
    expect(items('sort_by: item desc', mixed)).toEqual([
      { x: 1 },
      [1],
      'b',
      'a',
      'B',
      10,
      9,
      true,
      false,
      null,
    ])
  })

  test('what leaves nothing is told', () => {
    expect(select('filter: "false"', [1, 2]).warnings).toEqual(['filter: none of 2 items passes'])
    expect(select('offset: 2', [1, 2]).warnings).toEqual(['offset: 2 passes over all of 2 items'])
    expect(select('', [])).toMatchObject({ items: [], warnings: [] })
    expect(select('filter: item > 1\n  max_items: 1', [1, 2, 3])).toMatchObject({ found: 3, matched: 2 })
  })

  test('a filter that cannot be answered tells for which item, and what it holds', () => {
    const error = thrown(() => select('filter: item.tags.size() > 0', people))
    expect(error.code).toBe('invalid_items')
    expect(error.message).toContain('filter, item 1')
    expect(error.message).toContain('has(item.key)')
    expect(thrown(() => select('filter: item.age', people)).message).toContain('must be true or false')
  })

  test('more than can be run, or one that cannot be kept, is refused', () => {
    const many = Array.from({ length: 10_001 }, (_, i) => i)
    expect(thrown(() => select('', many))).toMatchObject({
      code: 'too_many',
      hint: expect.stringContaining('max_items'),
    })
    expect(items('max_items: 3', many)).toEqual([0, 1, 2])
    expect(thrown(() => select('', ['x', 'y'.repeat(2_000_000)])).message).toContain('item 1 is')
  })
})

describe('an item is known', () => {
  test('by its place in the input, whatever else is set', () => {
    const ids = (keys: string) => select(keys, people).items.map(({ id, name }) => [id, name])
    expect(ids('')).toEqual([
      ['item-0', 'eve'],
      ['item-1', 'bob'],
      ['item-2', 'amy'],
      ['item-3', 'dan'],
    ])
    expect(ids('sort_by: name\n  offset: 1\n  max_items: 2')).toEqual([
      ['item-1', 'bob'],
      ['item-3', 'dan'],
    ])
  })

  test('to people by what it calls itself, in one short line', () => {
    const name = (item: unknown) => select('', [item]).items[0]!.name
    expect(name('src/a.ts')).toBe('src/a.ts')
    expect(name({ id: 7, title: 'x' })).toBe('7')
    expect(name({ name: '', path: 'p' })).toBe('p')
    expect(name({ name: 'two\nlines\u001b[31m\u202e' })).toBe('two lines [31m')
    expect(name({ x: 1 })).toBe('item-0')
    expect(name(null)).toBe('item-0')
    expect(name('é'.repeat(100))).toBe(`${'é'.repeat(59)}…`)
  })

  test('the same input is selected the same way, in an order that holds', () => {
    const value = fc.oneof(
      fc.integer({ min: 0, max: 3 }),
      fc.constantFrom('a', 'b'),
      fc.boolean(),
      fc.constant(null),
    )
    const input = fc.array(fc.record({ a: value, b: value }, { requiredKeys: [] }), { maxLength: 20 })
    const map = read('sort_by: a desc, b')
    fc.assert(
      fc.property(input, (list) => {
        const selected = selectItems(map, list).items
        expect(selected).toHaveLength(list.length)
        for (const { id, item } of selected) expect(list[Number(id.slice(5))]).toBe(item)
        const again = selectItems(
          map,
          selected.map(({ item }) => item),
        ).items
        expect(again.map(({ item }) => item)).toEqual(selected.map(({ item }) => item))
      }),
    )
  })
})

describe('what an input holds', () => {
  test('JSON, or one value a line', () => {
    expect(parseItems('\ufeff[1, {"a": 2}]', 'file', 'f')).toEqual([1, { a: 2 }])
    expect(parseItems('{"a":1}\n{"a":2}\n', 'file', 'f')).toEqual([{ a: 1 }, { a: 2 }])
    expect(parseItems('{"items":\n [1]}', 'command', 'c')).toEqual({ items: [1] })
  })

  test('a single line is one item where the name of the file says that it holds lines', () => {
    const one = '{"name": "tea", "tags": ["hot"]}\n'
    for (const file of ['left.jsonl', '/tmp/left.ndjson'])
      expect(parseItems(one, 'file', file)).toEqual([{ name: 'tea', tags: ['hot'] }])
    expect(parseItems(one, 'file', 'left.json')).toEqual({ name: 'tea', tags: ['hot'] })
    expect(parseItems('[1, 2]', 'file', 'left.jsonl')).toEqual([1, 2])
  })

  test('of a command also lines of text', () => {
    expect(parseItems('a.ts\nb c.ts\r\n\n', 'command', 'c')).toEqual(['a.ts', 'b c.ts'])
    expect(parseItems('', 'command', 'c')).toEqual([])
  })

  test.each([
    ['file', '[{"id": 12345678901234567890}]', "'id'", '12345678901234567000'],
    ['file', '{"id":1}\n{"id":-9007199254740993}', "'id'", '-9007199254740992'],
    ['command', '[1, [9007199254740993]]', "'0'", '9007199254740992'],
    ['file', '1\n9007199254740993\n', '', '9007199254740992'],
  ] as const)('a number that would become another is refused: %s %s', (kind, text, key, other) => {
    expect(thrown(() => parseItems(text, kind, 'it'))).toMatchObject({
      ...{ code: 'invalid_json', message: expect.stringContaining(other) },
    })
    expect(thrown(() => parseItems(text, kind, 'it'))).toHaveProperty('message', expect.stringContaining(key))
  })

  test('long numbers that stay what they are, and fractions, are taken', () => {
    const text =
      '[1794850656139000000, 9007199254740991, -9007199254740992, 0.12345678901234567890, "1, 12345678901234567890]"]'
    expect(parseItems(text, 'file', 'f')).toEqual(JSON.parse(text))
    expect(parseItems('12345678901234567890\n', 'command', 'c')).toEqual(['12345678901234567890'])
  })

  test('bytes are UTF-8, or refused: a name with other letters would be that of another file', () => {
    expect(parseItems(Buffer.from('\ufeff["caf\u00e9"]'), 'file', 'f')).toEqual(['caf\u00e9'])
    for (const text of ['["caf\u00e9"]', 'caf\u00e9'])
      expect(thrown(() => parseItems(Buffer.from(text, 'latin1'), 'command', 'it'))).toMatchObject({
        ...{ code: 'invalid_items', message: expect.stringMatching(/^it is not UTF-8/) },
      })
  })

  test('what is neither tells what is wrong with it', () => {
    const error = thrown(() => parseItems('[1,\n 2,,]', 'file', 'items.json'))
    expect(error).toMatchObject({ code: 'invalid_json', message: expect.stringContaining('items.json') })
    expect(thrown(() => parseItems('a\nb', 'file', 'items.json')).code).toBe('invalid_json')
    expect(thrown(() => parseItems('[{"__proto__": 1}]', 'file', 'f')).message).toContain('__proto__')
  })
})

function thrown(call: () => unknown): CurfewError {
  try {
    call()
  } catch (error) {
    expect(error).toBeInstanceOf(CurfewError)
    return error as CurfewError
  }
  throw new Error('nothing was thrown')
}
