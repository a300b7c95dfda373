/**
 * This process among its peers on one PostgreSQL: signs in, renews its leases, hears what peers have to say, and
 * steps down when another process has ended its lease. Over SQLite there are no peers.
 */
import { hostname } from 'node:os'
import type { Clock, Timer } from '../core/clock.ts'
import { ORPHAN_GRACE_MS } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import type { StopReason } from '../core/states.ts'
import type { Beat } from '../leadership/lease.ts'
import { Lease } from '../leadership/lease.ts'
import type { LeaseDriver } from '../leadership/lease-driver.ts'
import { ATTEMPT_LEASE_BASE_MS, LEADERSHIP_MS } from '../leadership/lease-times.ts'
import { NodeStatements } from '../leadership/node-statements.ts'
import { ThreadDriver } from '../leadership/thread-driver.ts'
import { VirtualDriver } from '../leadership/virtual-driver.ts'
import type { PostgresStore } from '../store/postgres/postgres-store.ts'
import { run } from '../store/statement.ts'
import type { Store } from '../store/store.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { Manager } from './manager.ts'
import { PeerWatch } from './peer-watch.ts'
import { stopReason } from './stop-reason.ts'

const LOOK_AGAIN_MS = 500

/** What runs attempts in this process. */
export interface Attempts {
  stopAll(reason: StopReason): void
}

interface Parts {
  store: PostgresStore
  time: StoreTime
  clock: Clock
  logger: Logger
}

export async function signIn(store: Store, time: StoreTime, nodeId: string): Promise<number> {
  const statements = new NodeStatements(store.dialect)
  const now = time.now()
  const node = { id: nodeId, host: hostname(), pid: process.pid, now, leadUntil: now + LEADERSHIP_MS }
  const [row] = await store.write(null, () => run(statements.signIn(node)))
  return row?.epoch ?? 1
}

export class Membership {
  readonly lease: Lease
  readonly #parts: Parts
  readonly #statements = new NodeStatements('postgres')
  #driver: LeaseDriver | null = null
  #manager: Manager | null = null
  #attempts: Attempts | null = null
  #peers: PeerWatch | null = null
  #orphanTimer: Timer | null = null
  #returning = false
  #closed = false

  constructor(nodeId: string, epoch: number, parts: Parts) {
    this.#parts = parts
    this.lease = new Lease(nodeId, epoch, parts.clock, parts.time)
  }

  /** A renewal is on its way; after a jump of a virtual clock it ends what looks like an outage. */
  get renewing(): boolean {
    return this.#driver instanceof VirtualDriver && !this.#driver.idle
  }

