/** One transaction of the funnel; again, with their rows, when reports turn out to be outdated. */
import type { Fence, Store } from '../store/store.ts'
import type { BatchContext, ClaimWish, Command } from './task-batch.ts'
import { ColdReports, TaskBatch } from './task-batch.ts'

export interface BatchRequest {
  fence: Fence | null
  context: Omit<BatchContext, 'statements'>
  wish: ClaimWish | null
  now: () => number
}

export async function commitBatch(
  store: Store,
  commands: readonly Command[],
  { fence, context, wish, now }: BatchRequest,
): Promise<TaskBatch> {
  const whole = { ...context, statements: store.statements }
  const cold = new Set<string>()
  for (;;) {
    try {
      return await store.write(fence, () => new TaskBatch(whole, now(), wish, cold).apply(commands))
    } catch (error) {
      if (!(error instanceof ColdReports)) throw error
      for (const id of error.taskIds) cold.add(id)
    }
  }
}
