import { expect, test } from 'vitest'
import type { TaskEventView, TaskView } from '../../src/curfew.ts'
import type { AuditRules } from '../chaos/auditor.ts'
import type { Fact } from '../journal.ts'
import type { AgentRecord } from './auditor.ts'
import { auditAgents } from './auditor.ts'
import type { AgentPlan } from './plans.ts'

const T0 = 1_000_000
const RULES: AuditRules = { latestResultMs: 1_000, clockSlackMs: 0, allowedCodes: [] }

interface Run {
  facts: Fact[]
  records: AgentRecord[]
}

function fact(type: string, at: number, more: object = {}): Fact {
  return { type, mono: at, wall: T0 + at, pid: 10, owner: 10, ...more }
}

function record(id: string, view: Partial<TaskView>, told: [string, object?][] = []): AgentRecord {
  const status = view.status ?? 'completed'
  const types: [string, object?][] = [
    ['agent_scheduled'],
    ['agent_started'],
    ...told,
    [`agent_${status}`, {}],
  ]
  const events = types.map(
    ([type, more], i): TaskEventView => ({ type, taskId: id, seq: i + 1, at: T0 + 10 * i, ...more }),
  )
  const base: TaskView = {
    id,
    kind: 'agent',
    parentId: null,
    title: null,
    name: 'script',
    queue: '',
    priority: 0,
    key: `key of ${id}`,
    status,
    settled: true,
    parked: null,
    attempts: 3,
    createdAt: T0,
    startAt: T0,
    startedAt: T0,
    endedAt: T0 + 90,
    deadlineAt: null,
    attemptDeadlineAt: null,
    timeoutKind: null,
    timeoutMs: null,
    failure: null,
    receipt: null,
    progress: null,
    details: null,
    output: null,
    trace: null,
  }
  const isTask = view.kind === 'task'
  return { view: { ...base, ...view, ...(isTask && { key: null }) }, events: isTask ? [] : events }
}

/**
 * One that completed though its process was killed in the middle of its second effect; one with a limit that timed
 * out and was cleaned up; one that was cancelled.
 */
function goodRun(): Run {
  const effect = (
    agentId: string,
    name: string,
    value: string,
    path: unknown[],
    from: number,
    to?: number,
  ) => [
    fact('effect_started', from, { agentId, effect: name, value, path, pid: Number(value.split('.')[0]) }),
    ...(to === undefined ? [] : [fact('effect_ended', to, { agentId, effect: name, value })]),
  ]
  const start = (id: string, plan: AgentPlan) => [
    fact('start_sent', 0, { key: `key of ${id}`, plan }),
    fact('started', 1, { key: `key of ${id}`, plan, agentId: id }),
  ]
  const ops: AgentPlan['ops'] = [
    { op: 'effect', ms: 1 },
    { op: 'signal' },
    { op: 'signal' },
    { op: 'sleep', ms: 50 },
    { op: 'task', ms: 7, fails: false },
    { op: 'effect', ms: 1 },
  ]
  const path = ['10.1', 's.1', 's.2', [T0 + 10, T0 + 61], ['t_1', 7]]
  const facts = [
    ...start('g_1', { ops, end: 'return' }),
    ...effect('g_1', 'main.0', '10.1', [], 2, 3),
    fact('signal_sent', 3, { agentId: 'g_1', value: 's.1' }),
    fact('signal_answered', 4, { agentId: 'g_1', value: 's.1' }),
    fact('signal_sent', 5, { agentId: 'g_1', value: 's.2' }),
    fact('signal_answered', 6, { agentId: 'g_1', value: 's.2' }),
    fact('looked', 20, { agentId: 'g_1', steps: 5, times: [T0 + 60], deadlineAt: null }),
    fact('looked', 30, { agentId: 'g_1', steps: 5, times: [T0 + 60], deadlineAt: null }),
    ...effect('g_1', 'main.5', '10.2', path, 63),
    fact('killed', 64, { victim: 10 }),
    ...effect('g_1', 'main.5', '11.1', path, 70, 71),
    ...effect('g_1', 'undo', '11.2', [...path, '11.1'], 72, 74),
    fact('result', 95, { agentId: 'g_1', status: 'completed', output: [...path, '11.1'] }),
    ...start('g_2', { ops: [], end: 'hang', timeoutMs: 20 }),
    fact('looked', 5, { agentId: 'g_2', steps: 1, times: [], deadlineAt: T0 + 20 }),
    ...effect('g_2', 'undo', '11.3', [], 75, 76),
    ...start('g_3', { ops: [], end: 'hang' }),
    fact('cancel_sent', 30, { agentId: 'g_3' }),
    fact('cancel_answered', 31, { agentId: 'g_3', answer: 'cancelled' }),
    ...effect('g_3', 'undo', '11.4', [], 80, 81),
  ]
  const run = {
    facts,
    records: [
      record('g_1', { output: [...path, '11.1'] }, [['turn_lost']]),
      record('t_1', { kind: 'task', name: 'work', parentId: 'g_1', output: 7 }),
      record('g_2', { status: 'timed_out', deadlineAt: T0 + 20 }),
      record('g_3', { status: 'cancelled' }),
    ],
  }
  Object.assign(eventsOf(run, 'g_2').at(-1) as TaskEventView, { deadlineAt: T0 + 20, at: T0 + 20 })
  return run
}

