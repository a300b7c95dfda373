/**
 * The manager's side of the worker port: what the attached worker can run and runs, what to claim for it, and its
 * reports on their way into the store. Decides nothing.
 */
import type { IdSource } from '../core/id.ts'
import { MAX_CLAIMED } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import { readablePolicy } from '../definitions/policy-text.ts'
import type { Scope } from '../engine/agent-batch.ts'
import type { Answered, Weight } from '../engine/funnel.ts'
import type { Answer, ClaimWish, Command } from '../engine/task-batch.ts'
import type { TaskMetrics } from '../engine/task-metrics.ts'
import type { ClaimedTask } from '../store/hot-statements.ts'
import type { StoreTime } from '../store/store-time.ts'
import type {
  Assignment,
  DownMessage,
  Report,
  ReportAnswer,
  WorkerHello,
  WorkerSession,
} from '../wire/worker-port.ts'
import type { Queues } from './queues.ts'
import type { TurnDesk } from './turn-desk.ts'
import type { Slot } from './worker-sessions.ts'
import { Session, slotKey } from './worker-sessions.ts'

/** Progress and heartbeats of one attempt: at most one a second. */
const MOST_BEAT_EVERY_MS = 1_000

interface Parts {
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
  #session: Session | null = null
  /** There may be ready work that was not claimed yet. */
  #workMayWait = true
  #claiming = true
  /** Slots that claims in flight may fill, and the tokens of those claims. */
  #wished = 0
  readonly #inFlight = new Set<string>()
  /** Attempts whose end is on its way into the store. */
  readonly #reporting = new Map<string, Slot>()

  constructor(parts: Parts) {
    this.#parts = parts
  }

  attach(hello: WorkerHello, down: (message: DownMessage) => void): WorkerSession {
    const session = new Session(hello, down)
    const { turns } = this.#parts
    this.#session = session
    turns.attach(hello.agents, hello.turns, down)
    return {
      report: (reports) => this.#report(session, reports),
      reportTurns: (reports) => turns.report(reports),
      journal: (agentId, token, cursor) => turns.journal(agentId, token, cursor),
      wake: (agentId, rootId, token) => turns.wake(agentId, rootId, token),
      detach: () => {
        session.attached = false
      },
    }
  }

  get freeSlots(): number {
    return this.#claiming ? (this.#session?.free ?? 0) : 0
  }

  slotStates(): Record<'taken' | 'free' | 'abandoned', number> {
    const slots = this.slots()
    const abandoned = slots.filter((slot) => slot.abandoned).length
    return { taken: slots.length - abandoned, free: this.freeSlots, abandoned }
  }

  slots(): Slot[] {
    return [...(this.#session?.slots.values() ?? [])]
  }

  runs(name: string): boolean {
    return this.#session?.hello.names.includes(name) ?? false
  }

  /** Whether the attempt runs here, or its end is on its way into the store. */
  holds(attempt: { taskId: string; token: string }): boolean {
    const key = slotKey(attempt)
    return (this.#session?.slots.has(key) ?? false) || this.#reporting.has(key)
  }

  /** The attempt whose end is on its way into the store. */
  reporting(attempt: { taskId: string; token: string }): Slot | null {
    return this.#reporting.get(slotKey(attempt)) ?? null
  }

  /** What would be claimed from, for whoever looks for ready work. */
  wanted(): { queues: string[]; names: string[] } {
    const session = this.#session
    if (!session || this.freeSlots === 0) return { queues: [], names: [] }
    return { queues: this.#parts.queues.names(session.hello.queues), names: session.hello.names }
  }

  workArrived(): void {
    this.#workMayWait = true
  }

  stopClaiming(): void {
    this.#claiming = false
  }

  get wishes(): boolean {
    return this.#wishesTasks || this.#parts.turns.wishes
  }

  get #wishesTasks(): boolean {
    const session = this.#session
    return this.#workMayWait && session !== null && this.#room() > 0 && session.hello.names.length > 0
  }

  /** What to claim now, if anything. Its slots are kept free until it was `filled` or `missed`. */
  wish(expected: { tasks: number; turns: number }): ClaimWish | null {
    const session = this.#session
    if (!session) return null
    const { ids, time, queues } = this.#parts
    const limitedQueues = queues.limited(session.hello.queues)
    // Slots of a queue with a limit are counted by the claim alone.
    if (expected.tasks > 0 && limitedQueues.length > 0) this.#workMayWait = true
    const look = this.#wishesTasks
    const slots = look ? this.#room() : Math.max(0, Math.min(this.#room(), expected.tasks))
    const turns = this.#parts.turns.wish(expected.turns)
    if (slots === 0 && !turns) return null
    if (look) this.#workMayWait = false
    this.#wished += slots
    const token = ids.next('a', time.now())
    this.#inFlight.add(token)
    return {
      token,
      names: session.hello.names,
      queues: queues.unlimited(session.hello.queues),
      limitedQueues,
      slots,
      look,
      turns,
    }
  }

  /** The claim is committed: what it got goes to the worker. */
  filled(wish: ClaimWish, claimed: readonly ClaimedTask[], now: number): void {
    this.#settleWish(wish)
    // A claim that was filled says nothing about what is left.
    if (wish.look && claimed.length >= wish.slots) this.#workMayWait = true
    if (claimed.length === 0) return
    for (const { queue, name, startAt } of claimed) this.#parts.metrics.started(queue, name, now - startAt)
    this.#session?.start(
      claimed.map((task) => assignmentOf(task, wish.token, now)),
      now,
    )
  }

  missed(wish: ClaimWish): void {
    this.#settleWish(wish)
    if (wish.turns) this.#parts.turns.missed(wish.turns)
    if (wish.look) this.#workMayWait = true
  }

  #settleWish(wish: ClaimWish): void {
    this.#wished -= wish.slots
    this.#inFlight.delete(wish.token)
  }

  /** Nothing that is claimed is still on its way here. */
  get settled(): boolean {
    return this.#inFlight.size === 0
  }

  /** A stop must not overtake its start: the store repeats it with the next renewal. */
  stop(message: Parameters<Session['stop']>[0]): void {
    if (!this.#inFlight.has(message.token)) this.#session?.stop(message)
  }

  limits(
    attempt: { taskId: string; token: string; deadlineAt: number | null; attemptDeadlineAt: number | null },
    now: number,
  ): void {
    const { taskId, token, deadlineAt, attemptDeadlineAt } = attempt
    this.#session?.limits({ taskId, token, ...remaining(deadlineAt, attemptDeadlineAt, now) })
  }

  #room(): number {
    return Math.min(this.freeSlots - this.#wished, MAX_CLAIMED)
  }

  async #report(session: Session, reports: Report[]): Promise<ReportAnswer[]> {
    for (const report of reports) this.#freeSlot(session, report)
    const commands = reports.map(
      (report): Command => ({
        type: 'input',
        taskId: report.taskId,
        input: report,
        ...this.#scopeOf(session, report),
      }),
    )
    const answers = await this.#parts.submitAll(commands, reportWeight)
    // Only now the ones behind them in a queue that was full can start.
    if (reports.some((report) => this.#isOfLimitedQueue(report))) {
      this.#workMayWait = true
      this.#parts.kick()
    }
    return reports.map((report, i) => {
      this.#reporting.delete(slotKey(report))
      const answered = answers[i]
      if (answered && 'answer' in answered) return reportAnswer(answered.answer)
      const error = String(answered?.error)
      this.#parts.logger.error(
        { taskId: report.taskId, type: report.type, error },
        'a report could not be stored',
      )
      return { type: 'stale', reason: { code: 'stale', message: error } }
    })
  }

  /** Where it stands below an agent, if that is known here. */
  #scopeOf(session: Session, report: Report): { scope?: Scope | null } {
    const key = slotKey(report)
    const slot = this.#reporting.get(key) ?? session.slots.get(key)
    return slot ? { scope: slot.assignment.scope } : {}
  }

