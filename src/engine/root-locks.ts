/** The rows at the top of what was found due or lost: a root is locked before what is below it is decided. */
import type { Work } from '../store/statement.ts'
import { run } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type { TaskRow } from '../store/task-row.ts'

/**
 * Those whose root could be locked without waiting: they are locked themselves already, and to wait would be to wait
 * in the wrong order. The others are met again at the next look. What was locked is added to `locked`.
 */
export function* withRoots(
  statements: Statements,
  locked: Map<string, TaskRow>,
  rows: readonly TaskRow[],
): Work<TaskRow[]> {
  const above = new Set(rows.flatMap(({ rootId, parentId }) => [rootId ?? [], parentId ?? []].flat()))
  const wanted = [...above].filter((id) => !locked.has(id)).sort()
  if (wanted.length === 0) return [...rows]
  for (const row of yield* run(statements.agents.tryLockTasks(wanted))) locked.set(row.id, row)
  const busy = yield* stillThere(
    statements,
    wanted.filter((id) => !locked.has(id)),
  )
  return rows.filter(({ rootId, parentId }) => !busy.has(rootId ?? '') && !busy.has(parentId ?? ''))
}

/** Locked by somebody else, not removed. */
function* stillThere(statements: Statements, ids: readonly string[]): Work<Set<string>> {
  if (ids.length === 0) return new Set()
  const there = yield* run(statements.agents.places(ids))
  return new Set(there.map(({ id }) => id))
}

/** What is above comes before what is below it. */
export function byDueTime(a: TaskRow, b: TaskRow): number {
  return (a.dueAt ?? 0) - (b.dueAt ?? 0) || Number(b.kind === 'agent') - Number(a.kind === 'agent')
}
