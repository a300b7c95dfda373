/** A job in which something runs without a limit and nothing moves: why it ends, and what to do about it. */
import type { Activity } from '../core/agent-journal.ts'
import { formatDuration } from '../core/duration.ts'
import type { Failure } from '../core/failure.ts'

export function stuckFailure({ unbounded, example }: Activity, stuckAfterMs: number): Failure {
  const what = unbounded === 1 ? `${example} runs` : `${unbounded} attempts run (one is ${example})`
  const message = `stuck: ${what} without a limit of its own, and nothing in the job has moved for ${formatDuration(stuckAfterMs)}. Set a limit, report progress, or set stuck_after to null`
  return { code: 'stuck', message, retryable: false, details: { taskId: example } }
}
