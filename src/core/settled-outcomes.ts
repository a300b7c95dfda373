/** What became of several pieces of work that were waited for together. */
import type { CurfewError } from './errors.ts'

export type Outcome<T = unknown> = { index: number } & (
  | { status: 'completed'; value: T }
  /** `timed_out` by its own limit (`TaskTimedOut`), or because the wait was over first (`WaitTimedOut`). */
  | { status: 'failed' | 'timed_out' | 'cancelled'; error: Error }
)

type OutcomeTuple<T> = T extends readonly unknown[] ? { -readonly [K in keyof T]: Outcome<T[K]> } : Outcome[]

/** Every one of them is in `outcomes`, in their order, and in one of the other four. */
export interface SettledOutcomes<T = unknown[]> {
  outcomes: OutcomeTuple<T>
  completed: { index: number; value: T extends readonly (infer V)[] ? V : unknown }[]
  failed: { index: number; error: Error }[]
  timedOut: { index: number; error: CurfewError }[]
  cancelled: { index: number; error: Error }[]
}

export function settledOutcomes(outcomes: readonly Outcome[]): SettledOutcomes {
  const sorted: SettledOutcomes = {
    outcomes: [...outcomes],
    completed: [],
    failed: [],
    timedOut: [],
    cancelled: [],
  }
  for (const outcome of outcomes) {
    const { index } = outcome
    if (outcome.status === 'completed') sorted.completed.push({ index, value: outcome.value })
    else if (outcome.status === 'timed_out')
      sorted.timedOut.push({ index, error: outcome.error as CurfewError })
    else sorted[outcome.status].push({ index, error: outcome.error })
  }
  return sorted
}
