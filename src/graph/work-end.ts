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
    // A child that fails on its timeout has timed out all the same.
    if (failure.code === 'workflow_timeout') return { status: 'timed_out', failure, timeoutKind: 'workflow' }
    return { status: 'failed', failure: { ...failure, message: error.message }, timeoutKind: null }
  }
  const message = error instanceof Error ? error.message : String(error)
  const failure: Failure = { code: 'cancelled', message, retryable: false }
  if (error instanceof TaskCancelled || error instanceof Stopped)
    return { status: 'cancelled', failure, timeoutKind: null }
  return { status: 'failed', failure: { ...failure, code: 'failed' }, timeoutKind: null }
}
