/**
 * The manager's side of the worker port: what the attached workers run, what was claimed for them, and their reports on
 * their way into the store. Decides nothing.
 */
import { AttemptMap } from '../core/attempt-map.ts'
import type { Clock } from '../core/clock.ts'
import type { IdSource } from '../core/id.ts'
import { isRemoteToken } from '../core/id.ts'
import type { Logger } from '../core/logger.ts'
import type { Answer, ClaimWish, Command } from '../engine/command.ts'
import type { Answered, Weight } from '../engine/funnel.ts'
import type { TaskMetrics } from '../engine/task-metrics.ts'
import type { ClaimedTask } from '../store/hot-statements.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { TaskRow } from '../store/task-row.ts'
import type {
  Assignment,
  DownMessage,
  Report,
  ReportAnswer,
  WorkerHello,
  WorkerSession,
} from '../wire/worker-port.ts'
import { assignmentOf, remaining } from './assignment.ts'
import { ClaimDesk } from './claim-desk.ts'
import { throwPassing } from './passing-error.ts'
import type { Queues } from './queues.ts'
import { GOES_ON, givenBack, NOT_ITS, reportAnswer, reportWeight } from './report-answers.ts'
import type { TurnDesk } from './turn-desk.ts'
import type { Slot } from './worker-sessions.ts'
import { freeOf, Groups, Session, shareOut } from './worker-sessions.ts'

interface Parts {
  clock: Clock
  /** In one transaction. */
  mostClaimed: number
  ids: IdSource
  time: StoreTime
  logger: Logger
  metrics: TaskMetrics
  queues: Queues
  /** There may be something to claim. */
  kick(): void
  submitAll(commands: readonly Command[], weigh: (command: Command) => Weight): Promise<Answered<Answer>[]>
  turns: TurnDesk
}

