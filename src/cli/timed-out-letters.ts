/**
 * Items that timed out and are worked on once more by a run that goes on: it takes their dead letters as `dlq retry`
 * does, so that nobody else works on them meanwhile. What somebody else has worked on, or given up, is left alone.
 */
import type { Client } from '../client/client.ts'
import { CurfewError } from '../core/errors.ts'
import { MAX_NAMED_ITEMS, MAX_PAGE } from '../core/limits.ts'
import type { DeadLetter, DeadLettersPage } from '../curfew.ts'
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import type { MapreduceRun } from '../mapreduce/mapreduce-run.ts'

/** Before anything of the run is handed out. Answers the items that are not worked on again. */
export async function takeTimedOutLetters({ deadLetters }: Client, run: MapreduceRun): Promise<string[]> {
  const ids = new Set(run.timedOutBefore)
  if (ids.size === 0) return []
  const jobId = run.folder.record.retryOf ?? run.jobId
  const free: string[] = []
  const doubtful: string[] = []
  const left: string[] = []
  let cursor: string | null = null
  do {
    const page: DeadLettersPage = await deadLetters.list({
      jobId,
      limit: MAX_PAGE,
      ...(cursor && { cursor }),
    })
    for (const { itemId, state, retryId, retriedAt } of page.letters) {
      if (!ids.delete(itemId)) continue
      const mayBeRetried = retriedAt !== null && retryId === null
      if (state !== 'open') left.push(itemId)
      else if (mayBeRetried && !isOfRun(await deadLetters.get(jobId, itemId), run)) left.push(itemId)
      else if (retryId === null || retryId === run.jobId) free.push(itemId)
      // That one may be over.
      else doubtful.push(itemId)
    }
    cursor = page.cursor
  } while (cursor !== null)
  const take = async (itemIds: string[]) => isTaken(deadLetters.claim(jobId, { itemIds, retryId: run.jobId }))
  for (let from = 0; from < free.length; from += MAX_NAMED_ITEMS) {
    const some = free.slice(from, from + MAX_NAMED_ITEMS)
    if (!(await take(some))) doubtful.push(...some)
  }
  for (const id of doubtful) if (!(await take([id]))) left.push(id)
  left.push(...[...ids].filter((id) => isLongOver(run, id)))
  run.leaveTimedOut(left)
  return left
}

/** This run was the last to work on it. */
function isOfRun({ body: { history } }: DeadLetter, { jobId }: MapreduceRun): boolean {
  const last = Array.isArray(history) ? (history.at(-1) as { jobId?: unknown } | undefined) : undefined
  return last === undefined || last.jobId === jobId
}

async function isTaken(claim: Promise<unknown>): Promise<boolean> {
  try {
    await claim
    return true
  } catch (error) {
    const { code } = error as { code?: string }
    if (
      error instanceof CurfewError &&
      (code === 'being_retried' || code === 'refused' || code === 'not_found')
    )
      return false
    throw error
  }
}

/** One without a letter: it could not be stored, or it was closed so long ago that it is removed. */
function isLongOver({ folder, clock }: MapreduceRun, id: string): boolean {
  const { attempts = [], letterRefused } = folder.result(id) ?? {}
  const last = attempts.at(-1)
  if (!last || letterRefused !== undefined) return false
  return last.startedAt + last.tookMs + DEFAULT_POLICY.retentionMs < clock.wall()
}
