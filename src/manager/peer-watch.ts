/**
 * What one renewal of the leases brings: news of peers. Takes over what a dead one left: at once when it is proven
 * gone, else when the leases of its attempts are over.
 */

import { MAX_FIRED } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import type { Receipt } from '../core/states.ts'
import type { Lease } from '../leadership/lease.ts'
import { ATTEMPT_LEASE_BASE_MS } from '../leadership/lease-times.ts'
import type { NodeRow } from '../leadership/node-statements.ts'
import { NodeStatements } from '../leadership/node-statements.ts'
import type { Work } from '../store/statement.ts'
import { run } from '../store/statement.ts'
import type { Store } from '../store/store.ts'
import type { Manager } from './manager.ts'

/** How long the row of a process that is gone is kept, for those who look. */
const KEEP_GONE_MS = 60_000

/** Until somebody else writes out what was claimed: well before the first limit of a light attempt can be due. */
const CLAIMS_OLD_MS = 5_000

export class PeerWatch {
  readonly #store: Store
  readonly #lease: Lease
  readonly #manager: Manager
  readonly #logger: Logger
  readonly #statements = new NodeStatements('postgres')
  #looking = false
  /** Who has nothing left, and since when it is gone. */
  readonly #takenOver = new Map<string, number>()

  constructor(store: Store, lease: Lease, manager: Manager, logger: Logger) {
    this.#store = store
    this.#lease = lease
    this.#manager = manager
    this.#logger = logger
  }

  get idle(): boolean {
    return !this.#looking
  }

  /** `claimedSince`: the oldest claim of light tasks. */
  async look(now: number, claimedSince: number | null): Promise<void> {
    if (this.#looking || !this.#lease.leading) return
    this.#looking = true
    try {
      for (const peer of this.#lease.peers) await this.#lookAt(peer, now)
      if (claimedSince !== null && claimedSince < now - CLAIMS_OLD_MS)
        await this.#writeOut(now - CLAIMS_OLD_MS)
      for (const id of this.#takenOver.keys()) {
        if (!this.#lease.peers.some((peer) => peer.id === id)) this.#takenOver.delete(id)
      }
    } catch (error) {
      if ((error as { code?: string }).code === 'closed') return
      this.#logger.warn({ error: (error as Error).message }, 'looking after peers failed; it is tried again')
    } finally {
      this.#looking = false
    }
  }

  async #lookAt(peer: NodeRow, now: number): Promise<void> {
    if (peer.goneAt !== null) {
      if (this.#takenOver.get(peer.id) !== peer.goneAt) {
        await this.takeOver(peer.id, 'killed')
        const leaseOver = peer.renewedAt + ATTEMPT_LEASE_BASE_MS < now && this.#lease.mayJudge(now)
        // Its workers may have outlived it, and found nobody.
        if (leaseOver) await this.#lose(peer.id, 'unreachable', { proven: true, lease: leaseOf(peer) })
        if (await this.#hasNothingLeft(peer.id)) this.#takenOver.set(peer.id, peer.goneAt)
      }
      if (peer.goneAt < now - KEEP_GONE_MS)
        await this.#write(() => run(this.#statements.removeGone(now - KEEP_GONE_MS)))
      return
    }
    if (peer.renewedAt + ATTEMPT_LEASE_BASE_MS >= now || !this.#lease.mayJudge(now)) return
    // First it may not decide any more, then what it ran is given away, each as its lease ends.
    if (peer.leadUntil > 0) {
      const [deposed] = await this.#write(() => run(this.#statements.depose(peer)))
      if (!deposed) return
      this.#logger.warn(
        { nodeId: peer.id, silentMs: now - peer.renewedAt },
        'a process has not renewed its lease',
      )
    }
    await this.#lose(peer.id, 'unreachable', { proven: false, lease: leaseOf(peer) })
    if (await this.#hasNothingLeft(peer.id))
      await this.#write(() => run(this.#statements.setGone(peer.id, now)))
  }

  /** Whoever claimed it should have: its main loop may stand still, and limits of attempts must be in the store. */
  async #writeOut(before: number): Promise<void> {
    const { light } = this.#store.statements
    if (light) await this.#write(() => run(light.writeOutBefore(before)))
  }

  /** Everything that ran in a process that is proven gone. */
  async takeOver(nodeId: string, receipt: Receipt): Promise<void> {
    await this.#lose(nodeId, receipt, { proven: true, lease: null })
  }

  async #lose(
    nodeId: string,
    receipt: Receipt,
    how: { proven: boolean; lease: { renewedAt: number; baseMs: number } | null },
  ): Promise<void> {
    for (;;) {
      const answer = await this.#manager.submit({ type: 'lose', nodeId, receipt, ...how }, { patient: true })
      if (answer.type !== 'lost' || answer.count < MAX_FIRED) return
    }
  }

  /** Taking over passes by rows that somebody has locked: only this says that it is done. */
  async #hasNothingLeft(nodeId: string): Promise<boolean> {
    const live = await this.#store.read(() => run(this.#store.statements.liveAttempts(nodeId)))
    return live.length === 0
  }

  #write<T>(work: () => Work<T>): Promise<T> {
    return this.#store.write(this.#lease.fence(), work)
  }
}

function leaseOf({ renewedAt }: NodeRow): { renewedAt: number; baseMs: number } {
  return { renewedAt, baseMs: ATTEMPT_LEASE_BASE_MS }
}
