import { describe, expect, test } from 'vitest'
import type { Problem } from './problem.ts'
import { nearest } from './problem.ts'
import { task } from './task.ts'
import { validateWorkflow, workflow } from './workflow.ts'

/** What stands at the place of each problem, and its code; `!` marks errors. */
function found(text: string): [there: string, code: string][] {
  const lines = text.trimStart().split('\n')
  return problemsOf(text).map(({ line, column, severity, code }) => {
    const there = lines[line! - 1]!.slice(column! - 1)
    return [there.match(/^.[^\s,:}\]]*/)?.[0] ?? '', severity === 'error' ? `!${code}` : code]
  })
}

function problemsOf(text: string): readonly Problem[] {
  const { problems, definition } = validateWorkflow(text.trimStart(), { file: 'w.yml' })
  const isWrong = problems.some(({ severity }) => severity === 'error')
  expect(definition === null).toBe(isWrong)
  for (const problem of problems) expect(problem.file).toBe('w.yml')
  return problems
}

const nodes = 'nodes: [{ id: a }, { id: b }, { id: c }]'

describe('a problem is found, with its place', () => {
  test.each<[what: string, text: string, expected: [string, string][]]>([
    ['an empty text', '', [['', '!invalid_text']]],
    ['a list', '- a', [['-', '!invalid_value']]],
    ['broken YAML', 'name: [', [['', '!invalid_text']]],
    [
      'nothing in it',
      'name: w',
      [
        ['name', '!missing_key'],
        ['name', '!no_nodes'],
      ],
    ],
    ['no nodes', 'name: w\nnodes: []', [['[', '!no_nodes']]],
    ['nodes that cannot be read', 'name: w\nnodes: [5]', [['5', '!invalid_value']]],
    ['a node without id', 'name: w\nnodes: [{ action_id: a }, { id: b }]', [['{', '!missing_key']]],
    ['an id that is no text', 'name: w\nnodes: [{ id: 5 }, { id: b }]', [['5', '!invalid_value']]],
    ['an unsafe id', 'name: w\nnodes: [{ id: __proto__ }, { id: b }]', [['__proto__', '!invalid_name']]],
    ['an unsafe key', 'name: w\n__proto__: 1\nnodes: [{ id: a }]', [['__proto__', '!unsafe_key']]],
    ['a key twice', 'name: w\nname: v\nnodes: [{ id: a }]', [['name', '!duplicate_key']]],
    [
      'an unknown key',
      `name: w\n${nodes}\ntransition: []`,
      [
        ['[{', '!several_starts'],
        ['transition', '!unknown_key'],
      ],
    ],
    [
      'duplicate ids',
      `name: w\nnodes: [{ id: a }, { id: a }]\ntransitions: [{ id: t, from: a, to: a }, { id: t, from: a, to: a }]`,
      [
        ['a', '!duplicate_id'],
        ['t', '!duplicate_id'],
      ],
    ],
    [
      'unknown nodes',
      `name: w\nnodes: [{ id: first }]\ntransitions: [{ from: frist, to: last }]`,
      [
        ['frist', '!unknown_node'],
        ['last', '!unknown_node'],
      ],
    ],
    [
      'no start',
      `name: w\nnodes: [{ id: a }, { id: b }]\ntransitions: [{ from: a, to: b }, { from: b, to: a }]`,
      [['[{', '!no_start']],
    ],
    ['several starts', `name: w\n${nodes}\ntransitions: [{ from: a, to: b }]`, [['[{', '!several_starts']]],
    ['an unknown start', `name: w\nstart: d\nnodes: [{ id: a }]`, [['d', '!unknown_node']]],
    [
      'a node nothing leads to',
      `name: w\nstart: a\n${nodes}\ntransitions: [{ from: a, to: b }, { from: c, to: b }]`,
      [['{', '!unreachable_node']],
    ],
    [
      'an action of no known kind',
      `name: w\nactions: { x: { kind: htp_request }, y: { kind: task } }\nnodes: [{ id: a, action_id: x }, { id: b, action_id: y }]\ntransitions: [{ from: a, to: b }]`,
      [['htp_request', '!invalid_value']],
    ],
    [
      'an action beside a declared one',
      `name: w\nactions: { fetch: { kind: task } }\nnodes: [{ id: a, action_id: fecth }]`,
      [
        ['fetch', 'unused_action'],
        ['fecth', 'unknown_action'],
      ],
    ],
    [
      'a limit on the action itself',
      `name: w\nactions: { x: { kind: task, timeout_ms: 5 } }\nnodes: [{ id: a, action_id: x }]`,
      [['timeout_ms', '!unknown_key']],
    ],
    [
      'a condition on a node',
      `name: w\nnodes: [{ id: a, condition: "true" }]`,
      [['condition', '!unknown_key']],
    ],
    [
      'shell with both, and with neither',
      `name: w\nactions:\n  x: { kind: shell, command: ls, argv: [ls] }\n  y: { kind: shell }\nnodes: [{ id: a }]`,
      [
        ['{', '!invalid_value'],
        ['{', '!invalid_value'],
      ],
    ],
    [
      'a body of a GET, a header that is no name of a variable, a status',
      `name: w\nactions:\n  x: { kind: http_request, url: "'u'", body: input, expected_status: 20 }\n  y: { kind: shell, argv: [ls], env: { a-b: input } }\nnodes: [{ id: a }]`,
      [
        ['x', 'unused_action'],
        ['input', '!invalid_value'],
        ['20', '!invalid_value'],
        ['y', 'unused_action'],
        ['a-b', '!invalid_name'],
      ],
    ],
    [
      'headers that are none, that frame the body, that stand there twice',
      `name: w\nactions:\n  x: { kind: http_request, url: "'u'", headers: { "a b": input, Content-Length: input, x-a: input, X-A: input }, execution: { timeout: 1m } }\nnodes: [{ id: a, action_id: x }]`,
      [
        ['"a', '!invalid_name'],
        ['Content-Length', '!invalid_name'],
        ['X-A', '!invalid_name'],
      ],
    ],
    [
      'a command without a program, a line with an expression, a variable of our own',
      `name: w\nactions:\n  x: { kind: shell, argv: [""] }\n  y: { kind: shell, command: 'echo \${input.a}', env: { CURFEW_NODE: input } }\nnodes: [{ id: a }]`,
      [
        ['x', 'unused_action'],
        ['""', '!invalid_value'],
        ['y', 'unused_action'],
        ['${input.a', '!invalid_value'],
        ['CURFEW_NODE', '!invalid_name'],
      ],
    ],
    ['retry without limit is no problem', `name: w\nnodes: [{ id: a, timeout: 1s, on_timeout: retry }]`, []],
    [
      'a retry limit of null',
      `name: w\nnodes: [{ id: a, timeout: 1s, on_timeout: retry, retry_limit: null }]`,
      [['null', '!invalid_value']],
    ],
    [
      'a retry limit without retry',
      `name: w\nnodes: [{ id: a, timeout: 1s, retry_limit: 2 }]`,
      [['{', 'no_effect']],
    ],
    ['a retry without a timeout', `name: w\nnodes: [{ id: a, on_timeout: retry }]`, [['{', 'no_effect']]],
  ])('%s', (_what, text, expected) => expect(found(text)).toEqual(expected))
})

