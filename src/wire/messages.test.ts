/** Everything that crosses the wire comes back as it left: null, left out and empty told apart. */
import type { DescMessage } from '@bufbuild/protobuf'
import { fromBinary, fromJsonString, toBinary, toJsonString } from '@bufbuild/protobuf'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { DEAD_LETTER_ERRORS, DEAD_LETTER_STATES } from '../core/dead-letter.ts'
import type { ExtensionAnswer } from '../core/extension.ts'
import type { Failure, LateResult } from '../core/failure.ts'
import { MAX_MESSAGE_DEPTH } from '../core/limits.ts'
import type { Note, NotedLimit } from '../core/note.ts'
import type { Progress, StopReason } from '../core/states.ts'
import type { DeadLetterView } from './dead-letter-view.ts'
import { GetStatusResponseSchema, MetricSchema } from './gen/curfew/v1/cluster_pb.ts'
import {
  AttemptSchema,
  DeadLetterSchema,
  EventSchema,
  ExplanationSchema,
  MemberSchema,
  RunSchema,
  WorkSchema,
} from './gen/curfew/v1/work_pb.ts'
import {
  AttachResponseSchema,
  MachineSchema,
  ReportAnswerSchema,
  ReportSchema,
  WorkerSchema,
} from './gen/curfew/v1/workers_pb.ts'
import { fromPlain, jsonOf, toPlain, valueMessage } from './plain.ts'
import type { MemberView, RunView } from './run-view.ts'
import type {
  AttemptView,
  Explanation,
  MetricView,
  StatusView,
  TaskEventView,
  TaskView,
  WorkerView,
} from './task-service.ts'
import {
  answerFromWire,
  answerToWire,
  downFromWire,
  downToWire,
  reportFromWire,
  reportToWire,
} from './worker-messages.ts'
import type { Assignment, DownMessage, RemainingLimits, Report, ReportAnswer, Turn } from './worker-port.ts'

/** There and back, as bytes and as JSON text. */
function overTheWire<Desc extends DescMessage>(schema: Desc, message: object) {
  const limits = { recursionLimit: MAX_MESSAGE_DEPTH }
  const bytes = fromBinary(schema, toBinary(schema, message as never), limits)
  const json = fromJsonString(schema, toJsonString(schema, message as never), limits)
  expect(json).toEqual(bytes)
  return bytes
}

const text = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 20 }),
  fc.constantFrom('', 'null', '\u0000', '\ud83d\ude00'),
)
const number = fc
  .oneof(
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.constantFrom(0, 1, -1, 0.1, 1e21, Number.MAX_SAFE_INTEGER, 5e-324),
  )
  .map((n) => (n === 0 ? 0 : n))
const count = fc.integer({ min: 0, max: 2 ** 31 - 1 })
const orNull = <T>(of: fc.Arbitrary<T>) => fc.option(of, { nil: null })
/** What may be stored: keys that JavaScript takes for its own are refused before. */
const json = fc
  .jsonValue({ maxDepth: 4, stringUnit: 'grapheme' })
  .map((value) => JSON.parse(JSON.stringify(value).replaceAll('__proto__', 'proto')) as unknown)
const object = fc.dictionary(
  text.filter((key) => key !== '__proto__'),
  json,
  { maxKeys: 4, noNullPrototype: true },
)

const record = <T>(shape: { [K in keyof T]: fc.Arbitrary<T[K]> }) =>
  fc.record(shape, { noNullPrototype: true }) as unknown as fc.Arbitrary<T>

