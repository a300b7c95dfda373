/** Joins of every kind, and what goes on beside them: forks, several joins, scopes inside scopes, what comes late. */
import { describe, expect, test } from 'vitest'
import { GraphMachine, planOf } from './fixtures/graph-machine.ts'

const SETTLE = 'strategy: all, on_branch_failure: settle'

describe('one branch is one vote', () => {
  /** Each branch arrives after `read` and goes on to `note` besides. */
  const forked = (rules: string) =>
    new GraphMachine(
      planOf(
        ['start', 'read!', 'note!', 'end!'],
        `{ id: fan, from: start, to: read, spawn_count: 2 }
         { from: read, to: note }
         { id: join, from: read, to: end, synchronization: { sibling_group: fan, ${rules} } }`,
      ),
    )

  test('a branch that has arrived is not waited for, whatever else it does', () => {
    const machine = forked('strategy: all')
    machine.complete('read.0')
    machine.complete('read.1')
    expect(machine.works).toEqual(['note.0', 'note.1', 'end'])
    machine.complete('note.0')
    machine.complete('end', 'done')
    expect(machine.run.end).toEqual({ status: 'completed', output: 'done' })
    expect(machine.tokens.slice(-3)).toEqual([
      ['note.0', 'completed'],
      ['note.1', 'cancelled'],
      ['end', 'completed'],
    ])
  })

  test('it keeps its vote when the rest of it fails', () => {
    const machine = forked(`${SETTLE}, merge: { target: state.all }`)
    machine.complete('read.0')
    machine.fail('note.0')
    expect(machine.run.end).toBeNull()
    machine.complete('read.1')
    expect([machine.fired, machine.run.values.state]).toEqual([[['join', 2]], { all: ['read.0', 'read.1'] }])
  })

  test('branches with different nodes come to one join, over transitions of their own', () => {
    const machine = new GraphMachine(
      planOf(
        ['start', 'a!', 'b!', 'end!'],
        `{ from: start, to: a, sibling_group: both }
         { from: start, to: b, sibling_group: both }
         { id: join, from: a, to: end, synchronization: { strategy: all, sibling_group: both, merge: { target: state.all } } }
         { from: b, to: end, synchronization: { strategy: all, sibling_group: both, merge: { target: state.all } } }`,
      ),
    )
    machine.complete('b.1')
    expect(machine.fired).toEqual([])
    machine.complete('a.0')
    expect([machine.fired, machine.works]).toEqual([[['join', 2]], ['end']])
    expect(machine.run.values.state).toEqual({ all: ['a.0', 'b.1'] })
  })

  test('a node without work passes on what it was reached with', () => {
    const machine = new GraphMachine(
      planOf(
        ['start', 'read!', 'meet', 'end'],
        `{ id: fan, from: start, to: read, spawn_count: 2 }
         { from: read, to: meet }
         { from: meet, to: end, synchronization: { strategy: all, sibling_group: fan } }`,
      ),
    )
    machine.complete('read.0')
    machine.complete('read.1')
    expect(machine.run.end).toEqual({ status: 'completed', output: ['read.0', 'read.1'] })
  })

  test('two ways of one branch to the same join arrive once', () => {
    const machine = new GraphMachine(
      planOf(
        ['start', 'read!', 'a!', 'b!', 'meet', 'end!'],
        `{ id: fan, from: start, to: read, spawn_count: 2 }
         { from: read, to: a }
         { from: read, to: b }
         { from: a, to: meet }
         { from: b, to: meet }
         { id: join, from: meet, to: end, synchronization: { strategy: { m_of_n: 2 }, sibling_group: fan } }`,
      ),
    )
    for (const place of ['read.0', 'a.0', 'b.0', 'read.1']) machine.complete(place)
    expect(machine.fired).toEqual([])
    machine.complete('b.1')
    expect([machine.fired, machine.works]).toEqual([[['join', 2]], ['a.1', 'end']])
  })

  test('of racers that come at the same moment one wins, and only its output is merged', () => {
    const machine = new GraphMachine(
      planOf(
        ['start', 'read', 'end!'],
        `{ id: fan, from: start, to: read, spawn_count: 3 }
         { id: join, from: read, to: end, synchronization: { strategy: any, late: cancel, sibling_group: fan, merge: { source: branch.index, target: state.all } } }`,
      ),
    )
    expect([machine.fired, machine.run.values.state, machine.stopped]).toEqual([
      [['join', 1]],
      { all: [0] },
      [],
    ])
  })

  test('a branch that leaves by another way is no vote; with the last one the join is looked at again', () => {
    const machine = new GraphMachine(
      planOf(
        ['start', 'read!', 'aside!', 'end!'],
        `{ id: fan, from: start, to: read, spawn_count: 3 }
         { from: read, to: aside, condition: result == 'aside' }
         { id: join, from: read, to: end, priority: 1, synchronization: { strategy: all, sibling_group: fan } }`,
      ),
    )
    machine.complete('read.0')
    machine.complete('read.1', 'aside')
    machine.complete('read.2')
    expect(machine.fired).toEqual([])
    machine.complete('aside.1')
    expect(machine.fired).toEqual([['join', 2]])
  })
})

