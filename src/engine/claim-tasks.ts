/** What a claim gets: of all queues without a limit at once, then of the others one by one, as far as each has room. */
import type { ClaimedTask } from '../store/hot-statements.ts'
import type { Work } from '../store/statement.ts'
import { run } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type { ClaimWish } from './command.ts'

export function* claimTasks(
  { statements, nodeId }: { statements: Statements; nodeId: string },
  wish: ClaimWish,
  now: number,
): Work<ClaimedTask[]> {
  const { token, names, after, floors } = wish
  const claimed: ClaimedTask[] = []
  const claim = (queues: readonly string[], limit: number, counted: boolean) =>
    statements.hot.claimTasks({ now, nodeId, token, queues, names, limit, after, floors, counted })
  if (wish.queues.length) claimed.push(...(yield* claim(wish.queues, wish.slots, false)))
  for (const queue of wish.limitedQueues) {
    const free = wish.slots - claimed.length
    if (free <= 0) break
    const [row] = yield* run(statements.lockQueue(queue))
    const [live] = yield* run(statements.liveCount(queue))
    const limit = Math.min(free, (row?.concurrency ?? Infinity) - (live?.count ?? 0))
    if (limit > 0) claimed.push(...(yield* claim([queue], limit, true)))
  }
  return claimed
}
