// Random histories of one agent, with the rules that none of them may break.
import fc from 'fast-check'
import { expect, test } from 'vitest'
import type { NewStep, WaitMode } from '../core/agent-journal.ts'
import { ranges } from '../core/agent-journal.ts'
import type { TurnBody, TurnState } from '../core/reports.ts'
import { isEnded } from '../core/states.ts'
import type { AgentOptions } from '../definitions/agent.ts'
import { decodePolicy } from '../definitions/policy-text.ts'
import type { SignalRow } from '../store/agent-statements.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { AgentDecision } from './agent-decide.ts'
import { decideAgent, wantsSignals } from './agent-decide.ts'
import type { AgentDraft } from './agent-draft.ts'
import { codeAlive } from './agent-draft.ts'
import type { AgentInput, SettledChild } from './agent-input.ts'
import { decodeWaits } from './agent-waits.ts'
import type { Happening, StateKind, StepKind } from './fixtures/agent-happenings.ts'
import { histories, options } from './fixtures/agent-happenings.ts'
import { newAgentRow, settledChild, startedTurn, taskStep, turnOf } from './fixtures/agent-rows.ts'

const OUTCOMES = ['agent_timed_out', 'agent_failed', 'agent_cancelled']

class History {
  row: TaskRow
  now = 0
  /** Steps below it that have not settled, and whether they end with it. */
  readonly open = new Map<number, boolean>()
  #outcomes = 0
  #token = 0
  #sent = 0
  readonly #runs = new Set<number>()
  readonly #timers = new Map<number, number>()
  readonly #waiting = new Map<number, string>()
  readonly #names = new Map<number, string>()
  readonly #arrived: Record<string, string[]> = { a: [], b: [] }
  readonly #given: Record<string, string[]> = { a: [], b: [] }
  #stored: SignalRow[] = []
  #stopSeq: number | null = null
  /** What it is suspended for. */
  #wait: { mode: WaitMode; left: Set<number> } | null = null

  constructor(given: AgentOptions) {
    this.row = newAgentRow(given)
    this.#check()
  }

