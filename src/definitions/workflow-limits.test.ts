import { describe, expect, test } from 'vitest'
import { loadWorkflow, validateWorkflow } from './workflow.ts'
import { childTimeout, executionLimits, quorum, synchronizationTimeout } from './workflow-limits.ts'
import type { ActionModel, ExecutionModel, TransitionModel } from './workflow-model.ts'
import { planWorkflow } from './workflow-plan.ts'

const action = (execution: ExecutionModel): ActionModel => ({ kind: 'task', task: 't', execution })
const node = (execution: ExecutionModel) => ({ id: 'a', actionId: 't', ...execution })

describe('execution: the node over the action', () => {
  test.each<[string, ExecutionModel, ExecutionModel, object]>([
    [
      'X1',
      {},
      { timeoutMs: 100 },
      { timeout: { ms: 100, origin: 'action' }, onTimeout: 'fail', retryLimit: 0 },
    ],
    ['X2', { timeoutMs: 300 }, { timeoutMs: 100 }, { timeout: { ms: 300, origin: 'node' } }],
    ['X2', { timeoutMs: 50 }, { timeoutMs: 100 }, { timeout: { ms: 50, origin: 'node' } }],
    ['X3', { timeoutMs: null }, { timeoutMs: 100 }, { timeout: { ms: null, origin: 'node' } }],
    ['X4', {}, {}, { timeout: { ms: null, origin: 'default' } }],
    ['X5', { onTimeout: 'retry' }, { timeoutMs: 1 }, { onTimeout: 'retry', retryLimit: 3 }],
    [
      'X9',
      { onTimeout: 'fail' },
      { onTimeout: 'retry', retryLimit: 5 },
      { onTimeout: 'fail', retryLimit: 0 },
    ],
    [
      'X9',
      { onTimeout: 'retry' },
      { onTimeout: 'fail', retryLimit: 5 },
      { onTimeout: 'retry', retryLimit: 5 },
    ],
    ['X10', { onTimeout: 'retry', retryLimit: 0 }, {}, { retryLimit: 0 }],
    ['X11', {}, { timeoutMs: 100 }, { queueTimeout: { ms: 100, origin: 'action' } }],
    ['X11', { queueTimeoutMs: 7 }, { timeoutMs: 100 }, { queueTimeout: { ms: 7, origin: 'node' } }],
    ['X11', { queueTimeoutMs: null }, { timeoutMs: 100 }, { queueTimeout: { ms: null, origin: 'node' } }],
    [
      'F3',
      { softStopMs: 5_000 },
      { graceMs: 0, warnAt: 0.5 },
      { softStopMs: 5_000, graceMs: 0, warnAt: 0.5 },
    ],
    ['defaults', {}, {}, { softStopMs: 0, graceMs: 5_000, warnAt: 0.8 }],
  ])('%s: %j over %j', (_row, over, under, expected) => {
    expect(executionLimits(node(over), action(under))).toMatchObject(expected)
  })

  test('a node that does nothing, and one that runs a workflow', () => {
    expect(executionLimits({ id: 'a', actionId: null }, null).timeout).toEqual({
      ms: null,
      origin: 'default',
    })
    const call: ActionModel = { kind: 'workflow_call', workflow: 'w', execution: { timeoutMs: 5 } }
    expect(executionLimits(node({}), call).queueTimeout.ms).toBeNull()
  })
})

test.each([
  ['C1', { timeoutMs: 1_800 }, { timeoutMs: 600 }, { timeoutMs: 300 }, { ms: 1_800, origin: 'node' }],
  ['C2', {}, { timeoutMs: 600 }, { timeoutMs: 300 }, { ms: 600, origin: 'action' }],
  ['C3', {}, {}, { timeoutMs: 300 }, { ms: 300, origin: 'workflow' }],
  ['C3', {}, {}, null, { ms: 3_600_000, origin: 'default' }],
  ['none', { timeoutMs: null }, { timeoutMs: 600 }, { timeoutMs: 300 }, { ms: null, origin: 'node' }],
])('%s: a child of node %j, action %j and definition %j', (_row, over, under, child, expected) => {
  const call: ActionModel = { kind: 'workflow_call', workflow: 'w', execution: under }
  expect(childTimeout(node(over), call, child)).toEqual(expected)
})

