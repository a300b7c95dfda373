/** Which limits hold, and where each was set: node over action over defaults. Pure; the engine makes deadlines of them. */
import { LONGEST_DURATION_MS } from '../core/duration.ts'
import { MAX_RETRIES } from '../core/limits.ts'
import { DEFAULT_POLICY } from './task-policy.ts'
import type {
  ActionModel,
  JoinStrategy,
  NodeModel,
  TransitionModel,
  WorkflowModel,
} from './workflow-model.ts'

export const DEFAULT_WORKFLOW_TIMEOUT_MS = 3_600_000
const DEFAULT_RETRY_LIMIT = 3
const LONGEST_DEFAULT_JOIN_MS = 1_800_000
const JOIN_FACTOR = 1.5

export type LimitOrigin = 'node' | 'action' | 'workflow' | 'transition' | 'default'

export interface EffectiveLimit {
  ms: number | null
  /** `default` with no `ms`: nobody set one. */
  origin: LimitOrigin
}

export interface ExecutionLimits {
  timeout: EffectiveLimit
  onTimeout: 'fail' | 'retry'
  /** Tries after the first; 0 when `onTimeout` is `fail`. */
  retryLimit: number
  queueTimeout: EffectiveLimit
  softStopMs: number
  graceMs: number
  warnAt: number
}

export function executionLimits(node: NodeModel, action: ActionModel | null): ExecutionLimits {
  const execution = action?.execution ?? {}
  const timeout = firstSet([node.timeoutMs, 'node'], [execution.timeoutMs, 'action'])
  const queueTimeout = firstSet([node.queueTimeoutMs, 'node'], [execution.queueTimeoutMs, 'action'])
  const onTimeout = node.onTimeout ?? execution.onTimeout ?? 'fail'
  const retryLimit = node.retryLimit ?? execution.retryLimit ?? DEFAULT_RETRY_LIMIT
  return {
    timeout,
    onTimeout,
    retryLimit: onTimeout === 'retry' ? Math.min(retryLimit, MAX_RETRIES) : 0,
    // A child workflow is not queued: its timeout is the child's, from its start.
    queueTimeout:
      queueTimeout.origin === 'default' && action?.kind !== 'workflow_call' ? timeout : queueTimeout,
    softStopMs: node.softStopMs ?? execution.softStopMs ?? DEFAULT_POLICY.softStopMs,
    graceMs: node.graceMs ?? execution.graceMs ?? DEFAULT_POLICY.graceMs,
    warnAt: node.warnAt ?? execution.warnAt ?? DEFAULT_POLICY.warnAt,
  }
}

/** Of a child run: node, action, the child's definition, one hour. */
export function childTimeout(
  node: NodeModel,
  action: ActionModel | null,
  child: Pick<WorkflowModel, 'timeoutMs'> | null,
): EffectiveLimit {
  const limit = firstSet(
    [node.timeoutMs, 'node'],
    [action?.execution.timeoutMs, 'action'],
    [child?.timeoutMs, 'workflow'],
  )
  return limit.origin === 'default' ? { ms: DEFAULT_WORKFLOW_TIMEOUT_MS, origin: 'default' } : limit
}

/**
 * How long a join waits from its first arrival. `largestMs`: the longest execution timeout on its branches, `null`
 * when none of them has one. `maxParallel`: of the fan-out; where it holds branches back, the cap would cut the
 * branches that had to wait.
 */
export function synchronizationTimeout(
  transition: TransitionModel,
  scope: { branches: number; largestMs: number | null; maxParallel: number | null },
): EffectiveLimit {
  const set = transition.synchronization?.timeoutMs
  if (set !== undefined) return { ms: set, origin: 'transition' }
  const { branches, largestMs, maxParallel } = scope
  const heldBack = maxParallel !== null && maxParallel < branches
  if (largestMs === null) return { ms: heldBack ? null : LONGEST_DEFAULT_JOIN_MS, origin: 'default' }
  const ms = Math.min(Math.ceil(largestMs * Math.max(1, branches) * JOIN_FACTOR), LONGEST_DURATION_MS)
  return { ms: heldBack ? ms : Math.min(ms, LONGEST_DEFAULT_JOIN_MS), origin: 'default' }
}

/** Completed branches that make a join fire. */
export function quorum(strategy: JoinStrategy, branches: number): number {
  if (strategy === 'all') return branches
  return strategy === 'any' ? Math.min(1, branches) : strategy.mOfN
}

function firstSet(
  ...limits: readonly [ms: number | null | undefined, origin: LimitOrigin][]
): EffectiveLimit {
  for (const [ms, origin] of limits) if (ms !== undefined) return { ms, origin }
  return { ms: null, origin: 'default' }
}
