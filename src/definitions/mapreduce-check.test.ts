import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { stringify } from 'yaml'
import { problemsOf, toldOf, withMap, withSteps } from './fixtures/mapreduce-text.ts'
import { validateMapreduce } from './mapreduce.ts'
import { effectiveLimits } from './mapreduce-limits.ts'

describe('a problem of form is told, with its place', () => {
  test.each([
    ['an empty text', '', ['m.yml:1:1: error: there is nothing in it']],
    ['a list', '- a', ['m.yml:1:1: error: must be an object, got a list of 1']],
    ['no map', 'name: m', ['m.yml:1:1: error: map is missing']],
    [
      'a map without input and template',
      'name: m\nmode: workflow\nmap: {}',
      [
        "m.yml:2:7: error: mode: must be mapreduce, got 'workflow'",
        'm.yml:3:6: error: map: input is missing',
        'm.yml:3:6: error: map: agent_template is missing',
      ],
    ],
    ['a misspelt key', withMap('max_paralel: 3'), ['m.yml:5:3: error: map.max_paralel: is not a key here']],
    [
      'no steps',
      'name: m\nmap: { input: a, agent_template: [] }',
      ['m.yml:2:34: error: map.agent_template: a map needs at least one step'],
    ],
    [
      'a step that is a text',
      withSteps('- echo hi'),
      ["m.yml:5:7: error: map.agent_template[0]: must be an object, got 'echo hi'"],
    ],
    [
      'a misspelt type',
      withSteps('- clude: /x'),
      ['m.yml:5:7: error: map.agent_template[0].clude: is not a key here'],
    ],
    [
      'a step without a type',
      withSteps('- timeout: 5'),
      ['m.yml:5:7: error: map.agent_template[0]: needs exactly one of shell, claude, got none'],
    ],
    [
      'a step of two types',
      withSteps('- { shell: a, claude: b }'),
      ['m.yml:5:7: error: map.agent_template[0]: needs exactly one of shell, claude, got shell and claude'],
    ],
    [
      'an empty command',
      withSteps('- { shell: "" }'),
      ["m.yml:5:16: error: map.agent_template[0].shell: must be a text that is not empty, got ''"],
    ],
    [
      'a handler of a handler',
      withSteps('- { shell: a, on_failure: { shell: b, on_failure: { shell: c } } }'),
      [
        'm.yml:5:43: error: map.agent_template[0].on_failure.on_failure: a handler has no handlers of its own',
      ],
    ],
    [
      'a path without $',
      withMap('json_path: "items[*]"'),
      ["m.yml:5:15: error: map.json_path: not a JSONPath: expected '$', found 'i'"],
    ],
    [
      'a filter that is no expression',
      withMap('filter: item.a >'),
      ['m.yml:5:18: error: map.filter: not a CEL expression'],
    ],
    [
      'a filter over something else',
      withMap('filter: item.a > itm.b'),
      ["m.yml:5:20: error: map.filter: there is no variable 'itm' in a filter"],
    ],
    [
      'a path with a blank',
      withMap('sort_by: "a b"'),
      ["m.yml:5:12: error: map.sort_by: 'a b' is no path to sort by"],
    ],
    [
      'a path with two directions',
      withMap('sort_by: "-a desc"'),
      ["m.yml:5:12: error: map.sort_by: '-a desc' is no path to sort by"],
    ],
    [
      'a list as input',
      'name: m\nmap: { input: [1], agent_template: [{ shell: a }] }',
      ['m.yml:2:15: error: map.input: must be a file, { command } or { items }'],
    ],
    [
      'two inputs',
      'name: m\nmap: { input: { file: a, items: [] }, agent_template: [{ shell: a }] }',
      ['m.yml:2:15: error: map.input: needs exactly one of file, command, items, got file and items'],
    ],
    [
      'a phase without commands',
      withMap('', 'setup: { shell: a }'),
      ['commands is missing', 'is not a key here'],
    ],
    [
      'a phase that is a text',
      withMap('', 'reduce: a'),
      ["error: reduce: must be a list of steps, or { timeout, commands }, got 'a'"],
    ],
    [
      'names and values of env',
      withMap('', 'env: { a-b: 1, CURFEW_NODE: x, C: null }'),
      ['is not the name', "Curfew's own", 'must be a text'],
    ],
    ['secrets with values', withMap('', 'secrets: { A: b }'), ['must be a list of names']],
    [
      'runners that cannot be',
      withMap('', 'runners: { shell: [a], timeout: [b], c_1: [c], d: [], e: "e f" }'),
      [
        'cannot be replaced',
        'is a key of every step',
        'cannot end with a number behind _',
        'a program and its arguments',
        'must be a list',
      ],
    ],
    [
      'a policy beyond its bounds',
      withMap('', 'error_policy: { max_failures: 0, failure_rate: 20, on_failure: explode }'),
      ['whole number from 1', 'from 0 to 1', 'one of stop, continue'],
    ],
  ])('%s', (_, text, expected) => {
    const found = toldOf(text)
    expect(found).toHaveLength(expected.length)
    for (const [i, part] of expected.entries()) expect(found[i]).toContain(part)
  })
})

