import { describe, expect, test } from 'vitest'
import { GraphMachine, planOf } from './fixtures/graph-machine.ts'
import { GraphRun } from './graph-run.ts'

/** start ⇒ read ⇒ end: `read` in branches that are joined before `end`. */
const fanOut = (fan: string, rules: string, { read = 'read!', more = '' } = {}) =>
  planOf(
    ['start', read, 'end!'],
    `{ id: fan, from: start, to: read, ${fan} }
     { id: join, from: read, to: end, synchronization: { sibling_group: fan, ${rules} } }`,
    more,
  )
const ALL = 'strategy: all'
const FOREACH = 'foreach: { collection: input }'

describe('how long a join waits', () => {
  const timeoutOf = (plan: ReturnType<typeof planOf>, input: unknown = null) => {
    const machine = new GraphMachine(plan, input)
    machine.complete('read.0')
    return machine.timers[0]
  }
  const actionOf = (ms: number) => ({
    more: `actions: { work: { kind: task, execution: { timeout_ms: ${ms} } } }`,
  })

  test('S10: an action of two minutes on ten branches makes half an hour', () => {
    expect(timeoutOf(fanOut('spawn_count: 10', ALL, actionOf(120_000)))).toBe(1_800_000)
  })

  test('S11: an action of ten seconds on four branches makes a minute', () => {
    expect(timeoutOf(fanOut('spawn_count: 4', ALL, actionOf(10_000)))).toBe(60_000)
  })

  test('S12: more than half an hour is capped', () => {
    expect(timeoutOf(fanOut('spawn_count: 10', ALL, actionOf(600_000)))).toBe(1_800_000)
  })

  test('S13: half an hour where no action has a timeout', () => {
    expect(timeoutOf(fanOut('spawn_count: 10', ALL))).toBe(1_800_000)
  })

  test('S14: the timeout of the node counts over that of its action, and the branches there are', () => {
    const read = '{ id: read, action_id: work, timeout_ms: 20000 }'
    for (const fan of ['spawn_count: 2', FOREACH]) {
      expect(timeoutOf(fanOut(fan, ALL, { ...actionOf(10_000), read }), ['a', 'b'])).toBe(60_000)
    }
  })

  test('what is set holds, null is for ever, and no cap where branches are held back', () => {
    expect(timeoutOf(fanOut('spawn_count: 4', `${ALL}, timeout_ms: 500`, actionOf(10_000)))).toBe(500)
    expect(timeoutOf(fanOut('spawn_count: 4', `${ALL}, timeout: null`, actionOf(10_000)))).toBeUndefined()
    const heldBack = fanOut('spawn_count: 10, max_parallel: 2', ALL, actionOf(600_000))
    expect(timeoutOf(heldBack)).toBe(9_000_000)
  })

  test('from its first arrival until it fires, with a warning; one that fires at once has no timer', () => {
    const machine = new GraphMachine(fanOut('spawn_count: 3', `${ALL}, timeout_ms: 1000`))
    expect(machine.timers).toEqual([])
    machine.complete('read.2')
    machine.complete('read.0')
    expect(machine.timers).toEqual([1000, 800])
    machine.ring(800)
    expect(machine.events).toEqual([
      { type: 'join_warning', transition: 'join', percent: 80, remainingMs: 200 },
    ])
    machine.complete('read.1')
    expect(machine.commands.filter(({ type }) => type === 'clear')).toEqual([{ type: 'clear', timer: 0 }])
    const single = new GraphMachine(fanOut('spawn_count: 1', `${ALL}, timeout_ms: 1000`))
    single.complete('read.0')
    expect([single.works, single.timers]).toEqual([['end'], []])
  })
})

