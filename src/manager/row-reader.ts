/** Reads of single rows, gathered: what is asked for in one turn of the event loop is one query. */
import type { Clock } from '../core/clock.ts'
import { run } from '../store/statement.ts'
import type { Store } from '../store/store.ts'
import type { TaskRow } from '../store/task-row.ts'

const MOST_AT_ONCE = 500

interface Wanted {
  id: string
  resolve(row: TaskRow | null): void
  reject(error: unknown): void
}

export class RowReader {
  readonly #store: Store
  readonly #clock: Clock
  #wanted: Wanted[] = []
  #reading = 0

  constructor(store: Store, clock: Clock) {
    this.#store = store
    this.#clock = clock
  }

  get idle(): boolean {
    return this.#wanted.length === 0 && this.#reading === 0
  }

  read(id: string): Promise<TaskRow | null> {
    return new Promise((resolve, reject) => {
      this.#wanted.push({ id, resolve, reject })
      if (this.#wanted.length === 1) this.#clock.endOfTurn(() => void this.#readAll())
    })
  }

  async #readAll(): Promise<void> {
    const wanted = this.#wanted
    this.#wanted = []
    this.#reading++
    for (let i = 0; i < wanted.length; i += MOST_AT_ONCE)
      await this.#readSome(wanted.slice(i, i + MOST_AT_ONCE))
    this.#reading--
  }

  async #readSome(wanted: Wanted[]): Promise<void> {
    try {
      const ids = wanted.map(({ id }) => id)
      const rows = await this.#store.read(() => run(this.#store.statements.readTasks(ids)))
      const byId = new Map(rows.map((row) => [row.id, row]))
      for (const { id, resolve } of wanted) resolve(byId.get(id) ?? null)
    } catch (error) {
      for (const { reject } of wanted) reject(error)
    }
  }
}