const { failure } = fc.letrec<{ failure: Failure }>((tie) => ({
  failure: fc
    .record(
      {
        ...{ code: text, message: text, retryable: fc.boolean(), details: json, stack: text },
        cause: fc.option(tie('failure'), { nil: undefined, depthSize: 'small' }),
      },
      { requiredKeys: ['code', 'message', 'retryable'], noNullPrototype: true },
    )
    .map(({ cause, ...rest }) => (cause ? { ...rest, cause } : rest)) as fc.Arbitrary<Failure>,
}))
const progress = fc.record(
  { fraction: number, completed: number, total: number },
  { requiredKeys: [], noNullPrototype: true },
) as fc.Arbitrary<Progress>
const timeoutKind = fc.constantFrom(
  'job',
  'workflow',
  'agent',
  'total',
  'queue',
  'execution',
  'heartbeat',
  'stuck',
)
const receipt = fc.constantFrom('exited', 'aborted', 'terminated', 'killed', 'abandoned', 'unreachable')
const status = fc.constantFrom(
  'pending',
  'running',
  'cancelling',
  'completed',
  'failed',
  'timed_out',
  'cancelled',
)
const trace = fc.record(
  { traceparent: text, tracestate: text },
  { requiredKeys: ['traceparent'], noNullPrototype: true },
)
const reason = fc.record(
  {
    ...{ code: fc.constantFrom('timed_out', 'cancelled', 'stale', 'lease_over', 'closing', 'soft_stop') },
    ...{ message: text, kind: timeoutKind, deadlineAt: number, timeoutMs: number },
  },
  { requiredKeys: ['code', 'message'], noNullPrototype: true },
) as fc.Arbitrary<StopReason>
const late = fc.oneof(record({ output: text }), record({ failure })) as fc.Arbitrary<LateResult>
const limits = {
  ...{ deadlineAt: orNull(number), attemptMs: orNull(number), totalMs: orNull(number) },
} satisfies { [K in keyof RemainingLimits]: fc.Arbitrary<RemainingLimits[K]> }
const attempt = { taskId: text, token: text }

const scope = record<NonNullable<Assignment['scope']>>({
  ...{ rootId: text, parentId: text, step: count, detached: fc.boolean() },
})
const assignment = record<Assignment>({
  ...{ ...attempt, ...limits, name: text, queue: text, attempt: count, input: text, details: orNull(text) },
  ...{ softStopMs: number, beatEveryMs: number, graceMs: number, trace: orNull(trace), scope: orNull(scope) },
})
const turn = record<Turn>({
  ...{ agentId: text, rootId: text, name: text, token: text, turn: count, input: orNull(text) },
  ...{ trace: orNull(trace), now: number, steps: count, seen: count, upTo: count },
  results: fc.array(json, { maxLength: 2 }) as never,
})

const down: fc.Arbitrary<DownMessage> = fc.oneof(
  record({ type: fc.constant('start' as const), assignments: fc.array(assignment, { maxLength: 3 }) }),
  record({ type: fc.constant('stop' as const), ...attempt, reason, graceMs: number }),
  record({ type: fc.constant('limits' as const), ...attempt, ...limits }),
  record({ type: fc.constant('turns' as const), turns: fc.array(turn, { maxLength: 3 }) }),
  record({ type: fc.constant('news' as const), agentId: text, token: text, dropped: fc.boolean() }),
)

const limitOf = record<NotedLimit>({
  ...{ type: fc.constantFrom('agent', 'command', 'idle', 'phase'), command: count, commandType: text, text },
  ...{ limitMs: count, elapsedMs: count, source: text, message: text, isTold: fc.boolean() },
})
const note = fc.record(
  { events: fc.constant([]), letters: fc.constant([]), limitMs: orNull(number), limitOf },
  { requiredKeys: ['events', 'letters'], noNullPrototype: true },
) as fc.Arbitrary<Note>

const report: fc.Arbitrary<Report> = fc.oneof(
  fc.tuple(record(attempt), note).map(([of, said]): Report => ({ ...of, type: 'note', ...said })),
  record({ ...attempt, type: fc.constant('completed' as const), output: text }),
  record({ ...attempt, type: fc.constant('failed' as const), failure }),
  record({
    ...{ ...attempt, type: fc.constant('beat' as const), progress: orNull(progress), details: orNull(text) },
    moved: fc.boolean(),
  }),
  record({ ...attempt, type: fc.constant('extend' as const), requestId: text, progress }),
  record({ ...attempt, type: fc.constant('overdue' as const) }),
  record({ ...attempt, type: fc.constant('stopped' as const), reason, receipt, late: orNull(late) }),
  record({ ...attempt, type: fc.constant('returned' as const), late }),
)

const extension = fc.oneof(
  record({ granted: fc.constant(true as const), ms: number, remaining: count, warning: fc.boolean() }),
  record({
    ...{ granted: fc.constant(false as const), reason: fc.constantFrom('no_progress', 'exhausted') },
    ...{ remaining: count, stopAt: orNull(number) },
  }),
) as fc.Arbitrary<ExtensionAnswer>
const answer: fc.Arbitrary<ReportAnswer> = fc.oneof(
  record({ type: fc.constant('accepted' as const) }),
  record({ type: fc.constant('stale' as const), reason }),
  record({ type: fc.constant('extension' as const), answer: extension, deadlineAt: orNull(number) }),
  record({ type: fc.constant('limits' as const), ...limits }),
  record({ type: fc.constant('refused' as const), message: text }),
)

