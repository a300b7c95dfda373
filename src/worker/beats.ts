/**
 * The beats of a worker: once a second it tells its manager that it lives, and hears how old the lease is that its
 * attempts stand on. Sent by a thread of its own, so that a handler which blocks the event loop loses nothing, or
 * from the loop where many workers share a process.
 */
import { Worker as Thread } from 'node:worker_threads'
import type { Clock, Timer } from '../core/clock.ts'
import { entryFile } from '../core/entry-file.ts'
import type { Endpoint } from '../wire/http-client.ts'
import type { BeatTarget, SentBeat } from './send-beat.ts'
import { sendBeat } from './send-beat.ts'
import { LEASE_BYTES, WorkerLease } from './worker-lease.ts'

export interface Beats {
  /** Whom to tell; null: nobody, until it is attached again. */
  setTarget(target: BeatTarget | null): void
  readonly lease: WorkerLease
  close(): void
}

export interface BeatListener {
  /** The manager does not know it any more. */
  unknown(): void
  /** Its thread died; another one is started. */
  failed(error: Error): void
}

const BEAT_EVERY_MS = 1_000
/** A moment, so that one that dies at once does not do so in a hot loop. */
const RELAUNCH_MS = 200

export function beatTarget(
  endpoint: Endpoint,
  who: { workerId: string; token: string | undefined; tls: BeatTarget['tls'] },
): BeatTarget {
  const { origin, socketPath } = endpoint.request
  return { href: origin.href, socketPath, draining: false, ...who }
}

/** In the event loop. */
export class LoopBeats implements Beats {
  readonly lease = new WorkerLease(new ArrayBuffer(LEASE_BYTES))
  readonly #clock: Clock
  readonly #listener: BeatListener
  #target: BeatTarget | null = null
  #timer: Timer

  constructor(clock: Clock, listener: BeatListener) {
    this.#clock = clock
    this.#listener = listener
    this.lease.begin(clock.monotonic())
    this.#timer = this.#arm()
  }

  setTarget(target: BeatTarget | null): void {
    this.#target = target
  }

  close(): void {
    this.#timer.cancel()
  }

  #arm(): Timer {
    return this.#clock.setTimer(BEAT_EVERY_MS, () => {
      this.#timer = this.#arm()
      const target = this.#target
      if (target) {
        void sendBeat(target, this.#clock).then((beat) => {
          if (beat && this.#target === target) heed(beat, this, this.#listener)
        })
      }
    })
  }
}

/** In a thread; what it heard stands in memory that both share, also while the loop is blocked. */
export class ThreadBeats implements Beats {
  readonly #shared = new SharedArrayBuffer(LEASE_BYTES)
  readonly lease = new WorkerLease(this.#shared)
  readonly #clock: Clock
  readonly #listener: BeatListener
  #thread: Thread
  #target: BeatTarget | null = null
  #closed = false

  constructor(clock: Clock, listener: BeatListener) {
    this.#clock = clock
    this.#listener = listener
    this.lease.begin(clock.monotonic())
    this.#thread = this.#launch()
  }

  #launch(): Thread {
    const thread = new Thread(entryFile('worker/beat-thread'), {
      workerData: { shared: this.#shared, everyMs: BEAT_EVERY_MS },
    })
    thread.unref()
    thread.on('message', () => this.#listener.unknown())
    thread.on('error', (error: Error) => this.#listener.failed(error))
    thread.on('exit', () => {
      if (!this.#closed) this.#clock.setTimer(RELAUNCH_MS, () => this.#relaunch())
    })
    return thread
  }

  #relaunch(): void {
    if (this.#closed) return
    this.#thread = this.#launch()
    this.#thread.postMessage(this.#target)
  }

  setTarget(target: BeatTarget | null): void {
    this.#target = target
    this.#thread.postMessage(target)
  }

  close(): void {
    this.#closed = true
    void this.#thread.terminate()
  }
}

function heed(beat: SentBeat, beats: Beats, listener: BeatListener): void {
  if (beat.unknown) listener.unknown()
  else beats.lease.renew(beat.sentAt - beat.leaseAgeMs)
}
