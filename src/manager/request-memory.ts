/** Requests that may come twice: the second is answered as the first was, also while that is still under way. */
import type { Clock } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { MAX_NAME_LENGTH } from '../core/limits.ts'

const REMEMBERED = 10_000
const REMEMBERED_MS = 10 * 60_000

export class RequestMemory {
  readonly #clock: Clock
  readonly #answers = new Map<string, { answer: Promise<unknown>; at: number }>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Without an id every request is a new one. */
  once<T>(method: string, requestId: string, answer: () => Promise<T>): Promise<T> {
    if (requestId === '') return answer()
    if (requestId.length > MAX_NAME_LENGTH)
      throw new CurfewError('invalid_request', `request_id: at most ${MAX_NAME_LENGTH} characters`)
    this.#forgetOld()
    const key = `${method} ${requestId}`
    const known = this.#answers.get(key)
    if (known) return known.answer as Promise<T>
    const answered = answer()
    this.#answers.set(key, { answer: answered, at: this.#clock.monotonic() })
    // What failed was not done: it may be asked again.
    answered.catch(() => this.#answers.delete(key))
    return answered
  }

  #forgetOld(): void {
    const before = this.#clock.monotonic() - REMEMBERED_MS
    for (const [key, { at }] of this.#answers) {
      if (at >= before && this.#answers.size < REMEMBERED) return
      this.#answers.delete(key)
    }
  }
}
