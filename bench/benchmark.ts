// What a benchmark is, and the arithmetic they share.

import type { LoadCluster, OpenAgents, OpenSession } from './contender.ts'

export interface Metric {
  label: string
  better: 'higher' | 'lower'
  digits: number
  /** False where a ratio says nothing, as of counts that should be zero. */
  compared?: false
}

export interface Place {
  contender: string
  store: string
  /** Another database of the same server, for watching the one that is measured. */
  adminUrl: string
  quick: boolean
  open: OpenSession
  openAgents: OpenAgents
  loadCluster: LoadCluster
}

/** By metric; a text says why there is no number. */
export type Measures = Record<string, number | string>

export interface Benchmark {
  title: string
  rounds: number
  metrics: Record<string, Metric>
  run(place: Place): Promise<Measures>
}

export function median(values: readonly number[]): number {
  return percentile(values, 50)
}

/** Nearest rank; NaN without values. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)] ?? Number.NaN
}

/** Counts up to a number that somebody waits for. */
export class Countdown {
  readonly done: Promise<void>
  #left: number
  #finish!: () => void

  constructor(count: number) {
    this.#left = count
    this.done = new Promise((resolve) => {
      this.#finish = resolve
    })
  }

  down(): void {
    if (--this.#left === 0) this.#finish()
  }

  get left(): number {
    return this.#left
  }
}

export function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, n) => n)
}