const work = record<TaskView>({
  ...{ id: text, kind: fc.constantFrom('task', 'agent', 'workflow', 'job'), name: text, title: orNull(text) },
  ...{ queue: text, priority: fc.integer({ min: -32_768, max: 32_767 }), key: orNull(text), status },
  ...{ settled: fc.boolean(), parked: orNull(text), attempts: count, createdAt: number, startAt: number },
  ...{ startedAt: orNull(number), endedAt: orNull(number), deadlineAt: orNull(number) },
  ...{ attemptDeadlineAt: orNull(number), timeoutKind: orNull(timeoutKind), timeoutMs: orNull(number) },
  ...{ failure: orNull(failure), receipt: orNull(receipt), progress: orNull(progress), details: json },
  ...{ output: json, parentId: orNull(text), trace: orNull(text) },
})
const attemptView = record<AttemptView>({
  ...{ taskId: text, name: text, attempt: count, startedAt: number, endedAt: orNull(number) },
  ...{
    status: fc.constantFrom('running', 'stopping', 'completed', 'failed', 'timed_out', 'cancelled', 'lost'),
  },
  ...{
    timeoutKind: orNull(timeoutKind),
    failure: orNull(failure),
    receipt: orNull(receipt),
    grantedMs: number,
  },
})
const limit = record<Explanation['limits'][number]>({
  ...{
    kind: timeoutKind,
    option: text,
    timeoutMs: number,
    setBy: fc.constantFrom('definition', 'inherited'),
  },
  ...{ deadlineAt: orNull(number), remainingMs: orNull(number), active: fc.boolean(), binding: fc.boolean() },
})
const wait = record<Explanation['waits'][number]>({
  ...{ what: fc.constantFrom('task', 'signal', 'time', 'join'), id: orNull(text), name: orNull(text) },
  ...{ status: orNull(status), since: number, until: orNull(number) },
})
const { explanation } = fc.letrec<{ explanation: Explanation }>((tie) => ({
  explanation: record<Explanation>({
    ...{
      id: text,
      name: text,
      kind: fc.constantFrom('task', 'agent', 'workflow', 'job'),
      status,
      summary: text,
    },
    ...{ limits: fc.array(limit, { maxLength: 2 }), attempts: fc.array(attemptView, { maxLength: 2 }) },
    retries: record({ used: count, allowed: count, nextAt: orNull(number) }),
    extensions: record({ granted: count, grantedMs: number, left: count }),
    waits: fc.array(wait, { maxLength: 2 }),
    journal: orNull(record({ steps: count, results: count, turns: count, open: count })),
    ...{ warnings: fc.array(text, { maxLength: 2 }), title: orNull(text), trace: orNull(text) },
    binding: orNull(
      record({ id: text, name: text, kind: timeoutKind, deadlineAt: number, remainingMs: number }),
    ),
    below: fc.oneof(
      { maxDepth: 2 },
      fc.constant<Explanation[]>([]),
      fc.array(tie('explanation'), { maxLength: 2 }),
    ),
  }),
}))
const run = record<RunView>({
  ...{ id: text, workflow: text, hash: text, status, state: object },
  tokens: fc.array(
    record<RunView['tokens'][number]>({
      ...{ id: count, node: text, status: fc.constantFrom('executing', 'timed_out'), retries: count },
      branches: fc.array(record({ group: text, index: count }), { maxLength: 2 }),
      ...{ workId: orNull(text), deadlineAt: orNull(number) },
      timeoutType: orNull(fc.constantFrom('workflow', 'execution', 'synchronization')),
    }),
    { maxLength: 2 },
  ),
  joins: fc.array(
    record<RunView['joins'][number]>({
      ...{ transition: text, group: text, expected: count, arrived: count, fired: fc.boolean() },
      ...{ timeoutMs: orNull(number), deadlineAt: orNull(number) },
    }),
    { maxLength: 2 },
  ),
})
const member = record<MemberView>({
  ...{ id: text, kind: fc.constantFrom('workflow', 'agent', 'task', 'mapreduce'), name: text, status },
  ...{ runId: orNull(text), output: json, failure: orNull(failure), timeoutKind: orNull(timeoutKind) },
  dependsOn: fc.array(text, { maxLength: 2 }),
})
const deadLetter = record<DeadLetterView>({
  ...{ jobId: text, itemId: text, name: text, message: text, attempts: count },
  ...{ state: fc.constantFrom(...DEAD_LETTER_STATES), errorType: fc.constantFrom(...DEAD_LETTER_ERRORS) },
  ...{ createdAt: number, updatedAt: number, retryId: orNull(text), retriedAt: orNull(number) },
  body: orNull(object),
})
const worker = record<WorkerView>({
  ...{ id: text, host: text, pid: count, version: text, status: fc.constantFrom('attached', 'silent') },
  labels: fc.dictionary(
    text.filter((key) => key !== '__proto__'),
    text,
    { maxKeys: 3, noNullPrototype: true },
  ),
  ...{ queues: fc.array(text), allQueues: fc.boolean(), tasks: fc.array(text), agents: fc.array(text) },
  ...{ concurrency: count, running: count, abandoned: count, attachedAt: number, heardAt: number },
  managerId: text,
})
const metric = record<MetricView>({
  ...{ name: text, help: text, type: text },
  values: fc.array(
    fc.record(
      { labels: record({ kind: text, le: number }), value: number, metricName: text },
      { requiredKeys: ['labels', 'value'], noNullPrototype: true },
    ),
  ) as never,
})
const serverStatus = record<StatusView>({
  ...{ nodeId: text, version: text, protocol: count, store: fc.constantFrom('sqlite', 'postgres') },
  ...{ ready: fc.boolean(), now: number, workers: count, fence: count },
})

