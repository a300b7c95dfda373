/** A stream of a manager: given up when nothing comes over it for longer than a manager is ever quiet. */
import { Code, ConnectError } from '@connectrpc/connect'
import type { Clock, Timer } from '../core/clock.ts'

/** A manager says something over every stream, at least every five seconds. */
const SILENT_MS = 15_000

export class StreamConnection {
  readonly signal: AbortSignal
  readonly #clock: Clock
  readonly #over = new AbortController()
  #timer: Timer

  constructor(clock: Clock, stop: AbortSignal) {
    this.#clock = clock
    this.signal = AbortSignal.any([stop, this.#over.signal])
    this.#timer = this.#arm()
  }

  heard(): void {
    this.#timer.cancel()
    this.#timer = this.#arm()
  }

  /** Nobody listens for a while, and then `heard` goes on. */
  pause(): void {
    this.#timer.cancel()
  }

  /** Also for the manager: whoever stops reading does not end a stream by that alone. */
  close(): void {
    this.#timer.cancel()
    this.#over.abort()
  }

  #arm(): Timer {
    const silence = () =>
      this.#over.abort(new ConnectError(`nothing came within ${SILENT_MS} ms`, Code.DeadlineExceeded))
    return this.#clock.setTimer(SILENT_MS, silence)
  }
}