describe('merging', () => {
  const merged = (strategy: string, outputs: unknown[]) => {
    const rules = `${ALL}, merge: { target: state.all, strategy: ${strategy} }`
    const machine = new GraphMachine(fanOut(`spawn_count: ${outputs.length}`, rules))
    // The last first: what counts is the branch, not when it came.
    for (const [i, output] of [...outputs.entries()].reverse()) machine.complete(`read.${i}`, output)
    expect(machine.fired).toEqual([['join', outputs.length]])
    return machine.run.values.state.all
  }

  test('J10: append flattens lists, collect keeps them; the highest branch wins; keys are branches', () => {
    const lists = [
      ['a', 'b'],
      ['c', 'd'],
    ]
    expect(merged('append', lists)).toEqual(['a', 'b', 'c', 'd'])
    expect(merged('collect', lists)).toEqual(lists)
    expect(merged('merge_object', [{ a: 1, b: 1 }, { b: 2 }])).toEqual({ a: 1, b: 2 })
    expect(merged('keyed_by_branch', ['x', 'y'])).toEqual({ 0: 'x', 1: 'y' })
    expect(merged('last_wins', ['x', 'y'])).toBe('y')
  })

  test('J9: 50 siblings in any order, 1,000 times: one activation, merged in the order of branches', () => {
    const plan = fanOut('spawn_count: 50', `${ALL}, merge: { target: state.all }`)
    const inOrder = Array.from({ length: 50 }, (_, i) => i)
    for (let seed = 1; seed <= 1_000; seed++) {
      const run = new GraphRun(plan, null)
      const continuations: unknown[] = []
      for (const token of shuffled(begunBy(run.start()), seed)) {
        const output = run.tokens[token]?.scopes[0]?.branch.index
        continuations.push(
          ...begunBy(run.happen({ type: 'ended', token, end: { status: 'completed', output } })),
        )
      }
      expect(continuations).toHaveLength(1)
      expect(run.values.state.all).toEqual(inOrder)
    }
  })

  test('outputs that the strategy cannot take fail the join', () => {
    const rules = 'strategy: { m_of_n: 2 }, merge: { target: state.all, strategy: merge_object }'
    const machine = new GraphMachine(fanOut('spawn_count: 3', rules))
    machine.complete('read.0', { a: 1 })
    machine.complete('read.2', 'text')
    expect(machine.run.end).toMatchObject({ status: 'failed', failure: { code: 'merge_failed' } })
    expect(machine.events).toMatchObject([{ type: 'join_failed', transition: 'join', code: 'merge_failed' }])
    expect(machine.run.scopes[0]?.joins[0]?.fired).toBe(false)
  })
})

function begunBy(commands: ReturnType<GraphRun['start']>): number[] {
  return commands.flatMap((command) => (command.type === 'run' ? command.token : []))
}

/** Fisher and Yates, with the numbers of a linear congruential generator. */
function shuffled<T>(items: readonly T[], seed: number): T[] {
  const result = [...items]
  let state = seed
  for (let i = result.length - 1; i > 0; i--) {
    state = (state * 1_664_525 + 1_013_904_223) % 2 ** 32
    const j = Math.floor((state / 2 ** 32) * (i + 1))
    ;[result[i], result[j]] = [result[j] as T, result[i] as T]
  }
  return result
}