describe('several joins of one fan-out', () => {
  /** `read` leads to both, or to one of them. */
  const both = (x: string, y: string, read = '') =>
    new GraphMachine(
      planOf(
        ['start', 'read!', 'x!', 'y!'],
        `{ id: fan, from: start, to: read, spawn_count: 3 }
         { id: jx, from: read, to: x, ${read && `condition: ${read}, `}synchronization: { sibling_group: fan, ${x} } }
         { id: jy, from: read, to: y, ${read && `condition: "!(${read})", `}synchronization: { sibling_group: fan, ${y} } }`,
      ),
    )
  const proceed = (ms: number) => `strategy: all, timeout_ms: ${ms}, on_timeout: proceed_with_available`

  test('S17: each has its own timeout, and fires for itself', () => {
    const machine = both(proceed(1_000), proceed(5_000))
    machine.complete('read.0')
    machine.complete('read.1')
    expect(machine.timers).toEqual([1_000, 800, 5_000, 4_000])
    machine.ring(1_000)
    expect(machine.works).toEqual(['read.2', 'x'])
    machine.complete('x')
    machine.complete('read.2')
    expect(machine.fired).toEqual([
      ['jx', 2],
      ['jy', 3],
    ])
    machine.complete('y')
    expect(machine.run.end).toMatchObject({ status: 'completed' })
    const timeouts = machine.events.filter(({ type }) => type === 'token_timed_out')
    expect(timeouts).toMatchObject([{ timeoutDurationMs: 1_000 }, { timeoutDurationMs: 1_000 }])
  })

  test('a token that waits at two of them has timed out once', () => {
    const machine = both(proceed(1_000), proceed(5_000))
    machine.complete('read.0')
    machine.ring(1_000)
    machine.ring(5_000)
    expect(machine.works).toEqual(['read.1', 'read.2', 'x', 'y'])
    expect(machine.events.filter(({ type }) => type === 'token_timed_out')).toHaveLength(1)
  })

  test('branches that part join where they come to', () => {
    const machine = both('strategy: all', 'strategy: all', "result == 'x'")
    machine.complete('read.0', 'x')
    machine.complete('read.1', 'y')
    expect(machine.fired).toEqual([])
    machine.complete('read.2', 'x')
    expect(machine.fired).toEqual([
      ['jx', 2],
      ['jy', 1],
    ])
    expect(machine.works).toEqual(['x', 'y'])
  })

  test('one that nobody comes to is not taken; when every branch has failed, so has the fan-out', () => {
    const taken = both(SETTLE, SETTLE, "result == 'x'")
    taken.fail('read.0')
    taken.complete('read.1', 'x')
    taken.complete('read.2', 'x')
    expect([taken.fired, taken.works]).toEqual([[['jx', 2]], ['x']])
    const failed = both(SETTLE, SETTLE)
    for (const place of ['read.0', 'read.1', 'read.2']) failed.fail(place)
    expect(failed.run.end).toMatchObject({ status: 'failed', failure: { code: 'quorum_unreachable' } })
  })
})

