import { expect, test } from 'vitest'
import type { TaskEventView } from '../../src/curfew.ts'
import type { Fact } from '../journal.ts'
import type { AuditRules, TaskRecord } from './auditor.ts'
import { audit } from './auditor.ts'
import type { Plan } from './kinds.ts'

const T0 = 1_000_000
const OWNER = 10
const RULES: AuditRules = { latestResultMs: 1_000, clockSlackMs: 0, allowedCodes: [] }

interface Run {
  facts: Fact[]
  records: TaskRecord[]
}

function fact(type: string, at: number, more: object = {}): Fact {
  return { type, mono: at, wall: T0 + at, pid: OWNER, owner: OWNER, ...more }
}

/** A quick one that ended, one that hung and timed out, a keyed one, one cancelled, one lost and repeated. */
function goodRun(): Run {
  const run: Run = { facts: [], records: [] }
  add(run, 't_quick', { task: 'quick', input: { n: 1 } }, [
    ['attempt_started', 10, { attempt: 1 }],
    ['task_completed', 20, {}],
  ])
  add(run, 't_hung', { task: 'hanging', input: { n: 2 }, timeoutMs: 100 }, [
    ['attempt_started', 10, { attempt: 1 }],
    ['task_timed_out', 103, { kind: 'total', deadlineAt: T0 + 100, lateMs: 3 }],
    ['attempt_stopped', 104, { attempt: 1, receipt: 'aborted' }],
  ])
  add(run, 't_keyed', { task: 'quick', input: { n: 3 }, key: 'k' }, [
    ['attempt_started', 10, { attempt: 1 }],
    ['task_completed', 20, {}],
  ])
  add(run, 't_cancelled', { task: 'quick', input: { n: 4 }, delayMs: 500 }, [['task_cancelled', 30, {}]])
  add(run, 't_once', { task: 'slow', input: { n: 5, ms: 10 }, atMostOnce: true }, [
    ['attempt_started', 10, { attempt: 1 }],
    ['task_completed', 20, {}],
  ])
  add(run, 't_lost', { task: 'slow', input: { n: 6, ms: 10 } }, [
    ['attempt_started', 10, { attempt: 1 }],
    ['attempt_lost', 200, { attempt: 1 }],
    ['attempt_started', 210, { attempt: 2 }],
    ['task_completed', 220, {}],
  ])
  run.facts.push(
    fact('attempt_started', 11, { taskId: 't_quick', attempt: 1 }),
    fact('attempt_ended', 19, { taskId: 't_quick', attempt: 1 }),
    fact('result', 21, { taskId: 't_quick', status: 'completed', output: { n: 1 } }),
    fact('attempt_started', 11, { taskId: 't_hung', attempt: 1 }),
    fact('aborted', 104, {
      taskId: 't_hung',
      attempt: 1,
      code: 'timed_out',
      kind: 'total',
      deadlineAt: T0 + 100,
    }),
    fact('attempt_ended', 104, { taskId: 't_hung', attempt: 1 }),
    fact('scheduled', 30, {
      ref: 'again',
      taskId: 't_keyed',
      plan: { task: 'quick', input: { n: 3 }, key: 'k' },
    }),
    fact('cancel_answered', 31, { taskId: 't_cancelled', answer: 'pending_cancelled' }),
    fact('attempt_started', 11, { taskId: 't_once', attempt: 1 }),
    fact('attempt_ended', 19, { taskId: 't_once', attempt: 1 }),
    fact('attempt_started', 11, { taskId: 't_lost', attempt: 1 }),
    fact('killed', 150, { victim: OWNER, pid: 1 }),
    fact('attempt_started', 211, { taskId: 't_lost', attempt: 2, pid: 11, owner: 11 }),
    fact('attempt_ended', 219, { taskId: 't_lost', attempt: 2, pid: 11, owner: 11 }),
  )
  return run
}

