/** The queues there are, as last read from the store. Every queue ever used has a row there. */
import type { QueueRow } from '../store/statements.ts'

export class Queues {
  #rows: Map<string, number | null>

  constructor(rows: readonly QueueRow[]) {
    this.#rows = new Map(rows.map(({ name, concurrency }) => [name, concurrency]))
  }

  /** Answers whether any was not known before. */
  update(rows: readonly QueueRow[]): boolean {
    const before = this.#rows
    this.#rows = new Map(rows.map(({ name, concurrency }) => [name, concurrency]))
    return rows.some(({ name }) => !before.has(name))
  }

  has(name: string): boolean {
    return this.#rows.has(name)
  }

  isLimited(name: string): boolean {
    return typeof this.#rows.get(name) === 'number'
  }

  add(name: string): void {
    if (!this.#rows.has(name)) this.#rows.set(name, null)
  }

  /** Those a worker takes; null: all. */
  names(taken: readonly string[] | null): string[] {
    return [...this.#rows.keys()].filter((name) => taken === null || taken.includes(name))
  }

  unlimited(taken: readonly string[] | null): string[] {
    return this.names(taken).filter((name) => this.#rows.get(name) === null)
  }

  limited(taken: readonly string[] | null): string[] {
    return this.names(taken)
      .filter((name) => this.#rows.get(name) !== null)
      .sort()
  }
}
