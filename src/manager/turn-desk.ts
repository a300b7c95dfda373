/**
 * The manager's side of agents: which turns this process runs, how many more it can, and their reports on their way
 * into the store. Decides nothing.
 */
import type { JournalCursor, JournalPage } from '../core/agent-journal.ts'
import { CurfewError } from '../core/errors.ts'
import type { IdSource } from '../core/id.ts'
import type { Logger } from '../core/logger.ts'
import type { StartedTurn, TurnWish } from '../engine/agent-batch.ts'
import type { Answered, Weight } from '../engine/funnel.ts'
import type { Answer, Command } from '../engine/task-batch.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { DownMessage, Turn, TurnAnswer, TurnReport } from '../wire/worker-port.ts'

interface Parts {
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

export class TurnDesk {
  readonly #parts: Parts
  #names: readonly string[] = []
  #slots = 0
  #down: (message: DownMessage) => void = () => undefined
  /** Turns that run here: their tokens by agent. */
  readonly #live = new Map<string, string>()
  #wished = 0
  /** There may be woken agents that nobody has claimed. */
  #mayWait = true
  #claiming = true

  constructor(parts: Parts) {
    this.#parts = parts
  }

  attach(names: readonly string[], slots: number, down: (message: DownMessage) => void): void {
    this.#names = names
    this.#slots = slots
    this.#down = down
  }

  get names(): readonly string[] {
    return this.#names
  }

  get free(): number {
    return this.#claiming && this.#names.length > 0 ? Math.max(0, this.#slots - this.#live.size) : 0
  }

  get live(): number {
    return this.#live.size
  }

  runs(name: string): boolean {
    return this.#names.includes(name)
  }

  holds(agentId: string, token: string): boolean {
    return this.#live.get(agentId) === token
  }

  stopClaiming(): void {
    this.#claiming = false
  }

  woken(): void {
    this.#mayWait = true
  }

  get wishes(): boolean {
    return this.#mayWait && this.#room > 0
  }

  get #room(): number {
    return this.free - this.#wished
  }

  /** Slots for a batch that may wake so many; the transactions beside it find some too. */
  wish(expected: number): TurnWish | null {
    const room = this.#room
    const look = this.#mayWait
    const left = Math.max(0, room - expected)
    const slots = Math.min(room, expected + (look ? Math.ceil(left / 8) : 0))
    if (slots <= 0) return null
    this.#mayWait = false
    this.#wished += slots
    return { token: this.#parts.ids.next('a', this.#parts.time.now()), names: this.#names, slots, look }
  }

  filled(wish: TurnWish, started: readonly StartedTurn[], now: number): void {
    this.#wished -= wish.slots
    if (wish.look && started.length >= wish.slots) this.#mayWait = true
    if (started.length === 0) return
    for (const { row } of started) this.#live.set(row.id, wish.token)
    this.#down({ type: 'turns', turns: started.map((turn) => turnOf(turn, wish.token, now)) })
  }

  missed(wish: TurnWish): void {
    this.#wished -= wish.slots
    if (wish.look) this.#mayWait = true
  }

  news(agentId: string, token: string, dropped: boolean): void {
    if (this.#live.get(agentId) !== token) return
    if (dropped) this.#live.delete(agentId)
    this.#down({ type: 'news', agentId, token, dropped })
  }

  /** A peer has decided something about turns that run here. */
  newsForAll(): void {
    for (const [agentId, token] of this.#live) this.#down({ type: 'news', agentId, token, dropped: false })
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

  async report(reports: readonly TurnReport[]): Promise<TurnAnswer[]> {
    await this.#parts.knowQueues(queuesOf(reports))
    const commands = reports.map(
      (report): Command => ({ type: 'agent', agentId: report.agentId, rootId: report.rootId, input: report }),
    )
    const answers = await this.#parts.submitAll(commands, turnWeight)
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
    if (this.#live.get(agentId) === token) this.#live.delete(agentId)
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
