/**
 * One transaction's worth of decisions: loads the rows a batch of commands needs, decides each command in order,
 * and writes what changed. Reports first, then deadlines, cancels, new work and claims.
 */
import { CurfewError } from '../core/errors.ts'
import { MAX_FIRED } from '../core/limits.ts'
import type { ClaimedTask } from '../store/hot-statements.ts'
import type { Ticket, Work } from '../store/statement.ts'
import { answer, run, start } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type { TaskRow } from '../store/task-row.ts'
import { AgentBatch } from './agent-batch.ts'
import { hasUntil } from './agent-draft.ts'
import type { AgentInput } from './agent-input.ts'
import { AgentLocks } from './agent-locks.ts'
import { claimTasks } from './claim-tasks.ts'
import type { Answer, ClaimWish, Command, Committed } from './command.ts'
import { storeLetters } from './dead-letters.ts'
import { HotReports } from './hot-reports.ts'
import { lockTasks, withoutClaimed, writeOutAsked, writeOutKnown } from './light-claims.ts'
import { cancelAnswer, RepeatedRequests } from './repeated-requests.ts'
import { byDueTime, withRoots } from './root-locks.ts'
import { addQueues, scheduleTasks } from './schedule-tasks.ts'
import { Starter } from './start-new.ts'
import { decideTask, earliest, grantedMs } from './task-decide.ts'
import type { TaskDraft } from './task-draft.ts'
import type { TaskAnswer, TaskInput } from './task-input.ts'

export interface BatchContext {
  statements: Statements
  nodeId: string
  /** The living peers: they watch their own deadlines, unless one is overdue by `overdueMs`. */
  peers: () => readonly string[]
  overdueMs: number
  chance: () => number
  /** What a claim has got, before its commit. */
  claimed: (wish: ClaimWish, tasks: readonly ClaimedTask[]) => void
  /** Nothing of that is true any more: it is decided again. */
  takenBack: (wish: ClaimWish | null) => void
  /** Claims of which nothing is light any more. */
  endedClaims: readonly string[]
  /** The row of an agent as this process left it, if it knows. */
  recall: (agentId: string) => TaskRow | undefined
}

/** A guarded write did not take a report, or a remembered agent has changed: the batch is decided again, with these. */
export class OutdatedRows extends CurfewError {
  readonly ids: readonly string[]

  constructor(ids: readonly string[]) {
    super('outdated_rows', 'what was decided has to be decided with the stored rows')
    this.ids = ids
  }
}

export class TaskBatch {
  readonly answers: Answer[]
  readonly committed: Committed
  readonly #context: BatchContext
  readonly #rows = new Map<string, TaskRow>()
  readonly #changed = new Set<string>()
  readonly #drafts: TaskDraft[] = []
  readonly #parked: { id: string; reason: string }[] = []
  readonly #agents: AgentBatch
  readonly #starter: Starter
  /** Those that told of their progress. */
  #beats: readonly { id: string }[] = []
  /** Guarded writes: what they have not changed. */
  readonly #hot: Ticket<{ id: string }>[] = []
  readonly #locks: AgentLocks
  /** Tasks whose reports are not decided by a guarded write. */
  readonly #cold: ReadonlySet<string>

