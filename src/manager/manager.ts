/**
 * A running manager: the funnel into the store, the watcher over its deadlines, and the workers attached to it.
 * Commits first, then tells: workers are sent their work and their stops after the commit that decided them.
 */
import type { JournalCursor, JournalPage } from '../core/agent-journal.ts'
import type { Clock, Randomness, Timer } from '../core/clock.ts'
import type { IdSource } from '../core/id.ts'
import { MAX_BATCH_ROWS, MAX_FIRED, MAX_SHARED_BATCH_ROWS } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import type { WorkKind } from '../core/own-work.ts'
import { workKind, workName } from '../core/own-work.ts'
import { AgentMemory } from '../engine/agent-memory.ts'
import type { Answer, ClaimWish, Command, Committed } from '../engine/command.ts'
import { commitBatch } from '../engine/commit-batch.ts'
import type { SubmitOptions } from '../engine/funnel.ts'
import { Funnel } from '../engine/funnel.ts'
import type { Touching } from '../engine/in-flight.ts'
import type { TaskBatch } from '../engine/task-batch.ts'
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
import type { TaskRow } from '../store/task-row.ts'
import type { Settled } from '../wire/task-service.ts'
import type { DownMessage, ManagerPort, WorkerHello, WorkerSession } from '../wire/worker-port.ts'
import { DeadlineWatcher } from './deadline-watcher.ts'
import type { ExpectedWork } from './expected-work.ts'
import { expectTasks, expectTurn } from './expected-work.ts'
import { journalPage } from './journal-pages.ts'
import { LightClaims, WRITE_OUT_AFTER_MS } from './light-claims.ts'
import { Queues } from './queues.ts'
import { TurnDesk } from './turn-desk.ts'
import { Watchers } from './watchers.ts'
import { WorkerDesk } from './worker-desk.ts'

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
  /** Turns that run there have news. */
  newsElsewhere(nodeId: string): void
  storeFailed(error: StoreError): void
}

export class Manager implements ManagerPort {
  readonly metrics = new TaskMetrics()
  readonly queues: Queues
  readonly watcher: DeadlineWatcher
  readonly #options: ManagerOptions
  readonly #funnel: Funnel<Command, Answer, Committed>
  readonly #memory = new AgentMemory()
  readonly #pace = { late: 0 }
  readonly #light = new LightClaims()
  #writingOut: Timer | null = null
  #closed = false
  readonly watchers = new Watchers()
  readonly desk: WorkerDesk
  readonly turns: TurnDesk

