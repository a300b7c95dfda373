/** The service port over this process's own manager. */

import type { Clock } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import type { IdSource } from '../core/id.ts'
import { MAX_PAGE } from '../core/limits.ts'
import { idPrefix, JOB, WORKFLOW } from '../core/own-work.ts'
import type { CancelAnswer } from '../core/states.ts'
import { isEnded } from '../core/states.ts'
import { encodePolicy } from '../definitions/policy-text.ts'
import type { TaskPolicy } from '../definitions/task-policy.ts'
import type { WaitedFor } from '../engine/agent-view.ts'
import { explainAgent, MAX_SHOWN } from '../engine/agent-view.ts'
import { explainTree, MAX_EXPLAINED } from '../engine/explain-tree.ts'
import type { Answer } from '../engine/task-batch.ts'
import { newTaskLimits } from '../engine/task-limits.ts'
import { attemptViews, explainTask, taskEvents, taskView } from '../engine/task-view.ts'
import { CANCEL_MEMBER } from '../graph/job-run.ts'
import type { AttemptRow, EventRow } from '../store/attempt-row.ts'
import type { NewBelow, NewTask } from '../store/hot-statements.ts'
import { run } from '../store/statement.ts'
import type { Store } from '../store/store.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { MemberView, RunView } from '../wire/run-view.ts'
import type {
  AttemptView,
  Explanation,
  ListRequest,
  MetricView,
  ScheduledTask,
  ScheduleRequest,
  Settled,
  TaskEventView,
  TaskService,
  TaskView,
  WaitView,
} from '../wire/task-service.ts'
import { GatheredReads } from './gathered-reads.ts'
import type { MemberCancel } from './job-views.ts'
import { memberCancel, memberViews } from './job-views.ts'
import type { Manager } from './manager.ts'
import { runView } from './run-views.ts'
import type { SettledWaiters } from './settled-waiters.ts'

interface Parts {
  nodeId: string
  manager: Manager
  waiters: SettledWaiters
  store: Store
  time: StoreTime
  clock: Clock
  ids: IdSource
}

export class LocalTaskService implements TaskService {
  readonly #parts: Parts
  readonly #rows: GatheredReads<TaskRow>
  readonly #outcomes: GatheredReads<Pick<TaskRow, 'id' | 'status' | 'settledAt' | 'output'>>

  constructor(parts: Parts) {
    this.#parts = parts
    const { store, clock } = parts
    this.#rows = new GatheredReads(store, clock, (ids) => store.statements.readTasks(ids))
    this.#outcomes = new GatheredReads(store, clock, (ids) => store.statements.outcomes(ids))
  }

  get idle(): boolean {
    return this.#rows.idle && this.#outcomes.idle
  }

  async schedule({ kind, name, title, policy, start, tasks }: ScheduleRequest): Promise<ScheduledTask[]> {
    if (tasks.length === 0) return []
    const { manager, ids, nodeId, time } = this.#parts
    const checked = policy as TaskPolicy
    if (kind === 'task') await manager.knowQueue(checked.queue)
    const policyText = encodePolicy(checked)
    const named = tasks.map((task) => ({ ...task, id: ids.next(idPrefix({ kind, name }), time.now()) }))
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
    const answer = await manager.submit(
      { type: 'schedule', name, count: tasks.length, tasks: build },
      { bytes, rows: tasks.length },
    )
    return answer.type === 'scheduled' ? answer.tasks : unexpected(answer)
  }

  async get(id: string): Promise<TaskView | null> {
    const row = await this.#rows.read(id)
    return row && taskView(row)
  }

