/**
 * A running manager: the funnel into the store, the watcher over its deadlines, and the workers attached to it.
 * Commits first, then tells: workers are sent their work and their stops after the commit that decided them.
 */
import type { Clock, Randomness } from '../core/clock.ts'
import type { IdSource } from '../core/id.ts'
import { MAX_CLAIMED, MAX_FIRED } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import type { SubmitOptions } from '../engine/funnel.ts'
import { Funnel } from '../engine/funnel.ts'
import { readablePolicy } from '../engine/policy-text.ts'
import type { Answer, ClaimWish, Command, Committed } from '../engine/task-batch.ts'
import { TaskBatch } from '../engine/task-batch.ts'
import type { Effect } from '../engine/task-draft.ts'
import { TaskMetrics } from '../engine/task-metrics.ts'
import type { Lease } from '../leadership/lease.ts'
import { HORIZON_MS, LEADERSHIP_MS } from '../leadership/lease-times.ts'
import type { ClaimedTask } from '../store/hot-statements.ts'
import { run } from '../store/statement.ts'
import type { QueueRow } from '../store/statements.ts'
import type { Store } from '../store/store.ts'
import { StoreError } from '../store/store-error.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { Settled } from '../wire/task-service.ts'
import type {
  Assignment,
  DownMessage,
  ManagerPort,
  Report,
  ReportAnswer,
  WorkerHello,
  WorkerSession,
} from '../wire/worker-port.ts'
import { DeadlineWatcher } from './deadline-watcher.ts'
import { Queues } from './queues.ts'
import type { Slot } from './worker-sessions.ts'
import { Session, slotKey } from './worker-sessions.ts'

/** Progress and heartbeats of one attempt: at most one a second. */
const MOST_BEAT_EVERY_MS = 1_000

export interface ManagerOptions {
  nodeId: string
  store: Store
  time: StoreTime
  /** Null over SQLite: the lock of the file is the lease. */
  lease: Lease | null
  clock: Clock
  randomness: Randomness
  ids: IdSource
  logger: Logger
  queues: QueueRow[]
  /** Somebody should know: peers, waiters. */
  told: ManagerListener
}

export interface ManagerListener {
  settled(taskId: string, settled: Settled | null): void
  /** Work that this process has no free slot for, or cannot run. */
  workWaits(): void
  stopElsewhere(nodeId: string): void
  storeFailed(error: StoreError): void
}

export class Manager implements ManagerPort {
  readonly metrics = new TaskMetrics()
  readonly queues: Queues
  readonly watcher: DeadlineWatcher
  readonly #options: ManagerOptions
  readonly #funnel: Funnel<Command, Answer, Committed>
  #session: Session | null = null
  /** There may be ready work that was not claimed yet. */
  #workMayWait = true
  #claiming = true
  /** Slots that a claim in flight may fill. */
  #wished = 0
  /** Attempts whose end is on its way into the store. */
  readonly #reporting = new Map<string, Slot>()

