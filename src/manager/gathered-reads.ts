/** Reads of single rows, gathered: what is asked for in one turn of the event loop is one query. */
import type { Clock } from '../core/clock.ts'
import type { Statement } from '../store/statement.ts'
import { run } from '../store/statement.ts'
import type { ReadStore } from '../store/store.ts'

/** In one statement: each may carry a megabyte. */
const MOST_AT_ONCE = 100

interface Wanted<Row> {
  id: string
  resolve(row: Row | null): void
  reject(error: unknown): void
}

export class GatheredReads<Row extends { id: string }> {
  readonly #store: ReadStore
  readonly #clock: Clock
  readonly #statement: (ids: string[]) => Statement<Row>
  #wanted: Wanted<Row>[] = []
  #reading = 0

  constructor(store: ReadStore, clock: Clock, statement: (ids: string[]) => Statement<Row>) {
    this.#store = store
    this.#clock = clock
    this.#statement = statement
  }

  get idle(): boolean {
    return this.#wanted.length === 0 && this.#reading === 0
  }

  read(id: string): Promise<Row | null> {
    return new Promise((resolve, reject) => {
      this.#wanted.push({ id, resolve, reject })
      if (this.#wanted.length === 1) this.#clock.endOfTurn(() => void this.#readAll())
    })
  }

  async #readAll(): Promise<void> {
    const wanted = this.#wanted
    this.#wanted = []
    this.#reading++
    // Taken out: whoever was answered would keep its row here until all are.
    while (wanted.length > 0) await this.#readSome(wanted.splice(0, MOST_AT_ONCE))
    this.#reading--
  }

  async #readSome(wanted: Wanted<Row>[]): Promise<void> {
    try {
      const ids = wanted.map(({ id }) => id)
      const rows = await this.#store.read(() => run(this.#statement(ids)))
      const byId = new Map(rows.map((row) => [row.id, row]))
      for (const { id, resolve } of wanted) resolve(byId.get(id) ?? null)
    } catch (error) {
      for (const { reject } of wanted) reject(error)
    }
  }
}
