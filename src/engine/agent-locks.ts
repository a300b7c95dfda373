/**
 * The rows at the top of everything that has an agent above it are locked before any other: then nothing of theirs
 * races. Those this process remembers are not read; that they still are as they were is seen before the commit.
 */
import type { Ticket, Work } from '../store/statement.ts'
import { answer, run, start } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type { TaskRow } from '../store/task-row.ts'
import { agentRow } from '../store/task-row.ts'
import type { Command } from './command.ts'

interface Parts {
  statements: Statements
  recall: (agentId: string) => TaskRow | undefined
}

export class AgentLocks {
  readonly #parts: Parts
  readonly #rows: Map<string, TaskRow>
  readonly #recalled = new Map<string, number>()
  #versions: Ticket<Pick<TaskRow, 'id' | 'version'>> | null = null

  /** What is locked is added to `rows`. */
  constructor(parts: Parts, rows: Map<string, TaskRow>) {
    this.#parts = parts
    this.#rows = rows
  }

  *lock(commands: readonly Command[]): Work<void> {
    const { statements, recall } = this.#parts
    const { wanted, unplaced } = agentsOf(commands)
    if (unplaced.length) {
      for (const { id, kind, parentId, rootId } of yield* run(statements.agents.places(unplaced))) {
        if (kind === 'agent') wanted.add(id)
        if (parentId !== null) wanted.add(parentId)
        if (rootId !== null) wanted.add(rootId)
      }
    }
    const ids = [...wanted].sort()
    for (const id of ids) {
      const row = recall(id)
      if (!row) continue
      this.#rows.set(id, row)
      this.#recalled.set(id, row.version)
    }
    // Known or not, they are locked in one order.
    if (this.#recalled.size) this.#versions = yield* start(statements.agents.lockVersions(ids))
    const toRead = ids.filter((id) => !this.#recalled.has(id))
    if (toRead.length === 0) return
    for (const row of yield* run(statements.agents.lockAgents(toRead))) this.#rows.set(row.id, agentRow(row))
  }

  /** Those that somebody else has written since this process did. */
  *outdated(): Work<string[]> {
    if (!this.#versions) return []
    const versions = new Map((yield* answer(this.#versions)).map(({ id, version }) => [id, version]))
    return [...this.#recalled].filter(([id, version]) => versions.get(id) !== version).map(([id]) => id)
  }
}

/** The agents that commands are about or below of, and the ids whose place nobody has told. */
function agentsOf(commands: readonly Command[]): { wanted: Set<string>; unplaced: string[] } {
  const wanted = new Set<string>()
  const unplaced: string[] = []
  for (const command of commands) {
    if (command.type === 'agent') {
      if (command.rootId === undefined) unplaced.push(command.agentId)
      else wanted.add(command.rootId).add(command.agentId)
    } else if (command.type === 'input') {
      if (command.input.type === 'beat') continue // nothing above it hears of that
      if (command.scope) wanted.add(command.scope.rootId).add(command.scope.parentId)
      else if (command.scope === undefined) unplaced.push(command.taskId)
    }
  }
  return { wanted, unplaced }
}