function add(run: Run, id: string, plan: Plan, told: [string, number, object][]): void {
  const startAt = T0 + (plan.delayMs ?? 0)
  const all: [string, number, object][] = [['task_scheduled', 0, { startAt }], ...told]
  const events = all.map(
    ([type, at, more], i): TaskEventView => ({ type, taskId: id, seq: i + 1, at: T0 + at, ...more }),
  )
  const outcome = told.find(([type]) => /^task_/.test(type))
  const status = (outcome?.[0].slice('task_'.length) ?? 'running') as TaskRecord['view']['status']
  const attempts = told.filter(([type]) => type === 'attempt_started').length
  run.facts.push(
    fact('schedule_sent', 0, { ref: id, plan }),
    fact('scheduled', 5, { ref: id, taskId: id, plan }),
  )
  run.records.push({
    view: {
      id,
      kind: 'task',
      parentId: null,
      title: null,
      name: plan.task,
      queue: 'default',
      priority: 0,
      key: plan.key ?? null,
      status,
      settled: outcome !== undefined,
      parked: null,
      attempts,
      createdAt: T0,
      startAt,
      startedAt: null,
      endedAt: outcome ? T0 + outcome[1] : null,
      deadlineAt: null,
      attemptDeadlineAt: null,
      timeoutKind: null,
      timeoutMs: null,
      failure: null,
      receipt: null,
      progress: null,
      details: null,
      output: status === 'completed' ? { n: plan.input.n } : null,
      trace: null,
    },
    events,
    explanation: {
      trace: null,
      id,
      kind: 'task',
      waits: [],
      journal: null,
      name: plan.task,
      status,
      summary: '',
      limits: [],
      retries: { used: 0, allowed: plan.retries ?? 0, nextAt: null },
      extensions: { granted: 0, grantedMs: 0, left: 0 },
      attempts: [],
      warnings: [],
      title: null,
      binding: null,
      below: [],
    },
  })
}

function complaintsOf({ facts, records }: Run): string[] {
  return audit(
    facts.toSorted((a, b) => a.mono - b.mono),
    records,
    RULES,
  ).map(({ rule }) => rule)
}

function recordOf(run: Run, id: string): TaskRecord {
  return run.records.find(({ view }) => view.id === id) as TaskRecord
}

function eventOf(run: Run, id: string, type: string): TaskEventView {
  return recordOf(run, id).events.find((event) => event.type === type) as TaskEventView
}

test('a good run passes', () => {
  expect(complaintsOf(goodRun())).toEqual([])
})

test('a task that nobody was told of is one whose caller was killed, if somebody asked for it', () => {
  const run = goodRun()
  run.facts = run.facts.filter(({ type, taskId }) => !(type === 'scheduled' && taskId === 't_quick'))
  expect(complaintsOf(run)).toEqual([])
  run.facts = run.facts.filter(({ type, ref }) => !(type === 'schedule_sent' && ref === 't_quick'))
  expect(complaintsOf(run)).toContain('known work')
})

