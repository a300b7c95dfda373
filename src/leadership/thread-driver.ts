/** The main loop's side of the lease thread: renewals on real time, and hints between processes. */
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
  | { type: 'wanted'; queues: string[]; names: string[]; agents: string[] }
  | { type: 'hint'; hint: string }
  | { type: 'close' }

export type FromThread =
  | { type: 'beat'; beat: Beat; epoch: number }
  | { type: 'hint'; hint: string }
  | { type: 'away'; error: string }

/** A moment, so that one that dies at once does not do so in a hot loop. */
const RELAUNCH_MS = 200

export class ThreadDriver implements LeaseDriver {
  readonly #start: ThreadStart
  readonly #clock: Clock
  readonly #logger: Logger
  readonly #listener: LeaseDriverListener
  readonly #ticks: Int32Array
  #worker: Worker
  #exited: Promise<void>
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
    this.#start = { ...start, ticks }
    this.#ticks = new Int32Array(ticks)
    this.#clock = clock
    this.#logger = logger
    this.#listener = listener
    const { worker, exited } = this.#launch()
    this.#worker = worker
    this.#exited = exited
  }

  #launch(): { worker: Worker; exited: Promise<void> } {
    const worker = new Worker(entryFile('leadership/lease-thread'), {
      workerData: this.#start,
      // It needs little, and no flags of the host's (a test runner's, an inspector's).
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: 64 },
    })
    worker.on('message', (message: FromThread) => this.#receive(message))
    worker.on('error', (error) => this.#listener.failed(error))
    const exited = new Promise<void>((resolve) => {
      worker.on('exit', () => {
        resolve()
        if (!this.#closed) this.#relaunch()
      })
    })
    return { worker, exited }
  }

  /** Without it this process would never decide again. */
  #relaunch(): void {
    this.#logger.error({}, 'the thread that renews the leases died; another one is started')
    this.#clock.setTimer(RELAUNCH_MS, () => {
      if (this.#closed) return
      this.#wanted = ''
      const { worker, exited } = this.#launch()
      this.#worker = worker
      this.#exited = exited
    })
  }

  #receive(message: FromThread): void {
    if (this.#closed) return
    if (message.type === 'hint') return this.#listener.hint(message.hint)
    if (message.type === 'beat') {
      Atomics.add(this.#ticks, 0, 1)
      this.#listener.beat(message.beat, message.epoch)
    } else if (!this.#away) this.#logger.warn({ error: message.error }, 'the leases could not be renewed')
    this.#away = message.type === 'away'
  }

  setEpoch(epoch: number): void {
    this.#start.epoch = epoch
    this.#post({ type: 'epoch', epoch })
  }

  setWanted(queues: string[], names: string[], agents: string[]): void {
    const wanted = JSON.stringify([queues, names, agents])
    if (wanted === this.#wanted) return
    this.#wanted = wanted
    this.#post({ type: 'wanted', queues, names, agents })
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
