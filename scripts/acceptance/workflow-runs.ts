// What the acceptance tests of workflows ask a run, in the short form in which they expect it.
import type { WorkflowHandle } from '../../src/curfew.ts'

/** Its tokens as they come out of the journal: node and status, in the order in which they were made. */
export async function tokensOf(handle: WorkflowHandle): Promise<[node: string, status: string][]> {
  return (await handle.run()).tokens.map(({ node, status }) => [node, status])
}

/** Every timeout of a token: node, attempt, which layer, how long it was, what was done about it. */
export async function timeoutsOf(
  handle: WorkflowHandle,
): Promise<[node: unknown, attempt: unknown, type: unknown, ms: unknown, policy: unknown][]> {
  const events = (await handle.events()).filter(({ type }) => type === 'token_timed_out')
  return events.map(({ nodeId, attempt, timeoutType, timeoutDurationMs, policyApplied }) => [
    nodeId,
    attempt,
    timeoutType,
    timeoutDurationMs,
    policyApplied,
  ])
}
