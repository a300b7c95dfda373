/** The job service on the wire, over the task service of this process. What comes in is checked here. */
import type { MessageInitShape, MessageShape } from '@bufbuild/protobuf'
import type { ServiceImpl } from '@connectrpc/connect'
import type { Clock } from '../core/clock.ts'
import { durationMs } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import { checkJsonText, encodeJson } from '../core/json.ts'
import { MAX_BULK_ROWS, MAX_KEY_LENGTH, MAX_WAITED_FOR, MAX_WAITED_FOR_IN_ALL } from '../core/limits.ts'
import { idPrefix, JOB, WORK_KINDS, WORKFLOW } from '../core/own-work.ts'
import type { TaskStatus } from '../core/states.ts'
import { TASK_STATUSES, TASK_TIMEOUT_KINDS } from '../core/states.ts'
import type { TraceContext } from '../core/trace-context.ts'
import { traceOfHeaders } from '../core/trace-context.ts'
import { checkPolicy } from '../definitions/policy-check.ts'
import { startTime } from '../definitions/start-time.ts'
import { checkName } from '../definitions/task-policy.ts'
import type { JobService, ScheduleRequest } from '../wire/gen/curfew/v1/jobs_pb.ts'
import {
  AttemptSchema,
  EventSchema,
  ExplanationSchema,
  MemberSchema,
  RunSchema,
  WorkSchema,
} from '../wire/gen/curfew/v1/work_pb.ts'
import { fromPlain, jsonOf } from '../wire/plain.ts'
import type { StreamContext } from '../wire/quick-stream.ts'
import type {
  ScheduleRequest as Schedule,
  SubmitRequest as Submit,
  TaskEventView,
  TaskService,
  WatchView,
} from '../wire/task-service.ts'
import { deadLetterMethods } from './dead-letter-methods.ts'
import { invalid, nameOf, oneOf, pageLimit } from './request-check.ts'
import { checkRunStart } from './run-check.ts'
import { withSignsOfLife } from './signs-of-life.ts'
import type { Ends, Waitable } from './wait-many.ts'
import { endsOf } from './wait-many.ts'

/** A wait is a request that stays open: for no longer than a proxy would let it. */
const LONGEST_WAIT_MS = 30_000
/** A stream says something when nothing has happened for so long: a watch what it last said, a wait nothing. */
const QUIET_MS = 5_000

type Methods = typeof JobService.method
/** They look at nothing but the request, so that they can be answered by hand, too. */
type Plain = 'schedule' | 'get' | 'wait' | 'cancel' | 'signal'
type Streams = 'waitMany' | 'watch'

export type JobMethods = Omit<ServiceImpl<typeof JobService>, Plain | Streams> & {
  [M in Plain]: (
    request: MessageShape<Methods[M]['input']>,
  ) => Promise<MessageInitShape<Methods[M]['output']>>
} & {
  [M in Streams]: (
    request: MessageShape<Methods[M]['input']>,
    context: StreamContext,
  ) => AsyncGenerator<MessageInitShape<Methods[M]['output']>>
}

