/** Work explained with what is above and below it: which limit of the whole line ends first. Pure. */
import { workName } from '../core/own-work.ts'
import type { TaskRow } from '../store/task-row.ts'
import { explainAgent } from './agent-view.ts'
import { readablePolicyOf } from './inherited-policy.ts'
import type { ActiveLimit } from './task-limits.ts'
import { limitsInForce } from './task-limits.ts'
import { explainTask } from './task-view.ts'

/** Of what is below one piece of work. */
export const MAX_EXPLAINED = 500

interface Binding {
  id: string
  name: string
  kind: ActiveLimit['kind']
  deadlineAt: number
  remainingMs: number
}

type Explained = (ReturnType<typeof explainAgent> | ReturnType<typeof explainTask>) & {
  title: string | null
  binding: Binding | null
  below: Explained[]
}

/** `above`: from the outermost on. `below`: at any depth, in any order. */
export function explainTree(
  row: TaskRow,
  { above, below, now }: { above: readonly TaskRow[]; below: readonly TaskRow[]; now: number },
): Explained {
  const children = Map.groupBy(below, ({ parentId }) => parentId)
  // What is detached goes on when that above it ends.
  const outer = above.reduce<Binding | null>(
    (binding, one) => earlier(one.detached === 1 ? null : binding, one, now),
    null,
  )
  return explained(row, children, row.detached === 1 ? null : outer, now)
}

function explained(
  row: TaskRow,
  children: ReadonlyMap<string | null, TaskRow[]>,
  outer: Binding | null,
  now: number,
): Explained {
  const binding = row.settledAt === null ? earlier(outer, row, now) : null
  const inner = (children.get(row.id) ?? []).toSorted((a, b) => (a.step ?? 0) - (b.step ?? 0))
  const open = inner.filter(({ resultSeq }) => resultSeq === null)
  const own = row.kind === 'agent' ? explainAgent(row, open, now) : explainTask(row, [], now, false)
  const below = inner.map((child) => explained(child, children, child.detached === 1 ? null : binding, now))
  return { ...own, title: row.title, binding, below }
}

/** Whichever ends first: what binds already, or a limit of this one. */
function earlier(binding: Binding | null, row: TaskRow, now: number): Binding | null {
  const limits = limitsInForce(row, readablePolicyOf(row))
  return limits.reduce<Binding | null>((first, { kind, deadlineAt }) => {
    if (first !== null && first.deadlineAt <= deadlineAt) return first
    return { id: row.id, name: workName(row), kind, deadlineAt, remainingMs: Math.max(0, deadlineAt - now) }
  }, binding)
}
