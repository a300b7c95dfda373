/** The report of a turn that brings nothing but how it goes on. */
import type { Turn, TurnReport } from '../wire/worker-port.ts'

export function bareReport(turn: Turn, state: TurnReport['state']): TurnReport {
  const { agentId, rootId, token, seen } = turn
  return { type: 'turn', agentId, rootId, token, seen, steps: [], ran: [], withdrawn: [], state }
}