const fan = (more: string, join: string) => `
name: w
${nodes}
transitions:
  - { id: fan, from: a, to: b, ${more} }
  - { from: b, to: c, synchronization: { ${join} } }
`

describe('fan-outs and joins', () => {
  test.each<[what: string, text: string, expected: [string, string][]]>([
    [
      'both kinds of fan-out',
      fan('spawn_count: 2, foreach: { collection: state.l }', 'strategy: all, sibling_group: fan'),
      [['spawn_count', '!invalid_value']],
    ],
    [
      'max_parallel alone',
      fan('max_parallel: 2', 'strategy: all, sibling_group: fan'),
      [
        ['max_parallel', '!invalid_value'],
        ['fan', '!unknown_sibling_group'],
      ],
    ],
    [
      'a group nobody opens',
      fan('spawn_count: 2', 'strategy: all, sibling_group: fam'),
      [['fam', '!unknown_sibling_group']],
    ],
    [
      'more than can arrive',
      fan('spawn_count: 2', 'strategy: { m_of_n: 3 }, sibling_group: fan'),
      [['{', '!impossible_quorum']],
    ],
    [
      'm of a list is not known before',
      fan('foreach: { collection: state.l }', 'strategy: { m_of_n: 3 }, sibling_group: fan'),
      [],
    ],
    [
      'm of 0',
      fan('spawn_count: 2', 'strategy: { m_of_n: 0 }, sibling_group: fan'),
      [['0', '!invalid_value']],
    ],
    ['no strategy', fan('spawn_count: 2', 'sibling_group: fan'), [['{', '!missing_key']]],
    [
      'too many branches',
      fan('spawn_count: 10001', 'strategy: all, sibling_group: fan'),
      [['10001', '!invalid_value']],
    ],
    [
      'a join no branch reaches',
      `name: w\nnodes: [{ id: a }, { id: b }, { id: c }, { id: d }]\ntransitions:\n  - { from: a, to: b }\n  - { id: fan, from: b, to: c, spawn_count: 2 }\n  - { from: a, to: d, synchronization: { strategy: all, sibling_group: fan } }`,
      [['{', '!unreached_join']],
    ],
    [
      'a join across one that is open',
      `name: w\nnodes: [{ id: a }, { id: b }, { id: c }, { id: d }]\ntransitions:\n  - { id: outer, from: a, to: b, spawn_count: 2 }\n  - { id: inner, from: b, to: c, spawn_count: 2 }\n  - { from: c, to: d, synchronization: { strategy: all, sibling_group: outer } }`,
      [['{', '!crossed_join']],
    ],
    [
      'two transitions of one group',
      `name: w\nnodes: [{ id: a }, { id: b }, { id: c }, { id: d }]\ntransitions:\n  - { from: a, to: b, sibling_group: g }\n  - { from: a, to: c, sibling_group: g }\n  - { from: b, to: d, synchronization: { strategy: all, sibling_group: g } }\n  - { from: c, to: d, synchronization: { strategy: all, sibling_group: g } }`,
      [],
    ],
    [
      'a join that says two things',
      `name: w\nnodes: [{ id: a }, { id: b }, { id: c }, { id: d }]\ntransitions:\n  - { from: a, to: b, sibling_group: g }\n  - { from: a, to: c, sibling_group: g }\n  - { from: b, to: d, synchronization: { strategy: all, sibling_group: g } }\n  - { from: c, to: d, synchronization: { strategy: { m_of_n: 2 }, sibling_group: g } }`,
      [['{', '!split_join']],
    ],
    [
      'a group that cannot fire together',
      `name: w\nnodes: [{ id: a }, { id: b }, { id: c }]\ntransitions:\n  - { from: a, to: b, sibling_group: g }\n  - { from: a, to: c, sibling_group: g, priority: 1 }\n  - { from: b, to: c, sibling_group: g }`,
      [
        ['{', '!split_group'],
        ['{', '!split_group'],
        ['{', 'recursive_fan_out'],
      ],
    ],
    [
      'a fan-out inside itself',
      `name: w\nnodes: [{ id: a }, { id: b }]\nstart: a\ntransitions:\n  - { id: fan, from: a, to: b, spawn_count: 2 }\n  - { from: b, to: a }`,
      [['{', 'recursive_fan_out']],
    ],
    [
      'nested joins',
      `name: w\nnodes: [{ id: a }, { id: b }, { id: c }, { id: d }, { id: e }]\ntransitions:\n  - { id: outer, from: a, to: b, spawn_count: 2 }\n  - { id: inner, from: b, to: c, spawn_count: 2 }\n  - { from: c, to: d, synchronization: { strategy: all, sibling_group: inner, merge: { target: branch.x } } }\n  - { from: d, to: e, synchronization: { strategy: all, sibling_group: outer, merge: { source: branch.x, target: state.x } } }`,
      [],
    ],
    [
      'an inner merge into what all branches share',
      `name: w\nnodes: [{ id: a }, { id: b }, { id: c }, { id: d }]\ntransitions:\n  - { id: outer, from: a, to: b, spawn_count: 2 }\n  - { id: inner, from: b, to: c, spawn_count: 2 }\n  - { from: c, to: d, synchronization: { strategy: all, sibling_group: inner, merge: { target: state.x } } }`,
      [['state.x', 'shared_target']],
    ],
    [
      'a merge into no branch',
      fan('spawn_count: 2', 'strategy: all, sibling_group: fan, merge: { target: branch.x }'),
      [['branch.x', '!invalid_path']],
    ],
    [
      'an item variable that is taken',
      fan('foreach: { collection: state.l, item_var: index }', 'strategy: all, sibling_group: fan'),
      [['index', '!invalid_name']],
    ],
  ])('%s', (_what, text, expected) => {
    expect(found(text).toSorted()).toEqual(expected.map(([place, code]) => [place, code]).toSorted())
  })
})

