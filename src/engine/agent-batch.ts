/**
 * The agents of one transaction: what ends below them is handed up, what they stop is handed down, what wakes them
 * starts a turn at once where this process may. Rows of agents are read and written here alone; their roots are
 * locked before anything else of the batch.
 */
import type { Activity, JournalResult } from '../core/agent-journal.ts'
import { isEnded } from '../core/states.ts'
import type { SignalRow, TitledChild } from '../store/agent-statements.ts'
import type { NewBelow, NewRow } from '../store/hot-statements.ts'
import type { Work } from '../store/statement.ts'
import { run, start, startAll } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type { TaskRow } from '../store/task-row.ts'
import { TURN_FIELDS } from '../store/task-row.ts'
import { decideAgent, wantsSignals } from './agent-decide.ts'
import type { AgentDraft } from './agent-draft.ts'
import { codeAlive } from './agent-draft.ts'
import type { AgentInput, Grant, SettledChild } from './agent-input.ts'
import { journalRow, unseen, workOutcome } from './agent-results.ts'
import type { Starter } from './start-new.ts'
import type { Effect, TaskDraft } from './task-draft.ts'
import type { TaskAnswer, TaskInput } from './task-input.ts'

/** Where a task stands below an agent. */
export interface Scope {
  rootId: string
  parentId: string
  step: number
  detached: boolean
}

export interface TurnWish {
  token: string
  names: readonly string[]
  slots: number
  /** Turns may wait that no decision of this batch brings up. */
  look: boolean
}

/** A turn that this process runs from now on. */
export interface StartedTurn {
  row: TaskRow
  results: JournalResult[]
}

interface Parts {
  statements: Statements
  nodeId: string
  peers: () => readonly string[]
  now: number
  wish: TurnWish | null
  /** Every row of the batch, as it is by now. */
  rows: Map<string, TaskRow>
  starter: Starter
  /** Decides about a task, for what is handed down. */
  decideTask(row: TaskRow, input: TaskInput): void
  decided(draft: TaskDraft): void
  effect(effect: Effect): void
}

/** An agent that a living peer has in memory is left to it for so long. */
const LEFT_TO_PEER_MS = 1_000

