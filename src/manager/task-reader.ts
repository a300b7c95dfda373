/** What can be asked about work without changing anything: by an engine about its store, or by nobody's reader. */
import type { Clock } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { isWorkId } from '../core/id.ts'
import { MAX_PAGE } from '../core/limits.ts'
import { JOB, WORKFLOW } from '../core/own-work.ts'
import { isEnded } from '../core/states.ts'
import type { WaitedFor } from '../engine/agent-view.ts'
import { explainAgent, MAX_SHOWN } from '../engine/agent-view.ts'
import type { Answer } from '../engine/command.ts'
import { explainTree, MAX_EXPLAINED } from '../engine/explain-tree.ts'
import { attemptViews, explainTask, taskEvents, taskView } from '../engine/task-view.ts'
import type { AttemptRow, EventRow } from '../store/attempt-row.ts'
import { run } from '../store/statement.ts'
import type { ReadStore } from '../store/store.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { DeadLetter, DeadLettersPage, DeadLettersRequest } from '../wire/dead-letter-view.ts'
import type { MemberView, RunView } from '../wire/run-view.ts'
import type {
  AttemptView,
  Explanation,
  ListRequest,
  Settled,
  TaskEventView,
  TaskView,
  WaitView,
} from '../wire/task-service.ts'
import { listLetters, readLetter } from './dead-letters.ts'
import { GatheredReads } from './gathered-reads.ts'
import { GatheredRecords } from './gathered-records.ts'
import { memberViews } from './job-views.ts'
import { runView } from './run-views.ts'

interface Parts {
  store: ReadStore
  time: StoreTime
  clock: Clock
  /** Of the engine that asks, if one does. */
  slotStates?(): { taken: number; free: number; abandoned: number }
}

export class TaskReader {
  readonly #parts: Parts
  readonly #rows: GatheredReads<TaskRow>
  readonly #records: GatheredRecords
  readonly #outcomes: GatheredReads<Pick<TaskRow, 'id' | 'status' | 'settledAt' | 'output'>>

  constructor(parts: Parts) {
    this.#parts = parts
    const { store, clock } = parts
    this.#rows = new GatheredReads(store, clock, (ids) => store.statements.readTasks(ids))
    this.#records = new GatheredRecords(store, clock)
    this.#outcomes = new GatheredReads(store, clock, (ids) => store.statements.outcomes(ids))
  }

  get idle(): boolean {
    return this.#rows.idle && this.#outcomes.idle && this.#records.idle
  }

  async get(id: string): Promise<TaskView | null> {
    const row = await this.#rows.read(id)
    return row && taskView(row)
  }

  /** The record and its events, at one moment; null when there is none. */
  protected async record(id: string): Promise<{ work: TaskView; events: TaskEventView[] } | null> {
    const record = await this.#records.read(id)
    if (!record) return null
    const { row, attempts, events } = record
    return { work: taskView(row), events: taskEvents(row, attempts, events).map((event) => ({ ...event })) }
  }

  /** How it ended; null while it has not settled. */
  protected async outcome(id: string): Promise<Settled | null> {
    const row = (await this.#outcomes.read(id)) ?? refused(id, { type: 'not_found' })
    if (row.settledAt === null) return null
    if (row.status === 'completed') return { status: 'completed', output: row.output ?? 'null' }
    const whole = (await this.#rows.read(id)) ?? refused(id, { type: 'not_found' })
    return { status: 'not_completed', task: taskView(whole) }
  }

  async attempts(id: string): Promise<AttemptView[]> {
    const { row, attempts } = await this.#record(id)
    if (row.kind === 'task') return attemptViews(row, attempts)
    const { statements } = this.#parts.store
    return this.#parts.store.read(function* () {
      const views: AttemptView[] = row.receipt === 'abandoned' ? attemptViews(row, attempts) : []
      for (let after = '', more = true; more; ) {
        const page = yield* run(statements.agents.cancelledBelow(id, after, MAX_PAGE))
        const ended = yield* run(statements.attempts(page.map((task) => task.id)))
        const byTask = Map.groupBy(ended, ({ taskId }) => taskId)
        for (const task of page) views.push(...attemptViews(task, byTask.get(task.id) ?? []))
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
    const { free, taken, abandoned } = this.#parts.slotStates?.() ?? NO_SLOTS
    const own =
      row.kind === 'agent'
        ? explainAgent(row, waitedFor, now)
        : explainTask(row, attempts, now, abandoned > 0 && free + taken === 0)
    const { store } = this.#parts
    const tree = await store.read(function* () {
      const above = yield* run(store.statements.agents.above(id))
      const below = row.kind === 'agent' ? yield* run(store.statements.agents.below(id, MAX_EXPLAINED)) : []
      return explainTree(row, { above, below, now })
    }, AT_ONCE)
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
    if (cursor !== null && !isWorkId(cursor))
      throw new CurfewError('invalid_request', `cursor: '${cursor.slice(0, 50)}' is none of ours`)
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
    return store.read(() => runView(store.statements, row), AT_ONCE)
  }

  async members(id: string, { outputs = true } = {}): Promise<MemberView[]> {
    const { store } = this.#parts
    const row = (await this.job(id)) ?? refused(id, { type: 'not_found' })
    return store.read(() => memberViews(store.statements, row, { outputs }), AT_ONCE)
  }

  deadLetters(request: DeadLettersRequest): Promise<DeadLettersPage> {
    const { store } = this.#parts
    return store.read(() => listLetters(store.statements, request))
  }

  deadLetter(jobId: string, itemId: string): Promise<DeadLetter> {
    const { store } = this.#parts
    return store.read(() => readLetter(store.statements, jobId, itemId))
  }

  /** Its row. */
  protected async job(id: string): Promise<TaskRow | null> {
    const row = await this.#rows.read(id)
    if (row && row.name !== JOB) refused(id, { type: 'unchanged', reason: 'it is not a job' })
    return row
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
      const attempts = yield* run(statements.attempts([id]))
      const events = yield* run(statements.events([id]))
      const waitedFor = row?.kind === 'agent' ? yield* run(statements.agents.waitedFor(id, MAX_SHOWN)) : []
      return { row: row ?? refused(id, { type: 'not_found' }), attempts, events, waitedFor }
    }, AT_ONCE)
  }
}

/** What belongs together is of one moment: otherwise events would be missing that have happened. */
const AT_ONCE = { atOnce: true }

const NO_SLOTS = { free: 0, taken: 0, abandoned: 0 }

const WORDS: Record<string, string> = { g: 'agent', w: 'workflow', j: 'job' }

export function refused(id: string, answer: Answer, what = WORDS[id[0] ?? ''] ?? 'task'): never {
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

export function unexpected(answer: Answer): never {
  throw new Error(`curfew: unexpected answer ${answer.type}`)
}