const doctored: [string, string, (run: Run) => void][] = [
  ['a lost task', 'nothing is lost', (run) => run.records.splice(0, 1)],
  [
    'a task that ended before it was listed twice',
    'one record',
    (run) => run.records.push(structuredClone(run.records[0] as TaskRecord)),
  ],
  [
    'a lost cancel',
    'nothing is lost',
    (run) => Object.assign(recordOf(run, 't_cancelled').view, { status: 'completed' }),
  ],
  [
    'a result that is not the outcome',
    'one outcome',
    (run) =>
      Object.assign(run.facts.find(({ type }) => type === 'result') as Fact, { status: 'task_failed' }),
  ],
  [
    'a result with another output',
    'one outcome',
    (run) => Object.assign(run.facts.find(({ type }) => type === 'result') as Fact, { output: { n: 7 } }),
  ],
  [
    'two outcomes',
    'one outcome',
    (run) => {
      const { events } = recordOf(run, 't_hung')
      events.push({ ...(events[2] as TaskEventView), seq: 5, at: T0 + 105 })
    },
  ],
  [
    'a deadline before its time',
    'never early',
    (run) => Object.assign(eventOf(run, 't_hung', 'task_timed_out'), { at: T0 + 99 }),
  ],
  [
    'a deadline that was moved forward',
    'never early',
    (run) => Object.assign(eventOf(run, 't_hung', 'task_timed_out'), { deadlineAt: T0 + 90 }),
  ],
  [
    'a deadline that was reset',
    'never early',
    (run) => Object.assign(eventOf(run, 't_hung', 'task_timed_out'), { deadlineAt: T0 + 101 }),
  ],
  [
    'a timeout without a limit',
    'never early',
    (run) => {
      Object.assign(recordOf(run, 't_quick').view, { status: 'timed_out' })
      Object.assign(eventOf(run, 't_quick', 'task_completed'), {
        type: 'task_timed_out',
        kind: 'total',
        deadlineAt: T0 + 20,
      })
    },
  ],
  [
    'a signal before its time',
    'never early',
    (run) => Object.assign(run.facts.find(({ type }) => type === 'aborted') as Fact, { wall: T0 + 60 }),
  ],
  [
    'a task that ran before its start time',
    'never early',
    (run) => run.facts.push(fact('attempt_started', 12, { taskId: 't_cancelled', attempt: 1 })),
  ],
  [
    'a delay that was not kept',
    'never early',
    (run) => Object.assign(recordOf(run, 't_cancelled').view, { startAt: T0 + 400 }),
  ],
  [
    'a lost deadline',
    'no deadline lost',
    (run) => {
      Object.assign(recordOf(run, 't_hung').view, { status: 'failed', endedAt: T0 + 2_000 })
    },
  ],
  [
    'an attempt after the deadline',
    'no deadline lost',
    (run) => Object.assign(eventOf(run, 't_hung', 'attempt_started'), { at: T0 + 101 }),
  ],
  [
    'an attempt beside another',
    'no attempt beside another',
    (run) =>
      Object.assign(run.facts.find(({ pid, type }) => pid === 11 && type === 'attempt_started') as Fact, {
        mono: 149,
      }),
  ],
  [
    'an attempt in a process of its own that outlived its worker',
    'no attempt beside another',
    (run) => {
      run.facts.push(fact('attempt_started', 12, { taskId: 't_lost', attempt: 1, pid: 77 }))
      run.facts.push(fact('alive', 215, { taskId: 't_lost', attempt: 1, pid: 77 }))
    },
  ],
  [
    'an attempt that ran twice',
    'attempt numbers rise',
    (run) => run.facts.push(fact('attempt_started', 25, { taskId: 't_quick', attempt: 1, pid: 11 })),
  ],
  [
    'a gap in the numbers',
    'attempt numbers rise',
    (run) => Object.assign(recordOf(run, 't_lost').events[3] as TaskEventView, { attempt: 3 }),
  ],
  [
    'at most once, twice',
    'at most once',
    (run) => run.facts.push(fact('attempt_started', 50, { taskId: 't_once', attempt: 2 })),
  ],
  [
    'two tasks for one key',
    'one task per key',
    (run) => add(run, 't_other', { task: 'quick', input: { n: 3 }, key: 'k' }, [['task_completed', 20, {}]]),
  ],
  [
    'a task that runs for ever',
    'everything ends',
    (run) => Object.assign(recordOf(run, 't_quick').view, { status: 'running' }),
  ],
  [
    'an attempt that is stopping for ever',
    'everything ends',
    (run) =>
      recordOf(run, 't_hung').explanation.attempts.push({
        taskId: 't_1',
        name: 'work',
        attempt: 1,
        status: 'stopping',
        startedAt: T0,
        endedAt: null,
        timeoutKind: null,
        failure: null,
        receipt: null,
        grantedMs: 0,
      }),
  ],
  [
    'a task that has not settled',
    'everything ends',
    (run) => Object.assign(recordOf(run, 't_quick').view, { settled: false }),
  ],
  [
    'a gap in the events',
    'events in order',
    (run) => Object.assign(eventOf(run, 't_quick', 'task_completed'), { seq: 4 }),
  ],
  [
    'a handler that never returns and completed',
    'one outcome',
    (run) => Object.assign(recordOf(run, 't_hung').view, { status: 'completed' }),
  ],
  [
    'a task given up as lost too soon',
    'lost attempts',
    (run) =>
      Object.assign(recordOf(run, 't_lost').view, {
        status: 'failed',
        failure: { code: 'lost', message: '', retryable: false },
      }),
  ],
  [
    'more retries than allowed',
    'retries',
    (run) => Object.assign(eventOf(run, 't_lost', 'attempt_lost'), { type: 'attempt_failed' }),
  ],
  [
    'more at once than a queue allows',
    'queue limit',
    (run) => {
      for (const id of ['t_quick', 't_hung', 't_once', 't_lost'])
        Object.assign(recordOf(run, id).view, { queue: 'narrow' })
    },
  ],
  [
    'a process that crashed',
    'no crash',
    (run) => run.facts.push(fact('died', 90, { victim: 3, how: 'exit code 1' })),
  ],
  [
    'a call that failed',
    'clear answers',
    (run) => run.facts.push(fact('call_failed', 90, { call: 'cancel', code: 'x' })),
  ],
]

test.each(doctored)('%s is found', (_what, rule, doctor) => {
  const run = goodRun()
  doctor(run)
  expect(complaintsOf(run)).toContain(rule)
})
