/** `ctx.run`: one function with tries and a limit for each, from its call to an outcome that can be journalled. */
import type { RunOutcome } from '../core/agent-journal.ts'
import type { Backoff } from '../core/backoff.ts'
import { backoffMs } from '../core/backoff.ts'
import type { Clock, Randomness } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'
import { formatDuration } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import { failureOf } from '../core/failure.ts'
import { encodeJson } from '../core/json.ts'

export interface RunPlan {
  name: string
  fn: (run: { signal: AbortSignal; attempt: number }) => unknown
  retries: number
  timeoutMs: number | null
  backoff: Backoff
}

const TIMED_OUT = Symbol('timed out')

/**
 * What a run may use, an id or a time, has to be on record before it begins: when it is tried again after a crash it
 * is given the same.
 */
export class RunGate {
  /** The last step that told the code something, and the last that is on record. */
  #told = -1
  #recorded = -1
  #waiting: { behind: number; begin: () => Promise<void> }[] = []

  told(no: number): void {
    this.#told = no
  }

  recorded(no: number): void {
    this.#recorded = Math.max(this.#recorded, no)
    const waiting = this.#waiting
    this.#waiting = waiting.filter(({ behind }) => behind > this.#recorded)
    for (const { behind, begin } of waiting) if (behind <= this.#recorded) void begin()
  }

  pass(begin: () => Promise<void>): void {
    if (this.#told <= this.#recorded) void begin()
    else this.#waiting.push({ behind: this.#told, begin })
  }
}

/** Never rejects. Once `stopped` aborts, its own signal does and it is not tried again. */
export async function executeRun(
  plan: RunPlan,
  parts: { clock: Clock; randomness: Randomness; stopped: AbortSignal },
): Promise<RunOutcome> {
  if (parts.stopped.aborted) return { failure: failureOf(parts.stopped.reason) }
  for (let attempt = 1; ; attempt++) {
    const outcome = await tryOnce(plan, attempt, parts)
    const again =
      'failure' in outcome && outcome.failure.retryable && attempt <= plan.retries && !parts.stopped.aborted
    if (!again) return outcome
    await sleep(parts.clock, backoffMs(plan.backoff, attempt - 1, parts.randomness.next()), parts.stopped)
    if (parts.stopped.aborted) return outcome
  }
}

async function tryOnce(
  { name, fn, timeoutMs }: RunPlan,
  attempt: number,
  { clock, stopped }: { clock: Clock; stopped: AbortSignal },
): Promise<RunOutcome> {
  const over = new AbortController()
  const limit = Promise.withResolvers<typeof TIMED_OUT>()
  const timer = timeoutMs === null ? null : clock.setTimer(timeoutMs, () => limit.resolve(TIMED_OUT))
  try {
    const signal = AbortSignal.any([stopped, over.signal])
    const result = await Promise.race([(async () => fn({ signal, attempt }))(), limit.promise])
    if (result === TIMED_OUT) {
      const message = `it took longer than ${formatDuration(timeoutMs ?? 0)}`
      over.abort(new CurfewError('timed_out', message))
      return { failure: { code: 'timed_out', message, retryable: true }, timedOutMs: timeoutMs ?? 0 }
    }
    return outcomeOf(name, result)
  } catch (thrown) {
    return { failure: failureOf(thrown) }
  } finally {
    timer?.cancel()
  }
}

/** A result that cannot be kept would not be another time. */
function outcomeOf(name: string, result: unknown): RunOutcome {
  try {
    return { output: encodeJson(result, `result of run ${name}`) }
  } catch (thrown) {
    return { failure: { ...failureOf(thrown), retryable: false } }
  }
}