describe('cycles', () => {
  const cycle = (timeout: string, loop: string) =>
    `name: w\n${timeout}\nstart: a\nnodes: [{ id: a }, { id: b }]\ntransitions:\n  - { from: a, to: b }\n  - { from: b, to: a${loop} }`
  test.each([
    ['', '', []],
    ['timeout: null', ', loop: { max_iterations: 3 }', []],
    ['timeout: null', '', [['{', '!endless_cycle']]],
  ])('with %o and %o', (timeout, loop, expected) => expect(found(cycle(timeout, loop))).toEqual(expected))

  test('names the way', () => {
    expect(problemsOf(cycle('timeout: null', ''))[0]!.message).toBe('nothing ends the cycle a → b → a')
  })
})

describe('expressions', () => {
  const at = (key: string, value: string) => `
name: w
${nodes.replace('{ id: b }', `{ id: b, ${key.startsWith('node.') ? `${key.slice(5)}: ${value}` : ''} }`)}
transitions:
  - { id: fan, from: a, to: b, spawn_count: 2, ${key === 'condition' ? `condition: ${value}` : ''} }
  - { from: b, to: c, synchronization: { strategy: all, sibling_group: fan } }
`
  test.each<[string, string, [string, string][]]>([
    ['node.input', '{ x: branch.index, y: result }', []],
    ['node.input', '{ x: join.arrived }', [['join.arrived', '!unknown_variable']]],
    ['node.input', '{ x: "1 + brnch.index" }', [['brnch.index"', '!unknown_variable']]],
    ['node.input', '{ mode: fast }', [['fast', '!unknown_variable']]],
    ['node.input', '{ x: "input.a +" }', [['+"', '!invalid_expression']]],
    ['node.input', '{ x: [1, { y: "nofunc(1)" }] }', [['nofunc(1)"', '!invalid_expression']]],
    ['node.output', '{ branch.score: result.score }', []],
    ['node.output', '{ state.score: result.score }', [['state.score', '!invalid_path']]],
    ['node.output', '{ stat.score: result.score }', [['stat.score', '!invalid_path']]],
    ['condition', 'state.ok && has(result.x)', []],
    ['condition', 'branch.index > 1', [['branch.index', '!unknown_variable']]],
    ['condition', '5', [['5', '!invalid_value']]],
  ])('%s: %s', (key, value, expected) => expect(found(at(key, value))).toEqual(expected))

  test('a text where an expression was expected is told apart', () => {
    expect(problemsOf(at('node.input', '{ mode: fast }'))[0]).toMatchObject({
      message: "there is no variable 'fast'",
      suggestion: `For the text, write "'fast'".`,
    })
  })

  test('after a join there is join, and outside branches there is none', () => {
    const text = `name: w\n${nodes.replace('{ id: c }', '{ id: c, input: { a: join.arrived, b: branch.item } }')}\ntransitions:\n  - { id: fan, from: a, to: b, spawn_count: 2 }\n  - { from: b, to: c, synchronization: { strategy: all, sibling_group: fan } }`
    expect(problemsOf(text).map(({ message }) => message)).toEqual([
      "'branch.item' cannot exist at node 'c': it is outside every branch",
    ])
  })

  test('what an action names has to exist wherever a node uses it', () => {
    const text = `name: w\nactions:\n  get: { kind: http_request, url: branch.item, execution: { timeout: 1m } }\n${nodes.replace('{ id: a }', '{ id: a, action_id: get }').replace('{ id: b }', '{ id: b, action_id: get }')}\ntransitions:\n  - { id: fan, from: a, to: b, spawn_count: 2 }\n  - { from: b, to: c, synchronization: { strategy: all, sibling_group: fan } }`
    expect(problemsOf(text)).toMatchObject([
      { line: 3, column: 35, message: "'branch.item' cannot exist at node 'a': it is outside every branch" },
    ])
  })

  test('a fault that two nodes share is told once', () => {
    const text = `name: w\nactions:\n  get: { kind: http_request, url: "a b", execution: { timeout: 1m } }\nnodes: [{ id: a, action_id: get }, { id: b, action_id: get }]\ntransitions: [{ from: a, to: b }]`
    expect(found(text)).toEqual([['b"', '!invalid_expression']])
  })

  test('the arguments of a command are templates', () => {
    const text = (argument: string) =>
      `name: w\nactions:\n  x: { kind: shell, argv: [git, "${argument}"], execution: { timeout: 1m } }\nnodes: [{ id: a, action_id: x }]`
    expect(found(text('--id=${input.id}'))).toEqual([])
    expect(found(text('--id=${inptu.id}'))).toEqual([['inptu.id', '!unknown_variable']])
    expect(found(text('--id=${input.id'))).toEqual([['${input.id"', '!invalid_expression']])
  })
})

