/** Items of map-reduces that were given up: what programs ask about them and do with them. */

import type { DeadLetterError, DeadLetterState } from '../core/dead-letter.ts'
import { DEAD_LETTER_ERRORS, DEAD_LETTER_STATES } from '../core/dead-letter.ts'
import { CurfewError } from '../core/errors.ts'
import { checkKnown } from '../core/known-options.ts'
import { MAX_LETTERS_WITH_BODY, MAX_NAMED_ITEMS, MAX_PAGE } from '../core/limits.ts'
import { checkName } from '../definitions/task-policy.ts'
import type {
  DeadLetter,
  DeadLetterChoice,
  DeadLetterService,
  DeadLettersPage,
} from '../wire/dead-letter-view.ts'

const WHAT = 'dead letters'

export interface DeadLetterListOptions {
  /** Of this run of a map-reduce. */
  jobId?: string
  /** Default: all. */
  state?: DeadLetterState
  errorType?: DeadLetterError
  cursor?: string
  limit?: number
}

export interface DeadLetterChoiceOptions {
  /** Only these; default: all of the job. */
  itemIds?: readonly string[]
  errorType?: DeadLetterError
}

export class DeadLetters {
  readonly #service: DeadLetterService

  constructor(service: DeadLetterService) {
    this.#service = service
  }

  /** By job, the newest first, then by item; without their bodies. `cursor` of one page asks for the next. */
  async list(options: DeadLetterListOptions = {}): Promise<DeadLettersPage> {
    checkKnown(WHAT, options, ['jobId', 'state', 'errorType', 'cursor', 'limit'])
    const { jobId, state, errorType, cursor = null, limit = 100 } = options
    if (!Number.isInteger(limit) || limit < 1 || limit > MAX_PAGE)
      throw invalid(`limit must be between 1 and ${MAX_PAGE}, got ${limit}`)
    return this.#service.deadLetters({
      jobId: jobId === undefined ? null : checkName('job id', jobId),
      state: oneOf('state', state, DEAD_LETTER_STATES),
      errorType: oneOf('errorType', errorType, DEAD_LETTER_ERRORS),
      ...{ retryId: null, bodies: false, cursor, limit },
    })
  }

  /** With all there is to know of it. */
  async get(jobId: string, itemId: string): Promise<DeadLetter> {
    return this.#service.deadLetter(checkName('job id', jobId), checkName('item id', itemId))
  }

  /** Those of a job with all there is to know of them, a few at a time. */
  async *read(
    jobId: string,
    options: Pick<DeadLetterListOptions, 'state' | 'errorType'> = {},
  ): AsyncGenerator<DeadLetter> {
    checkKnown(WHAT, options, ['state', 'errorType'])
    yield* this.#read({
      ...{ jobId: checkName('job id', jobId), retryId: null },
      state: oneOf('state', options.state, DEAD_LETTER_STATES),
      errorType: oneOf('errorType', options.errorType, DEAD_LETTER_ERRORS),
    })
  }

  async *#read(
    filter: Pick<
      Parameters<DeadLetterService['deadLetters']>[0],
      'jobId' | 'state' | 'errorType' | 'retryId'
    >,
  ): AsyncGenerator<DeadLetter> {
    let cursor: string | null = null
    do {
      const page: DeadLettersPage = await this.#service.deadLetters({
        ...filter,
        ...{ bodies: true, cursor, limit: MAX_LETTERS_WITH_BODY },
      })
      yield* page.letters as DeadLetter[]
      cursor = page.cursor
    } while (cursor !== null)
  }

  /** Answers how many were open and are discarded now. */
  async discard(jobId: string, options: DeadLetterChoiceOptions = {}): Promise<number> {
    return this.#service.discardDeadLetters(choiceOf(jobId, options))
  }

  /**
   * Takes open ones for a run that is about to work on them again, and answers them. Refused (`being_retried`) while
   * another run does. `retryId`: the id that run will have; it has to be started within a minute.
   */
  async claim(
    jobId: string,
    { retryId, ...options }: DeadLetterChoiceOptions & { retryId: string },
  ): Promise<DeadLetter[]> {
    const choice = choiceOf(jobId, options)
    await this.#service.claimDeadLetters(choice, checkName('retry id', retryId))
    const claimed: DeadLetter[] = []
    for await (const letter of this.#read({ jobId, retryId, state: 'open', errorType: null }))
      claimed.push(letter)
    return claimed
  }
}

function choiceOf(jobId: string, options: DeadLetterChoiceOptions): DeadLetterChoice {
  checkKnown(WHAT, options, ['itemIds', 'errorType'])
  const { itemIds, errorType } = options
  if (itemIds?.length === 0) throw invalid('itemIds is empty: leave it out for all of them')
  if ((itemIds?.length ?? 0) > MAX_NAMED_ITEMS) throw invalid(`itemIds: at most ${MAX_NAMED_ITEMS} at a time`)
  return {
    jobId: checkName('job id', jobId),
    itemIds: itemIds?.map((itemId) => checkName('item id', itemId)) ?? null,
    errorType: oneOf('errorType', errorType, DEAD_LETTER_ERRORS),
  }
}

function oneOf<T extends string>(what: string, value: T | undefined, words: readonly T[]): T | null {
  if (value === undefined || words.includes(value)) return value ?? null
  throw invalid(`${what} '${value}' is none of ${words.join(', ')}`)
}

function invalid(message: string): CurfewError {
  return new CurfewError('invalid_option', `${WHAT}: ${message}`)
}
