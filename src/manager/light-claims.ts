/**
 * Claims of this process that are light in the store, as far as it knows: see `store/postgres/postgres-light.ts`. What
 * of them goes on for a moment is written out, so that the store and whoever looks into it knows.
 */
import type { ClaimedTask } from '../store/hot-statements.ts'
import type { LightAttempt } from '../store/postgres/postgres-light.ts'
import type { Slot } from './worker-sessions.ts'

/** What takes longer than this is looked at by somebody, or is there when this process is not. */
export const WRITE_OUT_AFTER_MS = 250

interface Claim {
  startedAt: number
  /** The earliest moment anything of it is due. */
  dueAt: number
  /** Of its tasks, those whose good end is not stored. */
  left: number
}

export interface DueClaims {
  /** That may be forgotten with these attempts. */
  tokens: string[]
  attempts: LightAttempt[]
  /** All of them, the others too. */
  all: string[]
  dueAt: number
}

const NONE: readonly string[] = []

export class LightClaims {
  /** By their tokens; the oldest first. */
  readonly #claims = new Map<string, Claim>()
  /** Of which nothing is left. */
  #ended: string[] = []
  /** The last that was looked for: those that end together are mostly of one. */
  #last: { token: string; claim: Claim | undefined } | null = null

  get none(): boolean {
    return this.#claims.size === 0 && this.#ended.length === 0
  }

  get someEnded(): boolean {
    return this.#ended.length > 0
  }

  claimed(token: string, startedAt: number, tasks: readonly ClaimedTask[]): void {
    let left = 0
    let first = Infinity
    for (const { light, dueAt } of tasks) {
      if (light === 0) continue
      left++
      if (dueAt !== null && dueAt < first) first = dueAt
    }
    if (left > 0) this.#claims.set(token, { startedAt, dueAt: first, left })
    this.#last = null
  }

  /** A good end of an attempt is stored. */
  ended(token: string): void {
    if (this.#last?.token !== token) this.#last = { token, claim: this.#claims.get(token) }
    const { claim } = this.#last
    if (!claim || --claim.left > 0) return
    this.#ended.push(token)
    this.forget([token])
  }

  /** Those of which nothing is left. Where nobody deletes them they are written out when they are old: there is nothing. */
  takeEnded(): readonly string[] {
    return this.#ended.length > 0 ? this.#ended.splice(0) : NONE
  }

  /** Those that were made until then. `slots`: of all attempts that this process has. */
  until(time: number, slots: Iterable<Slot>): DueClaims {
    const all: string[] = []
    const counts = new Map<string, number>()
    let dueAt = Infinity
    for (const [token, claim] of this.#claims) {
      if (claim.startedAt > time) continue
      all.push(token)
      counts.set(token, 0)
      if (claim.left > 0 && claim.dueAt < dueAt) dueAt = claim.dueAt
    }
    const attempts: LightAttempt[] = []
    if (all.length > 0) {
      for (const { isLight, startedAt, assignment } of slots) {
        const { taskId: id, token } = assignment
        const count = counts.get(token)
        if (!isLight || count === undefined) continue
        attempts.push({ id, token, startedAt })
        counts.set(token, count + 1)
      }
    }
    // What is not among the attempts here nobody can say: that claim stays until it is old, and is written out whole.
    const tokens = all.filter((token) => counts.get(token) === this.#claims.get(token)?.left)
    return { tokens, attempts, all, dueAt }
  }

  forget(tokens: readonly string[]): void {
    for (const token of tokens) this.#claims.delete(token)
    this.#last = null
  }
}
