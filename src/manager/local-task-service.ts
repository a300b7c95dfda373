/** The service port over this process's own manager. */

import type { Clock } from '../core/clock.ts'
import { within } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import type { IdSource } from '../core/id.ts'
import { onAbort } from '../core/on-abort.ts'
import { idPrefix } from '../core/own-work.ts'
import type { CancelAnswer } from '../core/states.ts'
import { isEnded } from '../core/states.ts'
import { encodePolicy } from '../definitions/policy-text.ts'
import type { TaskPolicy } from '../definitions/task-policy.ts'
import { sameInput } from '../engine/schedule-tasks.ts'
import { newTaskLimits } from '../engine/task-limits.ts'
import { CANCEL_MEMBER } from '../graph/job-run.ts'
import type { NewBelow, NewTask } from '../store/hot-statements.ts'
import { run } from '../store/statement.ts'
import type { Fence, Store } from '../store/store.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { DeadLetterChoice } from '../wire/dead-letter-view.ts'
import { MemberWaits } from '../wire/member-waits.ts'
import { PROTOCOL_MAX, VERSION } from '../wire/protocol.ts'
import type { MemberView } from '../wire/run-view.ts'
import type {
  MetricView,
  ScheduledTask,
  ScheduleRequest,
  Settled,
  StatusView,
  SubmitRequest,
  Submitted,
  TaskService,
  WatchView,
  WorkerView,
} from '../wire/task-service.ts'
import { claimLetters, discardLetters } from './dead-letters.ts'
import type { MemberCancel } from './job-views.ts'
import { memberCancel } from './job-views.ts'
import type { Manager } from './manager.ts'
import type { RemoteWorkers } from './remote-workers.ts'
import type { SettledWaiters } from './settled-waiters.ts'
import { refused, TaskReader, unexpected } from './task-reader.ts'
import type { OpenWait } from './wait-many.ts'
import { watchStream } from './watch-stream.ts'

interface Parts {
  nodeId: string
  manager: Manager
  waiters: SettledWaiters
  store: Store
  time: StoreTime
  clock: Clock
  ids: IdSource
  workers: RemoteWorkers
  fence(): number
  /** Of what this process writes. */
  lease(): Fence | null
  ready(): boolean
}

export class LocalTaskService extends TaskReader implements TaskService {
  readonly #parts: Parts
  readonly #memberWaits: MemberWaits
  #submit: ((request: SubmitRequest) => Promise<Submitted>) | null = null

  constructor(parts: Parts) {
    const { store, time, clock, manager } = parts
    super({ store, time, clock, slotStates: () => manager.desk.slotStates() })
    this.#parts = parts
    this.#memberWaits = new MemberWaits(clock, this)
  }

  async schedule({ kind, name, title, policy, start, tasks }: ScheduleRequest): Promise<ScheduledTask[]> {
    if (tasks.length === 0) return []
    const { manager, ids, nodeId, time } = this.#parts
    const checked = policy as TaskPolicy
    if (kind === 'task') await manager.knowQueue(checked.queue)
    const policyText = encodePolicy(checked)
    const named = tasks.map((task) => ({
      ...task,
      id: task.id ?? ids.next(idPrefix({ kind, name }), time.now()),
    }))
    const build = (now: number): (NewTask | NewBelow)[] => {
      const startAt = 'at' in start ? Math.max(start.at, now) : now + start.delayMs
      const limits = newTaskLimits(checked, now, startAt)
      const shared = {
        name,
        queue: checked.queue,
        priority: checked.priority,
        status: 'pending' as const,
        policy: policyText,
        nodeId,
        createdAt: now,
        ...limits,
        ...(kind === 'agent' && {
          ...NOTHING_ABOVE,
          kind,
          title: title ?? null,
          ready: 0 as const,
          wokenAt: now,
        }),
      }
      return named.map(({ id, key, input }) => ({ ...shared, id, key, input }))
    }
    const bytes = tasks.reduce((sum, { input }) => sum + input.length, 0)
    try {
      const answer = await manager.submit(
        { type: 'schedule', name, count: tasks.length, tasks: build },
        { bytes, rows: tasks.length },
      )
      if (answer.type !== 'scheduled') return unexpected(answer)
      return answer.tasks.map((task, i) => (task.id === tasks[i]?.id ? { ...task, existing: false } : task))
    } catch (error) {
      const known = error instanceof CurfewError && error.code === 'key_conflict'
      const before = known ? null : await this.#scheduledBefore(name, tasks)
      if (before) return before
      throw error
    }
  }

