/**
 * The manager's side of agents: which turns this process runs, how many more it can, and their reports on their way
 * into the store. Decides nothing.
 */
import type { JournalCursor, JournalPage } from '../core/agent-journal.ts'
import { CurfewError } from '../core/errors.ts'
import type { IdSource } from '../core/id.ts'
import type { Logger } from '../core/logger.ts'
import { WORKFLOW } from '../core/own-work.ts'
import type { Receipt } from '../core/states.ts'
import { readablePolicy } from '../definitions/policy-text.ts'
import type { StartedTurn, TurnWish } from '../engine/agent-batch.ts'
import type { Answer, Command } from '../engine/command.ts'
import type { Answered, Weight } from '../engine/funnel.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { Turn, TurnAnswer, TurnReport } from '../wire/worker-port.ts'
import type { ExpectedWork } from './expected-work.ts'
import { throwPassing } from './passing-error.ts'
import type { Group, Session } from './worker-sessions.ts'
import { Groups, shareOut } from './worker-sessions.ts'

interface Parts {
  nodeId: string
  ids: IdSource
  time: StoreTime
  logger: Logger
  kick(): void
  /** Claims go through the queues by name. */
  knowQueues(names: readonly string[]): Promise<void>
  submitAll(commands: readonly Command[], weigh: (command: Command) => Weight): Promise<Answered<Answer>[]>
  submit(command: Command): Promise<Answer>
  journal(agentId: string, token: string, cursor: JournalCursor): Promise<JournalPage | null>
}

/** Who ran an agent last has it in memory. */
const MAX_REMEMBERED = 100_000

export class TurnDesk {
  readonly #parts: Parts
  readonly #groups = new Groups(({ agents, turns }) => ({ names: turns > 0 ? agents : [], queues: null }))
  /** Turns that run here: their tokens by agent. */
  readonly #live = new Map<string, { token: string; session: Session }>()
  /** Claims in flight, by their tokens. */
  readonly #inFlight = new Map<string, Group>()
  readonly #ranLast = new Map<string, Session>()
  #claiming = true

  constructor(parts: Parts) {
    this.#parts = parts
  }

  add(session: Session): void {
    this.#groups.add(session)
  }

  remove(session: Session): void {
    this.#groups.remove(session)
    for (const [agentId, last] of this.#ranLast) if (last === session) this.#ranLast.delete(agentId)
  }

  get names(): readonly string[] {
    return this.#groups.all.flatMap(({ names }) => names)
  }

  get free(): number {
    return this.#groups.all.reduce((free, group) => free + this.#free(group), 0)
  }

  get live(): number {
    return this.#live.size
  }

  runs(name: string): boolean {
    return this.#groups.runs(name)
  }

  holds(agentId: string, token: string): boolean {
    return this.#live.get(agentId)?.token === token
  }

  stopClaiming(): void {
    this.#claiming = false
  }

  woken(): void {
    this.#groups.workArrived()
  }

  get wishes(): boolean {
    return this.#groups.all.some((group) => group.mayWait && this.#room(group) > 0)
  }

  #free(group: Group): number {
    if (!this.#claiming) return 0
    let free = 0
    for (const session of group.sessions) if (!session.isBehind) free += session.freeTurns
    return free
  }

  #room(group: Group): number {
    return this.#free(group) - group.wished
  }

  /** Slots for a batch that may wake so many; the transactions beside it find some too. */
  wish(expecting: ExpectedWork): TurnWish | null {
    const own = this.#groups.all.length > 1 && expecting.ownTurns >= expecting.turns
    const expects = (group: Group) => (own === group.known.has(WORKFLOW) ? 1 : 0)
    const expected = expecting.ownTurns + expecting.turns
    const group =
      (expected > 0
        ? this.#groups.inTurn(
            (one) => (this.#groups.all.length === 1 || expects(one) === 1) && this.#room(one) > 0,
          )
        : null) ?? this.#groups.inTurn((one) => one.mayWait && this.#room(one) > 0)
    if (!group) return null
    const room = this.#room(group)
    const look = group.mayWait
    const left = Math.max(0, room - expected)
    const slots = Math.min(room, expected + (look ? Math.ceil(left / 8) : 0))
    if (slots <= 0) return null
    group.mayWait = false
    group.wished += slots
    const token = this.#parts.ids.next(group.remote ? 'r' : 'a', this.#parts.time.now())
    this.#inFlight.set(token, group)
    return { token, names: group.names, slots, look }
  }

