/**
 * The one place that asks the machine for time, timers and chance.
 * Node's monotonic clock stands still while the machine sleeps; on Linux the uptime does not, so the difference
 * between the two is added: time asleep counts, a clock that was set does not.
 */
import { randomFillSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { Clock, Randomness, Timer, TimerOptions } from './clock.ts'

/**
 * Longer waits are chained. setTimeout fires at once above 2^31-1 ms, and it stands still while the machine sleeps:
 * a wait that was over by then is noticed within this much of waking up.
 */
const LONGEST_TIMEOUT_MS = 30_000
/** The uptime has 10 ms steps; less than this is noise, not sleep. */
const SMALLEST_SLEEP_MS = 1_000
const LOOK_FOR_SLEEP_EVERY_MS = 1_000
/** A timer that comes so much too late. */
const STOOD_STILL_MS = 1_000

/** Of the process, whichever clock sees it; in time awake, because each clock counts the time asleep for itself. */
let stoodStillAt = -Infinity

export class SystemClock implements Clock {
  readonly #uptimeMs: () => number | null
  #lookedAt = -Infinity
  #aheadAtStart: number | null = null
  #asleepMs = 0

  constructor(uptimeMs: () => number | null = readUptimeMs) {
    this.#uptimeMs = uptimeMs
  }

  get stoodStillAt(): number {
    return stoodStillAt + this.#asleepMs
  }

  wall(): number {
    return Date.now()
  }

  monotonic(): number {
    // Of the process, not of the thread: readings may cross from one to the other.
    const awake = Number(process.hrtime.bigint()) / 1e6
    if (awake - this.#lookedAt >= LOOK_FOR_SLEEP_EVERY_MS) {
      this.#lookedAt = awake
      this.#lookForSleep(awake)
    }
    return awake + this.#asleepMs
  }

  #lookForSleep(awake: number): void {
    const uptime = this.#uptimeMs()
    if (uptime === null) return
    this.#aheadAtStart ??= uptime - awake
    const asleep = uptime - awake - this.#aheadAtStart
    if (asleep - this.#asleepMs >= SMALLEST_SLEEP_MS) this.#asleepMs = asleep
  }

  setTimer(delayMs: number, callback: () => void, _options?: TimerOptions): Timer {
    const dueAt = this.monotonic() + Math.max(0, delayMs)
    let handle: NodeJS.Timeout
    const arm = () => {
      const now = this.monotonic()
      const leftMs = dueAt - now
      if (leftMs <= -STOOD_STILL_MS) stoodStillAt = now - this.#asleepMs
      // A timeout may come up to 1 ms early: the clock is asked again before the callback.
      if (leftMs <= 0) return callback()
      handle = setTimeout(arm, Math.min(Math.ceil(leftMs), LONGEST_TIMEOUT_MS))
    }
    handle = setTimeout(arm, Math.min(Math.max(0, Math.ceil(delayMs)), LONGEST_TIMEOUT_MS))
    return { cancel: () => clearTimeout(handle) }
  }

  endOfTurn(callback: () => void): void {
    setImmediate(callback)
  }
}

function readUptimeMs(): number | null {
  try {
    return Number.parseFloat(readFileSync('/proc/uptime', 'utf8')) * 1000
  } catch {
    return null // not Linux: time asleep cannot be told from time awake
  }
}

/** Asked for from the system in one go: a call of it costs as much as all of these. */
const BYTES_AT_ONCE = 1_024

export class SystemRandomness implements Randomness {
  #bytes = new Uint8Array(0)
  #used = 0

  next(): number {
    return Math.random()
  }

  bytes(count: number): Uint8Array {
    if (count > BYTES_AT_ONCE) return randomFillSync(new Uint8Array(count))
    if (this.#used + count > this.#bytes.length) {
      this.#bytes = randomFillSync(new Uint8Array(BYTES_AT_ONCE))
      this.#used = 0
    }
    this.#used += count
    return this.#bytes.slice(this.#used - count, this.#used)
  }
}
