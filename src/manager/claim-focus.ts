/**
 * What a claim asks for. Of the queues and names that workers know few have work at a time, and looking through all
 * of them costs more than claiming. So while claims come back full, the next ones ask for what was found, and every
 * few of them for all again. Of one queue and name the next one goes on behind the last: it neither passes what that
 * one has left in the index nor waits for its commit.
 */
import type { ClaimedTask, ClaimFloor } from '../store/hot-statements.ts'
import { standsBefore } from '../store/hot-statements.ts'

export interface Asked {
  names: readonly string[]
  queues: readonly string[]
  limitedQueues: readonly string[]
}

export interface Ask {
  asked: Asked & { after: ClaimFloor | null }
  /** It is asked for everything there is. */
  all: boolean
}

/** What is not asked for waits for so many claims at most. */
const MOST_NARROW = 16
/** Of smaller ones every single one keeps the order of all names. */
const WORTH_NARROWING = 125

export class ClaimFocus {
  #found: { names: Set<string>; queues: Set<string>; last: ClaimFloor | null } | null = null
  #narrow = 0

  /** What to ask for, of everything there is. */
  ask(all: Asked): Ask {
    const found = this.#found
    if (!found || this.#narrow >= MOST_NARROW) {
      this.#narrow = 0
      return { asked: { ...all, after: null }, all: true }
    }
    this.#narrow++
    const asked = {
      names: all.names.filter((name) => found.names.has(name)),
      queues: all.queues.filter((queue) => found.queues.has(queue)),
      limitedQueues: all.limitedQueues.filter((queue) => found.queues.has(queue)),
      after: found.last,
    }
    return { asked, all: false }
  }

  /** What a claim for so many has brought. True: the next one goes on behind it. */
  claimed(tasks: readonly ClaimedTask[], slots: number): boolean {
    if (tasks.length < slots || slots < WORTH_NARROWING) {
      this.forget()
      return false
    }
    const names = new Set<string>()
    const queues = new Set<string>()
    for (const { name, queue } of tasks) {
      names.add(name)
      queues.add(queue)
    }
    const last = names.size === 1 && queues.size === 1 ? lastOf(tasks) : null
    this.#found = { names, queues, last }
    return last !== null
  }

  /** The last claim came back full. */
  get isNarrow(): boolean {
    return this.#found !== null
  }

  /** There may be work of another kind. */
  forget(): void {
    this.#found = null
  }
}

function lastOf(tasks: readonly ClaimedTask[]): ClaimFloor {
  let last = tasks[0] as ClaimFloor
  for (const task of tasks) if (standsBefore(last, task)) last = task
  return { queue: last.queue, name: last.name, priority: last.priority, id: last.id }
}