describe('branches', () => {
  test('no more than max_parallel run; the next begins when one has settled, however it did', () => {
    const machine = new GraphMachine(
      fanOut('spawn_count: 5, max_parallel: 2', `${ALL}, on_branch_failure: settle`),
    )
    expect(machine.works).toEqual(['read.0', 'read.1'])
    machine.complete('read.1')
    expect(machine.works).toEqual(['read.0', 'read.2'])
    machine.fail('read.0')
    expect(machine.works).toEqual(['read.2', 'read.3'])
    machine.timeOut('read.2')
    machine.complete('read.3')
    machine.complete('read.4')
    expect(machine.fired).toEqual([['join', 3]])
    expect(machine.run.tokens.at(-1)?.join).toEqual({ expected: 5, arrived: 3, missing: 2, timed_out: 1 })
  })

  test('one that is held back never begins once the join has fired or cannot be met', () => {
    const fired = new GraphMachine(fanOut('spawn_count: 3, max_parallel: 1', 'strategy: any'))
    fired.complete('read.0')
    expect(fired.works).toEqual(['end'])
    const failed = new GraphMachine(fanOut('spawn_count: 3, max_parallel: 1', 'strategy: { m_of_n: 3 }'))
    failed.fail('read.0')
    expect(failed.run.end).toMatchObject({ status: 'failed', failure: { code: 'quorum_unreachable' } })
    expect(failed.tokens.map(([place]) => place)).toEqual(['start', 'read.0'])
  })

  test('10,000 of them, with work and without', () => {
    const list = Array.from({ length: 10_000 }, (_, i) => i)
    const rules = `${ALL}, merge: { source: branch.item, target: state.all }`
    for (const read of ['read', 'read!']) {
      const run = new GraphRun(fanOut(FOREACH, rules, { read }), list)
      let begun = begunBy(run.start())
      while (begun.length > 0 && run.tokens.at(-1)?.node.id !== 'end') {
        begun = begun.flatMap((token) =>
          begunBy(run.happen({ type: 'ended', token, end: { status: 'completed', output: null } })),
        )
      }
      expect(run.values.state.all).toEqual(list)
      expect(run.tokens.at(-1)?.node.id).toBe('end')
    }
  })

  test('their first node sees the result before the fan-out and the join before it', () => {
    const machine = new GraphMachine(
      planOf(
        ['start!', 'read', '{ id: again, action_id: work, input: [result, join.arrived] }', 'end'],
        `{ id: fan, from: start, to: read, spawn_count: 2 }
         { id: more, from: read, to: again, spawn_count: 1, synchronization: { strategy: all, sibling_group: fan, merge: { source: branch.index, target: state.all } } }
         { from: again, to: end, synchronization: { strategy: all, sibling_group: more } }`,
        'output: [join.expected, state.all]',
      ),
    )
    machine.complete('start')
    expect(machine.commands.at(-1)).toMatchObject({ work: { input: [[0, 1], 2] } })
    machine.complete('again.0')
    expect(machine.run.end).toEqual({ status: 'completed', output: [1, [0, 1]] })
  })

  test('several transitions of one sibling_group are the branches of one scope', () => {
    const machine = new GraphMachine(
      planOf(
        ['start', 'a!', 'b!', 'c!', 'end!'],
        `{ from: start, to: a, sibling_group: fan }
         { from: start, to: b, sibling_group: fan, spawn_count: 2 }
         { from: start, to: c, sibling_group: fan, condition: input }
         { id: ja, from: a, to: end, synchronization: { strategy: all, sibling_group: fan } }
         { from: b, to: a }
         { from: c, to: a }`,
      ),
      false,
    )
    expect(machine.works).toEqual(['a.0', 'b.1', 'b.2'])
    machine.complete('b.2')
    machine.complete('a.2')
    machine.complete('b.1')
    machine.complete('a.0')
    expect(machine.fired).toEqual([])
    machine.complete('a.1')
    expect(machine.fired).toEqual([['ja', 3]])
  })

  test('a list that is none fails the token that would fan out, with the expression', () => {
    const machine = new GraphMachine(fanOut(FOREACH, ALL), { a: 1 })
    expect(machine.tokens).toEqual([['start', 'failed']])
    expect(machine.events).toMatchObject([{ type: 'token_failed', nodeId: 'start', code: 'not_a_list' }])
    expect(machine.run.end).toMatchObject({
      failure: { message: 'transition fan: foreach.collection must be a list, got {"a":1}\n  input' },
    })
  })

  test('an empty list goes straight to the join, and on without one', () => {
    const joined = new GraphMachine(
      fanOut(FOREACH, 'strategy: { m_of_n: 2 }, merge: { target: state.all }'),
      [],
    )
    expect([joined.works, joined.run.values.state]).toEqual([['end'], { all: [] }])
    const alone = new GraphMachine(planOf(['start', 'read!'], `{ from: start, to: read, ${FOREACH} }`), [])
    expect(alone.run.end).toEqual({ status: 'completed', output: null })
  })
})