export function jobService(service: TaskService & Waitable, clock: Clock): JobMethods {
  let waitedFor = 0
  return {
    async submit(request, { requestHeader }) {
      const what = whatOf(request.what)
      const trace = request.trace
        ? plainTrace(request.trace)
        : traceOfHeaders(requestHeader.get('traceparent'), requestHeader.get('tracestate'))
      return service.submit({
        ...{
          what,
          trace,
          input: jsonOf(request.input),
          requestId: checkRequestId(request.requestId) ?? null,
        },
        ...{ key: request.key ?? null, timeout: request.timeout ?? null, delay: request.delay ?? null },
      })
    },
    async schedule(request) {
      return { tasks: await service.schedule(scheduleOf(request)) }
    },
    async get({ id }) {
      const work = await service.get(checkId(id))
      return work ? { work: fromPlain(WorkSchema, work) } : {}
    },
    async list(request) {
      const { statuses, cursor, limit } = request
      for (const status of statuses) oneOf('statuses', status, TASK_STATUSES)
      const page = await service.list({
        statuses: statuses.length ? (statuses as TaskStatus[]) : null,
        ...{ name: nameOf('name', request.name), queue: nameOf('queue', request.queue) },
        ...{ parentId: nameOf('parent_id', request.parentId), cursor: nameOf('cursor', cursor) },
        timeoutKind: oneOf('timeout_kind', request.timeoutKind, TASK_TIMEOUT_KINDS),
        kind: oneOf('kind', request.kind, WORK_KINDS),
        ...{ parked: request.parked ?? null, limit: pageLimit(limit) },
      })
      return {
        works: page.tasks.map((work) => fromPlain(WorkSchema, work)),
        ...(page.cursor !== null && { cursor: page.cursor }),
      }
    },
    async wait({ id, timeoutMs }) {
      const settled = await service.settled(checkId(id), waitMs(timeoutMs))
      if (!settled) return { settled: false }
      return settled.status === 'completed'
        ? { settled: true, output: settled.output }
        : { settled: true, work: fromPlain(WorkSchema, settled.task) }
    },
    async *waitMany({ ids }, { signal }) {
      if (ids.length > MAX_WAITED_FOR) {
        const message = `at most ${MAX_WAITED_FOR} can be waited for together, got ${ids.length}`
        throw new CurfewError('too_big', message)
      }
      const wanted = new Set(ids.map(checkId))
      if (waitedFor + wanted.size > MAX_WAITED_FOR_IN_ALL) throw tooManyWaits(waitedFor)
      const nothing = ({ looked }: Ends) => ({ ends: [], looked })
      waitedFor += wanted.size
      try {
        const ends = endsOf(service, wanted, signal)
        for await (const some of withSignsOfLife(ends, clock, QUIET_MS, nothing))
          yield { $typeName: 'curfew.v1.WaitManyResponse', ...some }
      } finally {
        waitedFor -= wanted.size
      }
    },
    async *watch({ id, lastSequence }, { signal }) {
      const views = service.watch(checkId(id), lastSequence, signal)
      for await (const { work, events, ...rest } of withSignsOfLife(views, clock, QUIET_MS, unchanged)) {
        yield {
          ...{ $typeName: 'curfew.v1.WatchResponse', work: fromPlain(WorkSchema, work), ...rest },
          events: events.map(eventToWire),
        }
      }
    },
    async cancel({ jobId, fenceToken, requestId }) {
      if (fenceToken !== 0n) await checkFence(service, fenceToken)
      return { status: await service.cancel(checkId(jobId), checkRequestId(requestId)) }
    },
    async cancelWorkflow({ jobId, workflowId, cancelDependents, requestId }) {
      const options = { dependents: cancelDependents ?? true, requestId: requestId || null }
      if (requestId !== '') checkName('request_id', requestId)
      const status = await service.cancelMember(checkId(jobId), checkId(workflowId), options)
      return { jobId, workflowId, status, requestId }
    },
    async extend({ id, byMs, requestId }) {
      const ms = durationMs(byMs, 'by_ms')
      const { deadlineAt } = await service.extend(checkId(id), ms, checkRequestId(requestId))
      return deadlineAt === null ? {} : { deadlineAt }
    },
    async signal({ id, name, value, requestId }) {
      const text = encodeJson(jsonOf(value), `signal ${name}`)
      await service.signal(checkId(id), checkName('signal name', name), text, checkRequestId(requestId))
      return {}
    },
    async resume({ id, requestId }) {
      await service.resume(checkId(id), checkRequestId(requestId))
      return {}
    },
    async explain({ id }) {
      return { explanation: fromPlain(ExplanationSchema, await service.explain(checkId(id))) }
    },
    async listEvents({ id }) {
      return { events: (await service.events(checkId(id))).map(eventToWire) }
    },
    async listAttempts({ id }) {
      const attempts = await service.attempts(checkId(id))
      return { attempts: attempts.map((attempt) => fromPlain(AttemptSchema, attempt)) }
    },
    async getRun({ id }) {
      return { run: fromPlain(RunSchema, await service.run(checkId(id))) }
    },
    async listWorkflows({ jobId, withoutOutputs }) {
      const workflows = await service.members(checkId(jobId), { outputs: !withoutOutputs })
      return { workflows: workflows.map((member) => fromPlain(MemberSchema, member)) }
    },
    async waitWorkflow({ jobId, workflowId, timeoutMs }) {
      const member = await service.memberSettled(checkId(jobId), checkId(workflowId), waitMs(timeoutMs))
      return member ? { workflow: fromPlain(MemberSchema, member) } : {}
    },
    ...deadLetterMethods(service),
  }
}