  constructor(options: ManagerOptions) {
    this.#options = options
    this.queues = new Queues(options.queues)
    this.#funnel = new Funnel({
      clock: options.clock,
      randomness: options.randomness,
      logger: options.logger,
      lanes: options.store.dialect === 'postgres' ? 2 : 1,
      commit: (commands, first) => this.#commit(commands, first),
      committed: (committed) => this.#tell(committed),
      wanted: () => this.#wish() !== null,
      failed: (error) => options.told.storeFailed(error),
    })
    this.watcher = new DeadlineWatcher({
      clock: options.clock,
      now: () => options.time.now(),
      fire: async () => {
        const answer = await this.submit({ type: 'fire' }, { patient: true })
        return answer.type === 'fired' && answer.count >= MAX_FIRED
      },
      nextDue: () => this.#nextDue(),
      failed: (error) => {
        options.logger.error({ error: String(error) }, 'firing deadlines failed; it is tried again')
        options.clock.setTimer(1_000, () => this.watcher.look())
      },
    })
  }

  get idle(): boolean {
    return this.#funnel.idle && this.watcher.idle
  }

  /** Nothing goes on until the store is back. */
  get paused(): boolean {
    return this.#funnel.paused
  }

  submit(command: Command, options: SubmitOptions = {}): Promise<Answer> {
    return this.#funnel.submit(command, options)
  }

  /** The store may be back, or this process may decide again. */
  wake(): void {
    this.#funnel.wake()
  }

  /** There may be ready work. */
  workArrived(): void {
    this.#workMayWait = true
    if (this.#wish()) this.#funnel.kick()
  }

  /** Nothing new is handed out any more. */
  stopClaiming(): void {
    this.#claiming = false
  }

  /** What ignored its signal and is left behind with the process: nobody will hear of it any more. */
  async letGo(): Promise<void> {
    const { nodeId } = this.#options
    const left = [...(this.#session?.slots.values() ?? [])]
    await Promise.all(
      left.map(({ assignment: { taskId, token } }) => {
        const input = { type: 'lost', nodeId, receipt: 'unreachable', token } as const
        return this.submit({ type: 'input', taskId, input })
      }),
    )
  }

  close(error: Error): void {
    this.watcher.close()
    this.#funnel.close(error)
  }

  attach(hello: WorkerHello, down: (message: DownMessage) => void): WorkerSession {
    const session = new Session(hello, down)
    this.#session = session
    this.workArrived()
    return {
      report: (reports) => this.#report(session, reports),
      detach: () => {
        session.attached = false
      },
    }
  }

  get freeSlots(): number {
    return this.#claiming ? (this.#session?.free ?? 0) : 0
  }

  slotStates(): Record<'taken' | 'free' | 'abandoned', number> {
    const slots = [...(this.#session?.slots.values() ?? [])]
    const abandoned = slots.filter((slot) => slot.abandoned).length
    return { taken: slots.length - abandoned, free: this.freeSlots, abandoned }
  }

  /** Whether the attempt runs here, or its end is on its way into the store. */
  holds(taskId: string, token: string): boolean {
    return (
      (this.#session?.slots.has(slotKey({ taskId, token })) ?? false) ||
      this.#reporting.has(slotKey({ taskId, token }))
    )
  }

  /** What this process would claim from, for whoever looks for ready work. */
  wanted(): { queues: string[]; names: string[] } {
    const session = this.#session
    if (!session || this.freeSlots === 0) return { queues: [], names: [] }
    return { queues: this.queues.names(session.hello.queues), names: session.hello.names }
  }

  /** Stops an attempt that runs here; somebody else decided it. */
  stopHere(message: Parameters<Session['stop']>[0]): void {
    this.#session?.stop(message)
  }

  async #commit(commands: readonly Command[], first: boolean): Promise<TaskBatch> {
    const { store, lease, time, nodeId, randomness } = this.#options
    if (lease && !lease.leading) {
      throw new StoreError('store_unavailable', 'this process could not renew its lease at the store', {
        hint: 'PostgreSQL cannot be reached, or a handler blocks the event loop. Work goes on by itself after that.',
      })
    }
    const context = {
      statements: store.statements,
      nodeId,
      peers: () => this.#livePeers(),
      overdueMs: LEADERSHIP_MS,
      chance: () => randomness.next(),
    }
    // What is scheduled in this batch can be claimed in it too.
    if (commands.some((command) => command.type === 'schedule' && this.#runs(command.name)))
      this.#workMayWait = true
    const wish = first ? this.#wish() : null
    if (wish) {
      this.#workMayWait = false
      this.#wished += wish.slots
    }
    try {
      return await store.write(lease?.fence() ?? null, () =>
        new TaskBatch(context, time.now(), wish).apply(commands),
      )
    } catch (error) {
      if (wish) this.#workMayWait = true
      throw error
    } finally {
      this.#wished -= wish?.slots ?? 0
    }
  }

  #livePeers(): string[] {
    return (this.#options.lease?.peers ?? []).filter(({ goneAt }) => goneAt === null).map(({ id }) => id)
  }

  #wish(): ClaimWish | null {
    const session = this.#session
    const slots = Math.min(this.freeSlots - this.#wished, MAX_CLAIMED)
    if (!this.#workMayWait || !session || slots <= 0 || session.hello.names.length === 0) return null
    const { ids, time } = this.#options
    return {
      token: ids.next('a', time.now()),
      names: session.hello.names,
      queues: this.queues.unlimited(session.hello.queues),
      limitedQueues: this.queues.limited(session.hello.queues),
      slots,
    }
  }

  /** After the commit: work goes out, stops go out, whoever waits is told. */
  #tell(committed: Committed): void {
    const { told, logger } = this.#options
    const { wish, claimed, now } = committed
    if (committed.dueAt < Infinity) this.watcher.hint(committed.dueAt)
    for (const { row, event } of committed.recorded) {
      this.metrics.recorded(row, event)
      if (event.type === 'task_timed_out') {
        logger.info(
          {
            taskId: row.id,
            task: row.name,
            kind: event.kind,
            deadline: event.deadlineAt,
            lateMs: event.lateMs,
          },
          'Task timed out',
        )
      }
    }
    for (const { id, token, output } of committed.completed) {
      told.settled(id, { status: 'completed', output })
      const slot = this.#reporting.get(slotKey({ taskId: id, token }))
      if (slot) this.metrics.completed(slot.assignment.queue, slot.assignment.name, now - slot.startedAt)
    }
    // A claim that was filled says nothing about what is left.
    if (wish && claimed.length >= wish.slots) this.#workMayWait = true
    if (wish && claimed.length) this.#start(claimed, wish.token, now)
    for (const effect of committed.effects) this.#tellEffect(effect, now)
    const newReady = committed.newTasks.filter(({ ready }) => ready === 1)
    if (newReady.length && !this.#takesAll(newReady, claimed.length)) told.workWaits()
  }

  /** Whether this process has taken, or can at once take, everything it has just stored. */
  #takesAll(tasks: readonly { name: string; queue: string }[], claimed: number): boolean {
    return tasks.length - claimed <= this.freeSlots && tasks.every(({ name }) => this.#runs(name))
  }

  #runs(name: string): boolean {
    return this.#session?.hello.names.includes(name) ?? false
  }

  #tellEffect(effect: Effect, now: number): void {
    const { told, nodeId } = this.#options
    switch (effect.type) {
      case 'settled':
        return told.settled(effect.taskId, null)
      case 'stop':
        return effect.nodeId === nodeId ? this.stopHere(effect) : told.stopElsewhere(effect.nodeId)
      case 'limits': {
        if (effect.nodeId !== nodeId) return
        const { taskId, token, deadlineAt, attemptDeadlineAt } = effect
        const left = (at: number | null) => (at === null ? null : Math.max(0, at - now))
        return this.#session?.limits({
          taskId,
          token,
          deadlineAt: earlier(deadlineAt, attemptDeadlineAt),
          attemptMs: left(attemptDeadlineAt),
          totalMs: left(deadlineAt),
        })
      }
      case 'ready':
        this.#workMayWait = true
        if (this.freeSlots === 0) told.workWaits()
    }
  }

  #start(claimed: readonly ClaimedTask[], token: string, now: number): void {
    const assignments: Assignment[] = []
    for (const task of claimed) {
      this.metrics.started(task.queue, task.name, now - task.startAt)
      const left = (at: number | null) => (at === null ? null : Math.max(0, at - now))
      assignments.push({
        taskId: task.id,
        name: task.name,
        queue: task.queue,
        attempt: task.attempt,
        token,
        input: task.input,
        details: task.details,
        deadlineAt: earlier(task.deadlineAt, task.attemptDeadlineAt),
        attemptMs: left(task.attemptDeadlineAt),
        totalMs: left(task.deadlineAt),
        ...attemptOptions(task.policy),
        graceMs: task.graceMs,
      })
    }
    this.#session?.start(assignments, now)
  }

  async #report(session: Session, reports: Report[]): Promise<ReportAnswer[]> {
    for (const report of reports) this.#freeSlot(session, report)
    const commands = reports.map(({ taskId, ...input }): Command => ({ type: 'input', taskId, input }))
    const answers = await this.#funnel.submitAll(commands, outputBytes)
    return reports.map((report, i) => {
      this.#reporting.delete(slotKey(report))
      const answered = answers[i]
      if (answered && 'answer' in answered) return reportAnswer(answered.answer)
      const error = String(answered?.error)
      this.#options.logger.error(
        { taskId: report.taskId, type: report.type, error },
        'a report could not be stored',
      )
      return { type: 'stale', reason: { code: 'stale', message: error } }
    })
  }

  /** The handler has ended, so its slot is free, whatever the store will say of its result. */
  #freeSlot(session: Session, report: Report): void {
    if (report.type === 'beat' || report.type === 'extend' || report.type === 'overdue') return
    const slot = session.slots.get(slotKey(report))
    if (!slot) return
    if (report.type === 'stopped' && report.receipt === 'abandoned') {
      slot.abandoned = true
      if ([...session.slots.values()].every(({ abandoned }) => abandoned) && session.free === 0) {
        this.#options.logger.error(
          { slots: session.slots.size },
          'every slot is held by a handler that ignored its signal',
        )
      }
      return
    }
    session.slots.delete(slotKey(report))
    // The one behind it in a queue that was full can start now.
    if (this.queues.isLimited(slot.assignment.queue)) this.#workMayWait = true
    this.#reporting.set(slotKey(report), slot)
  }

  async #nextDue(): Promise<number | null> {
    const { store, time, clock } = this.#options
    const peers = this.#livePeers()
    // A virtual clock jumps over the renewals that would tell of what is further away.
    const horizon = clock.virtual ? Number.MAX_SAFE_INTEGER : time.now() + HORIZON_MS
    const [row] = await store.read(() => run(store.statements.nextDue(peers, horizon)))
    return row?.dueAt ?? null
  }
}

