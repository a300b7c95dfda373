/**
 * Whether a manager answers at all. While somebody waits there for longer than most answers take, small requests ask;
 * where these are not answered either, everybody who waits there is told together. How long an answer itself may take
 * is not judged here.
 */
import { Code, ConnectError } from '@connectrpc/connect'
import type { Clock, Timer } from '../core/clock.ts'
import { hearingMs } from '../core/clock.ts'
import { fromConnectError } from '../wire/wire-error.ts'

/** The first time; then after twice as long each: a connection that has died without a word takes one with it. */
const ASK_AFTER_MS = 1_000

interface WatchParts {
  clock: Clock
  closing: AbortSignal
  /** A request that costs a manager nothing. */
  ask(options: { signal: AbortSignal; timeoutMs: number }): Promise<unknown>
}

export class AnswerWatch {
  readonly #parts: WatchParts
  #heardAt = -Infinity
  #askedAt = -Infinity
  #silent = new AbortController()
  #signal: AbortSignal

  constructor(parts: WatchParts) {
    this.#parts = parts
    this.#signal = AbortSignal.any([parts.closing, this.#silent.signal])
  }

  /** For what is asked there now: aborts when nothing is heard, and when the client is closed. */
  get signal(): AbortSignal {
    return this.#signal
  }

  get heardAt(): number {
    return this.#heardAt
  }

  heard(): void {
    this.#heardAt = this.#parts.clock.monotonic()
  }

  /** A refusal is an answer, too. */
  failed(error: unknown): void {
    const { code } = fromConnectError(error)
    if (code !== 'unreachable' && code !== 'closed') this.heard()
  }

  /** From now on it has so long to be heard of; unless that is cancelled. */
  expect(withinMs: number): Timer {
    const { clock } = this.#parts
    const from = clock.monotonic()
    const look = () => {
      if (this.#heardAt > from) return
      const silentMs = clock.monotonic() - from
      if (silentMs < withinMs) {
        this.#ask(withinMs)
        timer = clock.setTimer(Math.min(silentMs, withinMs - silentMs), look)
        return
      }
      const leftMs = hearingMs(clock)
      if (leftMs > 0) timer = clock.setTimer(leftMs, look)
      else this.#giveUp(withinMs)
    }
    let timer = clock.setTimer(ASK_AFTER_MS, look)
    return { cancel: () => timer.cancel() }
  }

  /** One for all who wait. */
  #ask(timeoutMs: number): void {
    const now = this.#parts.clock.monotonic()
    if (now - this.#askedAt < ASK_AFTER_MS) return
    this.#askedAt = now
    this.#parts.ask({ signal: this.#signal, timeoutMs }).then(
      () => this.heard(),
      (error: unknown) => this.failed(error),
    )
  }

  #giveUp(silentMs: number): void {
    const silent = this.#silent
    this.#silent = new AbortController()
    this.#signal = AbortSignal.any([this.#parts.closing, this.#silent.signal])
    silent.abort(new ConnectError(`no answer within ${silentMs} ms`, Code.DeadlineExceeded))
  }
}