function tooManyWaits(already: number): CurfewError {
  return new CurfewError('overloaded', `results of ${already} are waited for here already`, {
    hint: `At most ${MAX_WAITED_FOR_IN_ALL} are, over all callers: wait for fewer at a time.`,
  })
}

function unchanged(view: WatchView): WatchView {
  return { ...view, events: [], truncated: false, below: false }
}

function eventToWire({ type, taskId, seq, at, ...fields }: TaskEventView) {
  const plain = JSON.parse(JSON.stringify(fields)) as Record<string, unknown>
  return fromPlain(EventSchema, { type, taskId, seq, at, fields: plain })
}

function waitMs(timeoutMs: number | undefined): number {
  if (timeoutMs === undefined) return LONGEST_WAIT_MS
  if (!Number.isFinite(timeoutMs) || timeoutMs < 0) throw invalid('timeout_ms must be a number from 0 up')
  return Math.min(timeoutMs, LONGEST_WAIT_MS)
}

function whatOf(what: { case: string | undefined; value?: string }): Submit['what'] {
  if (what.case === undefined || !what.value)
    throw invalid('give one of definition, task, agent and workflow', {
      hint: 'For example { "task": "resize", "input": { … } }.',
    })
  return { [what.case]: what.value } as unknown as Submit['what']
}

function plainTrace({ traceparent, tracestate }: { traceparent: string; tracestate?: string }): TraceContext {
  return { traceparent, ...(tracestate !== undefined && { tracestate }) }
}

function scheduleOf(request: ScheduleRequest): Schedule {
  const { kind, name, policy, start, tasks, title } = request
  if (kind !== 'task' && kind !== 'agent')
    throw invalid(`kind: '${kind.slice(0, 50)}' is neither task nor agent`)
  if (tasks.length > MAX_BULK_ROWS) {
    throw new CurfewError(
      'too_big',
      `at most ${MAX_BULK_ROWS} can be scheduled together, got ${tasks.length}`,
    )
  }
  const isRun = name === WORKFLOW || name === JOB
  if (isRun && kind !== 'agent') throw invalid(`kind: a run of ${name} is an agent`)
  checkName('name', name)
  const checked = checkPolicy(`${kind} ${name}`, policy ?? {})
  if (kind === 'task' && checked.queue === '') throw invalid('policy.queue: a task needs a queue')
  const prefix = `${idPrefix({ kind, name })}_`
  return {
    ...{ kind, name, start: startOf(start), policy: checked },
    ...(title !== undefined && { title: checkName('title', title) }),
    tasks: tasks.map(({ input, key, id }, i) => {
      checkJsonText(input, `tasks[${i}].input`)
      if (isRun) checkRunStart(name, input, `tasks[${i}].input`)
      if (id !== '' && !(id.startsWith(prefix) && /^[a-z]_[0-9a-z]{26}$/.test(id)))
        throw invalid(`tasks[${i}].id: '${id.slice(0, 50)}' is no id of a ${kind}`)
      const known = key === undefined ? null : checkName(`tasks[${i}].key`, key, 2 * MAX_KEY_LENGTH)
      return { input, key: known, ...(id !== '' && { id }) }
    }),
  }
}

function startOf(start: ScheduleRequest['start']): Schedule['start'] {
  return start.case === 'startAt'
    ? startTime('schedule', undefined, start.value)
    : startTime('schedule', start.value, undefined)
}

/** One manager leads everything: its fence is its epoch. */
async function checkFence(service: TaskService, fenceToken: bigint): Promise<void> {
  const { fence } = await service.serverStatus()
  if (BigInt(fence) === fenceToken) return
  throw new CurfewError('stale_fence', `the fence is ${fence}, not ${fenceToken}`, {
    hint: 'Somebody else leads by now: ask for the status, and send it again with its fence.',
    fields: { fence },
  })
}

/** Without one every request is a new one. */
function checkRequestId(requestId: string): string | undefined {
  return requestId === '' ? undefined : checkName('request_id', requestId)
}

function checkId(id: string): string {
  return checkName('id', id)
}
