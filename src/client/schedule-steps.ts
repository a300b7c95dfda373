/** Many tasks in steps that can be stored together. */
import { MAX_BATCH_BYTES, MAX_BULK_ROWS } from '../core/limits.ts'
import type { ScheduleRequest } from '../wire/task-service.ts'

/** What is stored together. */
export function inSteps(tasks: ScheduleRequest['tasks']): ScheduleRequest['tasks'][] {
  const steps: ScheduleRequest['tasks'][] = []
  let left = 0
  for (const task of tasks) {
    const last = steps.at(-1)
    if (last && last.length < MAX_BULK_ROWS && task.input.length <= left) last.push(task)
    else {
      steps.push([task])
      left = MAX_BATCH_BYTES
    }
    left -= task.input.length
  }
  return steps
}

/** Waits for all, so that nothing goes on behind the caller's back, then throws the first error. */
export async function allOrFirstError<T>(promises: Promise<T>[]): Promise<T[]> {
  const results = await Promise.allSettled(promises)
  const failed = results.find((result) => result.status === 'rejected')
  if (failed) throw failed.reason
  return results.map((result) => (result as PromiseFulfilledResult<T>).value)
}
