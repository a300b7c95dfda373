/** More time for an agent: for what was granted below it, by an operator, or because what is above it has more. Pure. */
import { isEnded } from '../core/states.ts'
import type { AgentDraft } from './agent-draft.ts'
import { hasUntil } from './agent-draft.ts'
import type { Grant } from './agent-input.ts'
import { followsBy } from './inherited-policy.ts'
import type { TaskAnswer } from './task-input.ts'

/** Its deadline must not cut short what was granted below it; it never moves by more than its own length again. */
export function granted(draft: AgentDraft, { totalMs, until, operator }: Grant): void {
  const { row, policy } = draft
  const { timeoutMs } = policy
  if (row.deadlineAt === null || isEnded(row.status)) return
  if (until !== null && until <= row.deadlineAt) return
  let byMs = totalMs
  if (!operator) {
    if (timeoutMs === null || totalMs <= row.extendedMs) return
    byMs = Math.min(totalMs, timeoutMs) - Math.min(row.extendedMs, timeoutMs)
    row.extendedMs = totalMs
  }
  if (byMs === 0) return
  row.deadlineAt += byMs
  draft.record({ type: 'deadlines_extended', byMs, deadlineAt: row.deadlineAt })
}

/** By an operator: any amount. Its clean-up gets it too, once that runs. */
export function extendBy(draft: AgentDraft, byMs: number): TaskAnswer {
  const { row } = draft
  if (!draft.codeAlive) return { type: 'unchanged', reason: `it is ${row.status} already` }
  if (row.deadlineAt !== null && !isEnded(row.status)) row.deadlineAt += byMs
  if (row.stopBoundAt !== null) row.stopBoundAt += byMs
  draft.record({ type: 'deadlines_extended', byMs, deadlineAt: hasUntil(row) })
  return { type: 'extended', deadlineAt: hasUntil(row) }
}

/** What is above it was given more time. */
export function follow(draft: AgentDraft, above: number): void {
  const { row, policy } = draft
  const byMs = followsBy(row, policy, above)
  if (row.deadlineAt === null || byMs === 0) return
  row.deadlineAt += byMs
  // With no time left it was not to start at all.
  if (row.attempt === 0 && row.wokenAt === null) draft.wake()
  draft.record({ type: 'deadlines_extended', byMs, deadlineAt: row.deadlineAt })
}
