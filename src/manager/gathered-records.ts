/**
 * Records and their events for those who watch: what is asked for while a read is under way is read together, each
 * record as it was at one moment.
 */
import type { Clock } from '../core/clock.ts'
import type { AttemptRow, EventRow } from '../store/attempt-row.ts'
import { answer, start } from '../store/statement.ts'
import type { ReadStore } from '../store/store.ts'
import type { TaskRow } from '../store/task-row.ts'

export interface TaskRecord {
  row: TaskRow
  attempts: AttemptRow[]
  events: EventRow[]
}

/** In one read. */
const MOST = 50

export class GatheredRecords {
  readonly #store: ReadStore
  readonly #clock: Clock
  readonly #waiting = new Map<string, PromiseWithResolvers<TaskRecord | null>>()
  #reading = false

  constructor(store: ReadStore, clock: Clock) {
    this.#store = store
    this.#clock = clock
  }

  get idle(): boolean {
    return this.#waiting.size === 0 && !this.#reading
  }

  read(id: string): Promise<TaskRecord | null> {
    const known = this.#waiting.get(id)
    if (known) return known.promise
    const asked = Promise.withResolvers<TaskRecord | null>()
    this.#waiting.set(id, asked)
    if (this.#waiting.size === 1 && !this.#reading) this.#clock.endOfTurn(() => void this.#flush())
    return asked.promise
  }

  async #flush(): Promise<void> {
    this.#reading = true
    while (this.#waiting.size > 0) {
      const some = [...this.#waiting].slice(0, MOST)
      for (const [id] of some) this.#waiting.delete(id)
      try {
        const records = await this.#readAll(some.map(([id]) => id))
        for (const [id, { resolve }] of some) resolve(records.get(id) ?? null)
      } catch (error) {
        for (const [, { reject }] of some) reject(error)
      }
    }
    this.#reading = false
  }

  /** All statements are sent before the first is answered. */
  #readAll(ids: string[]): Promise<Map<string, TaskRecord>> {
    const { statements } = this.#store
    return this.#store.read(
      function* () {
        const rows = yield* start(statements.readTasks(ids))
        const attempts = yield* start(statements.attempts(ids))
        const events = yield* start(statements.events(ids))
        const records = new Map<string, TaskRecord>()
        for (const row of yield* answer(rows)) records.set(row.id, { row, attempts: [], events: [] })
        for (const attempt of yield* answer(attempts)) records.get(attempt.taskId)?.attempts.push(attempt)
        for (const event of yield* answer(events)) records.get(event.rootId)?.events.push(event)
        return records
      },
      { atOnce: true },
    )
  }
}
