/** The main loop's side of the lease thread: renewals on real time, and hints between processes. */
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import type { Clock } from '../core/clock.ts'
import { entryFile } from '../core/entry-file.ts'
import type { Logger } from '../core/logger.ts'
import type { Beat } from './lease.ts'
import type { LeaseDriver, LeaseDriverListener } from './lease-driver.ts'

export interface ThreadStart {
  url: string
  nodeId: string
  epoch: number
  /** Counts the renewals that the main loop has heard of: it ticks. */
  ticks: SharedArrayBuffer
}

export type ToThread =
  | { type: 'epoch'; epoch: number }
  | { type: 'wanted'; queues: string[]; names: string[] }
  | { type: 'hint'; hint: string }
  | { type: 'close' }

export type FromThread =
  | { type: 'beat'; beat: Beat; epoch: number }
  | { type: 'hint'; hint: string }
  | { type: 'away'; error: string }

export class ThreadDriver implements LeaseDriver {
  readonly #worker: Worker
  readonly #exited: Promise<unknown>
  readonly #clock: Clock
  readonly #ticks: Int32Array
  #closed = false
  #away = false
  #wanted = ''

  constructor(
    start: Omit<ThreadStart, 'ticks'>,
    clock: Clock,
    logger: Logger,
    listener: LeaseDriverListener,
  ) {
    const ticks = new SharedArrayBuffer(4)
    this.#ticks = new Int32Array(ticks)
    this.#clock = clock
    this.#worker = new Worker(entryFile('./lease-thread', import.meta.url), {
      workerData: { ...start, ticks } satisfies ThreadStart,
      // It needs little, and no flags of the host's (a test runner's, an inspector's).
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: 64 },
    })
    this.#worker.on('message', (message: FromThread) => {
      if (this.#closed) return
      if (message.type === 'hint') return listener.hint(message.hint)
      if (message.type === 'beat') {
        Atomics.add(this.#ticks, 0, 1)
        listener.beat(message.beat, message.epoch)
      } else if (!this.#away) logger.warn({ error: message.error }, 'the leases could not be renewed')
      this.#away = message.type === 'away'
    })
    this.#worker.on('error', (error) => listener.failed(error))
    this.#exited = once(this.#worker, 'exit')
  }

  setEpoch(epoch: number): void {
    this.#post({ type: 'epoch', epoch })
  }

  setWanted(queues: string[], names: string[]): void {
    const wanted = JSON.stringify([queues, names])
    if (wanted === this.#wanted) return
    this.#wanted = wanted
    this.#post({ type: 'wanted', queues, names })
  }

  hint(hint: string): void {
    this.#post({ type: 'hint', hint })
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#post({ type: 'close' })
    const bound = this.#clock.setTimer(3_000, () => void this.#worker.terminate())
    await this.#exited
    bound.cancel()
  }

  #post(message: ToThread): void {
    this.#worker.postMessage(message)
  }
}
