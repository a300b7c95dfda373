/**
 * A clock that stands still until it is advanced. An engine opened with it runs on it whole, on either store:
 * deadlines, retries, leases. `advance` fires everything that falls due on the way, in order, and comes back when
 * everything has settled: nothing is being decided or written, and every handler has ended or waits.
 * What a handler waits for outside the clock (files, network, processes) takes real time and is not waited for.
 */
import type { Clock, Timer, TimerOptions, VirtualTime } from '../core/clock.ts'
import type { Duration } from '../core/duration.ts'
import { durationMs } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'

interface PendingTimer {
  at: number
  delayMs: number
  order: number
  background: boolean
  callback: () => void
}

/** Turns of the event loop without any activity after which nothing more is expected. */
const QUIET_TURNS = 5
/** A store or a handler that does not come to rest is a bug of the test, not a reason to hang. */
const REST_WITHIN = '60s'

export class VirtualClock implements Clock {
  readonly virtual: VirtualTime
  readonly #participants = new Set<{ idle(): boolean }>()
  readonly #timers = new Set<PendingTimer>()
  readonly #restWithinMs: number
  #now: number
  #order = 0
  #activity = 0

  /**
   * `start`: the time it stands at, milliseconds since the epoch. `restWithin`: the real time within which everything
   * has to come to rest.
   */
  constructor(start: number = Date.UTC(2026, 0, 1), options: { restWithin?: Duration } = {}) {
    this.#restWithinMs = durationMs(options.restWithin ?? REST_WITHIN, 'restWithin')
    this.#now = checkTime(start, 'start')
    this.virtual = {
      join: (participant) => {
        this.#participants.add(participant)
        return () => this.#participants.delete(participant)
      },
    }
  }

  wall(): number {
    return this.#now
  }

  monotonic(): number {
    return this.#now
  }

  setTimer(delayMs: number, callback: () => void, options: TimerOptions = {}): Timer {
    const timer: PendingTimer = {
      at: this.#now + Math.max(0, delayMs),
      delayMs,
      order: this.#order++,
      background: options.background ?? false,
      callback,
    }
    this.#timers.add(timer)
    this.#activity++
    return { cancel: () => this.#timers.delete(timer) }
  }

  endOfTurn(callback: () => void): void {
    this.#activity++
    setImmediate(callback)
  }

  /** For handlers: resolves when the clock has been advanced by so much. Rejects when the signal aborts. */
  sleep(duration: Duration, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason)
      const onAbort = () => {
        timer.cancel()
        reject(signal?.reason)
      }
      const timer = this.setTimer(durationMs(duration, 'sleep'), () => {
        signal?.removeEventListener('abort', onAbort)
        resolve()
      })
      signal?.addEventListener('abort', onAbort, { once: true })
    })
  }

  async advance(duration: Duration): Promise<void> {
    await this.advanceTo(this.#now + durationMs(duration, 'advance'))
  }

  async advanceTo(time: number): Promise<void> {
    checkTime(time, 'advanceTo')
    await this.settle()
    for (;;) {
      const next = this.#next((timer) => !timer.background && timer.at <= time)
      this.#now = Math.max(this.#now, next?.at ?? time)
      // What renews leases comes first: however far the jump, it must not look like an outage.
      await this.#runBackground()
      if (next && this.#timers.delete(next)) next.callback()
      await this.settle()
      if (!next && !this.#next((timer) => !timer.background && timer.at <= time)) return
    }
  }

  /** Comes back when everything has come to rest at the present moment. */
  async settle(): Promise<void> {
    await this.#rest(true)
  }

  async #rest(fireDue: boolean): Promise<void> {
    let quiet = 0
    let seen = this.#activity
    const until = performance.now() + this.#restWithinMs
    while (quiet < QUIET_TURNS) {
      if (performance.now() > until) throw new Error('virtual clock: it does not come to rest')
      const due = fireDue ? this.#next((timer) => !timer.background && timer.at <= this.#now) : null
      if (due && this.#timers.delete(due)) due.callback()
      await new Promise<void>((resolve) => setImmediate(resolve))
      const idle = [...this.#participants].every((participant) => participant.idle())
      quiet = idle && !due && this.#activity === seen ? quiet + 1 : 0
      seen = this.#activity
    }
  }

  /** Each once, however many of its periods were jumped over; the most frequent first, as others need what it renews. */
  async #runBackground(): Promise<void> {
    const due = [...this.#timers].filter((timer) => timer.background && timer.at <= this.#now)
    for (const timer of due.sort((a, b) => a.delayMs - b.delayMs || inOrder(a, b))) {
      if (this.#timers.delete(timer)) timer.callback()
      await this.#rest(false)
    }
  }

  #next(wanted: (timer: PendingTimer) => boolean): PendingTimer | null {
    let first: PendingTimer | null = null
    for (const timer of this.#timers) {
      if (wanted(timer) && (first === null || inOrder(timer, first) < 0)) first = timer
    }
    return first
  }
}

function checkTime(time: number, what: string): number {
  if (Number.isFinite(time)) return time
  throw new CurfewError('invalid_option', `${what} takes milliseconds since the epoch, got ${time}`)
}

function inOrder(a: PendingTimer, b: PendingTimer): number {
  return a.at - b.at || a.order - b.order
}