describe('loops', () => {
  test('one that goes back over a join is limited like any other', () => {
    const machine = new GraphMachine(
      planOf(
        ['start', 'read!', 'end!'],
        `{ id: fan, from: start, to: read, spawn_count: 2 }
         { id: back, from: read, to: start, loop: { max_iterations: 2 }, synchronization: { strategy: all, sibling_group: fan } }
         { id: on, from: read, to: end, priority: 1, synchronization: { strategy: all, sibling_group: fan } }`,
        'start: start',
      ),
    )
    for (let i = 0; i < 3; i++) for (const place of ['read.0', 'read.1']) machine.complete(place)
    expect(machine.fired).toEqual([
      ['back', 2],
      ['back', 2],
      ['on', 2],
    ])
    expect(machine.works).toEqual(['end'])
  })

  test('over an empty fan-out too, and whichever of its transitions led to the join', () => {
    const plan = planOf(
      ['start!', 'a!', 'b!', 'end!'],
      `{ id: fan, from: start, to: a, foreach: { collection: result } }
       { from: a, to: b, condition: result == 'b' }
       { id: one, from: a, to: start, priority: 1, loop: { max_iterations: 2 }, synchronization: { strategy: all, sibling_group: fan } }
       { id: two, from: b, to: start, loop: { max_iterations: 2 }, synchronization: { strategy: all, sibling_group: fan } }
       { id: on, from: a, to: end, priority: 2, synchronization: { strategy: all, sibling_group: fan } }
       { id: on2, from: b, to: end, priority: 1, synchronization: { strategy: all, sibling_group: fan } }`,
      'start: start',
    )
    const empty = new GraphMachine(plan)
    for (let i = 0; i < 3; i++) empty.complete('start', [])
    expect([empty.fired.map(([id]) => id), empty.works]).toEqual([['one', 'one', 'on'], ['end']])
    const other = new GraphMachine(plan)
    for (let i = 0; i < 3; i++) {
      other.complete('start', [1])
      other.complete('a.0', 'b')
      other.complete('b.0')
    }
    expect([other.fired.map(([id]) => id), other.works]).toEqual([['one', 'one', 'on'], ['end']])
  })

  test('one inside branches counts for each branch', () => {
    const machine = new GraphMachine(
      planOf(
        ['start', 'read!', 'end!'],
        `{ id: fan, from: start, to: read, spawn_count: 2 }
         { from: read, to: read, loop: { max_iterations: 1 } }
         { id: join, from: read, to: end, priority: 1, synchronization: { strategy: all, sibling_group: fan } }`,
      ),
    )
    for (const place of ['read.0', 'read.0', 'read.1', 'read.1']) machine.complete(place)
    expect(machine.fired).toEqual([['join', 2]])
  })

  test('a fan-out that opens inside its own branches goes as deep as its limit', () => {
    const machine = new GraphMachine(
      planOf(
        ['read!', 'end'],
        `{ id: fan, from: read, to: read, spawn_count: 2, loop: { max_iterations: 2 } }
         { from: read, to: end, priority: 1 }`,
        'start: read',
      ),
    )
    while (machine.works.length > 0) machine.complete(machine.works[0] as string)
    expect(machine.run.end).toMatchObject({ status: 'completed' })
    expect(machine.tokens.filter(([place]) => place.startsWith('read'))).toHaveLength(1 + 2 + 4)
  })

  test('a circle with work in its branches may go round for as long as there are tokens', () => {
    const plan = planOf(
      ['gate', 'read!'],
      `{ id: fan, from: gate, to: read, spawn_count: 1 }
       { from: read, to: gate, synchronization: { strategy: all, sibling_group: fan } }`,
      'start: gate',
    )
    const run = new GraphRun(plan, null)
    let [token] = begunBy(run.start())
    for (let round = 0; round < 10_010 && token !== undefined; round++) {
      ;[token] = begunBy(run.happen({ type: 'ended', token, end: { status: 'completed', output: null } }))
    }
    expect([run.end, run.tokens.length]).toEqual([null, 20_022])
  })

  test('a circle without any work fails where it stands, also one of empty fan-outs', () => {
    const circle = new GraphRun(
      planOf(['a', 'b'], '{ from: a, to: b }\n{ from: b, to: a }', 'start: a'),
      null,
    )
    circle.start()
    expect(circle.end).toMatchObject({ status: 'failed', failure: { code: 'endless_loop' } })
    const empty = new GraphRun(
      planOf(
        ['a'],
        `{ id: one, from: a, to: a, sibling_group: g1, ${FOREACH} }
         { id: two, from: a, to: a, sibling_group: g2, ${FOREACH}, synchronization: { strategy: all, sibling_group: g1 } }
         { id: three, from: a, to: a, sibling_group: g1, ${FOREACH}, synchronization: { strategy: all, sibling_group: g2 } }`,
        'start: a',
      ),
      [],
    )
    empty.start()
    expect(empty.end).toMatchObject({ status: 'failed', failure: { code: 'endless_loop' } })
  })
})

describe('nodes without work', () => {
  test('pass on the result, and write nothing of it again', () => {
    const machine = new GraphMachine(
      planOf(
        ['plan!', '{ id: change, action_id: change }', '{ id: gate, output: { state.seen: result.topics } }'],
        '{ from: plan, to: change }\n{ from: change, to: gate }',
        'actions: { change: { kind: update_context, updates: { state.topics: result.topics.size() } } }',
      ),
    )
    machine.complete('plan', { topics: ['a', 'b'] })
    expect(machine.run.values.state).toEqual({ topics: 2, seen: ['a', 'b'] })
    expect(machine.run.end).toEqual({ status: 'completed', output: { topics: ['a', 'b'] } })
  })

  test('leave the output of their branch as it is: of its last work, or none', () => {
    const machine = new GraphMachine(
      planOf(
        ['plan!', 'gate', 'read!', 'last', 'end!'],
        `{ id: fan, from: plan, to: gate, spawn_count: 2 }
         { from: gate, to: read, condition: branch.index == 1 }
         { from: gate, to: last, priority: 1 }
         { from: read, to: last }
         { from: last, to: end, synchronization: { strategy: all, sibling_group: fan, merge: { target: state.all } } }`,
      ),
    )
    machine.complete('plan')
    machine.complete('read.1')
    expect(machine.run.values.state).toEqual({ all: [null, 'read.1'] })
  })
})