describe('scopes inside scopes', () => {
  /** Two branches of `outer`, each with some of `inner`. */
  const nested = (inner: string, outer: string, { branches = 2, maxParallel = 9 } = {}) =>
    new GraphMachine(
      planOf(
        ['start', 'open!', 'read!', 'meet!', 'end!'],
        `{ id: outer, from: start, to: open, spawn_count: 2 }
         { id: inner, from: open, to: read, spawn_count: ${branches}, max_parallel: ${maxParallel} }
         { id: ji, from: read, to: meet, synchronization: { sibling_group: inner, ${inner} } }
         { id: jo, from: meet, to: end, synchronization: { sibling_group: outer, ${outer} } }`,
      ),
    )
  const ready = (machine: GraphMachine) => {
    machine.complete('open.0')
    machine.complete('open.1')
    return machine
  }

  test('a failure that no scope inside tolerates is one branch less of the first that does', () => {
    const machine = ready(nested('strategy: all', SETTLE))
    machine.fail('read.0.0')
    expect(machine.works).toEqual(['read.0.1', 'read.1.0', 'read.1.1'])
    machine.complete('read.0.1') // late
    machine.complete('read.1.0')
    machine.complete('read.1.1')
    machine.complete('meet.1')
    expect(machine.fired).toEqual([
      ['ji', 2],
      ['jo', 1],
    ])
    expect(machine.tokens.filter(([place]) => place.startsWith('meet'))).toEqual([['meet.1', 'completed']])
  })

  test('nothing of a branch that has failed is joined or begun any more', () => {
    const machine = ready(nested('strategy: all', SETTLE, { branches: 3, maxParallel: 2 }))
    machine.complete('read.0.1')
    expect(machine.works).toEqual(['read.0.0', 'read.1.0', 'read.1.1', 'read.0.2'])
    machine.complete('read.0.2')
    machine.fail('read.0.0')
    expect(machine.works).toEqual(['read.1.0', 'read.1.1'])
    expect(machine.tokens).toContainEqual(['read.0.1', 'cancelled'])
    expect(machine.fired).toEqual([])
    const other = ready(nested('strategy: all', SETTLE, { branches: 3, maxParallel: 1 }))
    other.fail('read.0.0')
    for (const place of ['read.1.0', 'read.1.1', 'read.1.2', 'meet.1']) other.complete(place)
    expect(other.fired).toEqual([
      ['ji', 3],
      ['jo', 1],
    ])
  })

  test('a join that fails stops its own branches and is a failure of the branch around it', () => {
    const machine = ready(nested('strategy: { m_of_n: 2 }', SETTLE))
    machine.fail('read.0.0')
    expect([machine.stopped, machine.run.end]).toEqual([['read.0.1'], null])
    expect(machine.events.at(-1)).toMatchObject({ type: 'join_failed', transition: 'ji' })
    machine.complete('read.1.0')
    machine.complete('read.1.1')
    machine.complete('meet.1')
    expect(machine.fired.at(-1)).toEqual(['jo', 1])
  })

  test('what is inside a branch that comes too late goes no further, and is stopped if so said', () => {
    for (const late of ['finish', 'cancel']) {
      const machine = ready(nested('strategy: all', `strategy: any, late: ${late}`))
      machine.complete('read.0.0')
      machine.complete('read.1.0')
      machine.complete('read.1.1')
      machine.complete('meet.1')
      expect(machine.fired.at(-1)).toEqual(['jo', 1])
      expect(machine.stopped).toEqual(late === 'cancel' ? ['read.0.1'] : [])
      machine.complete('read.0.1')
      expect(machine.works).toEqual(['end'])
      expect(machine.tokens).toContainEqual(['read.0.0', 'cancelled'])
      expect(machine.tokens).toContainEqual(['read.0.1', 'completed'])
    }
  })

  test('nothing opens in a branch that has failed in the same moment', () => {
    const machine = new GraphMachine(
      planOf(
        ['start', 'open!', '{ id: bad, action_id: work, input: result.missing }', 'read!', 'end!'],
        `{ id: outer, from: start, to: open, spawn_count: 2 }
         { from: open, to: bad }
         { id: inner, from: open, to: read, spawn_count: 2 }
         { id: jo, from: open, to: end, priority: 1, synchronization: { sibling_group: outer, ${SETTLE} } }`,
      ),
    )
    machine.complete('open.0', {})
    expect(machine.works).toEqual(['open.1'])
    machine.complete('open.1', {})
    expect(machine.run.end).toMatchObject({ status: 'failed', failure: { code: 'quorum_unreachable' } })
  })

  test('a token whose fan-out is refused has arrived nowhere', () => {
    const machine = new GraphMachine(
      planOf(
        ['start', 'read!', 'more!', 'end!'],
        `{ id: fan, from: start, to: read, spawn_count: 2 }
         { id: join, from: read, to: end, synchronization: { sibling_group: fan, ${SETTLE} } }
         { from: read, to: more, foreach: { collection: result } }`,
      ),
    )
    machine.complete('read.0', 'no list')
    machine.complete('read.1', [])
    expect([machine.fired, machine.works]).toEqual([[['join', 1]], ['end']])
    expect(machine.tokens).toContainEqual(['read.0', 'failed'])
  })
})

