/**
 * Dead letters on their way to the store. One that is refused is sent again with less in it; where that is refused too
 * it is said to whoever watches, among the events of the run, and in what the item came to.
 */
import { encodeJson } from '../core/json.ts'
import { MAX_LETTER_BYTES } from '../core/limits.ts'
import type { CommandEvent, DeadLetterBody, DeadLetterNote } from '../core/note.ts'
import type { AttemptCommands } from '../worker/command-task.ts'
import type { MapreduceRun } from './mapreduce-run.ts'
import type { ItemResult } from './run-folder.ts'

/** Instead of what does not fit. */
export const CUT = { cut: 'it is too large for a dead letter' }

/** A retry has nothing to work on then. */
export function cutItem(letter: DeadLetterBody): void {
  letter.item = CUT
  letter.eligible = false
}

/** Of very many files the first are named. */
export function cutFiles(of: { kept?: { changedFiles: string[] } | null }): void {
  if (of.kept) of.kept = { ...of.kept, changedFiles: of.kept.changedFiles.slice(0, SHOWN_FILES) }
}

const SHOWN_FILES = 50

/** Why nobody would take it: the code of an error. */
export function problemOf(letter: DeadLetterBody): string | null {
  try {
    encodeJson(letter, 'the dead letter', MAX_LETTER_BYTES)
    return null
  } catch (error) {
    return (error as { code?: string }).code ?? 'invalid_json'
  }
}

export interface SentLetter {
  result: ItemResult
  letter: DeadLetterNote
  /** What is noted besides. */
  events: CommandEvent[]
}

export async function sendLetter(
  run: MapreduceRun,
  commands: AttemptCommands,
  { result, letter, events }: SentLetter,
): Promise<void> {
  const refused = await commands.note({ events, letters: [letter] })
  if (refused === null) return
  const { id: item, name } = result
  const bare = letter.letter && { ...letter, letter: bareLetter(letter.letter) }
  const isKept = bare !== null && (await commands.note({ events: [], letters: [bare] })) === null
  const event: CommandEvent = { type: 'letter_refused', item, message: refused, isKept }
  await commands.note({ events: [event], letters: [] })
  if (isKept) {
    run.tell(`The dead letter of ${name} was refused, and is kept without its item and history: ${refused}`)
    return
  }
  const what = letter.letter ? 'has no dead letter' : 'is done, but its dead letter stays open'
  run.tell(`${name} ${what}, as nobody would store it: ${refused}`)
  if (letter.letter) run.folder.setResult({ ...result, letterRefused: refused })
}

/** What cannot be missing. */
function bareLetter({ errorType, message, name, file, timeout, failure }: DeadLetterBody): DeadLetterBody {
  const bare = { errorType, message: message.slice(0, 1_000), name, file, timeout, failure, history: [] }
  return { ...bare, item: CUT, eligible: false }
}