  constructor(context: BatchContext, now: number, wish: ClaimWish | null, cold: ReadonlySet<string> = NONE) {
    this.#context = context
    this.#cold = cold
    this.#locks = new AgentLocks(context, this.#rows)
    this.#starter = new Starter(wish, context.nodeId, now, context.statements.light)
    this.#agents = new AgentBatch({
      statements: context.statements,
      nodeId: context.nodeId,
      peers: context.peers,
      now,
      wish: wish?.turns ?? null,
      rows: this.#rows,
      starter: this.#starter,
      decideTask: (row, input) => void this.#decideRow(row, input),
      decided: (draft) => this.#decided(draft),
      effect: (effect) => this.committed.effects.push(effect),
    })
    this.answers = []
    this.committed = {
      now,
      effects: [],
      recorded: [],
      completed: [],
      claimed: [],
      writtenOut: [],
      turns: [],
      wish,
      newTasks: [],
      dueAt: Infinity,
      touched: () => this.#touched(),
    }
  }

  *apply(commands: readonly Command[]): Work<this> {
    yield* addQueues(this.#context.statements, commands, this.answers)
    const requests = new RepeatedRequests(this.#context.statements, this.committed.now)
    const repeated = yield* requests.remember(commands)
    yield* this.#locks.lock(commands)
    for (const { index } of repeated)
      this.answers[index] = yield* this.#answerAgain(commands[index] as Command)
    const rest = yield* this.#applyHot(commands)
    const inputs = rest.flatMap(({ command }) => (command.type === 'input' ? [command] : []))
    this.committed.writtenOut = yield* writeOutKnown(this.#context, inputs)
    yield* this.#load(inputs.map(({ taskId }) => taskId))
    yield* this.#agents.prepare(rest.flatMap(({ command }) => (command.type === 'agent' ? [command] : [])))
    for (const { command, index } of rest) {
      if (isReport(command)) this.answers[index] = this.#decide(command)
      if (command.type === 'agent' && !isCancel(command)) this.answers[index] = this.#decideAgent(command)
    }
    for (const { command, index } of rest) {
      if (command.type === 'fire') this.answers[index] = yield* this.#fire()
      if (command.type === 'lose') this.answers[index] = yield* this.#lose(command)
    }
    for (const { command, index } of rest) {
      if (command.type === 'input' && !isReport(command)) this.answers[index] = this.#decide(command)
      if (command.type === 'agent' && isCancel(command)) this.answers[index] = this.#decideAgent(command)
    }
    yield* this.#agents.propagate()
    this.#agents.startTurns()
    yield* this.#flush()
    yield* this.#schedule(commands)
    if (this.committed.wish) yield* this.#claim(this.committed.wish)
    yield* this.#agents.claim()
    yield* this.#gatherResults(commands)
    for (const { index, first } of repeated)
      if (first !== null) this.answers[index] = this.answers[first] as Answer
    yield* requests.forgetRefused(commands, this.answers)
    const { statements, endedClaims } = this.#context
    if (statements.light && endedClaims.length) yield* start(statements.light.forgetEnded(endedClaims))
    yield* writeOutAsked(this.#context, commands, this.answers)
    yield* this.#checkHot()
    return this
  }

  /** It was done when it was asked for the first time. */
  *#answerAgain(command: Command): Work<Answer> {
    if (command.type !== 'input' || !['extend_by', 'cancel'].includes(command.input.type)) return ACCEPTED
    yield* this.#load([command.taskId])
    const row = this.#rows.get(command.taskId)
    if (!row) return { type: 'not_found' }
    if (command.input.type === 'extend_by') {
      const deadlineAt = row.kind === 'agent' ? hasUntil(row) : earliest(row)
      return { type: 'extended', deadlineAt }
    }
    return { type: 'cancel', answer: yield* cancelAnswer(this.#context.statements, row) }
  }

  *#touched(): Iterable<{ id: string; parentId?: string | null; rootId?: string | null }> {
    const { completed, claimed, newTasks, turns } = this.committed
    for (const { row } of this.#drafts) yield row
    yield* this.#beats
    yield* completed
    yield* claimed
    for (const task of newTasks) if ('parentId' in task) yield task
    for (const { row } of turns) yield row
  }

  /** Attempts or turns begin with it. */
  get starts(): boolean {
    return this.committed.claimed.length + this.committed.turns.length > 0
  }

  /** Some of these attempts have no longer than until then. */
  startsUntil(time: number): boolean {
    return this.committed.claimed.some(({ attemptDeadlineAt }) => (attemptDeadlineAt ?? Infinity) < time)
  }

  /** Agents whose turns are here: their next reports come here too. */
  heldAgents(): TaskRow[] {
    const { nodeId } = this.#context
    return [...this.#rows.values()].filter(
      (row) => row.kind === 'agent' && row.nodeId === nodeId && row.token !== null && row.settledAt === null,
    )
  }

  *#gatherResults(commands: readonly Command[]): Work<void> {
    const asking = commands.flatMap((command, index) => {
      const answer = this.answers[index]
      const more = command.type === 'agent' && answer?.type === 'turn' && answer.state === 'more'
      return more ? [{ agentId: command.agentId, index }] : []
    })
    const results = yield* this.#agents.gatherResults(asking.map(({ agentId }) => agentId))
    for (const { agentId, index } of asking) {
      const upTo = this.#rows.get(agentId)?.results ?? 0
      // Parked meanwhile: what it has left to say nobody would understand.
      if (!results.has(agentId)) this.answers[index] = { type: 'not_found' }
      else this.answers[index] = { type: 'turn', state: 'more', results: results.get(agentId) ?? [], upTo }
    }
    this.committed.turns = this.#agents.started
  }

  /**
   * Good ends and heartbeats need no row: a guarded write decides. That it did is seen before the commit; what it did
   * not change is decided again with its row.
   */
  *#applyHot(commands: readonly Command[]): Work<{ command: Command; index: number }[]> {
    const { statements, nodeId } = this.#context
    const { hot } = statements
    const { now, completed } = this.committed
    const reports = new HotReports(commands, this.#cold, (id) => this.#rows.has(id))
    const { beats, light, below } = reports
    this.#beats = beats
    // What an attempt says of itself, before its end.
    if (beats.length) this.#hot.push(yield* start(hot.beatTasks(now, beats)))
    if (reports.completed.length) this.#hot.push(yield* start(hot.completeTasks(now, reports.completed)))
    if (light.length && statements.light) {
      this.#hot.push(yield* start(statements.light.complete(now, nodeId, light)))
    }
    if (below.length) {
      const places = this.#agents.settleHot(below)
      const rows = below.map((task) => ({ ...task, resultSeq: places.get(task.id) as number }))
      this.#hot.push(yield* start(hot.completeBelow(now, rows)))
    }
    for (const index of reports.indexes()) this.answers[index] = ACCEPTED
    completed.push(...reports.completed, ...light, ...below)
    const rest: { command: Command; index: number }[] = []
    for (let index = 0; index < commands.length; index++) {
      if (!this.answers[index]) rest.push({ command: commands[index] as Command, index })
    }
    return rest
  }

  *#checkHot(): Work<void> {
    const stale: string[] = []
    for (const ticket of this.#hot) for (const { id } of yield* answer(ticket)) stale.push(id)
    stale.push(...(yield* this.#locks.outdated()))
    if (stale.length) throw new OutdatedRows(stale)
  }

  *#load(ids: string[]): Work<void> {
    if (ids.length === 0) return
    const wanted = [...new Set(ids)].filter((id) => !this.#rows.has(id)).sort()
    if (wanted.length === 0) return
    for (const row of yield* lockTasks(this.#context.statements, wanted)) this.#rows.set(row.id, row)
  }

  #decide(command: Extract<Command, { type: 'input' }>): Answer {
    const row = this.#rows.get(command.taskId)
    if (!row) return { type: 'not_found' }
    const { taskId: id, input } = command
    const answer = this.#decideRow(row, input)
    const after = this.#rows.get(id)
    if (row.status === 'running' && after?.status === 'completed') {
      this.committed.completed.push({ id, token: row.token ?? '', output: after.output ?? 'null' })
    }
    return answer
  }

  #decideAgent({ agentId, input }: Extract<Command, { type: 'agent' }>): Answer {
    const row = this.#rows.get(agentId)
    if (row?.kind !== 'agent') return { type: 'not_found' }
    return this.#deciding(row, () => this.#agents.decide(row, input))
  }

  #decideRow(row: TaskRow, input: TaskInput): TaskAnswer {
    const answer = this.#decideAlone(row, input)
    if (input.type === 'extend_by' && answer.type === 'extended') {
      this.#agents.granted(row, { totalMs: input.byMs, until: answer.deadlineAt, operator: true })
    }
    return answer
  }

  #decideAlone(row: TaskRow, input: TaskInput): TaskAnswer {
    return this.#deciding(row, () => {
      if (row.kind === 'agent') {
        // It has no attempts: what would be one's report has nobody to come from.
        return 'token' in input && input.type !== 'lost'
          ? { type: 'stale', reason: { code: 'stale', message: 'an agent has turns, not attempts' } }
          : this.#agents.decide(row, input as AgentInput)
      }
      const { draft, answer } = decideTask(row, input, this.committed.now, this.#context.chance())
      this.#rows.set(row.id, draft.row)
      this.#changed.add(row.id)
      this.#decided(draft)
      const granted = answer.type === 'extension' && answer.answer.granted ? answer.deadlineAt : undefined
      if (granted !== undefined) {
        const totalMs = grantedMs(draft.row)
        this.#agents.granted(row, { totalMs, until: granted, operator: false })
      }
      return answer
    })
  }

  #decided(draft: TaskDraft): void {
    this.#drafts.push(draft)
    this.committed.effects.push(...draft.effects)
    const { row, before } = draft
    if (row.parentId !== null && before.settledAt === null && row.settledAt !== null)
      this.#agents.settled(row)
  }

  #deciding(row: TaskRow, decide: () => TaskAnswer): TaskAnswer {
    try {
      return decide()
    } catch (error) {
      // A row that cannot be decided about must not stop the others.
      const reason = `its record cannot be read: ${(error as Error).message}`
      this.#parked.push({ id: row.id, reason })
      return { type: 'unchanged', reason }
    }
  }

  *#fire(): Work<Answer> {
    const { statements, peers, overdueMs } = this.#context
    const found = yield* run(statements.hot.dueTasks(this.committed.now, peers(), overdueMs, MAX_FIRED))
    const candidates = yield* withoutClaimed(statements, found)
    const due = yield* withRoots(statements, this.#rows, candidates)
    yield* this.#agents.prepareDue(due)
    // Of what falls on one moment, the one above decides: what is below it stops with it.
    for (const row of due.toSorted(byDueTime)) {
      if (!this.#stopsWithAbove(row)) this.#decideRow(this.#rows.get(row.id) ?? row, { type: 'due' })
    }
    return { type: 'fired', count: due.length, busy: due.length < found.length }
  }

  #stopsWithAbove({ detached, parentId, rootId }: TaskRow): boolean {
    const above = detached === 1 ? [] : [this.#rows.get(parentId ?? ''), this.#rows.get(rootId ?? '')]
    return above.some((row) => row !== undefined && this.#agents.stops(row.id))
  }

  *#lose({ nodeId, receipt, proven, lease }: Extract<Command, { type: 'lose' }>): Work<Answer> {
    const { statements } = this.#context
    // It may have come back meanwhile; while its row is locked it cannot.
    const [gone] = yield* run(statements.lockGone(nodeId, proven ? null : (lease?.renewedAt ?? null)))
    if (!gone) return { type: 'lost', count: 0 }
    const { now } = this.committed
    if (statements.light) yield* start(statements.light.writeOutOf(nodeId))
    const lost = yield* run(
      lease
        ? statements.expiredTasks(nodeId, lease.renewedAt, now, lease.baseMs, MAX_FIRED)
        : statements.liveTasks(nodeId, MAX_FIRED),
    )
    const turnsLost = !lease || lease.renewedAt + lease.baseMs < now
    if (turnsLost) lost.push(...(yield* run(statements.agents.liveTurns(nodeId, MAX_FIRED, lease === null))))
    for (const row of yield* withRoots(statements, this.#rows, lost))
      this.#decideRow(this.#rows.get(row.id) ?? row, { type: 'lost', nodeId, receipt })
    return { type: 'lost', count: lost.length }
  }

  *#flush(): Work<void> {
    const { statements } = this.#context
    yield* this.#agents.flush()
    const rows = [...this.#changed].map((id) => this.#rows.get(id) as TaskRow)
    for (const { row } of this.#drafts)
      this.committed.dueAt = Math.min(this.committed.dueAt, row.dueAt ?? Infinity)
    if (rows.length) yield* start(statements.updateTasks(rows))
    const attempts = this.#drafts.flatMap((draft) => draft.attempts)
    if (attempts.length) yield* start(statements.insertAttempts(attempts))
    for (const { taskId, attempt, receipt } of this.#drafts.flatMap((draft) => draft.receipts)) {
      yield* start(statements.updateReceipt(taskId, attempt, receipt))
    }
    const events = this.#drafts.filter((draft) => draft.events.length > 0)
    if (events.length) {
      yield* start(
        statements.insertEvents(
          events.map(({ row, now, events: [first, ...others] }) => ({
            rootId: row.id,
            seq: first?.seq ?? 0,
            at: now,
            body: JSON.stringify([first, ...others].map((event) => event?.body)),
          })),
        ),
      )
    }
    for (const draft of events) {
      for (const { body, at } of draft.events)
        this.committed.recorded.push({ row: draft.row, event: body, at })
    }
    yield* storeLetters(statements, this.#drafts)
    for (const { id, reason } of this.#parked) yield* start(statements.parkTask(id, reason))
  }

  *#schedule(commands: readonly Command[]): Work<void> {
    const { now, newTasks, effects } = this.committed
    newTasks.push(...this.#agents.newChildren)
    const calls = commands.flatMap((command, index) =>
      command.type === 'schedule' ? [{ tasks: command.tasks(now), index }] : [],
    )
    if (calls.length) {
      const { inserted, scheduled } = yield* scheduleTasks(
        this.#context.statements,
        calls.map(({ tasks }) => this.#starter.start(tasks)),
      )
      newTasks.push(...inserted)
      for (const task of inserted)
        if ('kind' in task) effects.push({ type: 'woken', name: task.name, elsewhere: false })
      for (const [i, { index }] of calls.entries())
        this.answers[index] = { type: 'scheduled', tasks: scheduled[i] ?? [] }
    }
    for (const { dueAt } of newTasks) this.committed.dueAt = Math.min(this.committed.dueAt, dueAt ?? Infinity)
  }

  *#claim(wish: ClaimWish): Work<void> {
    const { now, claimed } = this.committed
    claimed.push(...this.#starter.claimed)
    yield* this.#starter.storeClaim()
    if (!wish.look) return
    claimed.push(...(yield* claimTasks(this.#context, wish, now)))
    this.#context.claimed(wish, claimed)
    for (const { dueAt } of claimed) this.committed.dueAt = Math.min(this.committed.dueAt, dueAt ?? Infinity)
  }
}

const ACCEPTED: Answer = { type: 'accepted' }

const NONE: ReadonlySet<string> = new Set()

const REPORTS = ['completed', 'failed', 'beat', 'extend', 'note', 'overdue', 'stopped', 'returned']

function isCancel({ input }: Extract<Command, { type: 'agent' }>): boolean {
  return input.type === 'cancel_child'
}

function isReport(command: Command): command is Extract<Command, { type: 'input' }> {
  return command.type === 'input' && REPORTS.includes(command.input.type)
}
