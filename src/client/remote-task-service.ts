/** The service port over the wire. What is sent again has the ids it had, so that what was done once stays done once. */
import { create } from '@bufbuild/protobuf'
import type { IdSource } from '../core/id.ts'
import { idPrefix } from '../core/own-work.ts'
import type { CancelAnswer } from '../core/states.ts'
import type {
  DeadLetter,
  DeadLetterChoice,
  DeadLettersPage,
  DeadLettersRequest,
} from '../wire/dead-letter-view.ts'
import { GetStatusResponseSchema, MetricSchema } from '../wire/gen/curfew/v1/cluster_pb.ts'
import { NewWorkSchema } from '../wire/gen/curfew/v1/jobs_pb.ts'
import type { Event } from '../wire/gen/curfew/v1/work_pb.ts'
import {
  AttemptSchema,
  ExplanationSchema,
  MemberSchema,
  RunSchema,
  WorkSchema,
} from '../wire/gen/curfew/v1/work_pb.ts'
import { WorkerSchema } from '../wire/gen/curfew/v1/workers_pb.ts'
import { MemberWaits } from '../wire/member-waits.ts'
import { toPlain, valueMessage } from '../wire/plain.ts'
import type { MemberView, RunView } from '../wire/run-view.ts'
import type {
  AttemptView,
  Explanation,
  ListRequest,
  MetricView,
  ScheduledTask,
  ScheduleRequest,
  Settled,
  StatusView,
  SubmitRequest,
  Submitted,
  TaskEventView,
  TaskService,
  TaskView,
  WatchView,
  WorkerView,
} from '../wire/task-service.ts'
import { GatheredWaits } from './gathered-waits.ts'
import type { CallParts, Manager } from './manager-calls.ts'
import { ManagerCalls } from './manager-calls.ts'
import { choiceMessage, getLetter, listLetters } from './remote-dead-letters.ts'

interface Parts extends CallParts {
  ids: IdSource
}

export class RemoteTaskService implements TaskService {
  readonly #parts: Parts
  readonly #calls: ManagerCalls
  readonly #waits: GatheredWaits
  readonly #memberWaits: MemberWaits
  /** The last of the large requests was made. */
  #made = Promise.resolve()
  #waiting = 0