  async settled(id: string, timeoutMs: number | null): Promise<Settled | null> {
    const { waiters, clock } = this.#parts
    const until = timeoutMs === null ? Infinity : clock.monotonic() + timeoutMs
    for (;;) {
      // Registered before the row is read, so that an end in between is not missed.
      const told = Promise.withResolvers<Settled | null>()
      const forget = waiters.add(id, told.resolve)
      try {
        const settled = await this.#outcome(id)
        if (settled) return settled
        if (clock.monotonic() >= until) return null
        const known = await (until === Infinity ? told.promise : this.#within(told.promise, until))
        if (known) return known
      } finally {
        forget()
      }
    }
  }

  async signal(id: string, name: string, value: string): Promise<void> {
    if (!id.startsWith('g_')) refused(id, { type: 'unchanged', reason: 'only agents take signals' })
    await this.#signal(id, name, value)
  }

  async #signal(id: string, name: string, value: string): Promise<void> {
    const answer = await this.#parts.manager.submit(
      { type: 'agent', agentId: id, input: { type: 'signal', name, value } },
      { bytes: value.length },
    )
    if (answer.type !== 'accepted') refused(id, answer)
  }

  async cancel(id: string): Promise<CancelAnswer> {
    const answer = await this.#parts.manager.submit({ type: 'input', taskId: id, input: { type: 'cancel' } })
    if (answer.type === 'not_found') return 'not_found'
    return answer.type === 'cancel' ? answer.answer : refused(id, answer)
  }

  async extend(id: string, byMs: number): Promise<{ deadlineAt: number | null }> {
    const answer = await this.#parts.manager.submit({
      type: 'input',
      taskId: id,
      input: { type: 'extend_by', byMs },
    })
    return answer.type === 'extended' ? { deadlineAt: answer.deadlineAt } : refused(id, answer)
  }

  async resume(id: string): Promise<void> {
    const answer = await this.#parts.manager.submit({ type: 'input', taskId: id, input: { type: 'resume' } })
    if (answer.type !== 'accepted') refused(id, answer)
  }

  async attempts(id: string): Promise<AttemptView[]> {
    const { row, attempts } = await this.#record(id)
    if (row.kind === 'task') return attemptViews(row, attempts)
    const { statements } = this.#parts.store
    return this.#parts.store.read(function* () {
      const views: AttemptView[] = row.receipt === 'abandoned' ? attemptViews(row, attempts) : []
      for (let after = '', more = true; more; ) {
        const page = yield* run(statements.agents.cancelledBelow(id, after, MAX_PAGE))
        for (const task of page) views.push(...attemptViews(task, yield* run(statements.attempts(task.id))))
        more = page.length === MAX_PAGE
        after = page.at(-1)?.id ?? ''
      }
      return views
    })
  }

  async events(id: string): Promise<TaskEventView[]> {
    const { row, attempts, events } = await this.#record(id)
    return taskEvents(row, attempts, events).map((event) => ({ ...event }))
  }

  async explain(id: string): Promise<Explanation> {
    const { row, attempts, waitedFor } = await this.#record(id)
    const now = this.#parts.time.now()
    const { free, taken, abandoned } = this.#parts.manager.desk.slotStates()
    const own =
      row.kind === 'agent'
        ? explainAgent(row, waitedFor, now)
        : explainTask(row, attempts, now, abandoned > 0 && free + taken === 0)
    const { store } = this.#parts
    const tree = await store.read(function* () {
      const above = yield* run(store.statements.agents.above(id))
      const below = row.kind === 'agent' ? yield* run(store.statements.agents.below(id, MAX_EXPLAINED)) : []
      return explainTree(row, { above, below, now })
    })
    const waits =
      row.name === WORKFLOW && !isEnded(row.status) ? await this.#withJoins(row, own.waits) : own.waits
    return { ...tree, ...own, waits }
  }

  /** What a workflow waits for besides its work are joins: its timers are theirs. */
  async #withJoins(row: TaskRow, waits: readonly WaitView[]): Promise<WaitView[]> {
    const { store } = this.#parts
    const { joins } = await store.read(() => runView(store.statements, row))
    const since = waits[0]?.since ?? row.createdAt
    return [
      ...waits.filter(({ what }) => what !== 'time'),
      ...joins
        .filter(({ arrived, fired }) => arrived > 0 && !fired)
        .map(({ transition, deadlineAt }) => ({
          ...{ what: 'join' as const, id: null, name: transition, status: null },
          ...{ since, until: deadlineAt },
        })),
    ]
  }

  async list({ cursor, ...filter }: ListRequest): Promise<{ tasks: TaskView[]; cursor: string | null }> {
    const { store } = this.#parts
    const rows = await store.read(() => run(store.statements.listTasks({ ...filter, after: cursor })))
    return {
      tasks: rows.map(taskView),
      cursor: rows.length === filter.limit ? (rows.at(-1)?.id ?? null) : null,
    }
  }

  async run(id: string): Promise<RunView> {
    const { store } = this.#parts
    const { row } = await this.#record(id)
    if (row.name !== WORKFLOW) refused(id, { type: 'unchanged', reason: 'it is not a workflow' })
    return store.read(() => runView(store.statements, row))
  }

  async members(id: string): Promise<MemberView[]> {
    const { store } = this.#parts
    const row = (await this.#rows.read(id)) ?? refused(id, { type: 'not_found' })
    return store.read(() => memberViews(store.statements, jobRow(row)))
  }

  /** Its intent stands in the job's row before it is answered. */
  async cancelMember(
    jobId: string,
    id: string,
    { dependents, requestId }: { dependents: boolean; requestId: string | null },
  ): Promise<CancelAnswer> {
    const { store, manager } = this.#parts
    const row = await this.#rows.read(jobId)
    const about = row && (await store.read(() => memberCancel(store.statements, jobRow(row), id)))
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

  async memberSettled(jobId: string, id: string, timeoutMs: number | null): Promise<MemberView | null> {
    const { clock } = this.#parts
    const until = timeoutMs === null ? Infinity : clock.monotonic() + timeoutMs
    for (let waitMs = FIRST_LOOK_MS; ; waitMs = Math.min(waitMs * 2, LONGEST_LOOK_MS)) {
      const members = await this.members(jobId)
      const member = members.find((one) => one.id === id) ?? noMember(jobId, id, members)
      const leftMs = until - clock.monotonic()
      if (member.runId === null && isEnded(member.status)) return member
      if (member.runId === null && leftMs <= 0) return null
      if (member.runId !== null) {
        const settled = await this.settled(member.runId, leftMs === Infinity ? null : Math.max(leftMs, 0))
        return settled && ((await this.members(jobId)).find((one) => one.id === id) ?? null)
      }
      // Without a run it may start, be cancelled or be skipped at any time: its turn comes with an end before it.
      const before = runningBefore(member, members)
      if (await this.settled(before ?? jobId, Math.min(waitMs, leftMs))) waitMs = FIRST_LOOK_MS / 2
    }
  }

  async metrics(): Promise<MetricView[]> {
    const { manager } = this.#parts
    manager.metrics.slots(manager.desk.slotStates())
    return (await manager.metrics.registry.getMetricsAsJSON()) as unknown as MetricView[]
  }

  /** What is told until then, or null. */
  async #within(told: Promise<Settled | null>, until: number): Promise<Settled | null> {
    const { clock } = this.#parts
    const over = new AbortController()
    const timer = sleep(clock, until - clock.monotonic(), over.signal).then(() => null)
    const known = await Promise.race([told, timer])
    over.abort()
    return known
  }

  async #outcome(id: string): Promise<Settled | null> {
    const row = (await this.#outcomes.read(id)) ?? refused(id, { type: 'not_found' })
    if (row.settledAt === null) return null
    if (row.status === 'completed') return { status: 'completed', output: row.output ?? 'null' }
    const whole = (await this.#rows.read(id)) ?? refused(id, { type: 'not_found' })
    return { status: 'not_completed', task: taskView(whole) }
  }

  async #record(id: string): Promise<{
    row: TaskRow
    attempts: AttemptRow[]
    events: EventRow[]
    waitedFor: WaitedFor[]
  }> {
    const { statements } = this.#parts.store
    return this.#parts.store.read(function* () {
      const [row] = yield* run(statements.readTasks([id]))
      const attempts = yield* run(statements.attempts(id))
      const events = yield* run(statements.events(id))
      const waitedFor = row?.kind === 'agent' ? yield* run(statements.agents.waitedFor(id, MAX_SHOWN)) : []
      return { row: row ?? refused(id, { type: 'not_found' }), attempts, events, waitedFor }
    })
  }
}

