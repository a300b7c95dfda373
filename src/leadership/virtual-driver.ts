/** Renewals from the main loop, for an engine on a virtual clock. Hints wait for the next one. */
import type { Clock, Timer } from '../core/clock.ts'
import { run } from '../store/statement.ts'
import type { Store } from '../store/store.ts'
import { heartbeatStatement } from './heartbeat.ts'
import type { LeaseDriver, LeaseDriverListener } from './lease-driver.ts'
import { RENEW_EVERY_MS } from './lease-times.ts'

export class VirtualDriver implements LeaseDriver {
  readonly #store: Store
  readonly #clock: Clock
  readonly #nodeId: string
  readonly #listener: LeaseDriverListener
  #epoch: number
  #wanted: { queues: string[]; names: string[]; agents: string[] } = { queues: [], names: [], agents: [] }
  #timer: Timer | null = null
  #beating: Promise<void> | null = null
  #closed = false

  constructor(
    store: Store,
    clock: Clock,
    node: { nodeId: string; epoch: number },
    listener: LeaseDriverListener,
  ) {
    this.#store = store
    this.#clock = clock
    this.#nodeId = node.nodeId
    this.#epoch = node.epoch
    this.#listener = listener
    this.#arm()
  }

  get idle(): boolean {
    return this.#beating === null
  }

  setEpoch(epoch: number): void {
    this.#epoch = epoch
  }

  setWanted(queues: string[], names: string[], agents: string[]): void {
    this.#wanted = { queues, names, agents }
  }

  hint(): void {}

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    await this.#beating
  }

  #arm(): void {
    this.#timer = this.#clock.setTimer(
      RENEW_EVERY_MS,
      () => {
        this.#beating = this.#beat()
          .catch((error: Error) => this.#listener.failed(error))
          .finally(() => {
            this.#beating = null
            if (!this.#closed) this.#arm()
          })
      },
      { background: true },
    )
  }

  async #beat(): Promise<void> {
    const epoch = this.#epoch
    const sentAt = this.#clock.monotonic()
    const request = {
      nodeId: this.#nodeId,
      epoch,
      lead: true,
      ...this.#wanted,
      virtualNow: this.#clock.wall(),
    }
    const [row] = await this.#store.read(() => run(heartbeatStatement(request)))
    if (row && !this.#closed) {
      this.#listener.beat({ row, sentAt, arrivedAt: this.#clock.monotonic(), lead: true }, epoch)
    }
  }
}
