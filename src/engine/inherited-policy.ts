/**
 * What work below an agent has from it: its trace and, with `inherit`, a deadline no later than the agent's own, minus
 * a reserve. Pure.
 */
import { ownLimit } from '../core/own-work.ts'
import { isEnded } from '../core/states.ts'
import { readablePolicy } from '../definitions/policy-text.ts'
import type { TaskPolicy } from '../definitions/task-policy.ts'
import type { TaskRow } from '../store/task-row.ts'

/** Beyond its grace, for the receipt and the commit. */
const RESERVE_MS = 1_000

interface Place {
  /** The agent that schedules it. */
  above: { row: TaskRow; policy: TaskPolicy }
  /** `reserveMs`: it inherits, and the reserve is set; null: it inherits with the usual one. */
  step: { kind: 'task' | 'agent'; reserveMs?: number | null }
  startAt: number
}

/** One object is encoded once: the last that was made of each. */
const traced = new WeakMap<TaskPolicy, TaskPolicy>()

export function inheritedPolicy(policy: TaskPolicy, place: Place): TaskPolicy {
  const limited = inheritLimits(policy, place)
  const { trace } = place.above.policy
  if (trace === null || limited.trace !== null) return limited
  const known = traced.get(limited)
  if (known?.trace === trace) return known
  const own = { ...limited, trace }
  traced.set(limited, own)
  return own
}

/** The policy with a timeout that ends in time; with no time left, one that is over before anything starts. */
function inheritLimits(policy: TaskPolicy, { above, step, startAt }: Place): TaskPolicy {
  const { row, policy: outer } = above
  const inherits = step.reserveMs !== undefined || outer.inherit
  if (!inherits) return policy
  // What is above for all below it holds for what is below those.
  const own = step.kind === 'agent' && outer.inherit ? { ...policy, inherit: true } : policy
  // A clean-up has a budget of its own, outside the deadline that was over.
  if (row.deadlineAt === null || isEnded(row.status)) return own
  const reserveMs = step.reserveMs ?? outer.reserveMs ?? policy.graceMs + RESERVE_MS
  const leftMs = row.deadlineAt - reserveMs - startAt
  if (own.timeoutMs !== null && own.timeoutMs <= leftMs) return own
  const boundBy = outer.boundBy ?? ownLimit(row)
  return {
    ...own,
    timeoutMs: Math.max(0, leftMs),
    ...{ boundBy, keptBackMs: reserveMs, ownTimeoutMs: own.timeoutMs },
    origins: {
      ...own.origins,
      timeout: 'inherited',
      ...(own.origins.timeout && { ownTimeout: own.origins.timeout }),
    },
  }
}

/** By how much its deadline moves when the one above it has become this: never back, nor beyond its own timeout. */
export function followsBy(row: TaskRow, policy: TaskPolicy, above: number): number {
  const { keptBackMs, ownTimeoutMs } = policy
  if (keptBackMs === null || row.deadlineAt === null || isEnded(row.status)) return 0
  const own = ownTimeoutMs === null ? Infinity : row.startAt + ownTimeoutMs
  return Math.max(0, Math.min(own, above - keptBackMs) - row.deadlineAt)
}

/** The policy of a row, for those who only look at it. */
export function readablePolicyOf(row: TaskRow): TaskPolicy {
  return policyInForce(row, readablePolicy(row.policy))
}

/** What holds by now: one that has followed as far as its own timeout has it, or was given more, is bound by that. */
export function policyInForce(row: TaskRow, policy: TaskPolicy): TaskPolicy {
  const { ownTimeoutMs, origins } = policy
  if (ownTimeoutMs === null || (row.deadlineAt ?? 0) < row.startAt + ownTimeoutMs) return policy
  const { ownTimeout, ...others } = origins
  const own = { boundBy: null, timeoutMs: ownTimeoutMs }
  return { ...policy, ...own, origins: { ...others, ...(ownTimeout && { timeout: ownTimeout }) } }
}