  filled(wish: TurnWish, started: readonly StartedTurn[], now: number): void {
    const group = this.#settleWish(wish)
    if (!group) return
    if (wish.look && started.length >= wish.slots) group.mayWait = true
    if (started.length === 0) return
    const batches = new Map<Session, Turn[]>()
    const nobodys: StartedTurn[] = []
    for (const [turn, session] of this.#shareOut(group, started)) {
      if (!session) {
        nobodys.push(turn)
        continue
      }
      this.hold(session, turn.row.id, wish.token)
      const batch = batches.get(session)
      const message = turnOf(turn, wish.token, now)
      if (batch) batch.push(message)
      else batches.set(session, [message])
    }
    for (const [session, turns] of batches) session.send({ type: 'turns', turns })
    for (const { row } of nobodys) this.lose(row.id, wish.token, 'exited')
  }

  /** Those that have them in memory come first. */
  *#shareOut(group: Group, started: readonly StartedTurn[]): Generator<[StartedTurn, Session | undefined]> {
    if (group.sessions.size === 1) {
      const [only] = group.sessions as unknown as [Session]
      for (const turn of started) yield [turn, only.attached ? only : undefined]
      return
    }
    const others: StartedTurn[] = []
    for (const turn of started) {
      const last = this.#ranLast.get(turn.row.id)
      if (last && group.sessions.has(last) && last.freeTurns > 0) yield [turn, last]
      else others.push(turn)
    }
    const shares = shareOut(group, others.length, ({ freeTurns }) => freeTurns)
    for (const [i, turn] of others.entries()) yield [turn, shares[i]]
  }

  /** Its turn runs there. */
  hold(session: Session, agentId: string, token: string): void {
    const before = this.#live.get(agentId)
    if (before && before.session !== session) before.session.turns.delete(agentId)
    this.#live.set(agentId, { token, session })
    session.turns.set(agentId, token)
    if (session.remote) {
      this.#ranLast.delete(agentId)
      this.#ranLast.set(agentId, session)
      for (const [oldest] of this.#ranLast) {
        if (this.#ranLast.size <= MAX_REMEMBERED) break
        this.#ranLast.delete(oldest)
      }
    }
  }

  /** It does not run there: somebody else takes it up. */
  lose(agentId: string, token: string, receipt: Receipt): void {
    this.#drop(agentId, token)
    const { nodeId, submit, logger } = this.#parts
    const input = { type: 'lost', nodeId, receipt, token } as const
    submit({ type: 'input', taskId: agentId, input }).catch((error: unknown) =>
      logger.warn({ agentId, error: String(error) }, 'a turn could not be taken back; the sweep will'),
    )
  }

  #drop(agentId: string, token: string): void {
    const live = this.#live.get(agentId)
    if (live?.token !== token) return
    this.#live.delete(agentId)
    live.session.turns.delete(agentId)
  }

  missed(wish: TurnWish): void {
    const group = this.#settleWish(wish)
    if (group && wish.look) group.mayWait = true
  }

  #settleWish(wish: TurnWish): Group | null {
    const group = this.#inFlight.get(wish.token) ?? null
    if (group) group.wished -= wish.slots
    this.#inFlight.delete(wish.token)
    return group
  }

  news(agentId: string, token: string, dropped: boolean): void {
    const live = this.#live.get(agentId)
    if (live?.token !== token) return
    if (dropped) this.#drop(agentId, token)
    live.session.send({ type: 'news', agentId, token, dropped })
  }

  /** A peer has decided something about turns that run here. */
  newsForAll(): void {
    for (const [agentId, { token, session }] of this.#live)
      session.send({ type: 'news', agentId, token, dropped: false })
  }

  journal(agentId: string, token: string, cursor: JournalCursor): Promise<JournalPage | null> {
    return this.#parts.journal(agentId, token, cursor)
  }

  wake(agentId: string, rootId: string, token: string): void {
    const { logger } = this.#parts
    this.#parts
      .submit({ type: 'agent', agentId, rootId, input: { type: 'wake', token } })
      .catch((error: unknown) =>
        logger.warn({ agentId, error: String(error) }, 'an agent could not be woken'),
      )
  }

  /** By a worker elsewhere: the turns of another are none of its business. */
  async reportFrom(workerId: string, reports: readonly TurnReport[]): Promise<TurnAnswer[]> {
    const isIts = ({ agentId, token }: TurnReport) => {
      const live = this.#live.get(agentId)
      return live?.token !== token || live.session.workerId === workerId
    }
    if (reports.every(isIts)) return this.report(reports, true)
    const its = reports.filter(isIts)
    const answers = new Map((await this.report(its, true)).map((answer, i) => [its[i] as TurnReport, answer]))
    return reports.map((report) => answers.get(report) ?? { type: 'stale' })
  }

  async report(reports: readonly TurnReport[], elsewhere = false): Promise<TurnAnswer[]> {
    await this.#parts.knowQueues(queuesOf(reports))
    const commands = reports.map(
      (report): Command => ({ type: 'agent', agentId: report.agentId, rootId: report.rootId, input: report }),
    )
    const answers = await this.#parts.submitAll(commands, turnWeight)
    if (elsewhere) throwPassing(answers)
    const turnAnswers = reports.map((report, i) => this.#answer(report, answers[i]))
    if (this.wishes) this.#parts.kick()
    return turnAnswers
  }

  /** What the store does not take it would not take another time: somebody has to look at it. */
  #refused({ agentId, rootId, token, seen, state }: TurnReport, error: unknown): void {
    const { logger, submit } = this.#parts
    logger.error({ agentId, error: String(error) }, 'a turn could not be stored')
    const code = error instanceof CurfewError ? error.code : 'bug'
    if (code === 'closed' || code === 'commit_unknown' || state.type === 'parked') return
    const reason = `its turn could not be stored: ${error instanceof Error ? error.message : String(error)}`
    const parked = { type: 'parked', reason, code: 'turn_refused', step: null } as const
    const input = { type: 'turn', token, seen, steps: [], ran: [], withdrawn: [], state: parked } as const
    submit({ type: 'agent', agentId, rootId, input: { ...input, steps: [], ran: [], withdrawn: [] } }).catch(
      (failed: unknown) => logger.warn({ agentId, error: String(failed) }, 'an agent could not be parked'),
    )
  }

  #answer(report: TurnReport, answered: Answered<Answer> | undefined): TurnAnswer {
    const { agentId, token } = report
    const answer = answered && 'answer' in answered ? answered.answer : null
    if (answer?.type === 'turn' && answer.state === 'more') {
      const now = this.#parts.time.now()
      return { type: 'more', results: answer.results ?? [], upTo: answer.upTo ?? 0, now }
    }
    this.#drop(agentId, token)
    if (answer?.type === 'turn') return { type: answer.state === 'suspended' ? 'suspended' : 'ended' }
    if (answered && 'error' in answered) this.#refused(report, answered.error)
    return { type: 'stale' }
  }
}

function turnOf({ row, results }: StartedTurn, token: string, now: number): Turn {
  return {
    agentId: row.id,
    rootId: row.rootId ?? row.id,
    name: row.name,
    token,
    turn: row.attempt,
    input: row.input === '' ? null : row.input,
    trace: readablePolicy(row.policy).trace,
    now,
    steps: row.steps,
    seen: row.seen,
    upTo: row.results,
    results,
  }
}

function queuesOf(reports: readonly TurnReport[]): string[] {
  const names = new Set<string>()
  for (const { steps } of reports) {
    for (const step of steps) if (step.kind === 'task') names.add((step.policy as { queue: string }).queue)
  }
  return [...names]
}

function turnWeight(command: Command): Weight {
  if (command.type !== 'agent' || command.input.type !== 'turn') return { bytes: 0, rows: 1 }
  const { steps, ran, state } = command.input
  let bytes = state.type === 'returned' ? state.output.length : 0
  for (const step of steps) if ('input' in step) bytes += step.input.length
  for (const { outcome } of ran) if ('output' in outcome) bytes += outcome.output.length
  return { bytes, rows: 1 + steps.length + ran.length }
}
