/** Callers that wait for tasks to settle: told by this process's commits, and by asking the store for the others'. */
import type { Clock, Timer } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import type { Settled } from '../wire/task-service.ts'

/** In one statement. */
const MOST_ASKED = 500

export class SettledWaiters {
  readonly #waiting = new Map<string, Set<(settled: Settled | null) => void>>()
  readonly #clock: Clock
  readonly #ask: (ids: string[]) => Promise<string[]>
  readonly #firstMs: number
  readonly #longestMs: number
  #delayMs: number
  #timer: Timer | null = null
  #asking = false
  #closed = false

  /** `ask` answers which of these have settled. */
  constructor(
    clock: Clock,
    ask: (ids: string[]) => Promise<string[]>,
    poll: { firstMs: number; longestMs: number },
  ) {
    this.#clock = clock
    this.#ask = ask
    this.#firstMs = poll.firstMs
    this.#longestMs = poll.longestMs
    this.#delayMs = poll.firstMs
  }

  get idle(): boolean {
    return !this.#asking
  }

  /** Calls back once, when it has settled, with how if that is known here. Answers how to stop waiting. */
  add(id: string, callback: (settled: Settled | null) => void): () => void {
    if (this.#closed) throw new CurfewError('closed', 'this engine was closed')
    const callbacks = this.#waiting.get(id) ?? new Set()
    callbacks.add(callback)
    this.#waiting.set(id, callbacks)
    if (!this.#timer && !this.#asking) {
      this.#delayMs = this.#shortestMs()
      this.#arm()
    }
    return () => {
      callbacks.delete(callback)
      if (callbacks.size === 0) this.#waiting.delete(id)
    }
  }

  settled(id: string, settled: Settled | null = null): void {
    const callbacks = this.#waiting.get(id)
    if (!callbacks) return
    this.#waiting.delete(id)
    for (const callback of callbacks) callback(settled)
  }

  close(): void {
    this.#closed = true
    this.#timer?.cancel()
    for (const id of [...this.#waiting.keys()]) this.settled(id)
  }

  /** The more wait, the rarer: a few callers are told quickly, a thousand do not keep the store busy. */
  #shortestMs(): number {
    return Math.min(this.#longestMs, Math.max(this.#firstMs, this.#waiting.size / 5))
  }

  #arm(): void {
    if (this.#closed || this.#waiting.size === 0) return
    this.#timer = this.#clock.setTimer(this.#delayMs, () => void this.#poll(), { background: true })
  }

  async #poll(): Promise<void> {
    this.#timer = null
    this.#asking = true
    try {
      const ids = [...this.#waiting.keys()]
      let some = false
      for (let i = 0; i < ids.length; i += MOST_ASKED) {
        for (const id of await this.#ask(ids.slice(i, i + MOST_ASKED))) {
          some = true
          this.settled(id)
        }
      }
      this.#delayMs = some ? this.#shortestMs() : Math.min(this.#delayMs * 1.5, this.#longestMs)
    } catch {
      this.#delayMs = this.#longestMs // the store is away: whoever waits goes on waiting
    } finally {
      this.#asking = false
      this.#arm()
    }
  }
}
