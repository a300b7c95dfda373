/** The figures of a chaos run with agents, as a row of a table. */
import type { Run } from '../chaos/summary.ts'
import type { AgentRecord } from './auditor.ts'

export interface AgentSummary extends Run {
  agents: number
  tasks: number
  turns: number
  lost: number
  parked: number
  completed: number
  failed: number
  timed_out: number
  cancelled: number
  lateMaxMs: number
}

export function summarizeAgents(records: readonly AgentRecord[], run: Run): AgentSummary {
  const agents = records.filter(({ view }) => view.kind === 'agent')
  const events = agents.flatMap((record) => record.events)
  const count = (status: string) => agents.filter(({ view }) => view.status === status).length
  const late = events.flatMap(({ type, lateMs }) => (type === 'agent_timed_out' ? [lateMs as number] : []))
  return {
    ...run,
    agents: agents.length,
    tasks: records.length - agents.length,
    turns: agents.reduce((sum, { view }) => sum + view.attempts, 0),
    lost: events.filter(({ type }) => type === 'turn_lost').length,
    parked: events.filter(({ type }) => type === 'agent_parked').length,
    completed: count('completed'),
    failed: count('failed'),
    timed_out: count('timed_out'),
    cancelled: count('cancelled'),
    lateMaxMs: Math.max(0, ...late),
  }
}