describe('advice on limits', () => {
  test.each([
    ['http_request, url: "\'u\'"', '30 seconds to 2 minutes'],
    ['shell, command: ls', '1 to 10 minutes'],
    ['llm', '2 to 5 minutes'],
    ['mcp_tool', '30 seconds to 2 minutes'],
    ['workflow_call, workflow: w', '30 to 60 minutes'],
  ])('%s without a timeout', (action, range) => {
    const text = (node: string) =>
      `name: w\nactions: { x: { kind: ${action} } }\nnodes: [{ id: a, action_id: x${node} }]`
    expect(problemsOf(text(''))).toMatchObject([
      { severity: 'warning', code: 'no_timeout', suggestion: expect.stringContaining(range) },
    ])
    expect(problemsOf(text(', timeout: 1m'))).toEqual([])
    expect(found(text(', timeout: null'))).toEqual([['{', 'no_timeout']])
  })

  test.each<[string, string, string | null]>([
    ['10m', 'timeout: 11m', '11m may take 11m; the workflow has 10m'],
    ['10m', 'timeout: 9m', null],
    [
      '10m',
      'timeout: 3m, on_timeout: retry',
      '4 attempts of 3m with grace may take 12m15s; the workflow has 10m',
    ],
    ['10m', 'timeout: 3m, on_timeout: retry, retry_limit: 2', null],
    [
      '10m',
      'timeout: 195s, on_timeout: retry, retry_limit: 2, grace: 10s',
      '3 attempts of 3m15s with grace may take 10m5s; the workflow has 10m',
    ],
    ['null', 'timeout: 100d', null],
    ['10m', 'timeout: 5s, soft_stop: 5s', 'a soft stop 5s before a timeout of 5s comes at the start'],
  ])('in a workflow of %s a node with %s', (timeout, node, message) => {
    const problems = problemsOf(`name: w\ntimeout: ${timeout}\nnodes: [{ id: a, ${node} }]`)
    expect(problems.map((problem) => problem.message)).toEqual(message === null ? [] : [message])
    for (const { severity, code } of problems) expect([severity, code]).toEqual(['warning', 'cannot_fit'])
  })

  test('a reserve without inheritance', () => {
    const text = (inherit: string) => `name: w\nnodes: [{ id: a, reserve: 5s${inherit} }]`
    expect(found(text(''))).toEqual([['5s', 'no_effect']])
    expect(found(text(', inherit: true'))).toEqual([])
  })

  test('limits that tasks and workflows bring with them', () => {
    const ask = task({ name: 'ask', kind: 'llm', attemptTimeout: '2m', retries: 2, grace: 0, run: () => 1 })
    const child = workflow({ name: 'child', timeout: '20m', nodes: [{ id: 'x' }] })
    const messages = (timeout: string, node: object) =>
      workflow({
        name: 'w',
        timeout,
        actions: { ask, child },
        nodes: [
          { id: 'a', actionId: 'ask', ...node },
          { id: 'b', actionId: 'child' },
        ],
        transitions: [{ from: 'a', to: 'b' }],
      }).warnings.map(({ path, message }) => `${path}: ${message}`)
    expect(messages('1h', {})).toEqual([])
    expect(messages('1h', { timeout: '5m' })).toEqual(["nodes[0]: task 'ask' may take 6m3s; the node has 5m"])
    expect(messages('6m', {})).toEqual([
      "nodes[0]: task 'ask' may take 6m3s; the workflow has 6m",
      "nodes[1]: workflow 'child' may take 20m; the workflow has 6m",
    ])
  })

  test('branches after each other', () => {
    const text = `name: w\ntimeout: 10m\nnodes: [{ id: a }, { id: b, timeout: 3m, grace: 0s }]\ntransitions: [{ from: a, to: b, spawn_count: 10, max_parallel: 2 }]`
    expect(problemsOf(text)[0]!.message).toBe(
      '5 after each other of 3m with grace may take 15m; the workflow has 10m',
    )
  })

  test('a join that outlives its workflow', () => {
    const text = fan('spawn_count: 2', 'strategy: all, sibling_group: fan, timeout: 2h')
    expect(problemsOf(text)[0]!.message).toBe('a join that waits 2h never times out: the workflow has 1h')
  })
})

test('every problem is told, in the order of the text', () => {
  const lines = problemsOf(`
name: w
timout: 5m
nodes:
  - { id: a, timeout: 0s }
  - { id: a, on_timeout: rety }
transitions:
  - { from: a, to: x }
`).map(({ line }) => line)
  expect(lines).toEqual(lines.toSorted((a, b) => a! - b!))
  expect(lines).toEqual([2, 4, 5, 5, 7])
})

test('a list of problems has an end', () => {
  const many = Array.from({ length: 500 }, (_, i) => `x${i}: 1`).join('\n')
  const problems = problemsOf(`name: w\nnodes: [{ id: a }]\n${many}`)
  expect(problems).toHaveLength(201)
  expect(problems.some(({ code }) => code === 'too_many_problems')).toBe(true)
})

test.each([
  ['timout', ['timeout', 'timeout_ms'], 'timeout'],
  ['fecth', ['fetch', 'batch'], 'fetch'],
  ['Fetch', ['fetch'], 'fetch'],
  ['x', ['y'], 'y'],
  ['transitions', ['nodes'], null],
  ['', ['a'], 'a'],
])('%s was probably one of %j: %s', (name, names, expected) => expect(nearest(name, names)).toBe(expected))
