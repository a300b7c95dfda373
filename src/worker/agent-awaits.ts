/**
 * What the code of a run waits for, and what the store has to know of it while the run is suspended. Owns the ranges
 * of steps. A fan-out of thousands is suspended after each of its ends, so they are kept as the waits come and go,
 * and they are not cut: what has ended ends no more, so a range may cover it. It never covers work that is open and
 * that nobody waits for.
 */
import type { StepWait } from '../core/agent-journal.ts'
import { ranges } from '../core/agent-journal.ts'
import { Group } from './agent-group.ts'
import type { Waitable } from './agent-step.ts'
import { Step } from './agent-step.ts'

export class Awaits {
  /** Steps without a result. */
  readonly #pending: ReadonlyMap<number, Step>
  readonly #awaited = new Set<Waitable>()
  readonly #groups = new Set<Group>()
  /** Of the tasks and children that are waited for one by one, and how many of them are open. */
  #ranges: [number, number][] = []
  #single = 0

  constructor(pending: ReadonlyMap<number, Step>) {
    this.#pending = pending
  }

  get size(): number {
    return this.#awaited.size
  }

  add(waitable: Waitable): void {
    if (this.#awaited.has(waitable)) return
    this.#awaited.add(waitable)
    if (waitable instanceof Group) this.#groups.add(waitable)
    else if (waitable instanceof Step && waitable.isWork) {
      this.#single++
      this.#cover(waitable.no)
    }
  }

  settled(waitable: Waitable): void {
    if (!this.#awaited.delete(waitable)) return
    if (waitable instanceof Group) this.#groups.delete(waitable)
    else if (waitable instanceof Step && waitable.isWork && --this.#single === 0) this.#ranges = []
  }

  /** Which ends of tasks and children are worth waking up for; of `groups` those that cancel the rest, awaited or not. */
  waits(groups: Iterable<Group>): StepWait[] {
    const waits: StepWait[] = []
    const cancelling = [...groups].filter((group) => group.cancelsRest)
    for (const group of new Set([...this.#groups, ...cancelling])) {
      const { mode, steps } = group.openSteps()
      const work = new Set(steps.filter((step) => step.isWork).map(({ no }) => no))
      if (work.size > 0) waits.push({ mode, steps: this.#rangesOf(work), left: work.size })
    }
    if (this.#single > 0) {
      const steps = this.#ranges.map(([from, to]): [number, number] => [from, to])
      waits.push({ mode: 'each', steps, left: this.#single })
    }
    return waits
  }

  #cover(no: number): void {
    let at = this.#ranges.findLastIndex(([from]) => from <= no)
    let range = this.#ranges[at]
    if (range && this.#isClear(range[1] + 1, no - 1)) range[1] = Math.max(range[1], no)
    else {
      range = [no, no]
      this.#ranges.splice(++at, 0, range)
    }
    const next = this.#ranges[at + 1]
    if (!next || !this.#isClear(range[1] + 1, next[0] - 1)) return
    range[1] = next[1]
    this.#ranges.splice(at + 1, 1)
  }

  #rangesOf(work: ReadonlySet<number>): [number, number][] {
    return ranges([...work], (from, to) => this.#isClear(from, to))
  }

  /** Nothing from one to the other is open work. */
  #isClear(from: number, to: number): boolean {
    for (let no = from; no <= to; no++) if (this.#pending.get(no)?.isWork) return false
    return true
  }
}