export class AgentBatch {
  readonly started: StartedTurn[] = []
  readonly newChildren: NewRow[] = []
  readonly #parts: Parts
  readonly #drafts = new Map<string, AgentDraft[]>()
  readonly #toInsert: NewBelow[] = []
  readonly #toStop = new Set<string>()
  readonly #toCancel = new Set<string>()
  /** They were given time: what inherits from them has it too. */
  readonly #toFollow = new Set<string>()
  readonly #settled = new Map<string, TaskRow[]>()
  readonly #granted: (Grant & { parentId: string })[] = []
  readonly #woken = new Set<string>()
  readonly #signals = new Map<string, SignalRow[]>()
  readonly #claimed: TaskRow[] = []
  readonly #activity = new Map<string, Activity>()
  readonly #titled = new Map<string, TitledChild[]>()

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /** The signals that a turn may take have to be there before it is decided. */
  *prepare(inputs: readonly { agentId: string; input: AgentInput }[]): Work<void> {
    for (const { agentId, input } of inputs) {
      const row = this.#parts.rows.get(agentId)
      if (row && input.type === 'cancel_child') {
        const titles = [...input.below, input.title]
        const found = yield* run(this.#parts.statements.agents.titledChildren(agentId, titles))
        this.#titled.set(agentId, [...(this.#titled.get(agentId) ?? []), ...found])
      }
      if (!row || input.type !== 'turn' || !wantsSignals(row, input)) continue
      const wanted = new Map<string, number>()
      for (const step of input.steps) {
        if (step.kind === 'signal') wanted.set(step.name, (wanted.get(step.name) ?? 0) + 1)
      }
      const { agents } = this.#parts.statements
      const taken: SignalRow[] = []
      for (const [name, count] of wanted) taken.push(...(yield* run(agents.signals(agentId, name, count))))
      this.#signals.set(agentId, taken)
    }
  }

  /** How things go below those of these that are due to be asked. */
  *prepareDue(rows: readonly TaskRow[]): Work<void> {
    const { statements, now } = this.#parts
    for (const { id, waits } of rows) {
      if (waits === null || !waits.includes('"stuck"')) continue
      const [found] = yield* run(statements.agents.activity(id))
      if (found) this.#activity.set(id, { ...found, now })
    }
  }

  decide(row: TaskRow, input: AgentInput): TaskAnswer {
    const { rows, now } = this.#parts
    const signals = this.#signals.get(row.id) ?? []
    const known = input.type === 'cancel_child' ? { ...input, children: this.#titledChildren(row.id) } : input
    const { draft, answer } = decideAgent(row, known, now, signals, this.#activity.get(row.id))
    if (draft.taken.length || draft.queued.length) {
      const left = signals.filter((one) => !draft.taken.includes(one))
      // What came with this batch is not stored yet; the turn that asks for it may be in it too.
      this.#signals.set(row.id, [...left, ...draft.queued])
    }
    rows.set(row.id, draft.row)
    const drafts = this.#drafts.get(row.id)
    if (drafts) drafts.push(draft)
    else this.#drafts.set(row.id, [draft])
    this.#parts.decided(draft)
    for (const child of draft.children) this.#toInsert.push(child)
    for (const id of draft.cancels) this.#toCancel.add(id)
    if (draft.cancelBelow) this.#toStop.add(row.id)
    if (draft.wakes) this.#woken.add(row.id)
    if (isGiven(input) && (draft.row.deadlineAt ?? 0) > (row.deadlineAt ?? 0)) this.#toFollow.add(row.id)
    return answer
  }

  /** As they are by now, those on their way in included. */
  #titledChildren(agentId: string): TitledChild[] {
    const arriving = this.#toInsert.filter(({ parentId }) => parentId === agentId)
    return [...(this.#titled.get(agentId) ?? []), ...arriving].map(({ id, title, status }) => ({
      ...{ id, title },
      status: this.#parts.rows.get(id)?.status ?? status,
    }))
  }

  /** What is below it is about to stop. */
  stops(agentId: string): boolean {
    return this.#toStop.has(agentId)
  }

  /** Something below an agent has settled. */
  settled(row: TaskRow): void {
    const parentId = row.parentId as string
    const children = this.#settled.get(parentId)
    if (children) children.push(row)
    else this.#settled.set(parentId, [row])
  }

  /** It was granted time, or an operator gave it some: what would cut it short moves. Of what is detached nothing does. */
  granted({ parentId, detached }: TaskRow, grant: Grant): void {
    if (parentId !== null && detached === 0) this.#granted.push({ parentId, ...grant })
  }

  /**
   * Good ends that a guarded write will decide: their places among the results are given out before it. Answers the
   * place by the task's id; an end whose agent is gone has none.
   */
  settleHot(ends: readonly (Scope & { id: string; output: string })[]): Map<string, number> {
    const places = new Map<string, number>()
    const byParent = new Map<string, SettledChild[]>()
    for (const { id, output, parentId, step, detached } of ends) {
      const child = { id, step, detached, outcome: { status: 'completed', output } as const }
      const children = byParent.get(parentId)
      if (children) children.push(child)
      else byParent.set(parentId, [child])
    }
    for (const [parentId, children] of byParent) {
      const row = this.#parts.rows.get(parentId)
      if (row) this.#handUp(row, children, (id, seq) => places.set(id, seq))
    }
    return places
  }

  #handUp(row: TaskRow, children: SettledChild[], place: (id: string, seq: number) => void): void {
    children.sort((a, b) => a.step - b.step)
    this.decide(row, { type: 'settled', children })
    for (const [i, { id }] of children.entries()) place(id, row.results + i + 1)
  }

