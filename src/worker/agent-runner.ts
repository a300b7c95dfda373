/**
 * The agents of a worker: takes turns, keeps suspended runs in memory within bounds, replays those it does not have,
 * and sends up what they report. One that is dropped is replayed when it is woken.
 */
import type { JournalCursor, JournalPage } from '../core/agent-journal.ts'
import { JOURNAL_START } from '../core/agent-journal.ts'
import type { Clock, Randomness } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import type { IdSource } from '../core/id.ts'
import type { Logger } from '../core/logger.ts'
import type { AgentDefinition } from '../definitions/agent.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import type { Held, Turn, TurnAnswer, TurnReport, WorkerSession } from '../wire/worker-port.ts'
import { ReplayedJournal } from './agent-journal-match.ts'
import type { RunHost } from './agent-run.ts'
import { AgentRun } from './agent-run.ts'
import { Outbox } from './outbox.ts'
import { bareReport } from './turn-report.ts'

export interface AgentRunnerOptions {
  agents: readonly AgentDefinition[]
  registry: Registry
  clock: Clock
  randomness: Randomness
  ids: IdSource
  logger: Logger
  residents: { count: number; bytes: number }
}

export class AgentRunner {
  readonly #options: AgentRunnerOptions
  readonly #definitions: Map<string, AgentDefinition>
  readonly #host: RunHost
  /** Every run there is; those that are suspended in the order in which they were. */
  readonly #runs = new Map<string, AgentRun>()
  readonly #waiting = new Map<string, { run: AgentRun; bytes: number }>()
  #session: WorkerSession | null = null
  readonly #outbox: Outbox<TurnReport, TurnAnswer>

  readonly #loadingTurns = new Set<Turn>()
  #bytes = 0
  #refusing = false
  readonly #releasing = new Set<Promise<void>>()
  /** Those who wait for turns to end. */
  readonly #whenQuiet: (() => void)[] = []

