import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { parseContextPath, writeAt, writeContext } from './context-path.ts'
import { MERGE_STRATEGIES, mergeOutputs } from './join-merge.ts'
import { runOutput, writeMappings, writeOutput } from './node-output.ts'

const outputs = (...values: unknown[]) => values.map((value, branch) => ({ branch, value }))

describe('merging the outputs of branches', () => {
  test.each([
    ['append', outputs(['a', 'b'], ['c', 'd']), ['a', 'b', 'c', 'd']],
    ['append', outputs([['a']], [['b']]), [['a'], ['b']]],
    ['append', outputs('a', ['b']), ['a', ['b']]],
    ['append', outputs(1, 2), [1, 2]],
    ['append', [], []],
    [
      'collect',
      outputs(['a', 'b'], ['c', 'd']),
      [
        ['a', 'b'],
        ['c', 'd'],
      ],
    ],
    ['collect', [], []],
    ['merge_object', outputs({ a: 1, b: 1 }, { b: 2, c: { d: 1 } }), { a: 1, b: 2, c: { d: 1 } }],
    ['merge_object', outputs({ a: { x: 1 } }, { a: { y: 1 } }), { a: { y: 1 } }],
    ['merge_object', [], {}],
    [
      'keyed_by_branch',
      [
        { branch: 3, value: 'x' },
        { branch: 0, value: 'y' },
      ],
      { '0': 'y', '3': 'x' },
    ],
    [
      'last_wins',
      [
        { branch: 2, value: 'x' },
        { branch: 7, value: 'y' },
        { branch: 1, value: 'z' },
      ],
      'y',
    ],
    ['last_wins', [], null],
  ] as const)('%s of %j is %j', (strategy, given, expected) => {
    expect(mergeOutputs(strategy, given)).toEqual(expected)
  })

  test('the order of arrival changes nothing', () => {
    const value = fc.oneof(fc.array(fc.integer()), fc.integer())
    const given = fc.uniqueArray(fc.record({ branch: fc.nat(1_000), value }), {
      selector: ({ branch }) => branch,
    })
    fc.assert(
      fc.property(
        given,
        fc.constantFrom(...MERGE_STRATEGIES),
        fc.infiniteStream(fc.nat()),
        (branches, strategy, chances) => {
          const shuffled = branches
            .map((output) => ({ output, chance: chances.next().value as number }))
            .toSorted((a, b) => a.chance - b.chance)
            .map(({ output }) => output)
          const objects = strategy === 'merge_object'
          const prepared = (list: typeof branches) =>
            objects ? list.map(({ branch, value }) => ({ branch, value: { [branch % 3]: value } })) : list
          expect(mergeOutputs(strategy, prepared(shuffled))).toEqual(
            mergeOutputs(strategy, prepared(branches)),
          )
        },
      ),
    )
  })

  test('append is collect, flattened once, when all are lists', () => {
    fc.assert(
      fc.property(fc.array(fc.array(fc.jsonValue({ maxDepth: 2 }))), (lists) => {
        expect(mergeOutputs('append', outputs(...lists))).toEqual(
          (mergeOutputs('collect', outputs(...lists)) as []).flat(1),
        )
      }),
    )
  })

  test.each([[null], [5], [['a']], ['text']])('merge_object refuses %j', (value) => {
    expect(() => mergeOutputs('merge_object', outputs({ a: 1 }, value))).toThrow(
      expect.objectContaining({ code: 'merge_failed', message: expect.stringContaining('branch 1') }),
    )
  })
})