  #isOfLimitedQueue(report: Report): boolean {
    const slot = this.#reporting.get(slotKey(report))
    return slot !== undefined && this.#parts.queues.isLimited(slot.assignment.queue)
  }

  /** The handler has ended, so its slot is free, whatever the store will say of its result. */
  #freeSlot(session: Session, report: Report): void {
    if (report.type === 'beat' || report.type === 'extend' || report.type === 'overdue') return
    const slot = session.slots.get(slotKey(report))
    if (!slot) return
    if (report.type === 'stopped' && report.receipt === 'abandoned') {
      slot.abandoned = true
      if (session.free === 0 && this.slots().every(({ abandoned }) => abandoned)) {
        const { logger } = this.#parts
        logger.error({ slots: session.slots.size }, 'every slot is held by a handler that ignored its signal')
      }
      return
    }
    session.slots.delete(slotKey(report))
    this.#reporting.set(slotKey(report), slot)
  }
}

function assignmentOf(task: ClaimedTask, token: string, now: number): Assignment {
  const { deadlineAt, attemptMs, totalMs } = remaining(task.deadlineAt, task.attemptDeadlineAt, now)
  const { softStopMs, beatEveryMs } = attemptOptions(task.policy)
  return {
    taskId: task.id,
    name: task.name,
    queue: task.queue,
    attempt: task.attempt,
    token,
    input: task.input,
    details: task.details,
    deadlineAt,
    attemptMs,
    totalMs,
    softStopMs,
    beatEveryMs,
    graceMs: task.graceMs,
    scope: scopeOf(task),
  }
}

function scopeOf({ parentId, rootId, step, detached }: ClaimedTask): Scope | null {
  if (parentId === null || rootId === null || step === null) return null
  return { parentId, rootId, step, detached: detached === 1 }
}

function remaining(deadlineAt: number | null, attemptDeadlineAt: number | null, now: number) {
  const left = (at: number | null) => (at === null ? null : Math.max(0, at - now))
  const first = Math.min(deadlineAt ?? Infinity, attemptDeadlineAt ?? Infinity)
  return {
    deadlineAt: first === Infinity ? null : first,
    attemptMs: left(attemptDeadlineAt),
    totalMs: left(deadlineAt),
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

function reportWeight(command: Command): Weight {
  const bytes =
    command.type === 'input' && command.input.type === 'completed' ? command.input.output.length : 0
  return { bytes, rows: 1 }
}

function reportAnswer(answer: Answer): ReportAnswer {
  const { type } = answer
  if (type === 'accepted' || type === 'stale' || type === 'extension' || type === 'limits') return answer
  return { type: 'stale', reason: { code: 'stale', message: 'there is no such task any more' } }
}
