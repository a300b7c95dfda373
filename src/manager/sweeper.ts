/**
 * The slow walk over all records, a stretch at a time: removes those whose retention is over, and repairs and counts
 * those that wait for nothing, which none should.
 */
import type { Clock, Timer } from '../core/clock.ts'
import { MAX_SWEPT } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import { readablePolicy } from '../definitions/policy-text.ts'
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import { run, runAll } from '../store/statement.ts'
import type { SweptTask } from '../store/statements.ts'
import type { Fence, Store } from '../store/store.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { Manager } from './manager.ts'

const SWEEP_EVERY_MS = 60_000
const GO_ON_MS = 10
const STRETCH = 2_000

/** A caller that has not heard an answer asks again within seconds. */
const REMEMBER_REQUESTS_MS = 86_400_000

/** On PostgreSQL any other read goes by the statistics, and may then look at all records there are. */
const BY_INDEX = { atOnce: true }

interface Parts {
  nodeId: string
  store: Store
  manager: Manager
  time: StoreTime
  clock: Clock
  logger: Logger
  fence: () => Fence | null
  /** Writes down the time, so that it does not go back over a restart. */
  mark: () => Promise<void>
  /** All processes that have a row, this one included. */
  nodes: () => Promise<readonly string[]>
}

export class Sweeper {
  readonly #parts: Parts
  #after = ''
  #timer: Timer | null = null
  #sweeping = false
  #closed = false
  /** Turns that nobody here held at the last look: agent and token. */
  #suspects: ReadonlyMap<string, string> = new Map()

  constructor(parts: Parts) {
    this.#parts = parts
    this.#arm(SWEEP_EVERY_MS)
  }

  get idle(): boolean {
    return !this.#sweeping
  }

  close(): void {
    this.#closed = true
    this.#timer?.cancel()
  }

  #arm(delayMs: number): void {
    if (this.#closed) return
    this.#timer = this.#parts.clock.setTimer(delayMs, () => void this.#sweep(), { background: true })
  }

  async #sweep(): Promise<void> {
    this.#sweeping = true
    let removed = 0
    try {
      await this.#parts.mark()
      await this.#forgetRequests()
      await this.#forgetLetters()
      await this.#reconcile()
      this.#parts.manager.workArrived()
      removed = await this.#sweepStretch()
    } catch (error) {
      this.#parts.logger.warn({ error: (error as Error).message }, 'sweeping failed; it is tried again')
    } finally {
      this.#sweeping = false
      // Where there is something to remove there is more of it: it must not grow faster than it goes.
      this.#arm(removed > 0 ? GO_ON_MS : SWEEP_EVERY_MS)
    }
  }

  async #forgetRequests(): Promise<void> {
    const { store, time, fence } = this.#parts
    await store.write(fence(), () => run(store.statements.removeRequests(time.now() - REMEMBER_REQUESTS_MS)))
  }

  /** Open ones stay, whatever becomes of their run. */
  async #forgetLetters(): Promise<void> {
    const { store, time, fence } = this.#parts
    const before = time.now() - DEFAULT_POLICY.retentionMs
    await store.write(fence(), () => run(store.statements.letters.removeOver(before, MAX_SWEPT)))
  }

  /** An attempt that the store thinks runs here and does not: its hand-out was lost with a commit's answer. */
  async #reconcile(): Promise<void> {
    const { store, manager, nodeId, time, logger } = this.#parts
    const live = await store.read(() => run(store.statements.liveAttempts(nodeId)))
    const suspects = new Map<string, string>()
    for (const { id, token, kind, startedAt } of live) {
      if (token === null || manager.desk.holds({ taskId: id, token }) || manager.turns.holds(id, token))
        continue
      // On its way it is held by nobody: a turn, which does not say when it began, is met twice before it counts.
      suspects.set(id, token)
      const recent =
        kind === 'agent' ? this.#suspects.get(id) !== token : (startedAt ?? 0) > time.now() - SWEEP_EVERY_MS
      if (recent) continue
      logger.warn({ taskId: id }, 'an attempt was handed out and never arrived; it is repeated')
      manager.metrics.repaired()
      const input = { type: 'lost', nodeId, receipt: 'exited', token } as const
      await manager.submit({ type: 'input', taskId: id, input }, { patient: true })
    }
    this.#suspects = suspects
  }

  /** Answers how many were removed. */
  async #sweepStretch(): Promise<number> {
    const { store, time } = this.#parts
    const rows = await store.read(() => run(store.statements.sweepTasks(this.#after, STRETCH)))
    this.#after = rows.length < STRETCH ? '' : (rows.at(-1)?.id ?? '')
    const now = time.now()
    const over = rows.filter((row) => isOver(row, now))
    const below = await this.#removeBelow(over.filter(({ kind }) => kind === 'agent').map(({ id }) => id))
    const removed = await this.#remove(over.map(({ id }) => id))
    if (rows.some(waitsForNothing) || rows.some(({ live }) => live === 1)) await this.#repair(rows)
    return below + removed
  }

  /** From the leaves up, so that no transaction takes more than its share. */
  async #removeBelow(agentIds: string[]): Promise<number> {
    const { store } = this.#parts
    let removed = 0
    for (let i = 0; i < agentIds.length; i += MAX_SWEPT) {
      const some = agentIds.slice(i, i + MAX_SWEPT)
      for (;;) {
        if (this.#closed) return removed
        const leaves = await store.read(
          () => run(store.statements.agents.leavesBelow(some, MAX_SWEPT)),
          BY_INDEX,
        )
        if (leaves.length === 0) break
        removed += await this.#remove(leaves.map(({ id }) => id))
      }
    }
    return removed
  }

  /** What somebody may still need stays, however long ago it ended. */
  async #remove(ids: string[]): Promise<number> {
    const { store, fence } = this.#parts
    let removed = 0
    for (let i = 0; i < ids.length && !this.#closed; i += MAX_SWEPT) {
      const some = ids.slice(i, i + MAX_SWEPT)
      removed += (await store.write(fence(), () => runAll(store.statements.deleteTasks(some)))).length
    }
    return removed
  }

  async #repair(rows: readonly SweptTask[]): Promise<void> {
    const { manager, logger, nodes } = this.#parts
    const known = await nodes()
    for (const row of rows) {
      const stranded = waitsForNothing(row)
      const ownerless = row.live === 1 && !known.includes(row.nodeId)
      if (!stranded && !ownerless) continue
      manager.metrics.repaired()
      logger.warn(
        { taskId: row.id, status: row.status },
        'a record waited for nothing; it is looked at again',
      )
      await manager.submit({
        type: 'input',
        taskId: row.id,
        input: stranded ? { type: 'due' } : { type: 'lost', nodeId: row.nodeId, receipt: 'unreachable' },
      })
    }
  }
}

function isOver(row: SweptTask, now: number): boolean {
  if (row.settledAt === null || row.live === 1) return false
  if (row.parentId !== null && row.detached === 0) return false // it goes with its agent
  return row.settledAt + readablePolicy(row.policy).retentionMs <= now
}

/** No deadline, no lease, no wake-up: nothing would ever move it. */
function waitsForNothing(row: SweptTask): boolean {
  if (row.parked !== null || row.settledAt !== null || row.dueAt !== null || row.live === 1) return false
  // `steps`: what it waits for may be detached, and is not counted among what is open.
  if (row.kind === 'agent')
    return row.wokenAt === null && row.open === 0 && !/"(?:signals|steps)"/.test(row.waits ?? '')
  return row.ready === 0
}