describe('writing into the contexts', () => {
  test.each([
    ['state.pages', { root: 'state', keys: ['pages'] }],
    ['_branch.a.b-c', { root: 'branch', keys: ['a', 'b-c'] }],
    ['output.x', { root: 'output', keys: ['x'] }],
  ])('%s is a path', (text, path) => expect(parseContextPath(text)).toEqual(path))

  test.each([
    ['stat.pages', "Did you mean 'state.pages'?"],
    ['state', "Write a path like 'state.pages'."],
    ['state.', "Write a path like 'state.pages'."],
    ['state.a[0]', "Write a path like 'state.pages'."],
    ['state.__proto__.x', null],
    ['state.constructor', null],
    ['input.x', "Write a path like 'state.pages'."],
    ['', "Write a path like 'state.pages'."],
  ])('%s is none', (text, suggestion) =>
    expect(parseContextPath(text)).toEqual({ message: expect.any(String), suggestion }),
  )

  test('nothing is changed in place', () => {
    const state = Object.freeze({ a: Object.freeze({ b: 1 }), c: 2 })
    expect(writeAt(state, ['a', 'd', 'e'], 3)).toEqual({ a: { b: 1, d: { e: 3 } }, c: 2 })
    expect(state).toEqual({ a: { b: 1 }, c: 2 })
  })

  test('a value in the way is not overwritten', () => {
    expect(() => writeAt({ a: [1] }, ['a', 'b'], 1)).toThrow("cannot write 'b' into 'a': it is a list")
    expect(writeAt({ a: null }, ['a', 'b'], 1)).toEqual({ a: { b: 1 } })
  })

  test('a context that is not there cannot be written', () => {
    expect(() => writeContext({ state: {} }, 'branch.x', 1)).toThrow('there is no branch')
  })
})

describe('the output of a node', () => {
  const node = { id: 'plan', actionId: null }

  test('without a mapping, a result that is an object goes into the state', () => {
    const contexts = { state: { a: 1 }, output: {} }
    expect(writeOutput(node, { result: { topics: [1] } }, contexts)).toEqual({
      ok: true,
      contexts: { state: { a: 1, topics: [1] }, output: {} },
    })
    expect(writeOutput(node, { result: [1] }, contexts)).toEqual({ ok: true, contexts })
  })

  test('inside a branch it is the output of the branch', () => {
    const contexts = { state: {}, output: {}, branch: { item: 1 } }
    const written = writeOutput(node, { result: { a: 1 } }, contexts)
    expect(written).toEqual({
      ok: true,
      contexts: { state: {}, output: {}, branch: { item: 1, output: { a: 1 } } },
    })
  })

  test('a mapping says what is written; the order of its keys means nothing', () => {
    const contexts = { state: { a: 1, b: 2 }, output: {} }
    const mapping = { 'state.a': 'state.b', 'state.b': 'state.a', 'output.total': 'result.total' }
    const variables = { ...contexts, result: { total: 5, rest: 6 } }
    expect(writeOutput({ ...node, output: mapping }, variables, contexts)).toEqual({
      ok: true,
      contexts: { state: { a: 2, b: 1 }, output: { total: 5 } },
    })
    expect(writeOutput({ ...node, output: {} }, variables, contexts)).toEqual({ ok: true, contexts })
  })

  test('what fails is a value, with its place', () => {
    const failed = writeMappings(
      { 'state.a': 'result.missing' },
      { result: {} },
      { state: {} },
      'node plan: output',
    )
    expect(failed).toMatchObject({ ok: false, failure: { code: 'expression_failed' } })
    const blocked = writeMappings({ 'state.a.b': '1' }, {}, { state: { a: 5 } }, 'node plan: output')
    expect(blocked).toMatchObject({ ok: false, failure: { code: 'invalid_path', retryable: false } })
  })

  test('a run gives its mapping, else what was written, else its last result', () => {
    const variables = { input: {}, state: { a: 1 }, output: {}, result: 'last' }
    expect(runOutput({ sum: 'state.a + 1' }, variables)).toEqual({ ok: true, value: { sum: 2 } })
    expect(runOutput(undefined, { ...variables, output: { x: 1 } })).toEqual({ ok: true, value: { x: 1 } })
    expect(runOutput(undefined, variables)).toEqual({ ok: true, value: 'last' })
  })
})