  get idle(): boolean {
    return (this.#peers?.idle ?? true) && !this.renewing
  }

  start(manager: Manager, attempts: Attempts): void {
    const { store, clock, logger } = this.#parts
    const { nodeId, epoch } = this.lease
    this.#manager = manager
    this.#attempts = attempts
    this.#peers = new PeerWatch(store, this.lease, manager, logger)
    const listener = {
      beat: (beat: Beat, sentWith: number) => this.#beat(beat, sentWith),
      hint: (hint: string) => void this.#hinted(hint),
      failed: (error: Error) => logger.error({ error: error.message }, 'renewing the leases failed'),
    }
    this.#driver = clock.virtual
      ? new VirtualDriver(store, clock, { nodeId, epoch }, listener)
      : new ThreadDriver({ url: store.url, nodeId, epoch }, clock, logger, listener)
    this.#watchForOrphans()
  }

  workWaits(): void {
    this.#driver?.hint(`work ${this.lease.nodeId}`)
  }

  stopElsewhere(nodeId: string): void {
    this.#driver?.hint(`stop ${nodeId}`)
  }

  newsElsewhere(nodeId: string): void {
    this.#driver?.hint(`news ${nodeId}`)
  }

  /** `goodbye`: nothing of it runs any more, so nobody need wait for the lease. */
  async close({ goodbye }: { goodbye: boolean }): Promise<void> {
    this.#closed = true
    this.#orphanTimer?.cancel()
    await this.#driver?.close()
    if (!goodbye) return
    const { store, time, logger } = this.#parts
    try {
      await store.write(null, () => run(this.#statements.setGone(this.lease.nodeId, time.now())))
    } catch (error) {
      logger.warn({ error: (error as Error).message }, 'could not say goodbye; peers wait for the lease')
    }
  }

  #beat(beat: Beat, sentWith: number): void {
    const manager = this.#manager
    if (this.#closed || !manager || sentWith !== this.lease.epoch) return
    const { row } = beat
    if (row.renewed === 0) return void this.#deposed()
    this.lease.renewed(beat, ATTEMPT_LEASE_BASE_MS)
    this.#watchForOrphans()
    manager.wake()
    if (manager.queues.update(row.queueList ?? []) || row.ready) manager.workArrived()
    if (row.nextDue !== null) manager.watcher.hint(row.nextDue)
    for (const stop of row.stops ?? []) {
      const { taskId, token, graceMs } = stop
      manager.desk.stop({ taskId, token, graceMs, reason: stopReason(stop) })
    }
    const wanted = manager.desk.claims.wanted()
    const agents = manager.turns.free > 0 ? [...manager.turns.names] : []
    this.#driver?.setWanted(wanted.queues, wanted.names, agents)
    void this.#peers?.look(this.#parts.time.now(), row.claimedSince)
  }

  async #hinted(hint: string): Promise<void> {
    const [kind, nodeId] = hint.split(' ')
    const { store, logger } = this.#parts
    try {
      if (kind === 'work' && nodeId !== this.lease.nodeId) this.#manager?.workArrived(true)
      if (kind === 'gone' && nodeId && nodeId !== this.lease.nodeId)
        await this.#peers?.takeOver(nodeId, 'killed')
      if (kind === 'news' && nodeId === this.lease.nodeId) this.#manager?.turns.newsForAll()
      if (kind === 'stop' && nodeId === this.lease.nodeId) {
        const stopping = await store.read(() => run(store.statements.stoppingTasks(nodeId)))
        for (const row of stopping) {
          const { id, graceMs } = row
          const token = row.token as string
          this.#manager?.desk.stop({ taskId: id, token, graceMs, reason: stopReason(row) })
        }
      }
    } catch (error) {
      logger.warn(
        { hint, error: (error as Error).message },
        'a hint could not be followed; the next renewal will',
      )
    }
  }

  /** Its attempts may be somebody else's by now: they stop before anything else, then it signs in again. */
  async #deposed(): Promise<void> {
    if (this.#returning) return
    this.#returning = true
    const { store, time, logger } = this.#parts
    try {
      this.lease.deposed()
      logger.error({ nodeId: this.lease.nodeId }, 'this process was declared gone; its attempts are stopped')
      const silentMs = Math.round(this.lease.ageMs)
      const message = 'the lease of its process was over'
      this.#attempts?.stopAll({ code: 'lease_over', message, timeoutMs: silentMs })
      const epoch = await signIn(store, time, this.lease.nodeId)
      this.lease.signedIn(epoch)
      this.#driver?.setEpoch(epoch)
      this.#manager?.wake()
    } catch (error) {
      logger.warn({ error: (error as Error).message }, 'signing in again failed; it is tried again')
    } finally {
      this.#returning = false
    }
  }

  /**
   * Without a renewal attempts stop while the lease still holds, the kill inside it. Looks twice: after a handler
   * that blocked the loop this timer comes before the news of renewals that its thread had all along. Every renewal
   * sets it anew, so that an idle process is not woken by it.
   */
  #watchForOrphans(): void {
    const { clock, logger } = this.#parts
    const arm = (delayMs: number, look: () => void) => {
      this.#orphanTimer?.cancel()
      this.#orphanTimer = clock.setTimer(delayMs, look, { background: true })
    }
    arm(ORPHAN_GRACE_MS + 1, () =>
      arm(LOOK_AGAIN_MS, () => {
        if (this.#closed || !this.lease.orphaned) return
        logger.error({}, 'the leases could not be renewed in time; attempts are stopped')
        this.#attempts?.stopAll({ code: 'lease_over', message: 'the store could not be reached in time' })
      }),
    )
  }
}
