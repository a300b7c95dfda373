/**
 * An attempt at an item that the store had to end, because its worker hung: what became of it, put together from what
 * the store was told of its limit and, where its process came to itself again, from what that one saw.
 */
import type { CommandEvent, KeptLimit } from '../core/note.ts'
import type { ItemAttempt } from './run-folder.ts'
import type { StepTimeout } from './step-records.ts'

/** `seen`: by the process that ran it, where that is this one. */
export function overruledAttempt(kept: Required<KeptLimit>, seen: ItemAttempt | null): ItemAttempt {
  const { limit, attempt, notedAt, firedAt } = kept
  const { isTold: _, ...about } = limit
  const elapsedMs = limit.elapsedMs + Math.max(0, Math.round(firedAt - notedAt))
  const timeout: StepTimeout = seen?.timeout ?? {
    ...{ ...about, elapsedMs, stdout: '', stderr: '' },
    // It did not end by itself: its process, or whoever watched over that, ended it.
    resolution: 'ForceTermination',
  }
  const tookMs = Math.max(seen?.tookMs ?? 0, timeout.elapsedMs)
  return {
    ...{ attempt, startedAt: seen?.startedAt ?? firedAt - tookMs, tookMs, status: 'timed_out' },
    ...{ timeout, failure: null, steps: seen?.steps ?? [], kept: seen?.kept ?? null },
  }
}

/** What its worker could not note any more. */
export function overruledEvents(
  item: string | null,
  phase: string,
  { limit }: Required<KeptLimit>,
  timeout: StepTimeout,
): CommandEvent[] {
  const { type: timeoutType, command, commandType, limitMs, elapsedMs, source, message } = timeout
  const about = { phase, item, command, commandType, limitMs, elapsedMs, source, message }
  return [
    ...(limit.isTold ? [] : [{ type: 'timeout_occurred' as const, timeoutType, ...about }]),
    {
      ...{ type: 'timeout_resolved', item, resolution: timeout.resolution },
      tookMs: Math.max(0, elapsedMs - limitMs),
    },
  ]
}
