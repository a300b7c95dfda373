/** The lease that the attempts of a worker stand on, in memory that its loop and the thread of its beats may share. */
import { ORPHAN_GRACE_MS } from '../core/limits.ts'

export const LEASE_BYTES = 2 * Float64Array.BYTES_PER_ELEMENT

export class WorkerLease {
  readonly #times: Float64Array

  constructor(memory: ArrayBufferLike) {
    this.#times = new Float64Array(memory)
  }

  /** Before anybody else sees it. */
  begin(at: number): void {
    this.#times.set([at, -Infinity])
  }

  /** When it was renewed, on the monotonic clock: the latest anybody has told. */
  get renewedAt(): number {
    return this.#times[0] as number
  }

  /**
   * The last renewal that none followed in time: what ran here then may be somebody else's. For whoever looks only
   * after that: a process that was stopped and woke up may be renewed before it has looked.
   */
  get lapsedAt(): number {
    return this.#times[1] as number
  }

  renew(at: number): void {
    const { renewedAt } = this
    if (at <= renewedAt) return
    if (at - renewedAt > ORPHAN_GRACE_MS) this.#times[1] = renewedAt
    this.#times[0] = at
  }
}