  /** The same request has come before: its caller did not hear the answer. Null: nothing of it is there. */
  async #scheduledBefore(name: string, tasks: ScheduleRequest['tasks']): Promise<ScheduledTask[] | null> {
    const { store } = this.#parts
    const ids = tasks.flatMap(({ id }) => id ?? [])
    if (ids.length < tasks.length) return null
    const { byId, byKey } = await store.read(function* () {
      const rows = yield* run(store.statements.scheduledTasks(ids))
      const byId = new Map(rows.map((row) => [row.id, row]))
      // Under a key that was taken its id stands for nothing.
      const keys = tasks.flatMap(({ id = '', key }) => (key !== null && !byId.has(id) ? [key] : []))
      const keyed = keys.length > 0 ? yield* run(store.statements.tasksByKey(name, keys)) : []
      return { byId, byKey: new Map(keyed.map((row) => [row.key, row])) }
    })
    if (byId.size === 0) return null
    return tasks.map(({ id = '', key, input }) => {
      const row = byId.get(id)
      if (row?.name === name && sameInput(name, row.input, input)) return { id, existing: false }
      const taken = row || key === null ? undefined : byKey.get(key)
      if (taken && sameInput(name, taken.input, input)) return { id: taken.id, existing: true }
      throw new CurfewError('key_conflict', `the id ${id} is not of this request: another one has used it`, {
        hint: 'The id of a request stands for that request alone: use another one for other work.',
        fields: { id },
      })
    })
  }

  /** By whom names and definitions are understood. */
  setSubmit(submit: (request: SubmitRequest) => Promise<Submitted>): void {
    this.#submit = submit
  }

  submit(request: SubmitRequest): Promise<Submitted> {
    return this.#submit ? this.#submit(request) : Promise.reject(new Error('curfew: nobody submits'))
  }

  watch(id: string, lastSequence: number, signal: AbortSignal): AsyncIterable<WatchView> {
    const { manager, clock, store } = this.#parts
    const parts = {
      ...{ watchers: manager.watchers, clock, lookEveryMs: LOOK_EVERY_MS[store.dialect] },
      record: (of: string) => this.record(of),
    }
    return watchStream(parts, id, lastSequence, signal)
  }

  async workers(): Promise<WorkerView[]> {
    return this.#parts.workers.list()
  }

  async serverStatus(): Promise<StatusView> {
    const { nodeId, store, time, workers, fence, ready } = this.#parts
    return {
      ...{ nodeId, version: VERSION, protocol: PROTOCOL_MAX, store: store.dialect },
      ...{ ready: ready(), now: time.now(), workers: workers.size, fence: fence() },
    }
  }

  async discardDeadLetters(choice: DeadLetterChoice): Promise<number> {
    const { store, time, lease } = this.#parts
    return store.write(lease(), () => discardLetters(store.statements, choice, time.now()))
  }

  async claimDeadLetters(choice: DeadLetterChoice, retryId: string): Promise<number> {
    const { store, time, lease } = this.#parts
    return store.write(lease(), () => claimLetters(store.statements, choice, { retryId, now: time.now() }))
  }

  async settled(
    id: string,
    timeoutMs: number | null,
    { signal, onUnsettled }: Partial<OpenWait> = {},
  ): Promise<Settled | null> {
    const { waiters, clock } = this.#parts
    const until = timeoutMs === null ? Infinity : clock.monotonic() + timeoutMs
    while (!signal?.aborted) {
      // Registered before the row is read, so that an end in between is not missed.
      const told = Promise.withResolvers<Settled | null>()
      const forget = waiters.add(id, told.resolve)
      const stopListening = signal && onAbort(signal, () => told.resolve(null))
      try {
        const settled = await this.outcome(id)
        if (settled) return settled
        onUnsettled?.()
        if (clock.monotonic() >= until) return null
        const known = await within(clock, until - clock.monotonic(), told.promise)
        if (known) return known
      } finally {
        forget()
        stopListening?.()
      }
    }
    return null
  }

  async signal(id: string, name: string, value: string, requestId?: string): Promise<void> {
    if (!id.startsWith('g_')) refused(id, { type: 'unchanged', reason: 'only agents take signals' })
    const answer = await this.#parts.manager.submit(
      {
        type: 'agent',
        agentId: id,
        input: { type: 'signal', name, value },
        ...requested('signal', id, requestId),
      },
      { bytes: value.length },
    )
    if (answer.type !== 'accepted') refused(id, answer)
  }

  async cancel(id: string, requestId?: string): Promise<CancelAnswer> {
    const answer = await this.#parts.manager.submit({
      ...{ type: 'input', taskId: id, ...requested('cancel', id, requestId) },
      input: { type: 'cancel' },
    })
    if (answer.type === 'not_found') return 'not_found'
    return answer.type === 'cancel' ? answer.answer : refused(id, answer)
  }

  async extend(id: string, byMs: number, requestId?: string): Promise<{ deadlineAt: number | null }> {
    const answer = await this.#parts.manager.submit({
      ...{ type: 'input', taskId: id, ...requested('extend', id, requestId) },
      input: { type: 'extend_by', byMs },
    })
    return answer.type === 'extended' ? { deadlineAt: answer.deadlineAt } : refused(id, answer)
  }

  async resume(id: string, requestId?: string): Promise<void> {
    const answer = await this.#parts.manager.submit({
      ...{ type: 'input', taskId: id, ...requested('resume', id, requestId) },
      input: { type: 'resume' },
    })
    if (answer.type !== 'accepted') refused(id, answer)
  }

  /** Its intent stands in the job's row before it is answered. */
  async cancelMember(
    jobId: string,
    id: string,
    { dependents, requestId }: { dependents: boolean; requestId: string | null },
  ): Promise<CancelAnswer> {
    const { store, manager } = this.#parts
    const row = await this.job(jobId)
    const about = row && (await store.read(() => memberCancel(store.statements, row, id)))
    if (!about) return 'not_found'
    const { status } = about
    const answer = await manager.submit({
      type: 'agent',
      agentId: jobId,
      input: {
        ...{ type: 'cancel_child', title: id, status, requestId, children: [] },
        below: dependents ? about.dependents : [],
        signal: { name: CANCEL_MEMBER, value: JSON.stringify({ id, dependents } satisfies MemberCancel) },
      },
    })
    if (answer.type === 'cancel') return answer.answer
    if (answer.type !== 'unchanged') return refused(jobId, answer)
    // The job is over, or stops: whatever has not ended by itself stops with it.
    const member = (await this.members(jobId)).find((one) => one.id === id)
    return member && isEnded(member.status) && member.status !== 'cancelled'
      ? 'already_completed'
      : 'already_cancelled'
  }

  memberSettled(jobId: string, id: string, timeoutMs: number | null): Promise<MemberView | null> {
    return this.#memberWaits.settled(jobId, id, timeoutMs)
  }

  async metrics(): Promise<MetricView[]> {
    const { manager } = this.#parts
    this.#measure()
    const metrics = (await manager.metrics.registry.getMetricsAsJSON()) as unknown as MetricView[]
    // The registry says more than the port.
    return metrics.map(({ name, help, type, values }) => ({
      ...{ name, help, type },
      values: values.map(({ labels, value, metricName }) => ({
        ...{ labels, value, ...(metricName !== undefined && { metricName }) },
      })),
    }))
  }

  /** As Prometheus reads them. */
  async exposition(): Promise<{ text: string; contentType: string }> {
    const { registry } = this.#parts.manager.metrics
    this.#measure()
    return { text: await registry.metrics(), contentType: registry.contentType }
  }

  #measure(): void {
    const { manager, workers } = this.#parts
    manager.metrics.slots(manager.desk.slotStates())
    const attached = workers.list().filter(({ status }) => status === 'attached').length
    manager.metrics.workers({ attached, silent: workers.size - attached })
  }
}

/** Ids of requests are made by callers who do not know of each other: the same one elsewhere is another request. */
function requested(method: string, id: string, requestId: string | undefined): { requestId?: string } {
  return requestId === undefined ? {} : { requestId: `${method} ${id} ${requestId}` }
}

/** What peers commit is seen by looking; in one process that is a backstop. */
const LOOK_EVERY_MS = { postgres: 1_000, sqlite: 10_000 }

/** Of an agent that was started alone. */
const NOTHING_ABOVE = { parentId: null, rootId: null, step: null, detached: 0 } as const