  constructor(options: ManagerOptions) {
    this.#options = options
    this.queues = new Queues(options.queues)
    this.#funnel = new Funnel({
      clock: options.clock,
      randomness: options.randomness,
      logger: options.logger,
      ...(options.store.dialect === 'postgres' ? SHARED : OWN),
      touching: TOUCHING,
      commit: (commands, first) => this.#commit(commands, first),
      committed: (committed) => this.#tell(committed),
      wanted: () => this.desk.claims.wished,
      failed: (error) => options.told.storeFailed(error),
    })
    this.turns = new TurnDesk({
      nodeId: options.nodeId,
      ids: options.ids,
      time: options.time,
      logger: options.logger,
      kick: () => this.claimIfWished(),
      knowQueues: (names) => this.#knowQueues(names),
      submitAll: (commands, weigh) => this.#funnel.submitAll(commands, weigh),
      submit: (command) => this.submit(command, { patient: true }),
      journal: (agentId, token, cursor) => this.#journal(agentId, token, cursor),
    })
    this.desk = new WorkerDesk({
      clock: options.clock,
      mostClaimed: (options.store.dialect === 'postgres' ? SHARED : OWN).batchRows,
      turns: this.turns,
      ids: options.ids,
      time: options.time,
      logger: options.logger,
      metrics: this.metrics,
      queues: this.queues,
      kick: () => this.claimIfWished(),
      submitAll: (commands, weigh) => this.#funnel.submitAll(commands, weigh),
    })
    this.watcher = new DeadlineWatcher({
      clock: options.clock,
      now: () => options.time.now(),
      fire: async () => {
        const answer = await this.submit({ type: 'fire' }, { patient: true })
        if (answer.type !== 'fired') return { more: false, busy: false }
        return { more: answer.count >= MAX_FIRED, busy: answer.busy }
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
    this.claimIfWished()
  }

  attach(hello: WorkerHello, down: (message: DownMessage) => void): WorkerSession {
    const session = this.desk.attach(hello, down)
    this.workArrived()
    return session
  }

  /** Every queue ever used has a row: claims go through them by name. */
  async knowQueue(name: string): Promise<void> {
    const { store } = this.#options
    if (this.queues.has(name)) return
    await store.write(null, () => run(store.statements.addQueue(name)))
    this.queues.add(name)
  }

  /** Waits out an outage, as the reports that need them do. */
  async #knowQueues(names: readonly string[]): Promise<void> {
    const unknown = names.filter((name) => !this.queues.has(name))
    if (unknown.length === 0) return
    const commands = unknown.map((name): Command => ({ type: 'queue', name }))
    const answers = await this.#funnel.submitAll(commands, () => ({ bytes: 0, rows: 1 }))
    for (const [i, name] of unknown.entries()) {
      const answered = answers[i]
      if (answered && 'answer' in answered) this.queues.add(name)
      else
        this.#options.logger.error(
          { queue: name, error: String(answered?.error) },
          'a queue could not be added',
        )
    }
  }

  async #journal(agentId: string, token: string, cursor: JournalCursor): Promise<JournalPage | null> {
    const { store } = this.#options
    if (!this.turns.holds(agentId, token)) return null
    return store.read(() => journalPage(store.statements, agentId, cursor))
  }

  /** There may be ready work; `ofPeer`: a peer has stored some. */
  workArrived(ofPeer = false): void {
    this.desk.claims.workArrived(ofPeer)
    this.turns.woken()
    this.claimIfWished()
  }

  /** There may be room for more. A process that may not decide waits for its next renewal, which wakes it. */
  claimIfWished(): void {
    const { lease } = this.#options
    if (this.desk.claims.wishes && (lease?.leading ?? true)) this.#funnel.kick()
  }

  /** What ignored its signal and is left behind with the process: nobody will hear of it any more. */
  async letGo(): Promise<void> {
    const { nodeId } = this.#options
    await Promise.all(
      this.desk
        .slots()
        .filter(({ session }) => !session.remote)
        .map(({ assignment: { taskId, token } }) => {
          const input = { type: 'lost', nodeId, receipt: 'unreachable', token } as const
          return this.submit({ type: 'input', taskId, input })
        }),
    )
  }

  /** What is light and goes on is written out. */
  #writeOutLater(): void {
    if (this.#writingOut || this.#light.none || this.#closed) return
    const again = () => {
      this.#writingOut = null
      this.#writeOutLater()
    }
    const writeOut = () => {
      const { time, logger } = this.#options
      this.#writeOut(time.now() - WRITE_OUT_AFTER_MS).then(again, (error: Error) => {
        if (!this.#closed) logger.warn({ error: error.message }, 'what runs could not be written out')
        again()
      })
    }
    const { clock } = this.#options
    this.#writingOut = clock.setTimer(WRITE_OUT_AFTER_MS, writeOut)
  }

  /** What was claimed until then. */
  async #writeOut(until: number): Promise<void> {
    const { tokens, attempts, all, dueAt } = this.#light.until(until, this.desk.held)
    // Nothing may follow what has ended last.
    if (all.length === 0 && !this.#light.someEnded) return
    const answer = await this.submit({ type: 'write_out', tokens, attempts }, { patient: true })
    const kept = new Set(answer.type === 'written_out' ? answer.kept : all)
    this.#light.forget(all.filter((token) => !kept.has(token)))
    for (const { id: taskId, token } of attempts) if (!kept.has(token)) this.#notLight({ taskId, token })
    // Only now the store knows.
    if (dueAt < Infinity) this.watcher.hint(dueAt)
  }

  /** Its row has its end, or says that it runs. */
  #notLight(attempt: { taskId: string; token: string }): void {
    const slot = this.desk.find(attempt)
    if (!slot?.isLight) return
    slot.isLight = false
    this.#light.ended(attempt.token)
  }

  close(error: Error): void {
    this.#closed = true
    this.#writingOut?.cancel()
    this.watcher.close()
    this.#funnel.close(error)
  }

  async #commit(commands: readonly Command[], first: boolean): Promise<TaskBatch> {
    const { store, lease, time, nodeId, randomness } = this.#options
    if (lease && !lease.leading) {
      throw new StoreError('store_unavailable', 'this process could not renew its lease at the store', {
        hint: 'PostgreSQL cannot be reached, or a handler blocks the event loop. Work goes on by itself after that.',
      })
    }
    const context = {
      nodeId,
      peers: () => this.#livePeers(),
      overdueMs: LEADERSHIP_MS,
      chance: () => randomness.next(),
      claimed: (wish: ClaimWish, tasks: readonly ClaimedTask[]) => this.desk.claims.answered(wish, tasks),
      takenBack: (wish: ClaimWish | null) => this.desk.claims.takenBack(wish),
      endedClaims: this.#light.takeEnded(),
    }
    // What is scheduled in this batch can be claimed in it too.
    const expected: ExpectedWork = { tasks: 0, names: [], ownTurns: 0, turns: 0 }
    for (const command of commands) this.#expectWork(command, expected)
    const wish = first ? this.desk.claims.wish(expected) : null
    try {
      const fence = lease?.fence() ?? null
      const how = { fence, context, memory: this.#memory, pace: this.#pace, wish, now: () => time.now() }
      const batch = await commitBatch(store, commands, how)
      if (wish && !batch.committed.wish) this.desk.claims.missed(wish)
      return batch
    } catch (error) {
      this.desk.claims.takenBack(wish)
      if (wish) this.desk.claims.missed(wish)
      throw error
    }
  }

  /** Counts the tasks and turns that may start because of it. */
  #expectWork(command: Command, expected: ExpectedWork): void {
    if (command.type === 'schedule') {
      if (this.desk.claims.runs(command.name)) expectTasks(expected, command.name, command.count)
      if (this.turns.runs(command.name)) this.turns.woken()
    } else if (command.type === 'agent' && command.input.type === 'turn') {
      for (const step of command.input.steps) {
        if (step.kind === 'task') expectTasks(expected, step.name, 1)
        if (step.kind === 'agent') this.turns.woken()
      }
    }
    if (command.type === 'fire') expected.turns++
    if (command.type === 'input' && command.scope !== null) expectTurn(expected, command.scope?.parentId)
    // What ends a turn frees the slot for the next.
    if (command.type === 'agent' && command.input.type !== 'turn') expectTurn(expected, command.agentId)
  }

  #livePeers(): string[] {
    return (this.#options.lease?.peers ?? []).filter(({ goneAt }) => goneAt === null).map(({ id }) => id)
  }

  /** After the commit: work goes out, stops go out, whoever waits is told. */
  #tell(committed: Committed): void {
    const { told, logger } = this.#options
    const { wish, claimed, now } = committed
    if (committed.dueAt < Infinity) this.watcher.hint(committed.dueAt)
    if (!this.watchers.none) this.watchers.touched(committed.touched())
    for (const { row, event } of committed.recorded) {
      this.metrics.recorded(row, event)
      if (event.type === 'agent_timed_out') {
        const why =
          'failure' in event
            ? { reason: event.failure.message }
            : { deadline: event.deadlineAt, lateMs: event.lateMs }
        logger.info({ ...named(row), ...why }, `${CALLED[workKind(row)]} timed out`)
      }
      if (event.type === 'agent_parked') {
        logger.error(
          { ...named(row), code: event.code, reason: event.reason },
          `${CALLED[workKind(row)]} parked`,
        )
      }
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
      const slot = this.desk.reporting({ taskId: id, token })
      if (slot?.isLight) {
        slot.isLight = false
        this.#light.ended(token)
      }
      if (slot) this.metrics.completed(slot.assignment.queue, slot.assignment.name, now - slot.startedAt)
    }
    for (const { id, token } of committed.writtenOut) this.#notLight({ taskId: id, token })
    const newReady = committed.newTasks.filter(({ ready }) => ready === 1)
    if (wish) {
      this.#light.claimed(wish.token, now, claimed)
      this.#writeOutLater()
      this.desk.filled(wish, claimed, now, newReady.length > 0)
    }
    if (wish?.turns) this.turns.filled(wish.turns, committed.turns, now)
    for (const { row } of committed.turns) this.metrics.turn(row.name)
    for (const effect of committed.effects) this.#tellEffect(effect, now)
    if (newReady.length === 0) return
    const taken = new Set(wish?.look ? claimed.map(({ id }) => id) : [])
    const left = taken.size > 0 ? newReady.filter(({ id }) => !taken.has(id)) : newReady
    this.desk.claims.stored(left, wish)
    if (!this.desk.claims.hasRoomFor(left)) told.workWaits()
  }

  #tellEffect(effect: Effect, now: number): void {
    const { told, nodeId } = this.#options
    switch (effect.type) {
      case 'settled':
        return told.settled(effect.taskId, null)
      case 'stop':
        return effect.nodeId === nodeId ? this.desk.stop(effect) : told.stopElsewhere(effect.nodeId)
      case 'limits':
        return effect.nodeId === nodeId ? this.desk.limits(effect, now) : undefined
      case 'ready':
        this.desk.claims.workIsReady()
        if (this.desk.freeSlots === 0) told.workWaits()
        return
      case 'news':
        return effect.nodeId === nodeId
          ? this.turns.news(effect.agentId, effect.token, effect.dropped)
          : told.newsElsewhere(effect.nodeId)
      case 'woken':
        this.turns.woken()
        if (effect.elsewhere || !this.turns.runs(effect.name) || this.turns.free === 0) told.workWaits()
        else this.claimIfWished()
        return
      case 'agent_settled':
        return this.metrics.runEnded(effect.work, effect.status, effect.tookMs)
      case 'timeout_wakes':
        this.#options.logger.info(
          { agentId: effect.agentId, taskId: effect.taskId },
          'Resuming agent after task timeout',
        )
    }
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

/** Agents, and whatever is below them, are locked from the top, in one order. */
const TOUCHING: Touching<Command> = {
  idOf: (command) => (command.type === 'input' && !command.scope ? command.taskId : null),
  isHot: (command) =>
    command.type === 'input' && (command.input.type === 'completed' || command.input.type === 'beat'),
}

/** Transactions at a time, and the rows of one: where a server does the work, and where this process does. */
const SHARED = { lanes: 3, batchRows: MAX_SHARED_BATCH_ROWS }
const OWN = { lanes: 1, batchRows: MAX_BATCH_ROWS }

const CALLED: Record<WorkKind, string> = { task: 'Task', agent: 'Agent', workflow: 'Workflow', job: 'Job' }

/** `agentId` and `agent`, `workflowId` and `workflow`, `jobId` and `job`. */
function named(row: TaskRow): Record<string, string> {
  const kind = workKind(row)
  return { [`${kind}Id`]: row.id, [kind]: workName(row) }
}
