/**
 * Rows of agents whose turns run in this process, as its last transaction about them left them: the next one need not
 * read them. It locks them all the same and sees by their version, before it commits, whether anybody has written
 * since. A row is with one transaction at a time.
 */
import type { TaskRow } from '../store/task-row.ts'
import { agentRow } from '../store/task-row.ts'

const MOST_ROWS = 4_096

export class AgentMemory {
  readonly #rows = new Map<string, TaskRow>()

  take(id: string): TaskRow | undefined {
    const row = this.#rows.get(id)
    this.#rows.delete(id)
    return row
  }

  keep(rows: Iterable<TaskRow>): void {
    for (const row of rows) {
      if ((this.#rows.get(row.id)?.version ?? -1) >= row.version) continue
      this.#rows.delete(row.id)
      this.#rows.set(row.id, agentRow(row)) // without its input, however large
    }
    for (const id of this.#rows.keys()) {
      if (this.#rows.size <= MOST_ROWS) return
      this.#rows.delete(id)
    }
  }
}
