/** The journal of a run that is replayed: the code has to ask for the same steps again. */
import type { JournalPage, JournalResult, JournalStep, NewStep } from '../core/agent-journal.ts'
import { journalStep } from '../core/agent-journal.ts'
import { JournalMismatch } from '../core/task-errors.ts'

export class ReplayedJournal {
  readonly #steps: JournalStep[]
  /** Those of the first turn on, in their order. */
  readonly results: JournalResult[]
  readonly #withResult: ReadonlySet<number>
  /** Where its code was told to stop, which ended all runs there were. */
  readonly #stopSeq: number

  /** `upTo`: what came later than the claim of the turn is handed out by the store again. */
  constructor(pages: readonly JournalPage[], limits: { steps: number; upTo: number }) {
    // One that ended while the pages were read is in two of them.
    const byNo = new Map(pages.flatMap(({ steps }) => steps.map((step) => [step.no, step])))
    this.#steps = [...byNo.values()].filter(({ no }) => no < limits.steps).sort((a, b) => a.no - b.no)
    this.results = pages
      .flatMap(({ results }) => results)
      .filter(({ seq }) => seq <= limits.upTo)
      .sort((a, b) => a.seq - b.seq)
    this.#withResult = new Set(this.results.flatMap((result) => ('step' in result ? [result.step] : [])))
    this.#stopSeq = this.results.find(({ type }) => type === 'stop')?.seq ?? 0
  }

  get length(): number {
    return this.#steps.length
  }

  /** Whether the end of this step is on record: its own, or, as its code has seen no more than `seen`, by the stop. */
  hasEnd(no: number, seen: number): boolean {
    return this.#withResult.has(no) || seen < this.#stopSeq
  }

  /** The step on record; throws `JournalMismatch` when it is another. */
  match(step: NewStep): JournalStep {
    const recorded = this.#steps[step.no] as JournalStep
    const asked = journalStep(step)
    const same =
      recorded.no === step.no &&
      recorded.kind === asked.kind &&
      recorded.name === asked.name &&
      recorded.input === asked.input
    if (!same) throw new JournalMismatch(step.no, this.describe(step.no), describe(asked))
    return recorded
  }

  /** `schedule of task fetch (2nd)` */
  describe(no: number): string {
    const step = this.#steps[no]
    if (!step) return `nothing`
    const alike = (other: JournalStep) => other.kind === step.kind && other.name === step.name
    const occurrence = this.#steps.slice(0, no).filter(alike).length + 1
    return `${describe(step)}, occurrence ${occurrence}`
  }
}

function describe({ kind, name, input }: JournalStep): string {
  const shown = input.length > 80 ? `${input.slice(0, 80)}…` : input
  return `${kind}${name ? ` '${name}'` : ''}${shown ? ` with ${shown}` : ''}`
}
