/**
 * The service port over the wire: to one manager of several, whichever answers. Requests are sent again after a
 * connection that failed, with the ids they had, so that what was done once stays done once.
 */
import { create } from '@bufbuild/protobuf'
import type { Client as RpcClient } from '@connectrpc/connect'
import { Code, ConnectError, createClient } from '@connectrpc/connect'
import type { Backoff } from '../core/backoff.ts'
import { backoffMs } from '../core/backoff.ts'
import type { Clock, Randomness } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import type { IdSource } from '../core/id.ts'
import { idPrefix } from '../core/own-work.ts'
import type { CancelAnswer } from '../core/states.ts'
import { isEnded } from '../core/states.ts'
import type { Problem } from '../definitions/problem.ts'
import { DefinitionError } from '../definitions/problem.ts'
import type {
  DeadLetter,
  DeadLetterChoice,
  DeadLettersPage,
  DeadLettersRequest,
} from '../wire/dead-letter-view.ts'
import { ClusterService, GetStatusResponseSchema, MetricSchema } from '../wire/gen/curfew/v1/cluster_pb.ts'
import { JobService, NewWorkSchema } from '../wire/gen/curfew/v1/jobs_pb.ts'
import type { Event } from '../wire/gen/curfew/v1/work_pb.ts'
import {
  AttemptSchema,
  ExplanationSchema,
  MemberSchema,
  RunSchema,
  WorkSchema,
} from '../wire/gen/curfew/v1/work_pb.ts'
import { WorkerSchema, WorkerService } from '../wire/gen/curfew/v1/workers_pb.ts'
import type { Endpoint } from '../wire/http-client.ts'
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
import { fromConnectError, isWorthRetrying } from '../wire/wire-error.ts'
import { CallSlots } from './call-slots.ts'
import type { ClientCounters } from './client-counters.ts'
import { choiceMessage, getLetter, listLetters } from './remote-dead-letters.ts'
import { WatchConnection } from './watch-connection.ts'

interface Parts {
  endpoints: readonly Endpoint[]
  clock: Clock
  randomness: Randomness
  ids: IdSource
  counters: ClientCounters
}

interface Manager {
  endpoint: Endpoint
  jobs: RpcClient<typeof JobService>
  workers: RpcClient<typeof WorkerService>
  cluster: RpcClient<typeof ClusterService>
}

/** A request that stays open at the manager for so long, and the time its caller gives up. */
interface Waiting {
  waitMs: number
  until: number
}

/** Three more tries, from half a second to five. */
const RETRIES = 3
const BACKOFF: Backoff = { initialMs: 500, factor: 2, maxMs: 5_000, jitter: 0.5 }
/** Without an answer for so long it is a connection that failed. */
const ANSWER_WITHIN_MS = 15_000
/** How long a wait asks at a time; the server would end it soon after. */
const WAIT_MS = 25_000
/** Requests under way: a program may well schedule or wait for thousands at once. */
const MOST_CALLS = 100
const MOST_WAITS = 200
/** While others wait for their turn, and while there is little room for more. */
const FULL_WAIT_MS = 300
const HALF_FULL_WAIT_MS = 3_000
/** Work whose manager cannot be reached for so long is given up on. */
const ORPHANED_MS = 15_000

export class RemoteTaskService implements TaskService {
  readonly #parts: Parts
  readonly #managers: Manager[]
  /** The one that answered last. */
  #current = 0
  readonly #closing = new AbortController()
  readonly #calls = new CallSlots(MOST_CALLS)
  readonly #waits = new CallSlots(MOST_WAITS)

