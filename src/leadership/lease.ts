/**
 * The leases of this process. Owns its epoch, its renewals and what is known of its peers.
 * On PostgreSQL a driver renews them; over a SQLite file the lock of the file is the lease, and it cannot be lost.
 */
import type { Clock } from '../core/clock.ts'
import { ORPHAN_GRACE_MS } from '../core/limits.ts'
import type { Fence } from '../store/store.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { HeartbeatRow } from './heartbeat.ts'
import { LEADERSHIP_MS } from './lease-times.ts'
import type { NodeRow } from './node-statements.ts'

export interface Beat {
  row: HeartbeatRow
  /** Monotonic times of this process, taken where the statement was sent and answered. */
  sentAt: number
  arrivedAt: number
  lead: boolean
}

export class Lease {
  readonly nodeId: string
  readonly #clock: Clock
  readonly #time: StoreTime
  #epoch: number
  #leadUntil: number
  #renewedAt: number
  #quietUntil = 0
  #peers: NodeRow[] = []

  constructor(nodeId: string, epoch: number, clock: Clock, time: StoreTime) {
    this.nodeId = nodeId
    this.#epoch = epoch
    this.#clock = clock
    this.#time = time
    this.#leadUntil = clock.monotonic() + LEADERSHIP_MS
    this.#renewedAt = clock.monotonic()
  }

  get epoch(): number {
    return this.#epoch
  }

  fence(): Fence {
    return { nodeId: this.nodeId, epoch: this.#epoch }
  }

  /** May decide. Counted from before the renewal was sent, so never for too long. */
  get leading(): boolean {
    return this.#clock.monotonic() < this.#leadUntil
  }

  /** Could not renew for so long that its attempts have to stop. */
  get orphaned(): boolean {
    return this.#clock.monotonic() - this.#renewedAt > ORPHAN_GRACE_MS
  }

  /** How long ago it was renewed: what attempts stand on. */
  get ageMs(): number {
    return this.#clock.monotonic() - this.#renewedAt
  }

  get peers(): readonly NodeRow[] {
    return this.#peers
  }

  /** After an outage nobody is declared dead for one lease. */
  mayJudge(now: number): boolean {
    return now >= this.#quietUntil
  }

  signedIn(epoch: number): void {
    this.#epoch = epoch
    this.#leadUntil = this.#clock.monotonic() + LEADERSHIP_MS
    this.#renewedAt = this.#clock.monotonic()
  }

  renewed({ row, sentAt, arrivedAt, lead }: Beat, quietMs: number): void {
    this.#time.update(row.raw + row.correction, { sentAt, arrivedAt })
    if (sentAt - this.#renewedAt > LEADERSHIP_MS) this.#quietUntil = this.#time.now() + quietMs
    this.#renewedAt = sentAt
    if (lead) this.#leadUntil = sentAt + LEADERSHIP_MS
    this.#peers = row.peers ?? []
  }

  deposed(): void {
    this.#leadUntil = 0
  }
}
