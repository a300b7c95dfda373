// What flows through a run: contexts, nodes without work, agents and workflows as nodes, and expressions that fail.
import { expect } from 'vitest'
import { tokensOf } from '../scripts/acceptance/workflow-runs.ts'
import type { World } from '../scripts/acceptance/world.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { WorkflowDefinition } from './curfew.ts'
import { agent, loadWorkflow, TaskFailed, task, workflow } from './curfew.ts'

const echo = task({ name: 'echo', run: (input: unknown) => input })

async function run(world: World, definition: WorkflowDefinition, input: unknown = null) {
  const curfew = await world.open({ tasks: [echo] })
  const handle = await curfew.start(definition, input)
  await world.clock.settle()
  return handle
}

async function failureOf(world: World, definition: WorkflowDefinition, input: unknown = null) {
  const handle = await run(world, definition, input)
  const { failure } = await errorOf(handle.result(), TaskFailed)
  return { handle, failure }
}

onEachStore('nodes', (test) => {
  test('update_context writes state and output, all of it from what was before', async ({ world }) => {
    const swap = loadWorkflow(`
name: swap
actions:
  first: { kind: update_context, updates: { state.a: input.a, state.b: input.b, state.deep.n: 1 } }
  swap: { kind: update_context, updates: { state.a: state.b, state.b: state.a, state.deep.m: state.deep.n + 1, output.was: state } }
nodes: [{ id: one, action_id: first }, { id: two, action_id: swap }]
transitions: [{ from: one, to: two }]
`)
    const handle = await run(world, swap, { a: 1, b: [2] })
    expect(await handle.result()).toEqual({ was: { a: 1, b: [2], deep: { n: 1 } } })
    const { state } = await handle.run()
    expect(state).toEqual({ a: [2], b: 1, deep: { n: 1, m: 2 } })
  })

  test('update_context inside branches writes the state of all, and each its own branch', async ({
    world,
  }) => {
    const count = loadWorkflow(`
name: count
actions:
  note:
    kind: update_context
    updates: { state.count: "(has(state.count) ? state.count : 0) + branch.item", branch.double: branch.item * 2 }
nodes: [{ id: a }, { id: note, action_id: note }, { id: end }]
transitions:
  - { id: fan, from: a, to: note, foreach: { collection: input } }
  - { from: note, to: end, synchronization: { strategy: all, sibling_group: fan,
      merge: { source: branch.double, target: state.doubles, strategy: collect } } }
output: state
`)
    const handle = await run(world, count, [1, 2, 3])
    expect(await handle.result()).toEqual({ count: 6, doubles: [2, 4, 6] })
  })

  test('a path through something that is no object fails its token', async ({ world }) => {
    const bad = loadWorkflow(`
name: bad
actions: { set: { kind: update_context, updates: { state.list.n: "1" } } }
nodes: [{ id: a, action_id: echo }, { id: b, action_id: set }]
transitions: [{ from: a, to: b }]
`)
    const { handle, failure } = await failureOf(world, bad, { list: [] })
    expect(failure).toMatchObject({ code: 'invalid_path', message: expect.stringContaining('it is a list') })
    expect(await tokensOf(handle)).toEqual([
      ['a', 'completed'],
      ['b', 'failed'],
    ])
  })

  test('nodes without an action only route; a run of nothing else ends where it starts', async ({
    world,
  }) => {
    const route = loadWorkflow(`
name: route
nodes: [{ id: a }, { id: small }, { id: large, output: { output.large: "true" } }]
transitions:
  - { from: a, to: small, condition: input < 10 }
  - { from: a, to: large, condition: input >= 10 }
`)
    const curfew = await world.open({ workflows: [route] })
    const start = world.now
    const [small, large] = [await curfew.start(route, 9), await curfew.start(route, 10)]
    expect([await small.result(), await large.result()]).toEqual([null, { large: true }])
    expect([await tokensOf(small), await tokensOf(large)]).toEqual([
      [
        ['a', 'completed'],
        ['small', 'completed'],
      ],
      [
        ['a', 'completed'],
        ['large', 'completed'],
      ],
    ])
    expect(world.now).toBe(start)
  })

  test('an agent is a node like any other: its input, its output, its timeout', async ({ world }) => {
    const research = agent({
      name: 'research',
      run: async (topics: string[], ctx) => {
        await ctx.sleep('5s')
        return { pages: await ctx.all(topics.map((topic) => ctx.schedule(echo, `${topic}!`))) }
      },
    })
    const ask = workflow({
      name: 'ask',
      actions: { research, named: { kind: 'agent', agent: 'research', execution: { timeout: '4s' } } },
      nodes: [
        { id: 'read', actionId: 'research', input: 'input.topics' },
        { id: 'again', actionId: 'named', input: 'state.pages' },
      ],
      transitions: [{ from: 'read', to: 'again' }],
    })
    const curfew = await world.open({ tasks: [echo], workflows: [ask] })
    const handle = await curfew.start(ask, { topics: ['a', 'b'] })
    await world.clock.advance('5s')
    expect((await handle.run()).state).toEqual({ pages: ['a!', 'b!'] })
    await world.clock.advance('4001ms')
    expect(await tokensOf(handle)).toEqual([
      ['read', 'completed'],
      ['again', 'timed_out'],
    ])
    expect(await errorOf(handle.result(), TaskFailed)).toMatchObject({ failure: { code: 'agent_timeout' } })
  })

  test('C: a called workflow sees its own input and nothing else; its output is the result', async ({
    world,
  }) => {
    const child = loadWorkflow(`
name: child
nodes: [{ id: add, action_id: echo, input: { sum: input.a + input.b }, output: { state.sum: result.sum } }]
output: { sum: state.sum, keys: "state.map(k, k)" }
`)
    const parent = loadWorkflow(`
name: parent
actions: { call: { kind: workflow_call, workflow: child, execution: { timeout: 1m } } }
nodes:
  - { id: one, action_id: call, input: { a: input, b: 1 }, output: { state.one: result.sum } }
  - { id: two, action_id: call, input: { a: state.one, b: 10 } }
transitions: [{ from: one, to: two }]
`)
    const curfew = await world.open({ tasks: [echo], workflows: [child, parent] })
    expect(await (await curfew.start(parent, 1)).result()).toEqual({ sum: 12, keys: ['sum'] })
    const failed = await errorOf((await curfew.start(parent, 'x')).result(), TaskFailed)
    expect(failed.failure.message).toContain('expression at node add: input.sum failed')
  })

  test('an input that cannot be kept fails its token, and nobody else', async ({ world }) => {
    const large = loadWorkflow(`
name: large
nodes: [{ id: a }, { id: work, action_id: echo, input: { once: branch.item, twice: branch.item } }, { id: end }]
transitions:
  - { id: fan, from: a, to: work, foreach: { collection: input } }
  - { from: work, to: end, synchronization: { strategy: all, sibling_group: fan, on_branch_failure: settle,
      merge: { source: size(branch.output.twice), target: output.sizes } } }
`)
    const handle = await run(world, large, ['a', 'x'.repeat(600_000), 'bc'])
    expect(await handle.result()).toEqual({ sizes: [1, 2] })
    const [failed] = (await handle.events()).filter(({ type }) => type === 'token_failed')
    expect(failed).toMatchObject({ nodeId: 'work', code: 'too_big' })
    expect(failed?.message).toMatch(/^node work: input is 1200\d{3} bytes; at most 1048576 can be kept/)
    expect((await handle.run()).tokens.map(({ status }) => status)).toEqual([
      'completed',
      'completed',
      'failed',
      'completed',
      'completed',
    ])
  })
})

