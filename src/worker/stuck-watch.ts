/** A job in which something runs and nothing moves: looked at when it could have been so for long enough, not earlier. */
import type { Activity } from '../core/agent-journal.ts'
import { formatDuration } from '../core/duration.ts'
import type { Failure } from '../core/failure.ts'
import type { InnerContext } from './agent-context.ts'

/** `over`: whether the job has ended; `stuck`: it is, and this is why. */
export function watchStuck(
  context: InnerContext,
  stuckAfterMs: number,
  job: { over: () => boolean; stuck: (failure: Failure) => void },
): void {
  const look = (activity: Activity) => {
    const { now, lastAt, unbounded } = activity
    const leftMs = (lastAt ?? now) + stuckAfterMs - now
    if (job.over()) return
    if (unbounded > 0 && leftMs <= 0) return job.stuck(stuckFailure(activity, stuckAfterMs))
    // What is bounded ends by itself; what starts later has all of its time.
    wait(unbounded > 0 ? leftMs : stuckAfterMs)
  }
  const wait = (ms: number) => {
    context.sleep(ms).then(() => (job.over() ? undefined : context.activity().then(look)), ignore)
  }
  wait(stuckAfterMs)
}

/** The job stops: its waits are withdrawn. */
const ignore = () => undefined

function stuckFailure({ unbounded, example }: Activity, stuckAfterMs: number): Failure {
  const what = unbounded === 1 ? `${example} runs` : `${unbounded} attempts run (one is ${example})`
  const message = `stuck: ${what} without a limit of its own, and nothing in the job has moved for ${formatDuration(stuckAfterMs)}. Set a limit, report progress, or set stuck_after to null`
  return { code: 'stuck', message, retryable: false, details: { taskId: example } }
}