  constructor(parts: Parts) {
    this.#parts = parts
    this.#managers = parts.endpoints.map((endpoint) => ({
      endpoint,
      jobs: createClient(JobService, endpoint.transport),
      workers: createClient(WorkerService, endpoint.transport),
      cluster: createClient(ClusterService, endpoint.transport),
    }))
  }

  async close(): Promise<void> {
    this.#closing.abort(new CurfewError('closed', 'this client was closed'))
    for (const { endpoint } of this.#managers) endpoint.close()
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
    const { id, kind, existing } = await this.#call(({ jobs }, options) => jobs.submit(request, options))
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
    const request = {
      ...{ kind, name, policy: policy as never, ...(title !== undefined && { title }) },
      start:
        'at' in start
          ? { case: 'startAt' as const, value: start.at }
          : { case: 'delayMs' as const, value: start.delayMs },
      tasks: tasks.map(({ input, key, id }) =>
        create(NewWorkSchema, {
          ...{ input, id: id ?? ids.next(prefix, clock.wall()), ...(key !== null && { key }) },
        }),
      ),
    }
    const scheduled = await this.#call(({ jobs }, options) => jobs.schedule(request, options))
    return scheduled.tasks.map(({ id, existing }) => ({ id, existing }))
  }

  async get(id: string): Promise<TaskView | null> {
    const { work } = await this.#call(({ jobs }, options) => jobs.get({ id }, options))
    return work ? toPlain<TaskView>(WorkSchema, work) : null
  }

  async settled(id: string, timeoutMs: number | null): Promise<Settled | null> {
    const answer = await this.#wait(timeoutMs, async (waiting) => {
      const waited = await this.#call(
        ({ jobs }, options) => jobs.wait({ id, timeoutMs: waiting.waitMs }, options),
        waiting,
      )
      return waited.settled ? waited : null
    })
    if (!answer) return null
    if (!answer.work) return { status: 'completed', output: answer.output ?? 'null' }
    return { status: 'not_completed', task: toPlain<TaskView>(WorkSchema, answer.work) }
  }

  async signal(id: string, name: string, value: string): Promise<void> {
    const request = { id, name, value: valueMessage(JSON.parse(value)) }
    const requestId = this.#newRequestId()
    await this.#call(({ jobs }, options) => jobs.signal({ ...request, requestId }, options))
  }

  async cancel(id: string): Promise<CancelAnswer> {
    const request = { jobId: id, requestId: this.#newRequestId() }
    const { status } = await this.#call(({ jobs }, options) => jobs.cancel(request, options))
    return status as CancelAnswer
  }

  async extend(id: string, byMs: number): Promise<{ deadlineAt: number | null }> {
    const request = { id, byMs, requestId: this.#newRequestId() }
    const { deadlineAt } = await this.#call(({ jobs }, options) => jobs.extend(request, options))
    return { deadlineAt: deadlineAt ?? null }
  }

  async resume(id: string): Promise<void> {
    const request = { id, requestId: this.#newRequestId() }
    await this.#call(({ jobs }, options) => jobs.resume(request, options))
  }

  async attempts(id: string): Promise<AttemptView[]> {
    const { attempts } = await this.#call(({ jobs }, options) => jobs.listAttempts({ id }, options))
    return attempts.map((attempt) => toPlain<AttemptView>(AttemptSchema, attempt))
  }

  async events(id: string): Promise<TaskEventView[]> {
    const { events } = await this.#call(({ jobs }, options) => jobs.listEvents({ id }, options))
    return events.map(eventFromWire)
  }

  async explain(id: string): Promise<Explanation> {
    const { explanation } = await this.#call(({ jobs }, options) => jobs.explain({ id }, options))
    return toPlain<Explanation>(ExplanationSchema, explanation ?? {})
  }

  async list(request: ListRequest): Promise<{ tasks: TaskView[]; cursor: string | null }> {
    const { statuses, ...rest } = request
    const set = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== null))
    const { works, cursor } = await this.#call(({ jobs }, options) =>
      jobs.list({ ...set, statuses: statuses ?? [] }, options),
    )
    return { tasks: works.map((work) => toPlain<TaskView>(WorkSchema, work)), cursor: cursor ?? null }
  }

  async metrics(): Promise<MetricView[]> {
    const { metrics } = await this.#call(({ cluster }, options) => cluster.listMetrics({}, options))
    return metrics.map((metric) => toPlain<MetricView>(MetricSchema, metric))
  }

  async workers(): Promise<WorkerView[]> {
    const { workers } = await this.#call((manager, options) => manager.workers.listWorkers({}, options))
    return workers.map((worker) => toPlain<WorkerView>(WorkerSchema, worker))
  }

  async serverStatus(): Promise<StatusView> {
    const status = await this.#call(({ cluster }, options) => cluster.getStatus({}, options))
    return toPlain<StatusView>(GetStatusResponseSchema, status)
  }

  async run(id: string): Promise<RunView> {
    const { run } = await this.#call(({ jobs }, options) => jobs.getRun({ id }, options))
    return toPlain<RunView>(RunSchema, run ?? {})
  }

  async members(id: string): Promise<MemberView[]> {
    const { workflows } = await this.#call(({ jobs }, options) => jobs.listWorkflows({ jobId: id }, options))
    return workflows.map((member) => toPlain<MemberView>(MemberSchema, member))
  }

  async cancelMember(
    jobId: string,
    id: string,
    { dependents, requestId }: { dependents: boolean; requestId: string | null },
  ): Promise<CancelAnswer> {
    const request = { jobId, workflowId: id, cancelDependents: dependents }
    const known = requestId ?? this.#newRequestId()
    const { status } = await this.#call(({ jobs }, options) =>
      jobs.cancelWorkflow({ ...request, requestId: known }, options),
    )
    return status as CancelAnswer
  }

  async memberSettled(jobId: string, id: string, timeoutMs: number | null): Promise<MemberView | null> {
    return this.#wait(timeoutMs, async (waiting) => {
      const request = { jobId, workflowId: id, timeoutMs: waiting.waitMs }
      const { workflow } = await this.#call(
        ({ jobs }, options) => jobs.waitWorkflow(request, options),
        waiting,
      )
      const member = workflow ? toPlain<MemberView>(MemberSchema, workflow) : null
      return member && isEnded(member.status) ? member : null
    })
  }

  deadLetters(request: DeadLettersRequest): Promise<DeadLettersPage> {
    return this.#call(({ jobs }, options) => listLetters(jobs, request, options))
  }

  deadLetter(jobId: string, itemId: string): Promise<DeadLetter> {
    return this.#call(({ jobs }, options) => getLetter(jobs, { jobId, itemId }, options))
  }

  async discardDeadLetters(choice: DeadLetterChoice): Promise<number> {
    const request = { choice: choiceMessage(choice) }
    return (await this.#call(({ jobs }, options) => jobs.discardDeadLetters(request, options))).count
  }

  async claimDeadLetters(choice: DeadLetterChoice, retryId: string): Promise<number> {
    const request = { choice: choiceMessage(choice), retryId }
    return (await this.#call(({ jobs }, options) => jobs.claimDeadLetters(request, options))).count
  }

  /** Goes on where it was after a connection that failed; every event comes once, the end too. */
  async *watch(id: string, lastSequence: number, signal: AbortSignal): AsyncGenerator<WatchView> {
    const stop = AbortSignal.any([signal, this.#closing.signal])
    let last = lastSequence
    let shown = ''
    let silentSince: number | null = null
    for (let tries = 0; ; tries++) {
      const manager = this.#managers[this.#current] as Manager
      const connection = new WatchConnection(this.#parts.clock, stop)
      try {
        const { signal: cut } = connection
        for await (const message of manager.jobs.watch({ id, lastSequence: last }, { signal: cut })) {
          connection.heard()
          tries = 0
          silentSince = null
          const { events, truncated, final, below } = message
          last = message.lastSequence
          const work = toPlain<TaskView>(WorkSchema, message.work ?? {})
          const looks = JSON.stringify(work)
          // A manager that has nothing new to say repeats itself.
          if (looks === shown && events.length === 0 && !(below || final || truncated)) continue
          shown = looks
          // Whoever takes their time with it is not the manager.
          connection.pause()
          yield {
            ...{ work, events: events.map(eventFromWire), lastSequence: last },
            ...{ truncated, final, below },
          }
          if (final) return
          connection.heard()
        }
        throw new ConnectError('the stream ended before its end', Code.Unavailable)
      } catch (error) {
        if (signal.aborted) return
        silentSince ??= this.#parts.clock.monotonic()
        await this.#afterFailure(error, { asked: manager, tries, silentSince, stop })
        if (signal.aborted) return
      } finally {
        connection.close()
      }
      this.#parts.counters.reconnects++
    }
  }

  /** Throws what is no use to try again; otherwise waits a little, and goes to the next manager. */
  async #afterFailure(
    error: unknown,
    at: {
      asked: Manager
      tries: number
      silentSince: number
      until?: number | undefined
      stop?: AbortSignal
    },
  ): Promise<void> {
    const { asked, tries, silentSince, until = Infinity, stop = this.#closing.signal } = at
    const fault = this.#faultOf(error)
    const { clock, randomness, counters } = this.#parts
    if (!isWorthRetrying(fault) || this.#closing.signal.aborted) throw fault
    if (clock.monotonic() - silentSince > ORPHANED_MS && tries >= RETRIES) {
      counters.orphaned++
      throw fault
    }
    counters.retries++
    const delayMs = Math.min(backoffMs(BACKOFF, tries, randomness.next()), until - clock.monotonic())
    await sleep(clock, delayMs, stop)
    // Of several that failed together, one goes on for all.
    if (this.#managers[this.#current] === asked) this.#current = (this.#current + 1) % this.#managers.length
  }

  /** Asks again until it is answered or the time is over, also while nobody answers. */
  async #wait<T>(timeoutMs: number | null, ask: (waiting: Waiting) => Promise<T | null>): Promise<T | null> {
    const { clock } = this.#parts
    const until = timeoutMs === null ? Infinity : clock.monotonic() + timeoutMs
    for (;;) {
      const answer = await this.#waits.run(() => {
        const mostMs = this.#waits.full ? FULL_WAIT_MS : this.#waits.halfFull ? HALF_FULL_WAIT_MS : WAIT_MS
        const waitMs = Math.max(0, Math.min(until - clock.monotonic(), mostMs))
        return ask({ waitMs, until }).catch((error: CurfewError) => {
          if (clock.monotonic() < until || !isWorthRetrying(error)) throw error
          return null
        })
      })
      if (answer !== null || clock.monotonic() >= until) return answer
    }
  }

  async #call<T>(
    request: (manager: Manager, options: { signal: AbortSignal; timeoutMs: number }) => Promise<T>,
    waiting?: Waiting,
  ): Promise<T> {
    const { clock, counters } = this.#parts
    // Connect sends it as a whole number.
    const timeoutMs = Math.ceil(ANSWER_WITHIN_MS + (waiting?.waitMs ?? 0))
    const options = { signal: this.#closing.signal, timeoutMs }
    let since: number | null = null
    counters.requests++
    for (let tries = 0; ; tries++) {
      const manager = this.#managers[this.#current] as Manager
      try {
        return await (waiting ? request(manager, options) : this.#calls.run(() => request(manager, options)))
      } catch (error) {
        if (waiting ? clock.monotonic() >= waiting.until : tries >= RETRIES) {
          counters.failures++
          throw this.#faultOf(error)
        }
        since ??= clock.monotonic()
        try {
          await this.#afterFailure(error, {
            asked: manager,
            tries,
            silentSince: since,
            until: waiting?.until,
          })
        } catch (fault) {
          counters.failures++
          throw fault
        }
      }
    }
  }

  #faultOf(error: unknown): CurfewError {
    if (this.#closing.signal.aborted) return new CurfewError('closed', 'this client was closed')
    const fault = fromConnectError(error)
    if (fault.code === 'invalid_definition' && Array.isArray(fault.fields.problems)) {
      return definitionError(fault)
    }
    if (fault.code !== 'unreachable') return fault
    const where = this.#managers.map(({ endpoint }) => endpoint.url).join(', ')
    return new CurfewError('unreachable', `nobody answers at ${where}: ${fault.message}`, {
      hint: 'Is the manager running, and is this its address?',
      fields: { urls: this.#managers.map(({ endpoint }) => endpoint.url) },
      cause: error,
    })
  }
}

function definitionError({ message, fields }: CurfewError): DefinitionError {
  // The last one: a name may say it too.
  const what = /^(.*) has /.exec(message)?.[1] ?? 'the definition'
  return new DefinitionError(what, fields.problems as Problem[])
}

function eventFromWire({ type, taskId, seq, at, fields }: Event): TaskEventView {
  return { ...fields, type, taskId, seq, at }
}
