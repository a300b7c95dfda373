/**
 * One agent's function in this process: its steps on their way to the store, the results handed to it one at a time,
 * and its turns. It is suspended when a turn of the event loop ends with nothing open and something awaited; there is
 * no exception that user code could swallow. A run that was dropped never settles anything again.
 */
import type { JournalResult, NewStep, RunOutcome } from '../core/agent-journal.ts'
import type { Clock, Randomness, Timer } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import type { IdPrefix } from '../core/id.ts'
import { decodeJson, encodeJson } from '../core/json.ts'
import { MAX_STEPS } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import { JournalMismatch, Stopped } from '../core/task-errors.ts'
import type { AgentContext, AgentDefinition } from '../definitions/agent.ts'
import { parseInput } from '../definitions/input-schema.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import type { Turn, TurnAnswer, TurnReport } from '../wire/worker-port.ts'
import { Awaits } from './agent-awaits.ts'
import { createAgentContext } from './agent-context.ts'
import { Group } from './agent-group.ts'
import type { ReplayedJournal } from './agent-journal-match.ts'
import type { RunPlan } from './agent-runs.ts'
import { executeRun, RunGate } from './agent-runs.ts'
import type { Waitable } from './agent-step.ts'
import { Step } from './agent-step.ts'
import { resultBytes, stepEnd, thrownEnd, tooManySteps } from './agent-step-end.ts'
import { bareReport, takePart } from './turn-report.ts'
import { TurnTime } from './turn-time.ts'

export interface RunHost {
  clock: Clock
  randomness: Randomness
  logger: Logger
  nextId(prefix: IdPrefix, now: number): string
  /** What this process knows, for names in the definitions of workflows. */
  registry: Registry
  report(report: TurnReport): Promise<TurnAnswer>
  /** A suspended run wants a turn. */
  wake(run: AgentRun): void
  /** A turn this run cannot go on with. */
  start(turn: Turn): void
  /** It waits, and may be dropped. */
  suspended(run: AgentRun): void
  /** Nothing of it is left. */
  gone(run: AgentRun): void
}

/** News of a turn that runs may be lost with a process: it asks by itself. */
const ASK_EVERY_MS = 5_000
/** Steps whose code is given something at once. */
const TELLING: readonly NewStep['kind'][] = ['task', 'agent', 'now', 'random', 'uuid']
/** What a step costs in memory beside its values. */
const STEP_BYTES = 300

type Phase = 'settling' | 'reporting' | 'open' | 'suspended' | 'over'
type End = { type: 'returned'; output: string } | ReturnType<typeof thrownEnd>

export class AgentRun {
  readonly agentId: string
  readonly controller = new AbortController()
  turn: Turn
  readonly #definition: AgentDefinition
  readonly #host: RunHost
  /** While it is replayed. */
  #journal: ReplayedJournal | null
  #phase: Phase = 'settling'
  readonly #time: TurnTime
  #nextStep = 0
  #seen = 0
  #upTo: number
  #inbox: JournalResult[]
  /** How many of the inbox were handed over. */
  #delivered = 0
  #outgoing: NewStep[] = []
  #ran: TurnReport['ran'] = []
  #withdrawn: number[] = []
  /** Steps without a result, by number. */
  readonly #pending = new Map<number, Step>()
  readonly #awaits = new Awaits(this.#pending)
  readonly #groups = new Set<Group>()
  readonly #onTime = new Map<number, () => void>()
  #openRuns = 0
  #deliveredBytes = 0
  #inputBytes = 0
  readonly #gate = new RunGate()
  #touched = false
  #end: End | null = null
  #mismatch: JournalMismatch | null = null
  #stopped: Stopped | null = null
  #askTimer: Timer | null = null
  #nextTurn: Turn | null = null

  constructor(definition: AgentDefinition, turn: Turn, journal: ReplayedJournal | null, host: RunHost) {
    this.#definition = definition
    this.agentId = turn.agentId
    this.turn = turn
    this.#host = host
    this.#journal = journal
    this.#inbox = journal ? [...journal.results] : [...turn.results]
    this.#upTo = turn.upTo
    this.#time = new TurnTime(host.clock, turn.now)
  }

