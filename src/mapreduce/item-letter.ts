/** What is kept of an item that was given up, for people and for another try. It is as much as a store takes. */
import { MAX_LETTER_BYTES } from '../core/limits.ts'
import type { DeadLetterBody, DeadLetterNote } from '../core/note.ts'
import { CUT, cutFiles, cutItem, problemOf } from './letter-sending.ts'
import type { MapreduceRun } from './mapreduce-run.ts'
import type { ItemAttempt, ItemResult, RunItem } from './run-folder.ts'

/** Of an item that was given up, or is done after all. Null: there is nothing to say of it. */
export function letterOf(
  run: MapreduceRun,
  item: RunItem,
  result: ItemResult,
  message: string | null,
): DeadLetterNote | null {
  const { retryOf } = run.folder.record
  const jobId = retryOf ?? run.jobId
  const { status, attempts } = result
  // One that timed out may be in the dead letters, from an earlier session.
  if (status !== 'failed' && status !== 'timed_out')
    return retryOf === null && attempts.length === 1 ? null : { jobId, itemId: item.id, letter: null }
  const last = attempts.at(-1)
  const timeout = last?.timeout
  const failure = last?.failure ?? null
  const isConflict = failure?.code === 'merge_conflict' || failure?.code === 'merge_refused'
  const letter: DeadLetterBody = {
    errorType: timeout ? 'timeout' : isConflict ? 'conflict' : failure?.code === 'lost' ? 'lost' : 'failure',
    message: message ?? 'it failed',
    item: item.item,
    name: item.name,
    file: run.folder.record.file,
    eligible: true,
    timeout: timeout
      ? {
          ...{ kind: timeout.type, commandIndex: timeout.command, commandType: timeout.commandType },
          ...{ limitMs: timeout.limitMs, elapsedMs: timeout.elapsedMs, source: timeout.source },
          resolution: timeout.resolution,
        }
      : null,
    failure: failure && { code: failure.code, message: failure.message },
    partial: { steps: last?.steps ?? [], captures: result.captures, kept: last?.kept ?? null },
    output: { stdout: outputOf(last, 'stdout'), stderr: outputOf(last, 'stderr') },
    history: [...(item.history ?? []), ...attempts.map((one) => ({ jobId: run.jobId, ...one }))],
  }
  return { jobId, itemId: item.id, letter: fitting(letter) }
}

/**
 * What a store takes. What goes first is the output of old attempts, the oldest before the others, then what was
 * captured, names of files, old attempts, and the item itself only where there would be no space for it alone.
 */
function fitting(letter: DeadLetterBody): DeadLetterBody {
  // What no store takes in any length.
  if (problemOf(letter) === 'invalid_json') cutItem(letter)
  let over = bytesOf(letter) - MAX_LETTER_BYTES
  if (over <= 0) return letter
  const { history, partial } = letter as unknown as Cuttable
  for (const [i, one] of history.entries()) {
    const short = withoutOutput(one)
    over -= bytesOf(one) - bytesOf(short)
    history[i] = short
    if (over <= 0) return letter
  }
  partial.captures = CUT
  if (fits(letter)) return letter
  for (const one of [partial, ...history]) cutFiles(one)
  if (fits(letter)) return letter
  const old = history.splice(0, history.length - 1)
  if (!fits(letter)) cutItem(letter)
  let bytes = bytesOf(letter)
  for (const one of old.toReversed()) {
    bytes += bytesOf(one) + ','.length
    if (bytes > MAX_LETTER_BYTES) break
    history.unshift(one)
  }
  return letter
}

interface Cuttable {
  history: { kept?: ItemAttempt['kept'] }[]
  partial: { captures: unknown; kept: ItemAttempt['kept'] }
}

function fits(letter: DeadLetterBody): boolean {
  return bytesOf(letter) <= MAX_LETTER_BYTES
}

function bytesOf(value: object): number {
  return Buffer.byteLength(JSON.stringify(value))
}

function withoutOutput(attempt: object): object {
  const drop = (key: string, value: unknown) => (key === 'stdout' || key === 'stderr' ? undefined : value)
  return JSON.parse(JSON.stringify(attempt, drop)) as object
}

function outputOf(attempt: ItemAttempt | undefined, stream: 'stdout' | 'stderr'): string {
  const failure = attempt?.failure
  return (
    attempt?.timeout?.[stream] ??
    (failure && stream in failure ? (failure as Record<string, string>)[stream]! : '')
  )
}
