/**
 * One id scheme: a prefix that tells what it is, then 48 bits of time and 80 of chance in Crockford's base 32.
 * Ids made by one process rise, so rows append to their index; in general they are ordered by time.
 */
import { createHash } from 'node:crypto'
import type { Randomness } from './clock.ts'

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz'
const TIME_LENGTH = 10
const CHANCE_LENGTH = 16

/** Task, agent (g), workflow, job, node, attempt or turn (a; r where it outlives its manager), request (q). */
export type IdPrefix = 't' | 'g' | 'w' | 'j' | 'n' | 'a' | 'r' | 'q'

/** Of a task, an agent, a workflow or a job. */
export function isWorkId(text: string): boolean {
  return /^[tgwj]_[0-9a-z]{26}$/.test(text)
}

/** Of an attempt or turn that outlives its manager: it runs in a worker of another process. */
export function isRemoteToken(token: string): boolean {
  return token.startsWith('r_')
}

/** The id of what a request makes: the same for the same request, whoever it comes to. */
export function idOfRequest(prefix: IdPrefix, requestId: string): string {
  const own = /^q_([0-9a-z]{26})$/.exec(requestId)?.[1]
  if (own !== undefined) return `${prefix}_${own}`
  const digest = createHash('sha256').update(requestId).digest()
  let text = ''
  for (let i = 0; i < TIME_LENGTH + CHANCE_LENGTH; i++) text += ALPHABET[(digest[i] as number) & 31]
  return `${prefix}_${text}`
}

export class IdSource {
  readonly #randomness: Randomness
  #lastMs = -1
  #chance = new Uint8Array(CHANCE_LENGTH)

  constructor(randomness: Randomness) {
    this.#randomness = randomness
  }

  next(prefix: IdPrefix, nowMs: number): string {
    if (Math.floor(nowMs) > this.#lastMs) {
      this.#lastMs = Math.floor(nowMs)
      this.#chance = this.#randomness.bytes(CHANCE_LENGTH).map((byte) => byte & 31)
      // Room to count upwards within this millisecond.
      this.#chance[0] = (this.#chance[0] ?? 0) & 15
    } else this.#increment()
    let text = `${prefix}_${timePart(this.#lastMs)}`
    for (const digit of this.#chance) text += ALPHABET[digit]
    return text
  }

  #increment(): void {
    for (let i = CHANCE_LENGTH - 1; i >= 0; i--) {
      const digit = (this.#chance[i] ?? 0) + 1
      this.#chance[i] = digit & 31
      if (digit < 32) return
    }
  }
}

function timePart(ms: number): string {
  let text = ''
  let rest = ms
  for (let i = 0; i < TIME_LENGTH; i++) {
    text = ALPHABET[rest % 32] + text
    rest = Math.floor(rest / 32)
  }
  return text
}
