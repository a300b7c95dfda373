/** Those who watch work: told after each commit what it touched, by the ids of the work and of all above it. */

export interface Touched {
  id: string
  parentId?: string | null
  rootId?: string | null
}

export type WatchNews = 'own' | 'below'

export class Watchers {
  readonly #watching = new Map<string, Set<(news: WatchNews) => void>>()

  get none(): boolean {
    return this.#watching.size === 0
  }

  /** Answers how to stop watching. */
  add(id: string, callback: (news: WatchNews) => void): () => void {
    const callbacks = this.#watching.get(id) ?? new Set()
    callbacks.add(callback)
    this.#watching.set(id, callbacks)
    return () => {
      callbacks.delete(callback)
      if (callbacks.size === 0) this.#watching.delete(id)
    }
  }

  touched(works: Iterable<Touched>): void {
    const told = new Map<string, WatchNews>()
    for (const { id, parentId, rootId } of works) {
      if (!told.has(id)) told.set(id, 'own')
      // Also where its own record changed in the same commit: that is looked at either way.
      for (const above of [parentId, rootId]) if (above && above !== id) told.set(above, 'below')
    }
    for (const [id, news] of told) for (const callback of this.#watching.get(id) ?? []) callback(news)
  }
}