describe('a variable that nobody knows is told before anything runs', () => {
  const step = (text: string, rest?: string) => withSteps(`- shell: ${text}`, rest)

  test.each([
    [
      'a misspelt name',
      step('a ${itm}'),
      ["there is no variable 'itm'\n  Did you mean 'item'? A variable of the shell is $itm."],
    ],
    ['parts of an item', step('a ${item.x.y} ${item_id} ${item_index}'), []],
    ['a part of a text', step('a ${item_id.x}'), ["'item_id' is a text and has no parts"]],
    [
      'results of the map in the map',
      step('a ${map.results}'),
      ["'map' is not known here\n  It is known in reduce and merge alone."],
    ],
    ['names of the environment', step('a ${HOME} ${PATH}'), ["there is no variable 'PATH'"]],
    [
      'an expansion of the shell',
      step('a ${x:-1}'),
      ["'${x:-1}' is not a variable\n  Write ${name} or ${name.part}; to leave it as it is, $${x:-1}."],
    ],
    ["the shell's own", step('a $x $${x:-1}'), []],
    ['params and args', step('a ${params.k} ${args}'), []],
    [
      'a param that was not given',
      step('a ${params.l}'),
      ["there is no 'l' in 'params'\n  Did you mean 'k'?"],
    ],
    [
      'an item outside the map',
      step('a', 'reduce: [{ shell: "b ${item}" }]'),
      ["'item' is not known here\n  It is known in map.agent_template alone."],
    ],
    [
      'parts of the results',
      step('a', 'reduce: [{ claude: "b ${map.result} ${map.results[0]}" }]'),
      ["there is no 'result' in 'map'", '${map.results} is the path of a file and has no parts'],
    ],
    ['results in merge', step('a', 'merge: [{ shell: "b ${map.failed}" }]'), []],
    [
      'a failure where there is none',
      step('a', 'setup: [{ shell: "b ${failure.kind}" }]'),
      ["'failure' is not known here"],
    ],
    [
      'a part of what was captured',
      withSteps('- { shell: a, capture: x }\n- claude: "b ${x} ${x.y}"'),
      ["'x' is a text and has no parts"],
    ],
    [
      'what is captured later',
      withSteps('- claude: "b ${x}"\n- { shell: a, capture: x }'),
      ["there is no variable 'x'"],
    ],
    [
      'what a handler knows',
      withSteps(
        '- { shell: a, capture: x, on_failure: { shell: "c ${x} ${failure.kind}" }, on_success: { shell: "d ${x}" } }',
      ),
      ["there is no variable 'x'"],
    ],
    [
      'a capture with a taken name',
      withSteps('- { shell: a, capture: item }'),
      ["'item' is something else already"],
    ],
    [
      'a capture with the name of a variable',
      withSteps('- { shell: a, capture: E }', 'env: { E: 1 }'),
      ["'E' is a variable of env already"],
    ],
    [
      'variables of env and of a step',
      withSteps('- { shell: "a ${E}", env: { E: "${item.e} ${F}" } }', 'env: { F: 1 }'),
      [],
    ],
    [
      'a condition over something else',
      withSteps('- { shell: a, when: "itm.a > 1" }'),
      ["there is no variable 'itm'"],
    ],
    [
      'a condition that is no expression',
      withSteps('- { shell: a, when: "item.a >" }'),
      ['not a CEL expression'],
    ],
    ['a working folder', withSteps('- { shell: a, working_dir: "${dir}" }'), ["there is no variable 'dir'"]],
    ['an item in env', withMap('', 'env: { A: "${item}" }'), ["'item' is not known here"]],
    ['a runner', withMap('', 'runners: { r: [r, "${nope}"] }'), ["there is no variable 'nope'"]],
    [
      'what setup captured, in the input',
      'name: m\nmap: { input: "${x}.json", agent_template: [{ shell: a }] }\nsetup: [{ shell: a, capture: x }]',
      [],
    ],
    [
      'an item in the input',
      'name: m\nmap: { input: { command: "a ${item}" }, agent_template: [{ shell: a }] }',
      ["'item' is not known here"],
    ],
    ['code', step('"eval ${item}"'), ["no value can stand here: 'eval' runs it as code"]],
    [
      'a quoted here-document',
      step('"cat <<\'E\'\\n${item}\\nE"'),
      ['no value can stand in a here-document with a quoted word'],
    ],
  ])('%s', (_, text, expected) => {
    const found = problemsOf(text, { env: { HOME: '/' }, params: { k: 'v' } })
    expect(found).toHaveLength(expected.length)
    for (const [i, part] of expected.entries()) expect(found[i]).toContain(part)
  })

  test('what may be in an environment nobody told of is taken to be there', () => {
    expect(problemsOf(step('a ${HOME} ${params.any}'))).toEqual([])
    expect(toldOf(step('a ${home}'))).toHaveLength(1)
  })

  test('at its place in a script of many lines', () => {
    const text = withSteps(
      '- shell: |\n    set -e\n    echo \'it is ${itm.name}\'\n\n    if a; then\n      eval "${item}"\n    fi',
    )
    expect(toldOf(text)).toEqual([
      "m.yml:7:21: error: map.agent_template[0].shell: there is no variable 'itm'",
      "m.yml:10:17: error: map.agent_template[0].shell: no value can stand here: 'eval' runs it as code",
    ])
  })
})