  /** Up and down until nothing moves any more. */
  *propagate(): Work<void> {
    for (;;) {
      if (this.#toInsert.length) yield* this.#insertChildren()
      const grant = this.#granted.pop()
      if (grant) yield* this.#passUp(grant)
      if (this.#toCancel.size) yield* this.#cancelChosen()
      else if (this.#toStop.size) yield* this.#stopBelow()
      else if (this.#toFollow.size) yield* this.#followBelow()
      else if (this.#settled.size) yield* this.#handUpSettled()
      else if (this.#granted.length === 0) return
    }
  }

  *#insertChildren(): Work<void> {
    const children = this.#toInsert.splice(0)
    // What this batch may be about to stop had better not start.
    const stops = this.#toStop.size > 0 || this.#toCancel.size > 0
    const rows = stops ? children : this.#parts.starter.start(children)
    yield* startAll(this.#parts.statements.hot.insertTasks(rows))
    this.newChildren.push(...rows)
    for (const { kind, name } of children)
      if (kind === 'agent') this.#parts.effect({ type: 'woken', name, elsewhere: false })
  }

  *#cancelChosen(): Work<void> {
    const ids = [...this.#toCancel]
    this.#toCancel.clear()
    yield* this.#load(ids)
    for (const id of ids) this.#cancel(this.#parts.rows.get(id))
  }

  *#stopBelow(): Work<void> {
    const { statements, rows } = this.#parts
    const agentIds = [...this.#toStop]
    this.#toStop.clear()
    for (const agentId of agentIds) {
      if ((rows.get(agentId)?.open ?? 0) === 0) continue
      const children = yield* run(statements.agents.openChildren(agentId))
      // What this batch has decided already is newer than what is stored.
      for (const child of children) this.#cancel(rows.get(child.id) ?? child)
    }
  }

  #cancel(row: TaskRow | undefined): void {
    if (!row || row.settledAt !== null || isEnded(row.status)) return
    if (row.kind === 'agent') this.decide(row, { type: 'cancel' })
    else this.#parts.decideTask(row, { type: 'cancel' })
  }

  *#followBelow(): Work<void> {
    const { statements, rows } = this.#parts
    const agentIds = [...this.#toFollow]
    this.#toFollow.clear()
    for (const agentId of agentIds) {
      const { open = 0, deadlineAt = null } = rows.get(agentId) ?? {}
      if (open === 0 || deadlineAt === null) continue
      for (const child of yield* run(statements.agents.inheritingChildren(agentId))) {
        const row = rows.get(child.id) ?? child
        if (isEnded(row.status)) continue
        const input = { type: 'follow', deadlineAt } as const
        if (row.kind === 'agent') this.decide(row, input)
        else this.#parts.decideTask(row, input)
      }
    }
  }

  *#handUpSettled(): Work<void> {
    const { rows } = this.#parts
    const settled = [...this.#settled]
    this.#settled.clear()
    yield* this.#load(settled.map(([parentId]) => parentId))
    for (const [parentId, children] of settled) {
      const row = rows.get(parentId)
      if (!row) continue
      const ends = children.map((child) => ({
        id: child.id,
        step: child.step ?? 0,
        detached: child.detached === 1,
        outcome: workOutcome(child),
      }))
      const asleep = !this.#woken.has(parentId)
      this.#handUp(row, ends, (id, seq) => {
        const child = rows.get(id)
        if (child) child.resultSeq = seq
      })
      const timedOut = children.find(({ status }) => status === 'timed_out')
      if (asleep && timedOut && this.#woken.has(parentId)) {
        this.#parts.effect({ type: 'timeout_wakes', agentId: parentId, taskId: timedOut.id })
      }
    }
  }

  *#passUp({ parentId, ...grant }: Grant & { parentId: string }): Work<void> {
    yield* this.#load([parentId])
    const row = this.#parts.rows.get(parentId)
    if (!row) return
    this.decide(row, { type: 'granted', ...grant })
    this.granted(row, grant)
  }

  *#load(ids: string[]): Work<void> {
    const { statements, rows } = this.#parts
    const missing = [...new Set(ids)].filter((id) => !rows.has(id)).sort()
    if (missing.length === 0) return
    for (const row of yield* run(statements.lockTasks(missing))) rows.set(row.id, row)
  }

  /** Turns start here if they may; the others are there to be claimed. */
  startTurns(): void {
    const { rows, wish, now, nodeId } = this.#parts
    for (const id of this.#woken) {
      const row = rows.get(id)
      if (!row || row.live === 1 || row.parked !== null || !codeAlive(row)) continue
      const left = wish !== null && wish.slots > this.#claimed.length
      if (left && wish.names.includes(row.name) && this.#mayTake(row)) {
        if (row.startedSeq === null) row.startedSeq = ++row.seq
        if (row.status === 'pending') row.status = 'running'
        row.startedAt ??= now
        row.live = 1
        row.attempt++
        row.wokenAt = null
        row.nodeId = nodeId
        row.token = wish.token
        this.#claimed.push(row)
      } else if (row.wokenAt === null) {
        row.wokenAt = now
        this.#parts.effect({ type: 'woken', name: row.name, elsewhere: !this.#mayTake(row) })
      }
    }
  }

  #mayTake({ nodeId, token }: TaskRow): boolean {
    return token === null || nodeId === this.#parts.nodeId || !this.#parts.peers().includes(nodeId)
  }

