/** Results of agents as they are handed to their code, out of rows. */

import type { JournalResult, JournalStep, WorkOutcome } from '../core/agent-journal.ts'
import { matchedInput } from '../core/own-work.ts'
import type { ChildRow, JournalRow } from '../store/agent-statements.ts'
import type { Work } from '../store/statement.ts'
import { run } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type { TaskRow } from '../store/task-row.ts'
import { hasAbandoned } from './agent-waits.ts'
import { taskView } from './task-view.ts'

export function workOutcome(row: TaskRow): WorkOutcome {
  if (row.status === 'completed') return { status: 'completed', output: row.output ?? 'null' }
  const task = taskView(row)
  // What goes on below an agent is told to whoever might begin it again.
  if (row.kind === 'agent' && hasAbandoned(row.waits)) task.receipt = 'abandoned'
  return { status: 'not_completed', task }
}

export function childResult(row: TaskRow): JournalResult {
  return { seq: row.resultSeq ?? 0, type: 'work', step: row.step ?? 0, outcome: workOutcome(row) }
}

export function childStep({ step, kind, name, input, id }: ChildRow | TaskRow): JournalStep {
  return { no: step ?? 0, kind, name, input: matchedInput(name, input), id }
}

export function journalled<T>({ body }: JournalRow): T[] {
  return JSON.parse(body) as T[]
}

export function journalRow(
  agentId: string,
  part: 0 | 1,
  entries: readonly (JournalStep | JournalResult)[],
): JournalRow {
  const first = entries[0] as JournalStep | JournalResult
  return { agentId, part, no: 'no' in first ? first.no : first.seq, body: JSON.stringify(entries) }
}

/** Everything the code of these agents has not seen yet, by agent, in its order; an error where it cannot be read. */
export function* unseen(
  statements: Statements,
  agentIds: string[],
): Work<Map<string, JournalResult[] | Error>> {
  const byAgent = new Map<string, JournalResult[]>(agentIds.map((id) => [id, []]))
  if (agentIds.length === 0) return byAgent
  for (const row of yield* run(statements.agents.unseenChildren(agentIds))) {
    byAgent.get(row.parentId ?? '')?.push(childResult(row))
  }
  const unreadable = new Map<string, Error>()
  for (const row of yield* run(statements.agents.unseenResults(agentIds))) {
    try {
      byAgent.get(row.agentId)?.push(...journalled<JournalResult>(row))
    } catch (error) {
      unreadable.set(row.agentId, error as Error)
    }
  }
  for (const results of byAgent.values()) results.sort((a, b) => a.seq - b.seq)
  return new Map<string, JournalResult[] | Error>([...byAgent, ...unreadable])
}