  start(input: string): void {
    this.#inputBytes = input.length
    void this.#execute(input, createAgentContext(this, this.#host))
    this.#tickSoon()
  }

  /** An estimate of what it holds in memory: what it waits for, and what it was given since it last waited. */
  get bytes(): number {
    return this.#inputBytes + this.#pending.size * STEP_BYTES + this.#deliveredBytes
  }

  get suspended(): boolean {
    return this.#phase === 'suspended'
  }

  get live(): boolean {
    return this.#phase !== 'suspended' && this.#phase !== 'over'
  }

  /** Waits for nothing but the clock, the store or its own code. */
  get idle(): boolean {
    return this.#phase !== 'settling'
  }

  get replaying(): boolean {
    return (
      this.#journal !== null &&
      (this.#nextStep < this.#journal.length || this.#seen < (this.#journal.results.at(-1)?.seq ?? 0))
    )
  }

  /** The step that is asked for next is on record. */
  get nextIsRecorded(): boolean {
    return this.#journal !== null && this.#nextStep < this.#journal.length
  }

  get stopped(): Stopped | null {
    return this.#stopped
  }

  get dead(): boolean {
    return this.#phase === 'over'
  }

  /** The store's time, as far as it is known here. */
  now(): number {
    return this.#time.now()
  }

  newId(prefix: IdPrefix): string {
    return this.#host.nextId(prefix, this.now())
  }

  random(): number {
    return this.#host.randomness.next()
  }

  bytesOfChance(count: number): Uint8Array {
    return this.#host.randomness.bytes(count)
  }

  /** Whether it can go on with this turn where it stands; one that comes before it knows that it waits is kept. */
  takesUp(turn: Turn): boolean {
    if (turn.turn !== this.turn.turn + 1) return false
    if (this.#phase === 'reporting') this.#nextTurn = turn
    return this.#phase === 'reporting' || this.#phase === 'suspended'
  }

  resume(turn: Turn): void {
    this.#deliveredBytes = 0
    this.#nextTurn = null
    this.turn = turn
    this.#take(turn.results, turn.upTo, turn.now)
    this.#phase = 'settling'
    this.#tickSoon()
  }

  news(): void {
    this.#touched = true
    if (this.#phase === 'open') this.#tickSoon()
  }

  drop(): void {
    if (this.#phase === 'over') return
    this.#phase = 'over'
    this.#askTimer?.cancel()
    for (const step of this.#pending.values()) step.stop?.()
    this.#host.gone(this)
  }

  /** Its process lets go of it. */
  async release(): Promise<void> {
    if (!this.live) return this.drop()
    this.drop()
    await this.#host.report(bareReport(this.turn, { type: 'released' }))
  }

  // What the context calls.

  /** A new step; answers what is on record of it when it is replayed. */
  addStep<K extends NewStep['kind']>(
    make: (no: number) => Extract<NewStep, { kind: K }>,
  ): { no: number; id?: string; value?: unknown; replayed: boolean } {
    const no = this.#nextStep
    const step = make(no)
    step.seen = this.#seen
    if (this.#phase === 'over' || this.#mismatch) return { no: -1, replayed: false }
    if (no >= MAX_STEPS) {
      this.#tooManySteps()
      return { no: -1, replayed: false }
    }
    this.#nextStep++
    this.touch()
    if (this.#journal && no < this.#journal.length) {
      try {
        const { id, value } = this.#journal.match(step)
        return { no, replayed: true, ...(id !== undefined && { id }), ...(value !== undefined && { value }) }
      } catch (error) {
        this.#mismatch = error as JournalMismatch
        return { no: -1, replayed: true }
      }
    }
    this.#outgoing.push(step)
    if (TELLING.includes(step.kind)) this.#gate.told(no)
    return { no, replayed: false }
  }

  /** The handle of a step that has been added. */
  stepHandle(no: number, about: ConstructorParameters<typeof Step>[2]): Step {
    const step = new Step(this, no, about)
    if (no >= 0) this.#pending.set(no, step)
    return step
  }

  onTime(no: number, callback: () => void): void {
    this.#onTime.set(no, callback)
  }

  /** The limit of a wait that is over. */
  withdrawTimer(no: number): void {
    if (this.#onTime.delete(no)) this.#withdrawn.push(no)
  }

  execute(step: Step, plan: RunPlan): void {
    if (step.no < 0 || this.#journal?.hasEnd(step.no, this.#seen)) return
    const stop = new AbortController()
    step.stop = () => stop.abort(this.#stopped ?? new CurfewError('cancelled', 'it was cancelled'))
    this.#openRuns++
    const { clock, randomness } = this.#host
    this.#gate.pass(async () => {
      this.#hasRun(step, await executeRun(plan, { clock, randomness, stopped: stop.signal }))
    })
  }

  /** Something of it was used: whether it goes on or waits has to be looked at again. */
  touch(): void {
    if (this.#phase === 'suspended') {
      if (!this.#touched) this.#host.wake(this)
      this.#touched = true
    } else if (this.#phase === 'open') this.#tickSoon()
    else this.#touched = true
  }

  awaited(waitable: Waitable): void {
    if (waitable.end) return
    this.#awaits.add(waitable)
    this.touch()
  }

  settled(waitable: Waitable): void {
    this.#awaits.settled(waitable)
    if (waitable instanceof Group) this.#groups.delete(waitable)
  }

  addGroup(group: Group): void {
    if (!group.end) this.#groups.add(group)
  }

  async #execute(text: string, context: AgentContext): Promise<void> {
    const { name, schema, run } = this.#definition
    try {
      let input = decodeJson(text)
      if (schema) input = await parseInput('agent', name, schema, input)
      const output = await run(input as never, context)
      this.#end ??= { type: 'returned', output: encodeJson(output, `output of agent ${name}`) }
    } catch (thrown) {
      this.#end ??= thrownEnd(thrown, this.#stopped !== null)
    }
    this.touch()
  }

  #tooManySteps(): void {
    this.#end ??= { type: 'threw', failure: tooManySteps(this.#definition.name), stopped: false }
    this.touch()
  }

  // Turns.

  #tickSoon(): void {
    this.#askTimer?.cancel()
    this.#askTimer = null
    if (this.#phase === 'open') this.#phase = 'settling'
    this.#host.clock.endOfTurn(() => this.#tick())
  }

  /** The microtask queue is drained: hand over the next result, or see what the code does now. */
  #tick(): void {
    if (this.#phase !== 'settling') return
    this.#touched = false
    if (this.#mismatch)
      return void this.#report({
        type: 'parked',
        reason: this.#mismatch.message,
        code: this.#mismatch.code,
        step: this.#mismatch.step,
      })
    const isPast = !this.#journal || this.#nextStep >= this.#journal.length
    if (this.#end && !isPast) return this.#notReached(this.#nextStep)
    if (this.#end) return void this.#report({ ...this.#end, ...(this.#openRuns > 0 && { runsLeft: true }) })
    const next = this.#inbox[this.#delivered]
    if (next && !this.#hasReached(next)) return this.#notReached((next as { step: number }).step)
    if (next) {
      this.#delivered++
      this.#seen = next.seq
      this.#deliver(next)
      return this.#tickSoon()
    }
    this.#inbox = []
    this.#delivered = 0
    this.#seen = Math.max(this.#seen, this.#upTo)
    if (!isPast) return this.#notReached(this.#nextStep)
    this.#journal = null // replayed
    if (this.#openRuns === 0 && this.#awaits.size > 0) {
      return void this.#report({ type: 'suspended', waits: this.#awaits.waits(this.#groups) })
    }
    void this.#report({ type: 'open' })
  }

  #hasReached(result: JournalResult): boolean {
    return !('step' in result) || result.step < this.#nextStep
  }

  /** The code has not come to a step on record. At its end or waiting for `ctx` it never will; otherwise it may. */
  #notReached(no: number): void {
    if (!this.#end && (this.#awaits.size === 0 || this.#openRuns > 0)) return this.#waitOpen()
    this.#mismatch = new JournalMismatch(no, this.#journal?.describe(no) ?? 'a step', null)
    this.#tick()
  }

  #waitOpen(): void {
    this.#phase = 'open'
    if (this.#touched) return this.#tickSoon()
    this.#askTimer = this.#host.clock.setTimer(ASK_EVERY_MS, () => this.news(), { background: true })
  }

  async #report(state: TurnReport['state']): Promise<void> {
    this.#phase = 'reporting'
    const { agentId, rootId, token } = this.turn
    // A fan-out of thousands goes out in parts: no transaction should hold the others up for long.
    const steps = takePart(this.#outgoing)
    const partly = this.#outgoing.length > 0
    const ran = this.#ran.splice(0)
    const withdrawn = this.#withdrawn.splice(0)
    const answer = await this.#host.report({
      type: 'turn',
      agentId,
      rootId,
      token,
      seen: this.#seen,
      steps,
      ran,
      withdrawn,
      state: partly ? { type: 'open' } : state,
    })
    if (this.dead) return
    if (answer.type === 'more' || answer.type === 'suspended') this.#gate.recorded(steps.at(-1)?.no ?? -1)
    switch (answer.type) {
      case 'more':
        this.#take(answer.results, answer.upTo, answer.now)
        this.#phase = 'settling'
        if (this.#inbox.length > 0 || this.#hasNews || state.type !== 'open') return this.#tickSoon()
        return this.#waitOpen()
      case 'suspended':
        this.#phase = 'suspended'
        if (this.#nextTurn) return this.resume(this.#nextTurn)
        this.#host.suspended(this)
        if (this.#touched) this.#host.wake(this)
        return
      default: {
        const next = this.#nextTurn
        this.drop()
        if (next) this.#host.start(next) // it is somebody's, though not this run's
      }
    }
  }

  get #hasNews(): boolean {
    return this.#touched || this.#end !== null || this.#outgoing.length > 0 || this.#ran.length > 0
  }

  #take(results: readonly JournalResult[], upTo: number, now: number): void {
    this.#time.atLeast(now)
    for (const result of results) if (result.seq > this.#seen) this.#inbox.push(result)
    this.#upTo = Math.max(this.#upTo, upTo)
  }

  #hasRun(step: Step, outcome: RunOutcome): void {
    this.#openRuns--
    if (this.dead) return
    if (!step.end) this.#ran.push({ step: step.no, outcome })
    this.touch()
  }

  // Results.

  #deliver(result: JournalResult): void {
    if (result.type === 'stop') return this.#stop(new Stopped(result.reason))
    if (result.type === 'time') {
      // Who fired it may know the time better than who started this turn: nobody sees less pass than was slept.
      this.#time.atLeast(result.at ?? 0)
      const callback = this.#onTime.get(result.step)
      this.#onTime.delete(result.step)
      if (callback) return callback()
    }
    const step = this.#pending.get(result.step)
    this.#pending.delete(result.step)
    if (!step) return
    this.#deliveredBytes += resultBytes(result)
    step.settle(stepEnd(step, result))
  }

  /** Its waits end now; what it scheduled ends with its own receipts. */
  #stop(stopped: Stopped): void {
    this.#stopped = stopped
    this.controller.abort(stopped)
    // The outer before the inner ones, which would be ends to them.
    for (const group of [...this.#groups].reverse()) group.stop(stopped)
    for (const [no, step] of this.#pending) {
      if (step.isWork) continue
      this.#pending.delete(no)
      if (step.kind !== 'run') this.#withdrawn.push(no)
      step.stop?.()
      step.settle({ error: stopped })
    }
  }
}
