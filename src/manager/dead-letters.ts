/**
 * Dead letters, read and changed in the store. Notes of attempts write them (`engine/dead-letters.ts`); here they are
 * listed, discarded, and taken by a run that works on them again: by one at a time.
 */
import type { DeadLetterError } from '../core/dead-letter.ts'
import { CurfewError } from '../core/errors.ts'
import { MAX_LETTERS_WITH_BODY } from '../core/limits.ts'
import type { LetterRow } from '../store/letter-row.ts'
import type { LetterFilter, LetterPlace } from '../store/letter-statements.ts'
import type { Work } from '../store/statement.ts'
import { run } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type {
  DeadLetter,
  DeadLetterChoice,
  DeadLettersPage,
  DeadLettersRequest,
  DeadLetterView,
} from '../wire/dead-letter-view.ts'

/** A run that has taken letters and has no record yet: whoever starts it does so at once, or has died. */
const STARTS_WITHIN_MS = 60_000

type Chosen = Pick<LetterRow, 'itemId' | 'state' | 'retryId' | 'retriedAt'>

export function* listLetters(statements: Statements, request: DeadLettersRequest): Work<DeadLettersPage> {
  const { cursor, bodies, limit: most, ...wanted } = request
  const limit = bodies ? Math.min(most, MAX_LETTERS_WITH_BODY) : most
  const after = cursor === null ? null : placeOf(cursor)
  const filter = { ...wanted, itemIds: null }
  const rows = yield* run(statements.letters.list(filter, { after, limit, bodies }))
  const last = rows.length === limit ? rows.at(-1) : undefined
  return { letters: rows.map(viewOf), cursor: last ? `${last.jobId} ${last.itemId}` : null }
}

export function* readLetter({ letters }: Statements, jobId: string, itemId: string): Work<DeadLetter> {
  const filter = { ...ANY, jobId, itemIds: [itemId] }
  const [row] = yield* run(letters.list(filter, { after: null, limit: 1, bodies: true }))
  if (!row) throw noLetter({ jobId, itemIds: [itemId], errorType: null })
  return viewOf(row) as DeadLetter
}

/** What was resolved or discarded before stays as it is. */
export function* discardLetters(statements: Statements, choice: DeadLetterChoice, now: number): Work<number> {
  const chosen = yield* choose(statements, choice)
  const open = chosen.filter(({ state }) => state === 'open')
  yield* refuseRetried(statements, choice.jobId, open, { now, except: null })
  const itemIds = open.map(({ itemId }) => itemId)
  if (itemIds.length > 0) yield* run(statements.letters.discard(choice.jobId, itemIds, now))
  return itemIds.length
}

export function* claimLetters(
  statements: Statements,
  choice: DeadLetterChoice,
  { retryId, now }: { retryId: string; now: number },
): Work<number> {
  const { jobId, itemIds: named } = choice
  const chosen = yield* choose(statements, choice)
  const over = chosen.find(({ state }) => state !== 'open')
  if (named !== null && over)
    throw new CurfewError('refused', `${over.itemId} of ${jobId} is ${over.state}: there is nothing to retry`)
  const open = chosen.filter(({ state }) => state === 'open')
  if (open.length === 0) throw noLetter(choice, 'open ')
  yield* refuseRetried(statements, jobId, open, { now, except: retryId })
  const itemIds = open.map(({ itemId }) => itemId)
  yield* run(statements.letters.claim(jobId, itemIds, retryId, now))
  return itemIds.length
}

/** They are locked: what is found out about them holds until the end of the transaction. */
function* choose(statements: Statements, choice: DeadLetterChoice): Work<Chosen[]> {
  const chosen = yield* run(statements.letters.lock({ ...ANY, ...choice }))
  const found = new Set(chosen.map(({ itemId }) => itemId))
  const missing = choice.itemIds?.filter((itemId) => !found.has(itemId)) ?? []
  if (chosen.length === 0) throw noLetter(choice)
  if (missing.length > 0) throw noLetter({ ...choice, itemIds: missing })
  return chosen
}

function* refuseRetried(
  statements: Statements,
  jobId: string,
  letters: readonly Chosen[],
  { now, except }: { now: number; except: string | null },
): Work<void> {
  const taken = letters.filter(({ retryId }) => retryId !== null && retryId !== except)
  if (taken.length === 0) return
  const ids = [...new Set(taken.map(({ retryId }) => retryId as string))]
  const runs = new Map((yield* run(statements.letters.runs(ids))).map(({ id, isOver }) => [id, isOver === 1]))
  const busy = taken.find(({ retryId, retriedAt }) => {
    const isOver = runs.get(retryId as string) ?? (retriedAt ?? 0) + STARTS_WITHIN_MS <= now
    return !isOver
  })
  if (!busy) return
  const { itemId, retryId } = busy
  throw new CurfewError('being_retried', `${itemId} of ${jobId} is being retried by ${retryId}`, {
    hint: runs.has(retryId as string)
      ? `Wait for it: curfew watch ${retryId}. If nobody runs it: curfew resume ${retryId}, or curfew cancel ${retryId}.`
      : 'It is about to begin; should it not, they are free again after a minute.',
    fields: { jobId, itemId, retryId },
  })
}

const ANY: LetterFilter = { jobId: null, itemIds: null, state: null, errorType: null, retryId: null }

function viewOf(row: Omit<LetterRow, 'body'> & { body?: string }): DeadLetterView {
  const { jobId, itemId, name, state, errorType, message, attempts, createdAt, updatedAt, body } = row
  const { retryId, retriedAt } = row
  return {
    ...{ jobId, itemId, name, state, errorType: errorType as DeadLetterError, message, attempts },
    ...{ createdAt, updatedAt, retryId, retriedAt },
    body: body === undefined ? null : (JSON.parse(body) as Record<string, unknown>),
  }
}

function placeOf(cursor: string): LetterPlace {
  const [jobId, itemId, ...more] = cursor.split(' ')
  if (!jobId || !itemId || more.length > 0)
    throw new CurfewError('invalid_request', `cursor: '${cursor.slice(0, 50)}' is none of ours`)
  return { jobId, itemId }
}

function noLetter({ jobId, itemIds, errorType }: DeadLetterChoice, state = ''): CurfewError {
  const kind = errorType === null ? '' : ` of type ${errorType}`
  const which =
    itemIds === null ? `no ${state}dead letter${kind}` : `no dead letter ${itemIds.join(', ')}${kind}`
  return new CurfewError('not_found', `${jobId} has ${which}`, {
    hint: 'curfew dlq list --state all shows which there are.',
    fields: { jobId, itemIds, errorType },
  })
}
