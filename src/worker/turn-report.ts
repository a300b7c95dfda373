/** Reports of turns, on their way up. */
import type { NewStep } from '../core/agent-journal.ts'
import { MAX_BATCH_BYTES, MAX_BATCH_ROWS } from '../core/limits.ts'
import type { Turn, TurnReport } from '../wire/worker-port.ts'

/** One that brings nothing but how the turn goes on. */
export function bareReport(turn: Turn, state: TurnReport['state']): TurnReport {
  const { agentId, rootId, token, seen } = turn
  return { type: 'turn', agentId, rootId, token, seen, steps: [], ran: [], withdrawn: [], state }
}

/** As much of the steps as one transaction should carry, taken off the list. */
export function takePart(steps: NewStep[]): NewStep[] {
  let bytes = 0
  let count = 0
  for (const step of steps) {
    bytes += 'input' in step ? step.input.length : 0
    if (count > 0 && (count >= MAX_BATCH_ROWS || bytes > MAX_BATCH_BYTES)) break
    count++
  }
  return steps.splice(0, count)
}