const PLAIN = { softStopMs: 0, beatEveryMs: MOST_BEAT_EVERY_MS }

/** Beats come often enough to be in time for limits that are shorter than a few seconds. */
function attemptOptions(policyText: string): Pick<Assignment, 'softStopMs' | 'beatEveryMs'> {
  if (policyText === '{}') return PLAIN
  const { softStopMs, heartbeatTimeoutMs, stuckAfterMs } = readablePolicy(policyText)
  const shortest = Math.min(heartbeatTimeoutMs ?? Infinity, stuckAfterMs ?? Infinity)
  return { softStopMs, beatEveryMs: Math.max(10, Math.min(MOST_BEAT_EVERY_MS, shortest / 3)) }
}

function earlier(a: number | null, b: number | null): number | null {
  const first = Math.min(a ?? Infinity, b ?? Infinity)
  return first === Infinity ? null : first
}

function outputBytes(command: Command): number {
  return command.type === 'input' && command.input.type === 'completed' ? command.input.output.length : 0
}

function reportAnswer(answer: Answer): ReportAnswer {
  const { type } = answer
  if (type === 'accepted' || type === 'stale' || type === 'extension' || type === 'limits') return answer
  return { type: 'stale', reason: { code: 'stale', message: 'there is no such task any more' } }
}