function complaintsOf({ facts, records }: Run): string[] {
  const inOrder = facts.toSorted((a, b) => a.mono - b.mono)
  return auditAgents(inOrder, records, RULES).map(({ rule }) => rule)
}

const viewOf = (run: Run, id: string) =>
  run.records.find(({ view }) => view.id === id)?.view ?? expect.fail(`no record ${id}`)
const eventsOf = (run: Run, id: string) => run.records.find(({ view }) => view.id === id)?.events ?? []
const effectOf = (run: Run, value: string) =>
  run.facts.find((one) => one.type === 'effect_started' && one.value === value) ?? expect.fail(value)

test('a good run passes', () => {
  expect(complaintsOf(goodRun())).toEqual([])
})

const doctored: [string, string, (run: Run) => void][] = [
  ['a lost agent', 'nothing is lost', (run) => run.records.splice(3, 1)],
  ['an agent twice', 'one record', (run) => run.records.push(structuredClone(run.records[3] as AgentRecord))],
  ['an agent nobody asked for', 'known work', (run) => Object.assign(viewOf(run, 'g_3'), { key: 'another' })],
  ['a lost cancel', 'nothing is lost', (run) => Object.assign(viewOf(run, 'g_3'), { status: 'timed_out' })],
  [
    'another result than the one that was told',
    'one outcome',
    (run) => Object.assign(run.facts.find(({ type }) => type === 'result') as Fact, { output: [] }),
  ],
  [
    'an agent that hangs',
    'everything ends',
    (run) => Object.assign(viewOf(run, 'g_2'), { status: 'running' }),
  ],
  [
    'one that has not settled',
    'everything ends',
    (run) => Object.assign(viewOf(run, 'g_2'), { settled: false }),
  ],
  ['one that is parked', 'everything ends', (run) => Object.assign(viewOf(run, 'g_2'), { parked: 'why' })],
  [
    'a replay that took another path',
    'same path again',
    (run) => Object.assign(eventsOf(run, 'g_1')[2] as object, { type: 'agent_parked', code: 'mismatch' }),
  ],
  [
    'a side effect with another past',
    'same path again',
    (run) => Object.assign(effectOf(run, '10.2'), { path: ['10.1', 's.1', 's.2', [0, 51], ['t_1', 7]] }),
  ],
  [
    'a side effect that was journalled and done again',
    'once journalled',
    (run) => run.facts.push({ ...effectOf(run, '10.1'), mono: 66, value: '10.9' }),
  ],
  [
    'two processes at the same time',
    'one process at a time',
    (run) => Object.assign(effectOf(run, '11.1'), { mono: 63.5 }),
  ],
  [
    'a side effect after the clean-up',
    'clean-up',
    (run) => run.facts.push({ ...effectOf(run, '11.1'), mono: 73, value: '11.9' }),
  ],
  [
    'an agent that was not cleaned up',
    'clean-up',
    (run) => {
      run.facts = run.facts.filter(({ agentId, effect }) => !(agentId === 'g_2' && effect === 'undo'))
    },
  ],
  [
    'a clean-up that was abandoned',
    'clean-up',
    (run) => Object.assign(eventsOf(run, 'g_1')[2] as object, { type: 'cleanup_abandoned' }),
  ],
  [
    'a sleep that was started again',
    'no limit moves',
    (run) => Object.assign(run.facts.findLast(({ steps }) => steps === 5) as Fact, { times: [T0 + 99] }),
  ],
  [
    'a deadline that moved',
    'no limit moves',
    (run) => Object.assign(viewOf(run, 'g_2'), { deadlineAt: T0 + 21 }),
  ],
  [
    'a deadline before its time',
    'never early',
    (run) => Object.assign(eventsOf(run, 'g_2').at(-1) as object, { deadlineAt: T0 + 20, at: T0 + 19 }),
  ],
  [
    'a lost deadline',
    'no deadline lost',
    (run) => Object.assign(viewOf(run, 'g_2'), { status: 'failed', endedAt: T0 + 2_000 }),
  ],
  [
    'a sleep that was too short',
    'as planned',
    (run) => (viewOf(run, 'g_1').output = ['10.1', 's.1', 's.2', [10, 59], ['t_1', 7], '11.1']),
  ],
  ['a step that is missing', 'as planned', (run) => (viewOf(run, 'g_1').output = ['10.1', 's.1', 's.2'])],
  [
    'a task twice',
    'each step once',
    (run) => run.records.push(record('t_2', { kind: 'task', parentId: 'g_1', output: 7 })),
  ],
  [
    'a task with another id',
    'as planned',
    (run) => (viewOf(run, 'g_1').output = ['10.1', 's.1', 's.2', [10, 61], ['t_9', 7], '11.1']),
  ],
  ['a task that is missing', 'each step once', (run) => run.records.splice(1, 1)],
  [
    'a task that failed by itself',
    'one outcome',
    (run) =>
      Object.assign(viewOf(run, 't_1'), {
        status: 'failed',
        failure: { code: 'x', message: '', retryable: true },
      }),
  ],
  [
    'a signal that was taken twice',
    'signals once',
    (run) => (viewOf(run, 'g_1').output = ['10.1', 's.1', 's.1', [10, 61], ['t_1', 7], '11.1']),
  ],
  [
    'a signal out of order',
    'signals in order',
    (run) => (viewOf(run, 'g_1').output = ['10.1', 's.2', 's.1', [10, 61], ['t_1', 7], '11.1']),
  ],
  [
    'a signal nobody sent',
    'signals once',
    (run) => (viewOf(run, 'g_1').output = ['10.1', 's.1', 's.9', [10, 61], ['t_1', 7], '11.1']),
  ],
  [
    'a signal that was lost',
    'signals in order',
    (run) => run.facts.push(fact('signal_answered', 2, { agentId: 'g_1', value: 's.0' })),
  ],
  [
    'two outcomes',
    'one outcome',
    (run) => Object.assign(eventsOf(run, 'g_3')[1] as object, { type: 'agent_failed' }),
  ],
  ['a gap in the events', 'events in order', (run) => eventsOf(run, 'g_1').splice(1, 1)],
  [
    'an outcome that its script does not have',
    'one outcome',
    (run) => Object.assign(viewOf(run, 'g_3'), { status: 'completed', output: [] }),
  ],
  [
    'a process that died',
    'no crash',
    (run) => run.facts.push(fact('died', 90, { victim: 3, how: 'code 1' })),
  ],
  [
    'a call that failed',
    'clear answers',
    (run) => run.facts.push(fact('call_failed', 90, { call: 'signal', code: 'x' })),
  ],
]

test.each(doctored)('%s is found', (_what, rule, doctor) => {
  const run = goodRun()
  doctor(run)
  expect(complaintsOf(run)).toContain(rule)
})