describe('synchronization', () => {
  const join = (timeoutMs?: number | null): TransitionModel => ({
    id: 'join',
    from: 'b',
    to: 'c',
    priority: 0,
    synchronization: {
      strategy: 'all',
      siblingGroup: 'fan',
      ...(timeoutMs !== undefined && { timeoutMs }),
      onTimeout: 'fail',
      onBranchFailure: 'fail',
      late: 'finish',
    },
  })
  test.each<[string, number | null, number, number | null, number | null]>([
    ['S10', 120_000, 10, null, 1_800_000],
    ['S11', 10_000, 4, null, 60_000],
    ['S12', 600_000, 10, null, 1_800_000],
    ['S13', null, 3, null, 1_800_000],
    ['S14', 20_000, 2, null, 60_000],
    ['max_parallel holds branches back: no cap', 600_000, 10, 2, 9_000_000],
    ['max_parallel does not', 600_000, 10, 10, 1_800_000],
    ['nothing to compute from, and no cap', null, 100, 2, null],
    ['an empty list', 1_000, 0, null, 1_500],
  ])('%s', (_row, largestMs, branches, maxParallel, ms) => {
    expect(synchronizationTimeout(join(), { branches, largestMs, maxParallel })).toEqual({
      ms,
      origin: 'default',
    })
  })

  test('what is set holds', () => {
    const scope = { branches: 3, largestMs: 5, maxParallel: null }
    expect(synchronizationTimeout(join(7), scope)).toEqual({ ms: 7, origin: 'transition' })
    expect(synchronizationTimeout(join(null), scope)).toEqual({ ms: null, origin: 'transition' })
  })

  test('the quorum', () => {
    expect([quorum('all', 5), quorum('any', 5), quorum({ mOfN: 3 }, 5), quorum('any', 0)]).toEqual([
      5, 1, 3, 0,
    ])
  })
})

describe('a plan', () => {
  const plan = planWorkflow(
    loadWorkflow(`
name: w
actions: { slow: { kind: task, execution: { timeout_ms: 10000 } } }
nodes:
  - { id: a, timeout: 50m }
  - { id: b, action_id: slow, timeout_ms: 20000 }
  - { id: c, action_id: slow }
  - { id: d, timeout: 1m }
  - { id: e }
transitions:
  - { id: fan, from: a, to: b, foreach: { collection: state.l } }
  - { id: again, from: b, to: c, priority: 2 }
  - { id: inner, from: b, to: d, priority: -1, spawn_count: 2, condition: "false" }
  - { id: inner-join, from: d, to: c, synchronization: { strategy: any, sibling_group: inner } }
  - { id: join, from: c, to: e, synchronization: { strategy: all, sibling_group: fan } }
  - { id: never, from: a, to: e, priority: 9 }
`).model,
  )

  test('finds nodes, actions, tiers and joins', () => {
    expect(plan.start.id).toBe('a')
    expect(plan.action(plan.nodes.get('b')!)).toMatchObject({ task: 'slow' })
    expect(plan.action(plan.nodes.get('e')!)).toBeNull()
    expect(plan.tiers('b').map((tier) => tier.map(({ id }) => id))).toEqual([['inner'], ['again']])
    expect(plan.tiers('e')).toEqual([])
    expect(plan.joins('fan').map(({ id }) => id)).toEqual(['join'])
    expect(plan.opening('inner').map(({ id }) => id)).toEqual(['inner'])
    expect(plan.transitions.get('again')!.priority).toBe(2)
  })

  test('knows the longest timeout on the branches, not outside of them', () => {
    expect(plan.largestMs('fan')).toBe(60_000)
    expect(plan.largestMs('inner')).toBe(60_000)
    expect(plan.largestMs('nothing')).toBeNull()
  })
})

test.each([
  ['agent', 'an agent'],
  ['workflow_call', 'a child workflow'],
])('limits of a node that %s does not have', (kind, what) => {
  const name = kind === 'agent' ? 'agent' : 'workflow'
  const { problems } = validateWorkflow(`
name: w
actions: { x: { kind: ${kind}, ${name}: y, execution: { grace: 1s } } }
nodes: [{ id: a, action_id: x, timeout: 1m, queue_timeout: 2s, soft_stop: 3s, warn_at: 0.5 }]
`)
  expect(problems.map(({ code, message }) => [code, message])).toEqual(
    ['queue_timeout', 'soft_stop', 'grace'].map((key) => ['no_effect', `${key} has no effect on ${what}`]),
  )
})
