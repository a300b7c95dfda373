/**
 * The manager's side of the worker port: what the attached workers can run and run, what to claim for them, and
 * their reports on their way into the store. Decides nothing.
 */
import { AttemptMap } from '../core/attempt-map.ts'
import type { Clock } from '../core/clock.ts'
import type { IdSource } from '../core/id.ts'
import { isRemoteToken } from '../core/id.ts'
import type { Logger } from '../core/logger.ts'
import type { Answer, ClaimWish, Command } from '../engine/command.ts'
import type { Answered, Weight } from '../engine/funnel.ts'
import type { TaskMetrics } from '../engine/task-metrics.ts'
import type { ClaimedTask, NewRow } from '../store/hot-statements.ts'
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
import { ClaimFloors } from './claim-floors.ts'
import { ClaimSize } from './claim-size.ts'
import type { ExpectedWork } from './expected-work.ts'
import { throwPassing } from './passing-error.ts'
import type { Queues } from './queues.ts'
import { GOES_ON, givenBack, NOT_ITS, reportAnswer, reportWeight } from './report-answers.ts'
import type { TurnDesk } from './turn-desk.ts'
import type { Group, Slot } from './worker-sessions.ts'
import { freeOf, Groups, roomOf, Session, shareOut } from './worker-sessions.ts'

