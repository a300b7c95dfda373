import type { Failure } from '../core/failure.ts'
import { Stopped, TaskCancelled, TaskFailed, TaskTimedOut } from '../core/task-errors.ts'
import type { WorkEnd } from './graph-types.ts'

/** What a handle that did not complete says. */
export function badEnd(error: unknown): WorkEnd {
  if (error instanceof TaskTimedOut) {
    const failure = { code: `${error.kind}_timeout`, message: error.message, retryable: false }
    return { status: 'timed_out', failure, timeoutKind: error.kind }
  }
  if (error instanceof TaskFailed) {
    const { failure } = error
    return { status: 'failed', failure: { ...failure, message: error.message }, timeoutKind: null }
  }
  const message = error instanceof Error ? error.message : String(error)
  const failure: Failure = { code: 'cancelled', message, retryable: false }
  if (error instanceof TaskCancelled || error instanceof Stopped)
    return { status: 'cancelled', failure, timeoutKind: null }
  return { status: 'failed', failure: { ...failure, code: 'failed' }, timeoutKind: null }
}

/** As the node that began it sees it: a child that fails on its timeout has timed out all the same. */
export function nodeEnd(error: unknown): WorkEnd {
  const timedOut = error instanceof TaskFailed && error.failure.code === 'workflow_timeout'
  return timedOut ? { status: 'timed_out', failure: error.failure, timeoutKind: 'workflow' } : badEnd(error)
}
