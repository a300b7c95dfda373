/** Why a graph run, a branch of it or a join fails by itself. */
import type { Failure } from '../core/failure.ts'
import { MAX_BRANCHES, MAX_PASSED_NODES, MAX_SCOPE_DEPTH, MAX_TOKENS } from '../core/limits.ts'
import type { Join } from './graph-scope.ts'

export function tooManyBranches(group: string, branches: number): Failure {
  const message = `the fan-out ${group} has ${branches} branches; at most ${MAX_BRANCHES} are allowed`
  return { code: 'too_many_branches', message, retryable: false }
}

export function tooDeep(group: string): Failure {
  const message = `the fan-out ${group} is inside ${MAX_SCOPE_DEPTH} others: more is not allowed`
  return { code: 'too_deep', message, retryable: false }
}

export const TOO_MANY_TOKENS: Failure = {
  code: 'too_many_tokens',
  message: `the run has had ${MAX_TOKENS} tokens: more is not allowed`,
  retryable: false,
}

export function endless(nodeId: string): Failure {
  const message = `${MAX_PASSED_NODES} nodes were passed without any work; node ${nodeId} is one of them`
  return { code: 'endless_loop', message, retryable: false }
}

export function tooManySteps(nodeId: string): Failure {
  const message = `expressions before node ${nodeId} take too many steps with no work in between: do the work in a task`
  return { code: 'endless_loop', message, retryable: false }
}

export function unreachable({ transition, scope, arrived }: Join): Failure {
  const counts = `${arrived.size} of ${scope.total} branches arrived, ${scope.failures} failed`
  const message = `the join at transition ${transition.id} can no longer be met: ${counts}`
  return { code: 'quorum_unreachable', message, retryable: false }
}

export function synchronizationTimedOut({ transition, scope, arrived, timeoutMs, rules }: Join): Failure {
  const counts = `${arrived.size} of ${scope.total} branches arrived`
  const what =
    rules.onTimeout === 'fail'
      ? 'Synchronization timeout exceeded'
      : 'No siblings completed before timeout: those that arrived had no work'
  const message = `${what} (transition ${transition.id} waited ${timeoutMs} ms, ${counts})`
  return { code: 'synchronization_timeout', message, retryable: false }
}