onEachStore('expressions', (test) => {
  const input = { n: 3, list: [1, 2, 3], text: 'abc' }
  for (const [what, body, place, expression, values] of [
    [
      'an input',
      'nodes: [{ id: a, action_id: echo, input: { v: input.lst.size() } }]',
      'node a: input.v',
      'input.lst.size()',
      { 'input.lst': 'nothing', input: '{ n, list, text }' },
    ],
    [
      'an output',
      'nodes: [{ id: a, action_id: echo, output: { state.v: result.text * 2 } }]',
      'node a: output state.v',
      'result.text * 2',
      { 'result.text': '"abc"' },
    ],
    [
      'a condition',
      'nodes: [{ id: a }, { id: b }]\ntransitions: [{ id: t, from: a, to: b, condition: input.n }]',
      'transition t: condition',
      'input.n',
      { 'input.n': '3' },
    ],
    [
      'an update',
      'actions: { u: { kind: update_context, updates: { state.v: "input.list[7]" } } }\nnodes: [{ id: a, action_id: u }]',
      'node a: updates state.v',
      'input.list[7]',
      { 'input.list': '[1,2,3]' },
    ],
    [
      'an address',
      'actions: { u: { kind: http_request, url: input.n, execution: { timeout: 1m } } }\nnodes: [{ id: a, action_id: u }]',
      'node a: url',
      'input.n',
      { 'input.n': '3' },
    ],
    [
      'one that divides by nothing',
      'nodes: [{ id: a, action_id: echo, input: { v: input.n / (input.n - 3) } }]',
      'node a: input.v',
      'input.n / (input.n - 3)',
      { 'input.n': '3' },
    ],
  ] as const) {
    test(`${what} that fails fails its token, and says which, where, and what it saw`, async ({ world }) => {
      const { handle, failure } = await failureOf(world, loadWorkflow(`name: w\n${body}`), input)
      expect(failure).toMatchObject({ code: 'expression_failed', retryable: false })
      expect(failure.details).toEqual({ expression, place, values })
      expect(failure.message).toContain(`expression at ${place} failed: `)
      expect(failure.message).toContain(`\n  ${expression}\n`)
      for (const [name, value] of Object.entries(values))
        expect(failure.message).toContain(`\n  ${name} = ${value}`)
      expect(await tokensOf(handle)).toEqual([['a', 'failed']])
      const [event] = (await handle.events()).filter(({ type }) => type === 'token_failed')
      expect(event).toMatchObject({ nodeId: 'a', code: 'expression_failed', message: failure.message })
    })
  }

  test('one that fails in a branch fails that branch', async ({ world }) => {
    const divide = loadWorkflow(`
name: divide
nodes: [{ id: a }, { id: work, action_id: echo, input: "{ 'v': 10 / branch.item }" }, { id: end }]
transitions:
  - { id: fan, from: a, to: work, foreach: { collection: input } }
  - { from: work, to: end, synchronization: { strategy: all, sibling_group: fan, on_branch_failure: settle,
      merge: { source: branch.output.v, target: output.values } } }
`)
    const handle = await run(world, divide, [4, 0, 'x', 5])
    expect(await handle.result()).toEqual({ values: [2.5, 2] })
    const failed = (await handle.events()).filter(({ type }) => type === 'token_failed')
    expect(failed.map(({ message }) => String(message).split('\n').at(-1))).toEqual([
      '  branch.item = 0',
      '  branch.item = "x"',
    ])
  })

  test('one that takes too many steps is cut off', async ({ world }) => {
    const costly = loadWorkflow(`
name: costly
nodes: [{ id: a, action_id: echo, input: { v: "input.map(a, input.map(b, input.map(c, input.map(d, a * b * c * d))))" } }]
`)
    const list = Array.from({ length: 40 }, (_, i) => i)
    const { failure } = await failureOf(world, costly, list)
    expect(failure.message).toContain('expression at node a: input.v failed: it takes too many steps')
  })

  test('as is one whose text grows, and its message stays short', async ({ world }) => {
    const growing = loadWorkflow(
      'name: growing\nnodes: [{ id: a, action_id: echo, input: { v: input + input } }]',
    )
    const { failure } = await failureOf(world, growing, 'x'.repeat(600_000))
    expect(failure.message).toContain('the text becomes too long')
    expect(failure.message.length).toBeLessThan(1_000)
  })

  test('numbers of JSON are numbers, whole or not', async ({ world }) => {
    const expressions = {
      sum: 'input.n + 1',
      half: 'input.n / 2',
      rest: 'input.n % 2',
      same: 'input.n == 3 && input.n == 3.0',
      third: 'input.list[input.n - 1]',
      items: 'size(input.list) * input.n',
      larger: 'input.list.filter(x, x > 1).map(x, x * 2)',
      range: 'input.n > 2 && input.n <= 3.5 && input.n in input.list',
      text: "string(input.n) + '/' + string(input.half)",
      negative: '-input.n',
      whole: 'int(input.half)',
      part: "'abcdef'.substring(input.n)",
      given: 7,
    }
    const numbers = workflow({
      name: 'numbers',
      actions: { echo },
      nodes: [{ id: 'a', actionId: 'echo', input: expressions }],
    })
    const handle = await run(world, numbers, { n: 3, half: 1.5, list: [1, 2, 3] })
    expect(await handle.result()).toEqual({
      sum: 4,
      half: 1.5,
      rest: 1,
      same: true,
      third: 3,
      items: 9,
      larger: [4, 6],
      range: true,
      text: '3/1.5',
      negative: -3,
      whole: 1,
      part: 'def',
      given: 7,
    })
  })
})
