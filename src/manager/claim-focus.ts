/**
 * What a claim asks for. Of the queues and names that workers know few have work at a time, and looking through all
 * of them costs more than claiming. So while claims come back full, the next ones ask for what was found, and every
 * few of them for all again.
 */
import { MAX_CLAIMED } from '../core/limits.ts'
import type { ClaimedTask } from '../store/hot-statements.ts'

export interface Asked {
  names: readonly string[]
  queues: readonly string[]
  limitedQueues: readonly string[]
}

/** What is not asked for waits for so many claims at most. */
const MOST_NARROW = 4
/** Of smaller ones every single one keeps the order of all names. */
const WORTH_NARROWING = MAX_CLAIMED / 4

export class ClaimFocus {
  #found: { names: Set<string>; queues: Set<string> } | null = null
  #narrow = 0

  /** What to ask for, of everything there is. */
  ask(all: Asked): Asked {
    const found = this.#found
    if (!found || this.#narrow >= MOST_NARROW) {
      this.#narrow = 0
      return all
    }
    this.#narrow++
    return {
      names: all.names.filter((name) => found.names.has(name)),
      queues: all.queues.filter((queue) => found.queues.has(queue)),
      limitedQueues: all.limitedQueues.filter((queue) => found.queues.has(queue)),
    }
  }

  /** What a claim for so many has brought. */
  claimed(tasks: readonly ClaimedTask[], slots: number): void {
    if (tasks.length < slots || slots < WORTH_NARROWING) return this.forget()
    const names = new Set<string>()
    const queues = new Set<string>()
    for (const { name, queue } of tasks) {
      names.add(name)
      queues.add(queue)
    }
    this.#found = { names, queues }
  }

  /** There may be work of another kind. */
  forget(): void {
    this.#found = null
  }
}