  *flush(): Work<void> {
    const { agents } = this.#parts.statements
    const turns: TaskRow[] = []
    const whole: TaskRow[] = []
    const journal = []
    for (const [id, drafts] of this.#drafts) {
      const row = this.#parts.rows.get(id) as TaskRow
      const before = drafts[0]?.before as TaskRow
      const change = changeOf(before, row)
      if (change !== 'none') {
        row.version++
        if (change === 'turn') turns.push(row)
        else whole.push(row)
      }
      for (const draft of drafts) {
        if (draft.steps.length) journal.push(journalRow(id, 0, draft.steps))
        const rowless = draft.results.filter(({ type }) => type !== 'work')
        if (rowless.length) journal.push(journalRow(id, 1, rowless))
        if (draft.queued.length) yield* start(agents.insertSignals(draft.queued))
        for (const signal of draft.taken) yield* start(agents.deleteSignal(signal))
      }
    }
    if (turns.length) yield* start(agents.updateAgents(turns, false))
    if (whole.length) yield* start(agents.updateAgents(whole, true))
    if (journal.length) yield* start(agents.insertJournal(journal))
  }

  /** Turns that nothing in this batch has brought up. */
  *claim(): Work<void> {
    const { statements, wish, nodeId, now, peers } = this.#parts
    if (!wish?.look || wish.slots <= this.#claimed.length || wish.names.length === 0) return
    const limit = wish.slots - this.#claimed.length
    const { token, names } = wish
    const claim = { now, nodeId, token, names, limit, peers: peers(), patience: now - LEFT_TO_PEER_MS }
    const claimed = yield* run(statements.agents.claimTurns(claim))
    for (const row of claimed) this.#parts.rows.set(row.id, row)
    this.#claimed.push(...claimed)
  }

  /** What is new for the turns that start and for those (`asking`) that go on. */
  *gatherResults(asking: readonly string[]): Work<Map<string, JournalResult[]>> {
    const { rows, statements } = this.#parts
    const known = new Map<string, JournalResult[]>()
    const toRead: string[] = []
    for (const id of new Set([...this.#claimed.map((row) => row.id), ...asking])) {
      const row = rows.get(id) as TaskRow
      const fresh = (this.#drafts.get(id) ?? []).flatMap(({ results }) => results)
      const unseenCount = row.results - row.seen
      const last = fresh.slice(fresh.length - unseenCount)
      if (unseenCount === 0) known.set(id, [])
      else if (last.length === unseenCount && last[0]?.seq === row.seen + 1) known.set(id, last)
      else toRead.push(id)
    }
    for (const [id, results] of yield* unseen(statements, toRead)) {
      if (!(results instanceof Error)) known.set(id, results)
      else yield* start(statements.parkTask(id, `its journal cannot be read: ${results.message}`))
    }
    for (const row of this.#claimed) {
      const results = known.get(row.id)
      if (results) this.started.push({ row, results })
    }
    return known
  }
}

/** By an operator. What attempts are granted moves what would cut them short alone. */
function isGiven(input: AgentInput): boolean {
  return input.type === 'extend_by' || input.type === 'follow' || (input.type === 'granted' && input.operator)
}

function changeOf(before: TaskRow, after: TaskRow): 'none' | 'turn' | 'more' {
  let change: 'none' | 'turn' = 'none'
  for (const field in after) {
    const key = field as keyof TaskRow
    if (before[key] === after[key]) continue
    if (!(TURN_FIELDS as readonly string[]).includes(key)) return 'more'
    change = 'turn'
  }
  return change
}