interface ClaimInFlight {
  group: Group | null
  /** That it may fill. */
  slots: number
  /** It looks for everything there is. */
  all: boolean
  /** The next one went on behind it. */
  followed: boolean
  /** Its number among those that look for light tasks. */
  number: number
}

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
  #claiming = true
  readonly #floors: ClaimFloors
  readonly #size: ClaimSize
  /** By their tokens. */
  readonly #inFlight = new Map<string, ClaimInFlight>()
  /** Every attempt that runs at a worker of this manager, or whose end is on its way into the store. */
  readonly #slots = new AttemptMap<Slot>()

  constructor(parts: Parts) {
    this.#parts = parts
    this.#floors = new ClaimFloors(parts.clock)
    this.#size = new ClaimSize(parts.mostClaimed)
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
    return this.#claiming ? freeOf(this.#sessions.values()) : 0
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

  runs(name: string): boolean {
    return this.#groups.runs(name)
  }

  takes(task: { name: string; queue: string }): boolean {
    return this.#groups.takes(task)
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

  /** What would be claimed from, for whoever looks for ready work. */
  wanted(): { queues: string[]; names: string[] } {
    const groups = this.#groups.all.filter((group) => this.#free(group) > 0)
    const queues = new Set(groups.flatMap((group) => this.#parts.queues.names(group.queues)))
    return { queues: [...queues], names: [...new Set(groups.flatMap(({ names }) => names))] }
  }

  /** There may be work that this process knows nothing of. */
  workArrived(): void {
    // While claims come back full it will be found in its turn.
    if (!this.#groups.all.every(({ focus }) => focus.isNarrow)) this.#floors.forget()
    this.#groups.workArrived()
  }

  /** The same, but all of it was stored or made ready by this process, and was told of with `stored`. */
  workIsReady(): void {
    this.#groups.workArrived()
  }

  /** New tasks can be claimed. */
  stored(tasks: readonly NewRow[]): void {
    // Others are never light.
    this.#floors.stored(tasks.filter((task) => task.key === null && !('parentId' in task)))
  }

  stopClaiming(): void {
    this.#claiming = false
  }

  get wishes(): boolean {
    return this.#groups.all.some((group) => this.#wishesTasks(group)) || this.#parts.turns.wishes
  }

  /** How many tasks and turns the next claim asks for. */
  get wished(): number {
    const tasks = this.#groups.all.find((group) => this.#wishesTasks(group))
    return (tasks ? this.#room(tasks) : 0) + (this.#parts.turns.wishes ? 1 : 0)
  }

  #wishesTasks(group: Group): boolean {
    return group.mayWait && this.#room(group) > 0
  }

  /** What to claim now, if anything. Its slots are kept free until it was `filled` or `missed`. */
  wish(expected: ExpectedWork): ClaimWish | null {
    const { ids, time, queues } = this.#parts
    // Slots of a queue with a limit are counted by the claim alone.
    if (expected.tasks > 0) {
      for (const group of this.#groups.all) if (queues.limited(group.queues).length > 0) group.mayWait = true
    }
    const group =
      this.#groups.inTurn((one) => this.#wishesTasks(one)) ??
      (expected.tasks === 0
        ? null
        : this.#groups.inTurn(
            (one) => this.#room(one) > 0 && expected.names.some((name) => one.known.has(name)),
          ))
    const look = group !== null && this.#wishesTasks(group)
    const room = group ? this.#room(group) : 0
    const slots = look ? room : Math.max(0, Math.min(room, expected.tasks))
    const turns = this.#parts.turns.wish(expected)
    if (slots === 0 && !turns) return null
    const token = ids.next(group?.remote ? 'r' : 'a', time.now())
    if (group) {
      if (look) group.mayWait = false
      group.wished += slots
    }
    const all = {
      names: group?.names ?? [],
      queues: group ? queues.unlimited(group.queues) : [],
      limitedQueues: group ? queues.limited(group.queues) : [],
    }
    const ask = group && look ? group.focus.ask(all) : { asked: { ...all, after: null }, all: true }
    const { after } = ask.asked
    const floors = look && !after ? this.#floors.of(ask.asked) : []
    const number = this.#floors.begin(after ? [after] : floors)
    this.#inFlight.set(token, { group, slots, all: ask.all, followed: false, number })
    return { token, ...ask.asked, floors, slots, look, turns }
  }

  /** What a claim has got is known, its commit is not: the next one need not wait for that. */
  answered(wish: ClaimWish, claimed: readonly ClaimedTask[]): void {
    const flight = this.#inFlight.get(wish.token)
    if (!flight?.group || !wish.look) return
    const { group, number } = flight
    this.#floors.claimed(number, claimed)
    const goesOn = group.focus.claimed(claimed, wish.slots)
    // Of a queue with a limit only one can be claiming.
    if (!goesOn || wish.limitedQueues.length > 0) return
    flight.followed = true
    group.mayWait = true
    this.#parts.kick()
  }

  /** The claim is committed: what it got goes to the workers it was for. */
  filled(wish: ClaimWish, claimed: readonly ClaimedTask[], now: number, withNew: boolean): void {
    const { group, all, followed } = this.#settleWish(wish)
    // One that was filled, or did not look for all, says nothing about what is left; what is new nobody behind it saw.
    const mayWait = followed ? withNew : claimed.length >= wish.slots || !all
    if (group && wish.look && mayWait) group.mayWait = true
    if (claimed.length === 0 || !group) return
    this.#size.claimed(claimed)
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

  /** What a transaction has claimed, stored or locked is as it was before. */
  takenBack(wish: ClaimWish | null): void {
    this.#floors.forget()
    const flight = wish && this.#inFlight.get(wish.token)
    if (!flight) return
    flight.followed = false
    flight.group?.focus.forget()
  }

  /** The claim is not tried again. */
  missed(wish: ClaimWish): void {
    const { group } = this.#settleWish(wish)
    if (wish.turns) this.#parts.turns.missed(wish.turns)
    if (group && wish.look) group.mayWait = true
  }

  #settleWish(wish: ClaimWish): ClaimInFlight {
    const flight = this.#inFlight.get(wish.token)
    this.#inFlight.delete(wish.token)
    if (flight) this.#floors.end(flight.number)
    if (flight?.group) flight.group.wished -= wish.slots
    return flight ?? { group: null, slots: 0, all: true, followed: false, number: 0 }
  }

  /** Nothing that is claimed is still on its way here. */
  get settled(): boolean {
    return this.#inFlight.size === 0
  }

  /** A stop must not overtake its start: the store repeats it with the next renewal. */
  stop(message: Parameters<Session['stop']>[0]): void {
    if (this.#inFlight.has(message.token)) return
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

  #free(group: Group): number {
    return this.#claiming ? roomOf(group.sessions) : 0
  }

  #room(group: Group): number {
    return Math.min(this.#free(group) - group.wished, this.#size.most)
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
      this.workIsReady()
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