describe('any text', () => {
  const leaf = fc.constantFrom<unknown>(
    'a',
    '${item}',
    '$X',
    '5s',
    '',
    0,
    1,
    -1,
    1.5,
    1e12,
    true,
    null,
    'PerAgent',
    "'",
    'item.a',
  )
  const key = fc.constantFrom(
    ...[
      'name',
      'mode',
      'timeout',
      'env',
      'secrets',
      'setup',
      'map',
      'reduce',
      'merge',
      'error_policy',
      'runners',
    ],
    ...[
      'input',
      'file',
      'command',
      'items',
      'json_path',
      'filter',
      'sort_by',
      'offset',
      'max_items',
      'max_parallel',
    ],
    ...[
      'agent_timeout_secs',
      'timeout_config',
      'agent_template',
      'timeout_policy',
      'command_timeouts',
      'escalation',
    ],
    ...[
      'shell',
      'claude',
      'retry',
      'when',
      'capture',
      'on_failure',
      'working_dir',
      'commands',
      'retries',
      'backoff',
    ],
  )
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 5, withCrossShrink: true },
      leaf,
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(key, tie('value'), { maxKeys: 6 }),
    ),
  }))

  test('gives a definition or problems with places, and never an exception', () => {
    fc.assert(
      fc.property(value, (data) => {
        const { definition, problems } = validateMapreduce(stringify(data), { env: { X: '1' } })
        expect(definition === null).toBe(problems.some(({ severity }) => severity === 'error'))
        for (const { line, column } of problems) expect(Math.min(line!, column!)).toBeGreaterThan(0)
      }),
      { numRuns: 500 },
    )
    fc.assert(
      fc.property(value, fc.array(value, { maxLength: 3 }), (map, template) => {
        const data = { name: 'm', map: { input: 'a', agent_template: template, ...(map as object) } }
        const { definition } = validateMapreduce(stringify(data), { env: { X: '1' } })
        if (definition)
          expect(effectiveLimits(JSON.parse(JSON.stringify(definition.model)))).toEqual(
            effectiveLimits(definition.model),
          )
      }),
      { numRuns: 500 },
    )
  })
})