export class WorkerDesk {
  readonly #parts: Parts
  readonly #sessions = new Map<string, Session>()
  readonly #groups = new Groups(({ names, queues, concurrency }) => ({
    names: concurrency > 0 ? names : [],
    queues,
  }))
  readonly claims: ClaimDesk
  /** Every attempt that runs at a worker of this manager, or whose end is on its way into the store. */
  readonly #slots = new AttemptMap<Slot>()

  constructor(parts: Parts) {
    this.#parts = parts
    this.claims = new ClaimDesk({ ...parts, groups: this.#groups })
  }

  /** A worker of this process, whose messages are direct calls. */
  attach(hello: WorkerHello, down: (message: DownMessage) => void): WorkerSession {
    const session = new Session(hello, false, down)
    this.add(session)
    return {
      ...this.port,
      detach: () => {
        session.attached = false
        if (session.slots.size === 0 && session.turns.size === 0) this.remove(session)
      },
    }
  }

  add(session: Session): void {
    this.#sessions.set(session.workerId, session)
    this.#groups.add(session)
    this.#parts.turns.add(session)
  }

  /** It will not be heard of again. What it ran has been decided about. */
  remove(session: Session): void {
    session.attached = false
    this.#groups.remove(session)
    this.#parts.turns.remove(session)
    if (this.#sessions.get(session.workerId) === session) this.#sessions.delete(session.workerId)
  }

  get port(): Omit<WorkerSession, 'detach'> {
    const { turns } = this.#parts
    return {
      report: (reports) =>
        this.#report(
          reports,
          reports.map((report) => this.#slots.get(report)),
        ),
      reportTurns: (reports) => turns.report(reports),
      journal: (agentId, token, cursor) => turns.journal(agentId, token, cursor),
      wake: (agentId, rootId, token) => turns.wake(agentId, rootId, token),
    }
  }

  /** Takes up an attempt that the worker shows and the store says is its. */
  adopt(session: Session, row: ClaimedTask, token: string, now: number): Slot {
    return this.#hold(session, assignmentOf(row, token, now), now, false)
  }

  /** Attempts that were handed out and never reached their worker. */
  resend(session: Session, rows: readonly TaskRow[], now: number): void {
    const assignments = rows.map((row) => assignmentOf(row, row.token as string, now))
    if (assignments.length) session.send({ type: 'start', assignments })
  }

  /** Its worker is gone, and the store knows. */
  forget(slot: Slot): void {
    if (!slot.reporting) this.#slots.delete(slot)
    slot.session.slots.delete(slot)
  }

  get freeSlots(): number {
    return this.claims.stopped ? 0 : freeOf(this.#sessions.values())
  }

  slotStates(): Record<'taken' | 'free' | 'abandoned', number> {
    const slots = this.slots()
    const abandoned = slots.filter((slot) => slot.abandoned).length
    return { taken: slots.length - abandoned, free: this.freeSlots, abandoned }
  }

  slots(): Slot[] {
    return [...this.#slots].filter(({ reporting }) => !reporting)
  }

  get sessions(): ReadonlyMap<string, Session> {
    return this.#sessions
  }

  /** Every attempt that runs here, or whose end is on its way into the store. */
  get held(): Iterable<Slot> {
    return this.#slots
  }

  find(attempt: { taskId: string; token: string }): Slot | null {
    return this.#slots.get(attempt)
  }

  /** Whether the attempt runs here, or its end is on its way into the store. */
  holds(attempt: { taskId: string; token: string }): boolean {
    return this.#slots.get(attempt) !== null
  }

  /** The attempt whose end is on its way into the store. */
  reporting(attempt: { taskId: string; token: string }): Slot | null {
    const slot = this.#slots.get(attempt)
    return slot?.reporting ? slot : null
  }

  /** The claim is committed: what it got goes to the workers it was for. */
  filled(wish: ClaimWish, claimed: readonly ClaimedTask[], now: number, withNew: boolean): void {
    const group = this.claims.filled(wish, claimed, withNew)
    if (claimed.length === 0 || !group) return
    for (const { queue, name, startAt } of claimed) this.#parts.metrics.started(queue, name, now - startAt)
    const shares = shareOut(group, claimed.length, ({ free }) => free)
    const batches = new Map<Session, Assignment[]>()
    const nobodys: Assignment[] = []
    for (let i = 0; i < claimed.length; i++) {
      const session = shares[i]
      const task = claimed[i] as ClaimedTask
      const assignment = assignmentOf(task, wish.token, now)
      if (!session) nobodys.push(assignment)
      else {
        this.#hold(session, assignment, now, task.light === 1)
        const batch = batches.get(session)
        if (batch) batch.push(assignment)
        else batches.set(session, [assignment])
      }
    }
    for (const [session, assignments] of batches) session.send({ type: 'start', assignments })
    if (nobodys.length) void this.#parts.submitAll(nobodys.map(givenBack), reportWeight)
  }

  /** A stop must not overtake its start: the store repeats it with the next renewal. */
  stop(message: Parameters<Session['stop']>[0]): void {
    if (this.claims.isUnderWay(message.token)) return
    const slot = this.#running(message)
    if (slot) return slot.session.stop(message)
    // The worker of this process says that it does not run it, and the store hears that. One of another worker that
    // nobody has shown yet may run.
    if (isRemoteToken(message.token)) return
    for (const session of this.#sessions.values()) if (!session.remote) return session.stop(message)
  }

  limits(
    attempt: { taskId: string; token: string; deadlineAt: number | null; attemptDeadlineAt: number | null },
    now: number,
  ): void {
    const { taskId, token, deadlineAt, attemptDeadlineAt } = attempt
    const slot = this.#running(attempt)
    slot?.session.send({ type: 'limits', taskId, token, ...remaining(deadlineAt, attemptDeadlineAt, now) })
  }

  #hold(session: Session, assignment: Assignment, now: number, isLight: boolean): Slot {
    const slot = session.take(assignment, now, isLight)
    this.#slots.add(slot)
    return slot
  }

  #running(attempt: { taskId: string; token: string }): Slot | null {
    const slot = this.#slots.get(attempt)
    return slot?.reporting ? null : slot
  }

  /** By a worker elsewhere: the attempts of another are none of its business. */
  async reportFrom(workerId: string, reports: Report[]): Promise<ReportAnswer[]> {
    const found = reports.map((report) => this.#slots.get(report))
    const isIts = (slot: Slot | null) => slot === null || slot.session.workerId === workerId
    if (found.every(isIts)) return this.#report(reports, found, true)
    const its = reports.filter((_, i) => isIts(found[i] ?? null))
    const answered = await this.#report(its, found.filter(isIts), true)
    const answers = new Map(answered.map((answer, i) => [its[i] as Report, answer]))
    return reports.map((report) => answers.get(report) ?? NOT_ITS)
  }

  /** `found`: their attempts, where they are known here. */
  async #report(
    reports: readonly Report[],
    found: readonly (Slot | null)[],
    elsewhere = false,
  ): Promise<ReportAnswer[]> {
    const { queues, submitAll, logger, kick } = this.#parts
    const ended: Slot[] = []
    const commands = reports.map((report, i): Command => {
      const slot = found[i] ?? null
      if (slot && this.#freeSlot(report, slot)) ended.push(slot)
      const { taskId } = report
      // Where it stands below an agent, if that is known here.
      if (!slot) return { type: 'input', taskId, input: report }
      const lightSince = slot.isLight ? slot.startedAt : null
      return { type: 'input', taskId, input: report, scope: slot.assignment.scope, lightSince }
    })
    const answers = await submitAll(commands, reportWeight)
    if (elsewhere) throwPassing(answers)
    // Only now the ones behind them in a queue that was full can start.
    if (ended.some(({ assignment }) => queues.isLimited(assignment.queue))) {
      this.claims.workIsReady()
      kick()
    }
    for (const slot of ended) this.#slots.delete(slot)
    return reports.map((report, i) => {
      const answered = answers[i]
      if (answered && 'answer' in answered) return reportAnswer(answered.answer)
      const error = String(answered?.error)
      logger.error({ taskId: report.taskId, type: report.type, error }, 'a report could not be stored')
      if (report.type === 'note') return { type: 'refused', message: error.replace(/^\w*Error: /, '') }
      return { type: 'stale', reason: { code: 'stale', message: error } }
    })
  }

  /** The handler has ended, so its slot is free, whatever the store will say of its result. False: it goes on. */
  #freeSlot(report: Report, slot: Slot): boolean {
    if (GOES_ON.includes(report.type)) return false
    if (slot.reporting) return true // told again
    const { session } = slot
    if (report.type === 'stopped' && report.receipt === 'abandoned') {
      slot.abandoned = true
      if (session.free === 0 && [...session.slots].every(({ abandoned }) => abandoned)) {
        this.#parts.logger.error(
          { slots: session.slots.size, workerId: session.workerId },
          'every slot is held by a handler that ignored its signal',
        )
      }
      return false
    }
    session.slots.delete(slot)
    slot.reporting = true
    return true
  }
}
