/**
 * How often each address showed a token that is none, within a time that starts with the first. Bounded: the address
 * that has been counted longest makes room.
 */
import { isIPv6 } from 'node:net'
import type { Clock } from '../core/clock.ts'
import { MAX_COUNTED_ADDRESSES, MAX_REFUSED_TOKENS, REFUSED_TOKENS_WITHIN_MS } from '../core/limits.ts'
import { normalAddress } from './authority.ts'

export class RefusalCounts {
  readonly #clock: Clock
  /** In the order of `since`. */
  readonly #counts = new Map<string, { since: number; count: number }>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get size(): number {
    return this.#counts.size
  }

  /** Counts one more. Answers how long the address should wait, when there were too many. */
  add(address: string | undefined): number | undefined {
    const now = this.#clock.monotonic()
    this.#forget(now)
    const network = networkOf(address)
    const counted = this.#counts.get(network)
    if (counted) {
      counted.count++
      return counted.count > MAX_REFUSED_TOKENS ? counted.since + REFUSED_TOKENS_WITHIN_MS - now : undefined
    }
    if (this.#counts.size >= MAX_COUNTED_ADDRESSES) {
      for (const oldest of this.#counts.keys()) {
        this.#counts.delete(oldest)
        break
      }
    }
    this.#counts.set(network, { since: now, count: 1 })
    return undefined
  }

  #forget(now: number): void {
    for (const [network, { since }] of this.#counts) {
      if (since + REFUSED_TOKENS_WITHIN_MS > now) return
      this.#counts.delete(network)
    }
  }
}

/** One machine has a whole /64 of IPv6. Nothing: whoever calls over a Unix socket. */
function networkOf(address: string | undefined): string {
  const normal = normalAddress((address ?? '').replace(/%.*$/, ''))
  if (normal === undefined || !isIPv6(normal)) return normal ?? ''
  const [head = '', tail] = normal.split('::')
  const groups = head === '' ? [] : head.split(':')
  if (tail !== undefined) {
    const after = tail === '' ? 0 : tail.split(':').length
    while (groups.length < Math.min(4, 8 - after)) groups.push('0')
    groups.push(...tail.split(':'))
  }
  return `${groups.slice(0, 4).join(':')}::/64`
}
