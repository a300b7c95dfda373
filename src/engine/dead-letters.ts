/**
 * Items that were given up, as notes tell of them, become rows in the transaction that takes the note. A run writes
 * letters of its own, and those of another that it works on again; what a worker says of others is not stored.
 */
import { MAX_FAILURE_TEXT, MAX_NAME_LENGTH } from '../core/limits.ts'
import type { DeadLetterBody, DeadLetterNote } from '../core/note.ts'
import type { LetterRow } from '../store/letter-row.ts'
import type { Work } from '../store/statement.ts'
import { start } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type { TaskDraft } from './task-draft.ts'

interface Told {
  note: DeadLetterNote
  /** The attempt's task, and what is above it. */
  runIds: string[]
  now: number
}

export function* storeLetters({ letters }: Statements, drafts: readonly TaskDraft[]): Work<void> {
  const own = new Map<string, Told>()
  const retried = new Map<string, Told>()
  for (const draft of drafts) {
    if (draft.letters.length === 0) continue
    const { id, parentId, rootId } = draft.row
    const runIds = [...new Set([id, parentId, rootId].filter((one) => one !== null))]
    for (const note of draft.letters) {
      const which = runIds.includes(note.jobId) ? own : retried
      // Of several about one item the last counts.
      which.set(`${note.jobId} ${note.itemId}`, { note, runIds, now: draft.now })
    }
  }
  const rows = inOrder(own).flatMap(({ note, now }) => (note.letter ? [rowOf(note, note.letter, now)] : []))
  if (rows.length) yield* start(letters.put(rows))
  for (const { note, now } of inOrder(own))
    if (note.letter === null) yield* start(letters.resolve(note, now, null))
  for (const { note, runIds, now } of inOrder(retried)) {
    const { letter } = note
    const statement = letter
      ? letters.putRetried(rowOf(note, letter, now), runIds)
      : letters.resolve(note, now, runIds)
    yield* start(statement)
  }
}

/** Two transactions that write the same rows lock them in the same order. */
function inOrder(told: ReadonlyMap<string, Told>): Told[] {
  return [...told].toSorted(([a], [b]) => (a < b ? -1 : 1)).map(([, one]) => one)
}

function rowOf({ jobId, itemId }: DeadLetterNote, letter: DeadLetterBody, now: number): LetterRow {
  const { errorType, message, name, history } = letter
  return {
    ...{ jobId, itemId, state: 'open', errorType },
    message: columnText(message, MAX_FAILURE_TEXT),
    name: columnText(typeof name === 'string' ? name : itemId, MAX_NAME_LENGTH),
    body: JSON.stringify(letter),
    attempts: Array.isArray(history) ? history.length : 0,
    ...{ createdAt: now, updatedAt: now, retryId: null, retriedAt: null },
  }
}

/** A column takes no NUL; in the body it is escaped. */
function columnText(text: string, most: number): string {
  return text.slice(0, most).replaceAll('\0', '')
}
