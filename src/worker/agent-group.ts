/** `ctx.all`, `allSettled`, `any` and `race`: waits for several, decided by the order in which they end. */
import type { WaitMode } from '../core/agent-journal.ts'
import type { Outcome } from '../core/settled-outcomes.ts'
import { settledOutcomes } from '../core/settled-outcomes.ts'
import { AllTasksFailed, Stopped, TaskCancelled, TaskTimedOut, WaitTimedOut } from '../core/task-errors.ts'
import type { Awaiting, Step, StepEnd } from './agent-step.ts'
import { Waitable } from './agent-step.ts'

export type GroupKind = 'all' | 'allSettled' | 'any' | 'race'

const MODES: Record<GroupKind, WaitMode> = { all: 'all', allSettled: 'settled', any: 'any', race: 'each' }

export interface GroupOptions {
  timeoutMs: number | null
  /** Null: only when the timeout ended the wait. */
  cancelRest: boolean | null
  cancel(waitable: Waitable): void
}

export class Group<T = unknown> extends Waitable<T> {
  readonly #kind: GroupKind
  readonly #members: readonly Waitable[]
  readonly #options: GroupOptions
  #left: number

  constructor(run: Awaiting, kind: GroupKind, members: readonly Waitable[], options: GroupOptions) {
    super(run)
    this.#kind = kind
    this.#members = members
    this.#options = options
    this.#left = members.length
    // What has ended before counts in the order in which it did.
    for (const [index, member] of [...members.entries()].sort(([, a], [, b]) => a.endedAs - b.endedAs)) {
      member.whenSettled((end) => this.#ended(index, end))
    }
    if (members.length === 0 && (kind === 'all' || kind === 'allSettled')) this.#all()
  }

  openSteps(): { mode: WaitMode; steps: Step[] } {
    const open = this.end ? [] : this.#members.map((member) => member.openSteps())
    const nested = this.#members.some((member) => member instanceof Group)
    return { mode: nested ? 'each' : MODES[this.#kind], steps: open.flatMap(({ steps }) => steps) }
  }

  /** Its end matters, whether or not anybody waits for it. */
  get cancelsRest(): boolean {
    return this.#options.cancelRest === true
  }

  /** The agent has to stop: nobody should go on with what is there. */
  stop(error: Error): void {
    if (!this.end) this.#settle({ error }, false)
  }

  /** Its time is over. */
  timeOut(): void {
    if (this.end) return
    const timeoutMs = this.#options.timeoutMs ?? 0
    const settled = settledOutcomes(this.#outcomes(timeoutMs))
    const what = `${this.#left} of ${this.#members.length}`
    this.#settle(
      this.#kind === 'allSettled'
        ? { value: settled }
        : { error: new WaitTimedOut(what, timeoutMs, settled) },
      true,
    )
  }

  #ended(index: number, end: StepEnd): void {
    if (this.end) return
    this.#left--
    const failed = 'error' in end
    if (this.#kind === 'race') this.#settle(failed ? end : { value: { index, value: end.value } }, false)
    else if (this.#kind === 'any' && !failed) this.#settle({ value: { index, value: end.value } }, false)
    else if (this.#kind === 'all' && failed) this.#settle(end, false)
    else if (this.#left === 0) this.#all()
  }

  #all(): void {
    const ends = this.#members.map(({ end }) => end as StepEnd)
    if (this.#kind === 'all') {
      this.#settle({ value: ends.map((end) => ('value' in end ? end.value : undefined)) }, false)
    } else if (this.#kind === 'any') {
      const errors = ends.flatMap((end) => ('error' in end ? [end.error] : []))
      this.#settle({ error: new AllTasksFailed(errors) }, false)
    } else this.#settle({ value: settledOutcomes(this.#outcomes(0)) }, false)
  }

  #settle(end: StepEnd, timedOut: boolean): void {
    const rest = this.#members.filter((member) => !member.end)
    this.settle(end)
    if (this.#options.cancelRest ?? timedOut) for (const member of rest) this.#options.cancel(member)
  }

  #outcomes(timeoutMs: number): Outcome[] {
    return this.#members.map(({ end }, index) => {
      if (!end) {
        return { index, status: 'timed_out', error: new WaitTimedOut(`number ${index}`, timeoutMs) }
      }
      return 'value' in end ? { index, status: 'completed', value: end.value } : outcomeOf(index, end.error)
    })
  }
}

function outcomeOf(index: number, error: Error): Outcome {
  if (error instanceof TaskTimedOut || error instanceof WaitTimedOut)
    return { index, status: 'timed_out', error }
  // A task or child; a sleep or a wait for a signal.
  const isCancelled = error instanceof TaskCancelled || error instanceof Stopped
  return { index, status: isCancelled ? 'cancelled' : 'failed', error }
}