  constructor(options: AgentRunnerOptions) {
    this.#options = options
    this.#outbox = new Outbox(options.clock, (reports) => this.#session?.reportTurns(reports) ?? null, {
      type: 'stale',
    })
    this.#definitions = new Map(options.agents.map((definition) => [definition.name, definition]))
    const { clock, randomness, logger, ids } = options
    this.#host = {
      clock,
      randomness,
      logger,
      registry: options.registry,
      nextId: (prefix, now) => ids.next(prefix, now),
      report: (report) => this.#outbox.add(report),
      wake: ({ agentId, turn }) => this.#session?.wake(agentId, turn.rootId, turn.token),
      start: (turn) => this.#start(turn),
      suspended: (run) => this.#suspended(run),
      gone: (run) => this.#gone(run),
    }
  }

  attach(session: WorkerSession): void {
    this.#session = session
  }

  /** Turns that run here. */
  held(): Held[] {
    const live = [...this.#runs.values()].filter((run) => run.live)
    return [
      ...live.map(({ agentId, turn }) => ({ id: agentId, token: turn.token })),
      ...[...this.#loadingTurns].map(({ agentId, token }) => ({ id: agentId, token })),
    ]
  }

  get idle(): boolean {
    if (!this.#outbox.idle || this.#loadingTurns.size > 0) return false
    for (const run of this.#runs.values()) if (!run.idle) return false
    return true
  }

  get residents(): number {
    return this.#waiting.size
  }

  /** What is still handed out is given back. */
  refuse(): void {
    this.#refusing = true
  }

  turns(turns: readonly Turn[]): void {
    for (const turn of turns) {
      if (this.#refusing) this.#track(this.#giveBack(turn))
      else this.#start(turn)
    }
  }

  news({ agentId, token, dropped }: { agentId: string; token: string; dropped: boolean }): void {
    const run = this.#runs.get(agentId)
    if (run?.turn.token !== token) return
    if (dropped) run.drop()
    else run.news()
  }

  /** Its process lets go of everything: other processes go on with it. */
  releaseAll(): void {
    for (const run of [...this.#runs.values()]) {
      this.#track(run.release())
    }
  }

  /** No turn runs any more: they have ended, or wait. */
  async drained(): Promise<void> {
    while ([...this.#runs.values()].some((run) => run.live) || this.#loadingTurns.size > 0) {
      await new Promise<void>((resolve) => this.#whenQuiet.push(resolve))
    }
  }

  #quiet(): void {
    for (const resolve of this.#whenQuiet.splice(0)) resolve()
  }

  /** Everything that was let go of is known to the store. */
  async released(): Promise<void> {
    while (this.#releasing.size > 0) await Promise.all(this.#releasing)
  }

  #start(turn: Turn): void {
    const resident = this.#runs.get(turn.agentId)
    if (resident?.takesUp(turn)) {
      if (!resident.suspended) return // it goes on as soon as it is
      this.#forget(resident)
      return resident.resume(turn)
    }
    resident?.drop() // somebody else has run it since
    if (turn.input !== null && turn.steps === 0 && turn.upTo === 0) this.#begin(turn, turn.input, null)
    else this.#track(this.#replay(turn))
  }

  /** On its way back to the store: a process that closes waits for it. */
  #track(work: Promise<void>): void {
    const released = work.finally(() => this.#releasing.delete(released))
    this.#releasing.add(released)
  }

  #begin(turn: Turn, input: string, journal: ReplayedJournal | null): void {
    const other = this.#runs.get(turn.agentId)
    if (other && other.turn.turn > turn.turn) return // it took long to load, and is not the current one any more
    other?.drop()
    const definition = this.#definitions.get(turn.name)
    if (!definition) throw new Error(`curfew: a turn of ${turn.name}, which this worker did not announce`)
    const run = new AgentRun(definition, turn, journal, this.#host)
    this.#runs.set(turn.agentId, run)
    run.start(input)
  }

  async #replay(turn: Turn): Promise<void> {
    this.#loadingTurns.add(turn)
    try {
      const pages = await this.#load(turn)
      if (!pages || this.#refusing) return void (await this.#giveBack(turn))
      this.#begin(turn, pages[0]?.input ?? 'null', new ReplayedJournal(pages, turn))
    } catch (error) {
      // A store that is away comes back; a record that makes no sense will not.
      const { agentId } = turn
      this.#options.logger.error({ agentId, error: String(error) }, 'a journal could not be read')
      const away = error instanceof CurfewError && ['store_unavailable', 'closed'].includes(error.code)
      if (away) await this.#giveBack(turn)
      else await this.#park(turn, `its journal cannot be read: ${(error as Error).message}`)
    } finally {
      this.#loadingTurns.delete(turn)
      this.#quiet()
    }
  }

  async #load(turn: Turn): Promise<JournalPage[] | null> {
    const pages: JournalPage[] = []
    let cursor: JournalCursor | null = JOURNAL_START
    while (cursor) {
      const page: JournalPage | null =
        (await this.#session?.journal(turn.agentId, turn.token, cursor)) ?? null
      if (!page) return null
      pages.push(page)
      cursor = page.next
    }
    return pages
  }

  async #giveBack(turn: Turn): Promise<void> {
    await this.#outbox.add(bareReport(turn, { type: 'released' }))
  }

  async #park(turn: Turn, reason: string): Promise<void> {
    const state = { type: 'parked', reason, code: 'journal_unreadable', step: null } as const
    await this.#outbox.add(bareReport(turn, state))
  }

  #suspended(run: AgentRun): void {
    this.#quiet()
    this.#waiting.set(run.agentId, { run, bytes: run.bytes })
    this.#bytes += run.bytes
    const { count, bytes } = this.#options.residents
    for (const { run: oldest } of this.#waiting.values()) {
      // One that is alone is not dropped for its size: it would be replayed at every step.
      if (this.#waiting.size <= count && (this.#bytes <= bytes || this.#waiting.size === 1)) return
      oldest.drop()
    }
  }

  /** It does not wait any more. */
  #forget({ agentId }: AgentRun): void {
    this.#bytes -= this.#waiting.get(agentId)?.bytes ?? 0
    this.#waiting.delete(agentId)
  }

  #gone(run: AgentRun): void {
    this.#quiet()
    if (this.#runs.get(run.agentId) !== run) return
    this.#runs.delete(run.agentId)
    this.#forget(run)
  }
}
