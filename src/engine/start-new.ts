/** Work that the process which stores it starts in the same transaction: it is written once, as running. */
import type { ClaimedTask, NewRow, Started, StartedLight } from '../store/hot-statements.ts'
import type { LightStatements } from '../store/postgres/postgres-light.ts'
import type { Work } from '../store/statement.ts'
import { start } from '../store/statement.ts'
import type { ClaimWish } from './command.ts'

export class Starter {
  /** What goes to the worker after the commit. */
  readonly claimed: ClaimedTask[] = []
  readonly #wish: ClaimWish | null
  readonly #nodeId: string
  readonly #now: number
  readonly #light: LightStatements | null

  constructor(wish: ClaimWish | null, nodeId: string, now: number, light: LightStatements | null) {
    // Where older work may wait, it comes first: then everything goes through the claim.
    this.#wish = wish?.look ? null : wish
    this.#light = light
    this.#nodeId = nodeId
    this.#now = now
  }

  /** The same rows; those that may start, and for which there is a slot, as started. */
  start(rows: readonly NewRow[]): readonly NewRow[] {
    return this.#wish === null ? rows : rows.map((row) => this.#start(row, this.#wish as ClaimWish))
  }

  #start(row: NewRow, wish: ClaimWish): NewRow {
    const now = this.#now
    const mayStart =
      row.ready === 1 &&
      // One whose key is taken is not stored at all.
      row.key === null &&
      this.claimed.length < wish.slots &&
      wish.names.includes(row.name) &&
      wish.queues.includes(row.queue) &&
      now < (row.deadlineAt ?? Infinity) &&
      now < (row.queueDeadlineAt ?? Infinity)
    if (!mayStart) return row
    const after = (ms: number | null) => (ms === null ? null : now + ms)
    const first = Math.min(row.dueAt ?? Infinity, after(row.firstDueMs) ?? Infinity)
    const isLight = this.#light?.mayStart(row) ?? false
    const started: Started<NewRow> = {
      ...row,
      status: 'running',
      ready: 0,
      nodeId: this.#nodeId,
      dueAt: first === Infinity ? null : first,
      live: 1,
      attempt: 1,
      token: wish.token,
      startedAt: now,
      attemptDeadlineAt: after(row.attemptTimeoutMs),
      heartbeatDeadlineAt: after(row.heartbeatTimeoutMs),
      stuckDeadlineAt: after(row.stuckAfterMs),
      seq: 2,
      startedSeq: 2,
    }
    this.claimed.push(claimedOf(started, isLight ? 1 : 0))
    return isLight ? ({ ...row, ready: 0, light: 1 } as StartedLight) : started
  }

  /** The claim of those whose rows do not say that they run. */
  *storeClaim(): Work<void> {
    const light = this.claimed.filter((task) => task.light === 1)
    if (!this.#light || !this.#wish || light.length === 0) return
    yield* start(this.#light.claimStarted(this.#nodeId, this.#wish.token, this.#now, light))
  }
}

function claimedOf(row: Started<NewRow>, light: 0 | 1): ClaimedTask {
  const below = 'kind' in row ? row : ALONE
  return {
    id: row.id,
    name: row.name,
    queue: row.queue,
    priority: row.priority,
    attempt: row.attempt,
    input: row.input,
    details: null,
    policy: row.policy,
    startAt: row.startAt,
    deadlineAt: row.deadlineAt,
    attemptDeadlineAt: row.attemptDeadlineAt,
    graceMs: row.graceMs,
    dueAt: row.dueAt,
    parentId: below.parentId,
    rootId: below.rootId,
    step: below.step,
    detached: below.detached,
    light,
  }
}

const ALONE = { parentId: null, rootId: null, step: null, detached: 0 } as const