  play({ afterMs, happening: one }: { afterMs: number; happening: Happening }): void {
    this.now += afterMs
    switch (one.do) {
      case 'start':
        return this.#start()
      case 'turn':
        return this.#turn(one)
      case 'settle':
        return this.settle([...this.open.keys()].slice(one.which, one.which + one.count), one.completed)
      case 'signal':
        return void this.decide({ type: 'signal', name: one.name, value: String(++this.#sent) })
      case 'lost':
        return void this.decide({ type: 'lost', nodeId: one.stale ? 'n_2' : 'n_1', receipt: 'killed' })
      case 'wake':
        return void this.decide({ type: 'wake', token: `a_${this.#token}` })
      case 'extend':
        return void this.decide({ type: 'extend_by', byMs: 1_000 })
      case 'grant':
        return void this.decide({
          type: 'granted',
          totalMs: 2_000,
          until: this.now + 50_000,
          operator: false,
        })
      default:
        return void this.decide({ type: one.do })
    }
  }

  #start(): void {
    const { row } = this
    if (row.wokenAt === null) return
    // Nothing starts beside another turn, and nothing of what is parked or over.
    expect(row).toMatchObject({ live: 0, parked: null, settledAt: null })
    expect(codeAlive(row)).toBe(true)
    this.row = startedTurn(row, { now: this.now, nodeId: 'n_1', token: `a_${++this.#token}` })
    this.#wait = null
    this.#check()
  }

  #turn({ steps, ran, withdraw, state, mode, stale, behind }: Extract<Happening, { do: 'turn' }>): void {
    const { row } = this
    const seen = behind ? 0 : row.results
    const made = steps.map((kind, i) => ({ ...this.#step(kind, row.steps + i), seen }))
    const scheduled = made.flatMap(({ no, kind }) => (kind === 'task' ? [no] : []))
    const works = [...this.open.keys(), ...scheduled].filter((step) => step % 3 > 0)
    const states: Record<StateKind, TurnState> = {
      open: { type: 'open' },
      suspended: { type: 'suspended', waits: [{ mode, steps: ranges(works), left: works.length }] },
      released: { type: 'released' },
      returned: { type: 'returned', output: '1' },
      threw: { type: 'threw', failure: { code: 'failed', message: 'no', retryable: true }, stopped: false },
      parked: { type: 'parked', reason: 'another step', code: 'journal_mismatch', step: 0 },
    }
    const { answer } = this.decide(
      turnOf(row, `a_${stale ? this.#token - 1 : this.#token}`, {
        steps: made,
        ran: [...this.#runs].slice(0, ran ? 1 : 0).map((step) => ({ step, outcome: { output: '1' } })),
        withdrawn: [...this.#timers.keys()].slice(0, withdraw ? 1 : 0),
        state: states[state],
      }),
    )
    if (answer.type !== 'turn') return
    if (codeAlive(this.row)) expect(Math.min(...this.#timers.values())).toBeGreaterThan(this.now)
    expect(answer.state === 'suspended').toBe(this.#isAsleep)
    if (answer.state !== 'suspended') return
    // It waits only once it has seen everything.
    expect(this.row.seen).toBe(this.row.results)
    this.#wait = { mode, left: new Set(works) }
  }

  get #isAsleep(): boolean {
    const { live, wokenAt, parked } = this.row
    return live === 0 && wokenAt === null && parked === null && codeAlive(this.row)
  }

  #step(kind: StepKind, no: number): NewStep {
    const name = no % 2 === 0 ? 'a' : 'b'
    switch (kind) {
      case 'task':
      case 'detached':
        return taskStep(no, kind === 'detached')
      case 'sleep':
        return { no, kind, ms: 1_000 }
      case 'until':
        return { no, kind: 'sleep_until', at: this.now + 700 }
      case 'wait':
        return { no, kind, ms: 2_000, waits: 'all' }
      case 'signal':
      case 'limited':
        return { no, kind: 'signal', name, ms: kind === 'limited' ? 1_500 : null }
      case 'run':
        return { no, kind, name: 'effect' }
      case 'now':
        return { no, kind, value: this.now }
      case 'cancel': {
        const [target = 0] = [...this.#waiting.keys(), ...this.#timers.keys(), ...this.open.keys()]
        return { no, kind, target, id: this.open.has(target) ? `t_${target}` : null }
      }
    }
  }

  settle(steps: number[], completed: boolean): void {
    if (steps.length === 0) return
    const outcome: SettledChild['outcome'] = completed
      ? { status: 'completed', output: '1' }
      : { status: 'not_completed', task: {} as never }
    const children = steps.map((step) => settledChild(step, { detached: !this.open.get(step), outcome }))
    for (const step of steps) this.open.delete(step)
    const wasAsleep = this.#isAsleep
    const { draft } = this.decide({ type: 'settled', children })
    const over = steps.map((step) => this.#endsWait(step, completed)).includes(true)
    if (wasAsleep) expect(draft.wakes).toBe(over)
  }

  #endsWait(step: number, completed: boolean): boolean {
    if (!this.#wait?.left.delete(step)) return false
    const { mode, left } = this.#wait
    if (left.size === 0 || mode === 'each') return true
    return mode === (completed ? 'any' : 'all')
  }

  decide(input: AgentInput): AgentDecision {
    const before = this.row
    const taken = wantsSignals(before, input) ? this.#stored : []
    const frozen = structuredClone([before, input, taken])
    const decision = decideAgent(before, input, this.now, taken)
    expect([before, input, taken]).toEqual(frozen) // pure
    const { draft, answer } = decision
    this.row = { ...draft.row, wokenAt: draft.wakes ? (draft.row.wokenAt ?? this.now) : draft.row.wokenAt }
    if (answer.type === 'stale') this.#expectNothing(draft, before)
    if (answer.type === 'turn') this.#follow(input as TurnBody, draft)
    if (input.type === 'signal' && answer.type === 'accepted') this.#arrived[input.name]?.push(input.value)
    this.#receive(draft)
    this.#account(draft, before, input)
    this.#check()
    if (input.type === 'due') this.#checkFired()
    return decision
  }

  #expectNothing(draft: AgentDraft, before: TaskRow): void {
    expect(draft.row).toEqual(before)
    const { events, results, steps, children, effects, taken } = draft
    expect([events, results, steps, children, effects, taken]).toEqual([[], [], [], [], [], []])
    expect(draft.wakes).toBe(false)
  }

  /** What its steps wait for from now on; what was asked for before it saw the stop is not begun. */
  #follow({ steps, ran, withdrawn }: TurnBody, { cancels }: AgentDraft): void {
    const cancelled: string[] = []
    for (const step of steps) {
      const isLate = this.#stopSeq !== null && (step.seen ?? 0) < this.#stopSeq
      if (step.kind === 'task') {
        this.open.set(step.no, !step.detached)
        if (isLate && !step.detached) cancelled.push(step.id)
      }
      if (step.kind === 'cancel' && step.id !== null) cancelled.push(step.id)
      if (step.kind === 'run') this.#runs.add(step.no)
      if (isLate) continue
      if (step.kind === 'sleep' || step.kind === 'wait') this.#timers.set(step.no, this.now + step.ms)
      if (step.kind === 'sleep_until') this.#timers.set(step.no, step.at)
      if (step.kind !== 'signal') continue
      this.#waiting.set(step.no, step.name)
      this.#names.set(step.no, step.name)
      if (step.ms !== null) this.#timers.set(step.no, this.now + step.ms)
    }
    expect(cancels).toEqual(cancelled)
    for (const { step } of ran) this.#runs.delete(step)
    for (const step of withdrawn) this.#forget(step)
  }

  #receive(draft: AgentDraft): void {
    let dueAt = -Infinity
    for (const result of draft.results) {
      if (result.type === 'time') {
        // Once, never early, in the order of their times.
        const at = this.#timers.get(result.step) ?? Infinity
        expect(at).toBeLessThanOrEqual(this.now)
        expect(at).toBeGreaterThanOrEqual(dueAt)
        dueAt = at
      }
      if (result.type === 'signal') {
        const name = this.#names.get(result.step) as string
        // Whoever has waited longest gets it.
        expect(result.step).toBe([...this.#waiting].find(([, waited]) => waited === name)?.[0])
        this.#given[name]?.push(result.value)
      }
      if ('step' in result) this.#forget(result.step)
      else this.#stopSeq = result.seq
    }
    this.#stored = [...this.#stored.filter((one) => !draft.taken.includes(one)), ...draft.queued]
    const stops = draft.results.some(({ type }) => type === 'stop')
    if (codeAlive(this.row) && !stops) return
    for (const step of [...this.#timers.keys(), ...this.#waiting.keys()]) this.#forget(step)
  }

  #forget(step: number): void {
    this.#timers.delete(step)
    this.#waiting.delete(step)
  }

  #account(draft: AgentDraft, before: TaskRow, input: AgentInput): void {
    const { row, results, events, effects, cancelBelow } = draft
    // Results are numbered without a gap; those nobody sees any more have a place too.
    const unseen = input.type === 'settled' && !codeAlive(before) ? input.children.length : 0
    expect(results.map(({ seq }) => seq)).toEqual(results.map((_, i) => before.results + 1 + i))
    expect(row.results).toBe(before.results + results.length + unseen)
    if (before.parked !== null) expect(results.map(({ type }) => type)).not.toContain('time')
    // So are events; that of a good end is read from the row.
    const completes = row.status === 'completed' && before.status !== 'completed'
    const numbers = [...events.map(({ seq }) => seq), ...(completes ? [row.endedSeq as number] : [])]
    expect(numbers).toEqual(numbers.map((_, i) => before.seq + 1 + i))
    expect(row.seq).toBe(before.seq + numbers.length)
    for (const { body } of events) {
      if (OUTCOMES.includes(body.type)) this.#outcomes++
      if ('lateMs' in body) expect(body.lateMs).toBe(this.now - body.deadlineAt)
    }
    if (completes) this.#outcomes++
    // Told once; and nothing is told to a turn that does not run.
    const told = effects.flatMap(({ type }) => (type.endsWith('settled') ? [type] : []))
    const settles = before.settledAt === null && row.settledAt !== null
    expect(told).toEqual(settles ? ['settled', 'agent_settled'] : [])
    for (const effect of effects) {
      if (effect.type === 'news') expect([before.live, effect.token]).toEqual([1, before.token])
    }
    // Whatever ends it, or its code, stops what is below it.
    const stops = before.stopping === 0 && row.stopping === 1
    if (stops || (codeAlive(before) && !codeAlive(row) && row.open > 0)) expect(cancelBelow).toBe(true)
    // One outcome, and it stays.
    expect(this.#outcomes).toBe(isEnded(row.status) ? 1 : 0)
    if (isEnded(before.status)) {
      const kept = ['status', 'endedAt', 'endedSeq', 'output', 'failure', 'timeoutKind'] as const
      for (const field of kept) expect([field, row[field]]).toEqual([field, before[field]])
    }
    if (before.settledAt !== null) expect(row.settledAt).toBe(before.settledAt)
  }

  #check(): void {
    const { row } = this
    const waits = decodeWaits(row.waits)
    // It is over exactly when its code and everything below it is.
    expect(row.open).toBe([...this.open.values()].filter((endsWithIt) => endsWithIt).length)
    expect(row.settledAt !== null).toBe(!codeAlive(row) && row.open === 0)
    expect(row.endedAt !== null).toBe(isEnded(row.status))
    if (row.settledAt !== null) expect(isEnded(row.status)).toBe(true)
    if (row.live === 1) expect([codeAlive(row), row.parked, row.wokenAt]).toEqual([true, null, null])
    if (row.live === 1) expect(row.token).not.toBeNull()
    if (!codeAlive(row)) expect([row.token, row.wokenAt, row.stopBoundAt]).toEqual([null, null, null])
    expect(row.stopBoundAt !== null).toBe(row.stopping === 1)
    expect(row.seen).toBeLessThanOrEqual(row.results)
    // What it waits for is what its steps said, and no signal waits for a step that waits for it.
    expect(new Map(waits.timers)).toEqual(this.#timers)
    expect(new Map(waits.signals)).toEqual(this.#waiting)
    for (const name of ['a', 'b'] as const) {
      const [arrived, given] = [this.#arrived[name] ?? [], this.#given[name] ?? []]
      expect(given).toEqual(arrived.slice(0, given.length)) // in the order of their arrival
      const queued = this.#stored.filter((one) => one.name === name).length
      expect([waits.queued[name] ?? 0, queued]).toEqual(Array(2).fill(arrived.length - given.length))
      if (queued > 0) expect([...this.#waiting.values()]).not.toContain(name)
    }
    // The indexed moment is the first at which anything can fire, and there is none when nothing can.
    const next = this.#earliest()
    expect(row.dueAt).toBe(next === Infinity ? null : next)
  }

  /** What can fire next, read off the columns. */
  #earliest(): number {
    const { row } = this
    if (row.settledAt !== null) return Infinity
    const isOpen = row.status === 'pending' || row.status === 'running'
    const policy = decodePolicy(row.policy)
    const { deadlineAt } = row
    // One that was over when it was cancelled has nothing left to end.
    const cancelledAt = (row.stopBoundAt ?? Infinity) - policy.cleanupMs
    const endsCleanup = row.status === 'cancelling' && row.stopping === 1 && (deadlineAt ?? 0) > cancelledAt
    const warning =
      deadlineAt !== null && row.warned === 0
        ? deadlineAt - (policy.timeoutMs ?? 0) + Math.ceil((policy.timeoutMs ?? 0) * policy.warnAt)
        : null
    const moments = [
      isOpen || endsCleanup ? deadlineAt : null,
      isOpen ? warning : null,
      row.stopBoundAt,
      ...(codeAlive(row) && row.parked === null ? this.#timers.values() : []),
    ]
    return Math.min(...moments.map((moment) => moment ?? Infinity))
  }

  /** Nothing that was due is left. */
  #checkFired(): void {
    expect(this.#earliest()).toBeGreaterThan(this.now)
  }
}

test('no history of an agent breaks its rules', () => {
  fc.assert(
    fc.property(options, histories, (given, history) => {
      const agent = new History(given)
      for (const one of history) agent.play(one)
    }),
    { numRuns: 700 },
  )
})

test('from wherever it got to, an agent with a limit settles by time and by the ends of what is below it', () => {
  fc.assert(
    fc.property(options, histories, (given, history) => {
      const agent = new History({ ...given, timeout: given.timeout ?? 60_000 })
      for (const one of history) agent.play(one)
      for (let i = 0; i < 5 && agent.row.settledAt === null; i++) {
        agent.now += 1_000_000
        agent.decide({ type: 'due' })
        if (!codeAlive(agent.row)) agent.settle([...agent.open.keys()], false)
      }
      expect(agent.row.settledAt).not.toBeNull()
    }),
    { numRuns: 300 },
  )
})