describe('what comes late', () => {
  const racing = (rules: string, read = 'read!') =>
    new GraphMachine(
      planOf(
        ['start', read, 'next!', 'end!'],
        `{ id: fan, from: start, to: read, spawn_count: 3 }
         { from: read, to: next }
         { id: join, from: next, to: end, synchronization: { sibling_group: fan, ${rules} } }`,
      ),
    )
  const READ = '{ id: read, action_id: work, timeout_ms: 100, on_timeout: retry }'

  test('ends its node and changes nothing; its failure and its timeout are told, and it is not retried', () => {
    const machine = racing('strategy: any', READ)
    machine.complete('read.0')
    machine.complete('next.0')
    machine.timeOut('read.1')
    machine.fail('read.2')
    expect(machine.works).toEqual(['end'])
    expect(machine.events.slice(1)).toMatchObject([
      { type: 'token_timed_out', tokenId: 2, timeoutType: 'execution', policyApplied: 'fail' },
      { type: 'token_failed', tokenId: 3 },
    ])
    machine.complete('end', 'done')
    expect(machine.run.end).toEqual({ status: 'completed', output: 'done' })
  })

  test('S15: in the tick of its timeout the last one is merged or late, and the join fires once', () => {
    for (const arrivesFirst of [true, false]) {
      const machine = racing(`strategy: all, timeout_ms: 1000, on_timeout: proceed_with_available`)
      for (const place of ['read.0', 'next.0', 'read.1', 'next.1', 'read.2']) machine.complete(place)
      if (arrivesFirst) {
        machine.complete('next.2')
        machine.happen({ type: 'time', timer: 0 }) // was on its way when it was cleared
      } else {
        machine.ring(1_000)
        machine.complete('next.2')
      }
      expect(machine.fired).toEqual([['join', arrivesFirst ? 3 : 2]])
      expect(machine.run.tokens.at(-1)?.join?.timed_out).toBe(arrivesFirst ? 0 : 1)
      expect(machine.works).toEqual(['end'])
    }
  })

  test('S7: what has arrived without any work is nothing to proceed with', () => {
    const machine = new GraphMachine(
      planOf(
        ['start', 'read', 'slow!', 'end!'],
        `{ id: fan, from: start, to: read, spawn_count: 2 }
         { from: read, to: slow, condition: branch.index == 1 }
         { id: join, from: read, to: end, priority: 1, synchronization: { strategy: all, sibling_group: fan, timeout_ms: 1000, on_timeout: proceed_with_available } }`,
      ),
    )
    machine.ring(1_000)
    expect(machine.run.end).toMatchObject({
      failure: { message: expect.stringContaining('No siblings completed before timeout') },
    })
    expect(machine.tokens).toContainEqual(['read.0', 'timed_out'])
  })
})
