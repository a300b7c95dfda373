/** Fan-outs and joins: what counts as an arrival, what is merged, and how the run goes on. */
import { expect } from 'vitest'
import { expectReplay } from '../scripts/acceptance/run-replay.ts'
import { NEVER, workOf } from '../scripts/acceptance/scripted-work.ts'
import { tokensOf } from '../scripts/acceptance/workflow-runs.ts'
import type { World } from '../scripts/acceptance/world.ts'
import { errorOf, onEachStore } from '../scripts/acceptance/world.ts'
import type { WorkflowHandle } from './curfew.ts'
import { loadWorkflow, TaskFailed } from './curfew.ts'

/** Lines of YAML. */
const define = (...lines: string[]) => loadWorkflow(['name: joins', ...lines].join('\n'))

/** `read` in branches of the input, joined before `end`. */
const simple = (rules: string) =>
  define(
    'nodes: [{ id: start }, { id: read, action_id: work, input: branch.item }, { id: end }]',
    'transitions:',
    '  - { id: fan, from: start, to: read, foreach: { collection: input } }',
    `  - { id: join, from: read, to: end, synchronization: { sibling_group: fan, ${rules}, merge: { target: state.all, strategy: collect } } }`,
    'output: state.all',
  )

const firedOf = async (handle: WorkflowHandle) =>
  (await handle.events())
    .filter(({ type }) => type === 'join_fired')
    .map(({ transition, arrived, expected }) => `${transition} ${arrived}/${expected}`)

const nodesOf = async (handle: WorkflowHandle) => (await tokensOf(handle)).map(([node]) => node)

