import type { Failure } from '../core/failure.ts'
import { Stopped, TaskCancelled, TaskFailed, TaskTimedOut } from '../core/task-errors.ts'
import type { WorkEnd } from './graph-types.ts'

/** What a handle that did not complete says. */
export function badEnd(error: unknown): WorkEnd {
  if (error instanceof TaskTimedOut) {
    const { kind, timeoutMs, startedAt, receipt } = error
    const failure = { code: `${kind}_timeout`, message: error.message, retryable: false }
    const final = startedAt === null || receipt === 'abandoned'
    return { status: 'timed_out', failure, timeoutKind: kind, timeoutMs, final }
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
  if (!(error instanceof TaskFailed) || error.timeoutKind === null) return badEnd(error)
  const { failure, timeoutKind, timeoutMs, attempts, receipt } = error
  const final = attempts === 0 || receipt === 'abandoned'
  return { status: 'timed_out', failure, timeoutKind, timeoutMs, final }
}
