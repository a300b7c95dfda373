import { describe, expect, test } from 'vitest'
import type { CancelAnswer, TaskStatus } from '../core/states.ts'
import type { TitledChild } from '../store/agent-statements.ts'
import type { TaskRow } from '../store/task-row.ts'
import { decideAgent } from './agent-decide.ts'
import type { AgentInput } from './agent-input.ts'
import { decodeWaits } from './agent-waits.ts'
import { newAgentRow, startedTurn, taskStep, turnOf } from './fixtures/agent-rows.ts'

type CancelInput = Extract<AgentInput, { type: 'cancel_child' }>

const child = (title: string, status: TaskStatus): TitledChild => ({ id: `t_${title}`, title, status })

const request = (title: string, rest: Partial<CancelInput> = {}): CancelInput => ({
  type: 'cancel_child',
  ...{ title, below: [], status: 'pending', requestId: null, children: [] },
  ...{ signal: { name: '$cancel', value: `{"id":"${title}"}` }, ...rest },
})

const running = () => startedTurn(newAgentRow(), { now: 0, nodeId: 'n_1', token: 'a_1' })

/** An agent, and what it answers one request after the other. */
class Agent {
  row: TaskRow = running()
  cancels: string[] = []
  signals = 0

  ask(input: CancelInput): CancelAnswer | string {
    const { draft, answer } = decideAgent(this.row, input, 0)
    this.row = draft.row
    this.cancels = draft.cancels
    this.signals += draft.queued.length
    return answer.type === 'cancel' ? answer.answer : answer.type
  }
}

describe('a request to cancel one child', () => {
  test.each<[TaskStatus, CancelAnswer]>([
    ['pending', 'pending_cancelled'],
    ['running', 'cancelled'],
    ['cancelling', 'already_cancelled'],
    ['cancelled', 'already_cancelled'],
    ['completed', 'already_completed'],
    ['failed', 'already_completed'],
    ['timed_out', 'already_completed'],
  ])('S1: that is %s is answered %s', (status, expected) => {
    const agent = new Agent()
    expect(agent.ask(request('a', { children: [child('a', status)] }))).toBe(expected)
    const does = expected === 'cancelled' || expected === 'pending_cancelled'
    expect({ cancels: agent.cancels, signals: agent.signals }).toEqual(
      does ? { cancels: ['t_a'], signals: 1 } : { cancels: [], signals: 0 },
    )
  })

  test('S1: that has no row yet counts as what its agent knows of it', () => {
    const agent = new Agent()
    expect(agent.ask(request('skipped', { status: 'cancelled' }))).toBe('already_cancelled')
    expect(agent.ask(request('later'))).toBe('pending_cancelled')
    expect(decodeWaits(agent.row.waits).cancelled).toContain('later')
  })

  test('S2: takes those that wait for it along, in the order given; those that have ended are left', () => {
    const agent = new Agent()
    const children = [child('a', 'running'), child('b', 'running'), child('done', 'completed')]
    const below = ['c', 'done', 'b']
    expect(agent.ask(request('a', { below, children }))).toBe('cancelled')
    expect(agent.cancels).toEqual(['t_b', 't_a'])
    expect(decodeWaits(agent.row.waits).cancelled).toEqual(['c', 'b', 'a'])
  })

  test('that has ended leaves those that wait for it alone', () => {
    const agent = new Agent()
    const children = [child('a', 'completed'), child('b', 'running')]
    expect(agent.ask(request('a', { below: ['b'], children }))).toBe('already_completed')
    expect({ cancels: agent.cancels, waits: agent.row.waits }).toEqual({ cancels: [], waits: null })
  })

  test('S3: a second one is told so, and takes those along that the first one left', () => {
    const agent = new Agent()
    const children = [child('a', 'running'), child('b', 'running')]
    agent.ask(request('a', { children }))
    expect(agent.ask(request('a', { children }))).toBe('already_cancelled')
    expect({ cancels: agent.cancels, signals: agent.signals }).toEqual({ cancels: [], signals: 1 })
    expect(agent.ask(request('a', { below: ['b'], children }))).toBe('already_cancelled')
    expect({ cancels: agent.cancels, signals: agent.signals }).toEqual({ cancels: ['t_b'], signals: 2 })
  })

  test('S3: the same id is the same request, though not for another child', () => {
    const agent = new Agent()
    const a = request('a', { requestId: 'r', children: [child('a', 'running')] })
    expect([agent.ask(a), agent.ask(a)]).toEqual(['cancelled', 'cancelled'])
    expect(agent.signals).toBe(1)
    const other = request('b', { requestId: 'r', children: [child('b', 'running')] })
    expect(agent.ask(other)).toBe('cancelled')
    agent.row = { ...agent.row, status: 'completed' }
    expect(agent.ask(a)).toBe('cancelled')
  })

  test('S6: any number of requests leaves no more than the first', () => {
    const agent = new Agent()
    agent.ask(request('a', { children: [child('a', 'running')] }))
    const { waits } = agent.row
    for (let n = 0; n < 10_000; n++) {
      agent.ask(request('a', { requestId: `r${n}`, children: [child('a', 'running')] }))
    }
    expect(agent.row.waits).toBe(waits)
  })

  test('changes nothing once the agent is over or stops', () => {
    const agent = new Agent()
    agent.row = decideAgent(agent.row, { type: 'cancel' }, 0).draft.row
    const { waits } = agent.row
    expect(agent.ask(request('a', { children: [child('a', 'running')] }))).toBe('unchanged')
    expect(agent.row.waits).toBe(waits)
  })
})

test('C4: what was on its way when it was cancelled does not start; what has another title does', () => {
  const agent = new Agent()
  agent.ask(request('a', { below: ['b'] }))
  const steps = ['a', 'b', 'c'].map((title, no) => ({ ...taskStep(no), title }))
  const { draft } = decideAgent(agent.row, turnOf(running(), 'a_1', { steps }), 0)
  expect(draft.children.map(({ title }) => title)).toEqual(['a', 'b', 'c'])
  expect(draft.cancels).toEqual(['t_0', 't_1'])
})
