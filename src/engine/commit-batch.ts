/**
 * One transaction of the funnel; again, with what is stored, when what it went by turns out to be outdated. Where it
 * comes too late to start anything, its wish is null, and the next transaction does.
 */
import { CurfewError } from '../core/errors.ts'
import type { Work } from '../store/statement.ts'
import { allAnswered } from '../store/statement.ts'
import type { Fence, Store } from '../store/store.ts'
import { StoreError } from '../store/store-error.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { AgentMemory } from './agent-memory.ts'
import type { ClaimWish, Command } from './command.ts'
import type { BatchContext } from './task-batch.ts'
import { OutdatedRows, TaskBatch } from './task-batch.ts'

/**
 * The time of a batch is from before its locks. What it starts after a longer wait, for somebody's deadlock that the
 * database ends after a second, would have that much less time, and may be younger than its start.
 */
const LONGEST_WAIT_MS = 500
/** Attempts with less time than this lose a part of it that counts; for others nobody waits to know. */
const SHORT_MS = 20_000

/** So many in a row are no accident: the database is that slow, and doing everything twice would make it worse. */
const MOST_LATE = 2

class OutdatedTime extends CurfewError {
  constructor() {
    super('outdated_time', 'what starts has to be started by a later time')
  }
}

/** How many of the last batches that started something came too late to. */
export interface Pace {
  late: number
}

export interface BatchRequest {
  fence: Fence | null
  context: Omit<BatchContext, 'statements' | 'recall'>
  memory: AgentMemory
  wish: ClaimWish | null
  pace: Pace
  now: () => number
}

export async function commitBatch(
  store: Store,
  commands: readonly Command[],
  { fence, context, memory, wish, pace, now }: BatchRequest,
): Promise<TaskBatch> {
  const cold = new Set<string>()
  const recalled = new Map<string, TaskRow>()
  const recall = (id: string) => {
    if (cold.has(id)) return undefined
    const row = recalled.get(id) ?? memory.take(id)
    if (row) recalled.set(id, row)
    return row
  }
  const whole = { ...context, statements: store.statements, recall }
  // The one of a try that came too late to start anything: by a later one deadlines would be over which heartbeats
  // that came meanwhile have moved.
  let time: number | null = null
  let starting = wish
  function* decide(): Work<TaskBatch> {
    const begun = time ?? now()
    const batch = yield* new TaskBatch(whole, begun, starting, cold).apply(commands)
    if (!batch.starts) return batch
    if (batch.startsUntil(begun + SHORT_MS)) yield* allAnswered()
    if (now() - begun <= LONGEST_WAIT_MS) pace.late = 0
    else if (pace.late < MOST_LATE) {
      pace.late++
      time = begun
      throw new OutdatedTime()
    }
    return batch
  }
  for (;;) {
    try {
      const batch = await store.write(fence, decide)
      memory.keep(batch.heldAgents())
      return batch
    } catch (error) {
      if (error instanceof OutdatedTime) {
        starting = null
        context.takenBack(wish)
        continue
      }
      // What goes by an outdated row may also be refused before its version is seen.
      const refused =
        error instanceof StoreError && error.code === 'store_refused' ? [...recalled.keys()] : []
      const ids = error instanceof OutdatedRows ? error.ids : refused
      if (ids.every((id) => cold.has(id))) throw error
      for (const id of ids) cold.add(id)
      context.takenBack(wish)
    }
  }
}
