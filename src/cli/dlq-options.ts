/** The options by which dead letters are chosen. */
import type { Command } from 'commander'
import type { Client } from '../client/client.ts'
import type { DeadLetterError, DeadLetterState } from '../core/dead-letter.ts'
import { DEAD_LETTER_ERRORS, DEAD_LETTER_STATES } from '../core/dead-letter.ts'
import { CurfewError } from '../core/errors.ts'
import type { DeadLetter, DeadLetterChoiceOptions, DeadLetters } from '../curfew.ts'
import type { Flags } from './options.ts'
import { oneOf } from './options.ts'

export interface ChoiceFlags extends Flags {
  errorType?: string
  state?: string
}

export function errorTypeOption(command: Command): Command {
  return command.option('--error-type <type>', `only ${DEAD_LETTER_ERRORS.join(', ')}`)
}

export function stateOption(command: Command): Command {
  const states = [...DEAD_LETTER_STATES, 'all'].join(', ')
  return command.option('--state <state>', `${states} (default: open)`)
}

export function errorTypeOf({ errorType }: ChoiceFlags): { errorType?: DeadLetterError } {
  return errorType === undefined ? {} : { errorType: oneOf(errorType, '--error-type', DEAD_LETTER_ERRORS) }
}

/** Without one: all of them. */
export function stateOf({ state = 'open' }: ChoiceFlags): { state?: DeadLetterState } {
  const known = oneOf(state, '--state', [...DEAD_LETTER_STATES, 'all'])
  return known === 'all' ? {} : { state: known }
}

/** Which ones a call names; with none it means all. */
export function itemsOf(itemIds: readonly string[]): { itemIds?: string[] } {
  return itemIds.length === 0 ? {} : { itemIds: [...new Set(itemIds)] }
}

/** Those that are open and chosen, with all there is to know of them. */
export async function* openLetters(
  deadLetters: DeadLetters,
  jobId: string,
  { itemIds, errorType }: DeadLetterChoiceOptions,
): AsyncGenerator<DeadLetter> {
  for await (const letter of deadLetters.read(jobId, { state: 'open', ...(errorType && { errorType }) }))
    if (itemIds === undefined || itemIds.includes(letter.itemId)) yield letter
}

export function isJob(id: string): boolean {
  return id.startsWith('j_')
}

/** A job may have several map-reduces, and each has its own. */
export async function refuseJob(client: Client, id: string | undefined): Promise<void> {
  if (id === undefined || !isJob(id)) return
  const workflows = await client.job(id).workflows()
  const runs = workflows.flatMap(({ kind, id: name, runId }) =>
    kind === 'mapreduce' && runId !== null ? [`${runId} (${name})`] : [],
  )
  throw new CurfewError('is_a_job', `${id} is a job: dead letters are of the map-reduces in it`, {
    hint:
      runs.length > 0
        ? `Name one of them: ${runs.join(', ')}`
        : 'None of its workflows is one that has begun.',
    fields: { id },
  })
}
