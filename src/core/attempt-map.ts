/** Attempts, found by task and token. Of a task there is hardly ever more than one, so it is looked for by its id. */

import { IdMap } from './id-map.ts'

interface Name {
  taskId: string
  token: string
}

export class AttemptMap<Attempt extends { readonly assignment: Name }> {
  readonly #byTask = new IdMap<Attempt>()
  /** Further attempts of the same tasks. */
  readonly #others = new Set<Attempt>()

  get size(): number {
    return this.#byTask.size + this.#others.size
  }

  get({ taskId, token }: Name): Attempt | null {
    const attempt = this.#byTask.get(taskId)
    if (attempt === undefined || attempt.assignment.token === token) return attempt ?? null
    for (const other of this.#others) if (isOf(other, taskId, token)) return other
    return null
  }

  add(attempt: Attempt): void {
    const { taskId, token } = attempt.assignment
    const known = this.#byTask.get(taskId)
    if (known !== undefined && known.assignment.token !== token) this.#others.add(known)
    this.#byTask.set(taskId, attempt)
  }

  delete(attempt: Attempt): void {
    if (this.#others.delete(attempt)) return
    const { taskId } = attempt.assignment
    if (this.#byTask.get(taskId) !== attempt) return
    this.#byTask.delete(taskId)
    for (const other of this.#others) {
      if (other.assignment.taskId !== taskId) continue
      this.#others.delete(other)
      return void this.#byTask.set(taskId, other)
    }
  }

  *[Symbol.iterator](): Iterator<Attempt> {
    yield* this.#byTask.values()
    yield* this.#others
  }
}

function isOf({ assignment }: { assignment: Name }, taskId: string, token: string): boolean {
  return assignment.taskId === taskId && assignment.token === token
}