  constructor(parts: Parts) {
    this.#parts = parts
    this.#calls = new ManagerCalls(parts)
    this.#waits = new GatheredWaits(parts, this.#calls)
    this.#memberWaits = new MemberWaits(parts.clock, {
      members: (id, options) => this.#members(id, { ...options, patiently: true }),
      settled: (id, timeoutMs) => this.settled(id, timeoutMs),
    })
  }

  async close(): Promise<void> {
    this.#calls.close()
  }

  async submit(submitted: SubmitRequest): Promise<Submitted> {
    const { what, input, key, timeout, delay, trace } = submitted
    const [[name, value]] = Object.entries(what) as [['task', string]]
    const request = {
      what: { case: name, value },
      input: valueMessage(input),
      requestId: submitted.requestId ?? this.#newRequestId(),
      ...(key !== null && { key }),
      ...(timeout !== null && { timeout }),
      ...(delay !== null && { delay }),
      ...(trace && { trace }),
    }
    const { id, kind, existing } = await this.#calls.call(
      ({ jobs }, options) => jobs.submit(request, options),
      { byName: true },
    )
    return { id, kind: kind as Submitted['kind'], existing }
  }

  /** One for all tries of a request. */
  #newRequestId(): string {
    const { ids, clock } = this.#parts
    return ids.next('q', clock.wall())
  }

  async schedule({ kind, name, policy, start, tasks, title }: ScheduleRequest): Promise<ScheduledTask[]> {
    const { ids, clock } = this.#parts
    const prefix = idPrefix({ kind, name })
    // In the order of the calls: by their ids they are claimed.
    const own = tasks.map(({ id }) => id ?? ids.next(prefix, clock.wall()))
    if (tasks.length > 1 || this.#waiting > 0) await this.#turnToMake()
    const request = {
      ...{ kind, name, policy: policy as never, ...(title !== undefined && { title }) },
      start:
        'at' in start
          ? { case: 'startAt' as const, value: start.at }
          : { case: 'delayMs' as const, value: start.delayMs },
      tasks: tasks.map(({ input, key }, i) =>
        create(NewWorkSchema, { input, id: own[i] as string, ...(key !== null && { key }) }),
      ),
    }
    const scheduled = await this.#calls.call(({ jobs }, options) => jobs.schedule(request, options))
    return scheduled.tasks.map(({ id, existing }) => ({ id, existing }))
  }

  /** Large requests are made one by one: each is on its way while the next one is made. */
  async #turnToMake(): Promise<void> {
    const turn = this.#made
    this.#made = turn.then(() => new Promise((resolve) => this.#parts.clock.endOfTurn(resolve)))
    this.#waiting++
    await turn
    this.#waiting--
  }

  async get(id: string): Promise<TaskView | null> {
    const { work } = await this.#calls.call(({ jobs }, options) => jobs.get({ id }, options))
    return work ? toPlain<TaskView>(WorkSchema, work) : null
  }

  settled(id: string, timeoutMs: number | null): Promise<Settled | null> {
    return this.#waits.settled(id, timeoutMs)
  }

  async signal(id: string, name: string, value: string): Promise<void> {
    const request = { id, name, value: valueMessage(JSON.parse(value)) }
    const requestId = this.#newRequestId()
    await this.#calls.call(({ jobs }, options) => jobs.signal({ ...request, requestId }, options))
  }

  async cancel(id: string): Promise<CancelAnswer> {
    const request = { jobId: id, requestId: this.#newRequestId() }
    const { status } = await this.#calls.call(({ jobs }, options) => jobs.cancel(request, options))
    return status as CancelAnswer
  }

  async extend(id: string, byMs: number): Promise<{ deadlineAt: number | null }> {
    const request = { id, byMs, requestId: this.#newRequestId() }
    const { deadlineAt } = await this.#calls.call(({ jobs }, options) => jobs.extend(request, options))
    return { deadlineAt: deadlineAt ?? null }
  }

  async resume(id: string): Promise<void> {
    const request = { id, requestId: this.#newRequestId() }
    await this.#calls.call(({ jobs }, options) => jobs.resume(request, options))
  }

  async attempts(id: string): Promise<AttemptView[]> {
    const { attempts } = await this.#calls.call(({ jobs }, options) => jobs.listAttempts({ id }, options))
    return attempts.map((attempt) => toPlain<AttemptView>(AttemptSchema, attempt))
  }

  async events(id: string): Promise<TaskEventView[]> {
    const { events } = await this.#calls.call(({ jobs }, options) => jobs.listEvents({ id }, options))
    return events.map(eventFromWire)
  }

  async explain(id: string): Promise<Explanation> {
    const { explanation } = await this.#calls.call(({ jobs }, options) => jobs.explain({ id }, options))
    return toPlain<Explanation>(ExplanationSchema, explanation ?? {})
  }

  async list(request: ListRequest): Promise<{ tasks: TaskView[]; cursor: string | null }> {
    const { statuses, ...rest } = request
    const set = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== null))
    const { works, cursor } = await this.#calls.call(({ jobs }, options) =>
      jobs.list({ ...set, statuses: statuses ?? [] }, options),
    )
    return { tasks: works.map((work) => toPlain<TaskView>(WorkSchema, work)), cursor: cursor ?? null }
  }

  async metrics(): Promise<MetricView[]> {
    const { metrics } = await this.#calls.call(({ cluster }, options) => cluster.listMetrics({}, options))
    return metrics.map((metric) => toPlain<MetricView>(MetricSchema, metric))
  }

  async workers(): Promise<WorkerView[]> {
    const { workers } = await this.#calls.call((manager, options) => manager.workers.listWorkers({}, options))
    return workers.map((worker) => toPlain<WorkerView>(WorkerSchema, worker))
  }

  async serverStatus(): Promise<StatusView> {
    const status = await this.#calls.call(({ cluster }, options) => cluster.getStatus({}, options))
    return toPlain<StatusView>(GetStatusResponseSchema, status)
  }

  async run(id: string): Promise<RunView> {
    const { run } = await this.#calls.call(({ jobs }, options) => jobs.getRun({ id }, options))
    return toPlain<RunView>(RunSchema, run ?? {})
  }

  members(id: string, options: { outputs?: boolean } = {}): Promise<MemberView[]> {
    return this.#members(id, options)
  }

  async #members(id: string, { outputs = true, patiently = false }): Promise<MemberView[]> {
    const request = { jobId: id, withoutOutputs: !outputs }
    const { workflows } = await this.#calls.call(
      ({ jobs }, options) => jobs.listWorkflows(request, options),
      { patiently },
    )
    return workflows.map((member) => toPlain<MemberView>(MemberSchema, member))
  }

  async cancelMember(
    jobId: string,
    id: string,
    { dependents, requestId }: { dependents: boolean; requestId: string | null },
  ): Promise<CancelAnswer> {
    const request = { jobId, workflowId: id, cancelDependents: dependents }
    const known = requestId ?? this.#newRequestId()
    const { status } = await this.#calls.call(({ jobs }, options) =>
      jobs.cancelWorkflow({ ...request, requestId: known }, options),
    )
    return status as CancelAnswer
  }

  memberSettled(jobId: string, id: string, timeoutMs: number | null): Promise<MemberView | null> {
    return this.#memberWaits.settled(jobId, id, timeoutMs)
  }

  deadLetters(request: DeadLettersRequest): Promise<DeadLettersPage> {
    return this.#calls.call(({ jobs }, options) => listLetters(jobs, request, options))
  }

  deadLetter(jobId: string, itemId: string): Promise<DeadLetter> {
    return this.#calls.call(({ jobs }, options) => getLetter(jobs, { jobId, itemId }, options))
  }

  async discardDeadLetters(choice: DeadLetterChoice): Promise<number> {
    const request = { choice: choiceMessage(choice) }
    return (await this.#calls.call(({ jobs }, options) => jobs.discardDeadLetters(request, options))).count
  }

  async claimDeadLetters(choice: DeadLetterChoice, retryId: string): Promise<number> {
    const request = { choice: choiceMessage(choice), retryId }
    return (await this.#calls.call(({ jobs }, options) => jobs.claimDeadLetters(request, options))).count
  }

  /** Goes on where it was after a connection that failed; every event comes once, the end too. */
  async *watch(id: string, lastSequence: number, signal: AbortSignal): AsyncGenerator<WatchView> {
    let last = lastSequence
    let shown = ''
    let isOver = false
    const open = ({ jobs }: Manager, options: { signal: AbortSignal }) =>
      jobs.watch({ id, lastSequence: last }, options)
    // Read to its end: its connection serves again.
    for await (const message of this.#calls.follow(open, signal, () => isOver)) {
      if (isOver) return
      const { events, truncated, final, below } = message
      last = message.lastSequence
      const work = toPlain<TaskView>(WorkSchema, message.work ?? {})
      const looks = JSON.stringify(work)
      // A manager that has nothing new to say repeats itself.
      if (looks === shown && events.length === 0 && !(below || final || truncated)) continue
      shown = looks
      yield {
        ...{ work, events: events.map(eventFromWire), lastSequence: last },
        ...{ truncated, final, below },
      }
      isOver = final
    }
  }
}

function eventFromWire({ type, taskId, seq, at, fields }: Event): TaskEventView {
  return { ...fields, type, taskId, seq, at }
}