const WORDS: Record<string, string> = { g: 'agent', w: 'workflow', j: 'job' }

/** How soon and how rarely a workflow that has no run yet is looked at again. */
const FIRST_LOOK_MS = 20
const LONGEST_LOOK_MS = 1_000

/** Of an agent that was started alone. */
const NOTHING_ABOVE = { parentId: null, rootId: null, step: null, detached: 0 } as const

function refused(id: string, answer: Answer, what = WORDS[id[0] ?? ''] ?? 'task'): never {
  if (answer.type === 'not_found') {
    throw new CurfewError('not_found', `there is no ${what} ${id}`, {
      hint: 'Records are removed some time after their end (retention, 7 days by default).',
      fields: { id },
    })
  }
  if (answer.type === 'unchanged')
    throw new CurfewError('refused', `${what} ${id}: ${answer.reason}`, { fields: { id } })
  return unexpected(answer)
}

function jobRow(row: TaskRow): TaskRow {
  return row.name === JOB ? row : refused(row.id, { type: 'unchanged', reason: 'it is not a job' })
}

function noMember(jobId: string, id: string, members: readonly MemberView[]): never {
  throw new CurfewError('not_found', `job ${jobId} has no workflow '${id}'`, {
    hint: `It has ${members.map((one) => one.id).join(', ')}.`,
    fields: { jobId, id },
  })
}

/** The run of one that it waits for, at any depth. */
function runningBefore(member: MemberView, members: readonly MemberView[]): string | null {
  const byId = new Map(members.map((one) => [one.id, one]))
  const before = new Set(member.dependsOn)
  for (const id of before) {
    const { runId, status, dependsOn } = byId.get(id) as MemberView
    if (runId !== null && !isEnded(status)) return runId
    for (const other of dependsOn) before.add(other)
  }
  return null
}

function unexpected(answer: Answer): never {
  throw new Error(`curfew: unexpected answer ${answer.type}`)
}