onEachStore('joins', (test, kind) => {
  // One that is evicted at every wait is replayed at every step.
  const residents = kind === 'memory' ? { count: 0 } : {}
  const start = async (world: World, definition: ReturnType<typeof define>, input: unknown) => {
    const tasks = [workOf(world)]
    const curfew = await world.open({ tasks, workflows: [definition], residents, concurrency: 50 })
    const handle = await curfew.start(definition, input)
    await world.clock.settle()
    return handle
  }

  test('J1: branches of two nodes arrive once each, with what their last node gave', async ({ world }) => {
    const definition = define(
      'nodes:',
      '  - { id: start }',
      '  - { id: read, action_id: work, input: branch.item }',
      '  - { id: clean, action_id: work, input: { value: "[result]" } }',
      '  - { id: end }',
      'transitions:',
      '  - { id: fan, from: start, to: read, foreach: { collection: input } }',
      '  - { from: read, to: clean }',
      '  - { id: join, from: clean, to: end, synchronization: { strategy: all, sibling_group: fan, merge: { target: state.all, strategy: append } } }',
      'output: state.all',
    )
    const handle = await start(world, definition, [
      { ms: 300, value: 'a' },
      { value: 'b' },
      { ms: 100, value: 'c' },
    ])
    await world.clock.advance(299)
    expect(await firedOf(handle)).toEqual([])
    await world.clock.advance(1)
    expect(await handle.result()).toEqual(['a', 'b', 'c'])
    expect(await firedOf(handle)).toEqual(['join 3/3'])
    expect((await nodesOf(handle)).filter((node) => node === 'end')).toHaveLength(1)
    await expectReplay(world, handle)
  })

  test('J2: inner joins, then the outer one, with outputs inside each other', async ({ world }) => {
    const definition = define(
      'nodes: [{ id: start }, { id: open }, { id: read, action_id: work, input: branch.item }, { id: meet }, { id: end }]',
      'transitions:',
      '  - { id: outer, from: start, to: open, foreach: { collection: input } }',
      '  - { id: inner, from: open, to: read, foreach: { collection: branch.item } }',
      '  - { id: first, from: read, to: meet, synchronization: { strategy: all, sibling_group: inner, merge: { target: branch.pages, strategy: collect } } }',
      '  - { id: second, from: meet, to: end, synchronization: { strategy: all, sibling_group: outer, merge: { source: branch.pages, target: state.all, strategy: collect } } }',
      'output: state.all',
    )
    const handle = await start(world, definition, [
      [{ ms: 50, value: 'a' }, { value: 'b' }],
      [{ value: 'c' }, { ms: 20, value: 'd' }],
    ])
    await world.clock.advance(50)
    expect(await handle.result()).toEqual([
      ['a', 'b'],
      ['c', 'd'],
    ])
    expect(await firedOf(handle)).toEqual(['first 2/2', 'first 2/2', 'second 2/2'])
    await expectReplay(world, handle)
  })

  test('J3: a fan-out inside a loop is joined in every round', async ({ world }) => {
    const definition = define(
      'start: plan',
      'nodes:',
      '  - { id: plan, action_id: count }',
      '  - { id: read, action_id: work, input: { value: state.round + branch.index } }',
      '  - { id: check }',
      '  - { id: done }',
      'actions: { count: { kind: update_context, updates: { state.round: "has(state.round) ? state.round + 10 : 10" } } }',
      'transitions:',
      '  - { id: fan, from: plan, to: read, spawn_count: 2 }',
      '  - { id: join, from: read, to: check, synchronization: { strategy: all, sibling_group: fan, merge: { target: state.last, strategy: collect } } }',
      '  - { from: check, to: plan, loop: { max_iterations: 2 } }',
      '  - { from: check, to: done, priority: 1 }',
      'output: state.last',
    )
    const handle = await start(world, definition, null)
    expect(await handle.result()).toEqual([30, 31])
    expect(await firedOf(handle)).toEqual(['join 2/2', 'join 2/2', 'join 2/2'])
    await expectReplay(world, handle)
  })

  test('J4: a quorum is met though one has failed', async ({ world }) => {
    const definition = simple('strategy: { m_of_n: 2 }')
    const handle = await start(world, definition, [
      { fails: true },
      { ms: 100, value: 'b' },
      { ms: 50, value: 'c' },
    ])
    await world.clock.advance(100)
    expect(await handle.result()).toEqual(['b', 'c'])
    expect(await firedOf(handle)).toEqual(['join 2/3'])
    await expectReplay(world, handle)
  })

  test('J5: a quorum that can no longer be met fails at once', async ({ world }) => {
    const handle = await start(world, simple('strategy: { m_of_n: 2 }, timeout: 1h'), [
      { ms: 10, fails: true },
      { ms: 20, fails: true },
      NEVER,
    ])
    await world.clock.advance(19)
    expect(await handle.status()).toBe('running')
    await world.clock.advance(1)
    const { failure } = await errorOf(handle.result(), TaskFailed)
    expect(failure).toMatchObject({ code: 'quorum_unreachable' })
    expect(failure.message).toContain('0 of 3 branches arrived, 2 failed')
    await expectReplay(world, handle)
  })

  test('J6: the first racer decides; the others change nothing and fail nothing', async ({ world }) => {
    const definition = define(
      'nodes: [{ id: start }, { id: read, action_id: work, input: branch.item }, { id: end, action_id: work, input: { ms: 1000, value: state.all } }]',
      'transitions:',
      '  - { id: fan, from: start, to: read, foreach: { collection: input } }',
      '  - { id: join, from: read, to: end, synchronization: { sibling_group: fan, strategy: any, merge: { target: state.all, strategy: last_wins } } }',
    )
    const handle = await start(world, definition, [
      { ms: 300, fails: true },
      { ms: 100, value: 'b' },
      { ms: 200, value: 'c' },
    ])
    await world.clock.advance(100)
    expect((await tokensOf(handle)).slice(1)).toEqual([
      ['read', 'executing'],
      ['read', 'completed'],
      ['read', 'executing'],
      ['end', 'executing'],
    ])
    await world.clock.advance(1_000)
    expect(await handle.result()).toBe('b')
    expect((await tokensOf(handle)).slice(1)).toEqual([
      ['read', 'failed'],
      ['read', 'completed'],
      ['read', 'completed'],
      ['end', 'completed'],
    ])
    expect(await firedOf(handle)).toEqual(['join 1/3'])
    await expectReplay(world, handle)
  })

  test('J6: with late: cancel the others are stopped', async ({ world }) => {
    const definition = define(
      'nodes: [{ id: start }, { id: read, action_id: work, input: branch.item }, { id: end, action_id: work, input: { ms: 1000 } }, { id: last, action_id: work, input: { value: 1 } }]',
      'transitions:',
      '  - { id: fan, from: start, to: read, foreach: { collection: input } }',
      '  - { id: join, from: read, to: end, synchronization: { sibling_group: fan, strategy: any, late: cancel } }',
      '  - { from: end, to: last }',
    )
    const handle = await start(world, definition, [{ ms: 100 }, NEVER])
    await world.clock.advance(100)
    expect((await tokensOf(handle)).slice(1)).toEqual([
      ['read', 'completed'],
      ['read', 'cancelled'],
      ['end', 'executing'],
    ])
    await world.clock.advance(1_000)
    expect(await handle.result()).toBe(1)
    await expectReplay(world, handle)
  })

  test('J7: a branch that leaves by another way is not waited for any longer than it runs', async ({
    world,
  }) => {
    const definition = define(
      'nodes:',
      '  - { id: start }',
      '  - { id: read, action_id: work, input: branch.item }',
      '  - { id: aside, action_id: work, input: { ms: 500, value: "\'aside\'" } }',
      '  - { id: end }',
      'transitions:',
      '  - { id: fan, from: start, to: read, foreach: { collection: input } }',
      "  - { from: read, to: aside, condition: result == 'aside' }",
      '  - { id: join, from: read, to: end, priority: 1, synchronization: { strategy: all, sibling_group: fan, merge: { target: state.all } } }',
      'output: { all: state.all, missing: join.missing }',
    )
    const handle = await start(world, definition, [{ value: 'a' }, { value: 'aside' }, { value: 'c' }])
    await world.clock.advance(499)
    expect(await firedOf(handle)).toEqual([])
    await world.clock.advance(1)
    expect(await handle.result()).toEqual({ all: ['a', 'c'], missing: 1 })
    expect(await firedOf(handle)).toEqual(['join 2/3'])
    await expectReplay(world, handle)
  })

  test('J8: an empty list goes straight to the join', async ({ world }) => {
    const definition = simple('strategy: all')
    const empty = await start(world, definition, [])
    expect(await empty.result()).toEqual([])
    expect(await nodesOf(empty)).toEqual(['start', 'end'])
    expect(await firedOf(empty)).toEqual(['join 0/0'])
    await expectReplay(world, empty)
  })

  test('J8: a list that is none fails the node before it, with the expression', async ({ world }) => {
    const handle = await start(world, simple('strategy: all'), { a: 1 })
    const { failure } = await errorOf(handle.result(), TaskFailed)
    expect(failure).toMatchObject({ code: 'not_a_list', details: { expression: 'input' } })
    expect(await tokensOf(handle)).toEqual([['start', 'failed']])
    await expectReplay(world, handle)
  })

  test('J9: 50 branches that end together are one activation, in their order', async ({ world }) => {
    const items = Array.from({ length: 50 }, (_, i) => ({ ms: 100, value: i }))
    const handle = await start(world, simple('strategy: all'), items)
    await world.clock.advance(100)
    expect(await handle.result()).toEqual(items.map(({ value }) => value))
    expect(await firedOf(handle)).toEqual(['join 50/50'])
    expect((await nodesOf(handle)).filter((node) => node === 'end')).toHaveLength(1)
    await expectReplay(world, handle)
  })

  test('J10: what each merge makes of its outputs', async ({ world }) => {
    const merge = (target: string, strategy: string) =>
      `  - { from: read, to: ${target}, synchronization: { strategy: all, sibling_group: fan, merge: { source: branch.output.${target}, target: state.${target}, strategy: ${strategy} } } }`
    const definition = define(
      'nodes: [{ id: start }, { id: read, action_id: work, input: branch.item }, { id: append }, { id: collect }, { id: object }, { id: keyed }, { id: last }]',
      'transitions:',
      '  - { id: fan, from: start, to: read, foreach: { collection: input } }',
      merge('append', 'append'),
      merge('collect', 'collect'),
      merge('object', 'merge_object'),
      merge('keyed', 'keyed_by_branch'),
      merge('last', 'last_wins'),
      'output: state',
    )
    const item = (ms: number, list: string[], object: object, text: string) => ({
      ms,
      value: { append: list, collect: list, object, keyed: text, last: text },
    })
    const handle = await start(world, definition, [
      item(20, ['a', 'b'], { x: 1, y: 1 }, 'first'),
      item(10, ['c', 'd'], { y: 2 }, 'second'),
    ])
    await world.clock.advance(20)
    expect(await handle.result()).toEqual({
      append: ['a', 'b', 'c', 'd'],
      collect: [
        ['a', 'b'],
        ['c', 'd'],
      ],
      object: { x: 1, y: 2 },
      keyed: { 0: 'first', 1: 'second' },
      last: 'second',
    })
    await expectReplay(world, handle)
  })

  test('J11: a single branch passes at once; a token of another group passes through', async ({ world }) => {
    const definition = define(
      'nodes: [{ id: start }, { id: one, action_id: work, input: { value: 1 } }, { id: two, action_id: work, input: { ms: 100, value: 2 } }, { id: meet }, { id: end }]',
      'transitions:',
      '  - { id: single, from: start, to: one, spawn_count: 1 }',
      '  - { id: pair, from: start, to: two, spawn_count: 2 }',
      '  - { from: one, to: meet }',
      '  - { from: two, to: meet }',
      '  - { id: join, from: meet, to: end, synchronization: { strategy: all, sibling_group: single } }',
    )
    const handle = await start(world, definition, null)
    expect(await firedOf(handle)).toEqual(['join 1/1'])
    expect((await tokensOf(handle)).filter(([node]) => node === 'end')).toEqual([['end', 'completed']])
    await world.clock.advance(100)
    expect(await handle.status()).toBe('completed')
    const { tokens } = await handle.run()
    const ends = tokens.filter(({ node }) => node === 'end').map(({ branches }) => branches)
    expect(ends).toEqual([[], [{ group: 'pair', index: 0 }], [{ group: 'pair', index: 1 }]])
    expect(await firedOf(handle)).toEqual(['join 1/1'])
    await expectReplay(world, handle)
  })

  test('branches that max_parallel holds back are expected, too', async ({ world }) => {
    const definition = define(
      'nodes: [{ id: start }, { id: read, action_id: work, input: branch.item }, { id: end }]',
      'transitions:',
      '  - { id: fan, from: start, to: read, foreach: { collection: input }, max_parallel: 1 }',
      '  - { id: join, from: read, to: end, synchronization: { strategy: all, sibling_group: fan } }',
    )
    const handle = await start(world, definition, [{ ms: 100 }, { ms: 100 }, { ms: 100 }])
    await world.clock.advance(100)
    expect((await handle.run()).joins).toMatchObject([{ arrived: 1, expected: 3 }])
  })

  test('J12: all matches of the first tier that has one; the next tier, also when a loop is over', async ({
    world,
  }) => {
    const definition = define(
      'start: start',
      'nodes: [{ id: start }, { id: both }, { id: too }, { id: never }, { id: next }, { id: again }, { id: after }]',
      'transitions:',
      '  - { from: start, to: both, condition: "true" }',
      '  - { from: start, to: too }',
      '  - { from: start, to: never, priority: 1 }',
      '  - { from: both, to: never, condition: "false" }',
      '  - { from: both, to: next, priority: 1 }',
      '  - { from: too, to: again }',
      '  - { from: again, to: again, loop: { max_iterations: 3 } }',
      '  - { from: again, to: after, priority: 1 }',
    )
    const handle = await start(world, definition, null)
    expect(await handle.status()).toBe('completed')
    const nodes = (await nodesOf(handle)).toSorted()
    expect(nodes).toEqual(['after', 'again', 'again', 'again', 'again', 'both', 'next', 'start', 'too'])
    await expectReplay(world, handle)
  })
})