const VIEWS: [string, DescMessage, fc.Arbitrary<object>][] = [
  ['records', WorkSchema, work],
  ['attempts', AttemptSchema, attemptView],
  ['explanations', ExplanationSchema, explanation],
  ['runs', RunSchema, run],
  ['workflows of a job', MemberSchema, member],
  ['dead letters', DeadLetterSchema, deadLetter],
  ['workers', WorkerSchema, worker],
  ['metrics', MetricSchema, metric],
  ['the status of a manager', GetStatusResponseSchema, serverStatus],
]

test('messages down to a worker', () => {
  fc.assert(
    fc.property(down, (message) => {
      expect(downFromWire(overTheWire(AttachResponseSchema, downToWire(message)))).toStrictEqual(message)
    }),
  )
})

test('reports up from a worker', () => {
  fc.assert(
    fc.property(report, (message) => {
      expect(reportFromWire(overTheWire(ReportSchema, reportToWire(message)))).toStrictEqual(message)
    }),
  )
})

test('answers to reports', () => {
  fc.assert(
    fc.property(answer, (message) => {
      expect(answerFromWire(overTheWire(ReportAnswerSchema, answerToWire(message)))).toStrictEqual(message)
    }),
  )
})

test.each(VIEWS)('%s', (_name, schema, views) => {
  fc.assert(
    fc.property(views, (view) => {
      expect(toPlain(schema, overTheWire(schema, fromPlain(schema, view)))).toStrictEqual(view)
    }),
    { numRuns: 50 },
  )
})

test('events, with whatever fields they have', () => {
  const event = fc.tuple(record({ type: text, taskId: text, seq: count, at: number }), object)
  fc.assert(
    fc.property(event, ([base, fields]) => {
      const message = overTheWire(EventSchema, fromPlain(EventSchema, { ...base, fields }))
      expect(toPlain<{ fields: TaskEventView }>(EventSchema, message)).toEqual({ ...base, fields })
    }),
  )
})

test('any JSON as a value', () => {
  fc.assert(
    fc.property(json, (value) => {
      expect(jsonOf(valueMessage(value))).toStrictEqual(value)
    }),
  )
  expect([jsonOf(undefined), jsonOf(valueMessage(undefined)), jsonOf(valueMessage(null))]).toEqual([
    null,
    null,
    null,
  ])
})

test('a machine, and a failure whose details are null beside one that has none', () => {
  const machine = { host: 'h', bootId: '', pidSpace: 'p', pid: 3, pidStarted: '7' }
  expect(toPlain(MachineSchema, overTheWire(MachineSchema, fromPlain(MachineSchema, machine)))).toEqual(
    machine,
  )
  const base = { taskId: 't', token: 'r', type: 'failed' as const }
  for (const details of [{ details: null }, {}]) {
    const message = { ...base, failure: { code: 'c', message: 'm', retryable: true, ...details } }
    const back = reportFromWire(overTheWire(ReportSchema, reportToWire(message)))
    expect(back).toStrictEqual(message)
  }
})
