/**
 * What an attempt that runs commands says of them while it runs: events, how long it may go on, and the items it has
 * given up. The words of the events are those of the map-reduce format; an agent is there the work on one item.
 */

import type { DeadLetterError } from './dead-letter.ts'
import { DEAD_LETTER_ERRORS } from './dead-letter.ts'
import { LONGEST_DURATION_MS } from './duration.ts'
import { CurfewError } from './errors.ts'
import { encodeJson } from './json.ts'
import { MAX_DETAILS_BYTES, MAX_LETTER_BYTES, MAX_NAME_LENGTH, MAX_NOTED } from './limits.ts'

export const COMMAND_EVENTS = [
  'agent_started',
  'command_started',
  'command_completed',
  'command_failed',
  'agent_completed',
  'timeout_occurred',
  'timeout_resolved',
  'cleanup_completed',
  'cleanup_failed',
  'letter_refused',
] as const

/** Commands are counted from 0, in their template or phase. */
interface CommandPlace {
  phase: string
  /** Of an item: which. */
  item: string | null
  command: number
  commandType: string
}

export type CommandEvent =
  | { type: 'agent_started'; item: string; name: string; limitMs: number | null }
  | ({ type: 'command_started'; text: string; limitMs: number | null; source: string } & CommandPlace)
  | ({ type: 'command_completed'; tookMs: number } & CommandPlace)
  | ({ type: 'command_failed'; tookMs: number; exitCode: number | null; message: string } & CommandPlace)
  | { type: 'agent_completed'; item: string; status: string; tookMs: number }
  | {
      type: 'timeout_occurred'
      timeoutType: 'agent' | 'command' | 'idle' | 'phase'
      phase: string
      item: string | null
      command: number | null
      commandType: string | null
      limitMs: number
      elapsedMs: number
      /** What set the limit. */
      source: string
      message: string
    }
  | {
      type: 'timeout_resolved'
      item: string | null
      resolution: 'GracefulTermination' | 'ForceTermination'
      tookMs: number
    }
  | { type: 'cleanup_completed'; item: string }
  | { type: 'cleanup_failed'; item: string; message: string }
  /** Its dead letter could not be stored. `isKept`: one that says less could. */
  | { type: 'letter_refused'; item: string; message: string; isKept: boolean }

/** An item that was given up: what a person needs to look at it and to try it again. */
export interface DeadLetterNote {
  jobId: string
  itemId: string
  /** Null: it was worked on again and is done. */
  letter: DeadLetterBody | null
}

export interface DeadLetterBody {
  errorType: DeadLetterError
  message: string
  [field: string]: unknown
}

export interface Note {
  events: CommandEvent[]
  /** The attempt's limit, from now; null: none; left out: as it was. */
  limitMs?: number | null
  /** With a limit: what it is of. */
  limitOf?: NotedLimit
  letters: DeadLetterNote[]
}

/** A limit as the store keeps it, for the case that it has to be the one that ends the attempt. */
export interface NotedLimit {
  type: 'agent' | 'command' | 'idle' | 'phase'
  command: number
  commandType: string
  text: string
  limitMs: number
  /** Of the limit, when it was noted. */
  elapsedMs: number
  /** What set it. */
  source: string
  /** For people, once it is over. */
  message: string
  /** That it is over has been noted. */
  isTold: boolean
}

/** What an attempt is handed as its details: the last limit that was noted before it. */
export interface KeptLimit {
  limit: NotedLimit
  attempt: number
  notedAt: number
  /** When the store had to end the attempt for it. */
  firedAt?: number
}

/** Null unless the attempt before this one was ended by the store. */
export function overruledLimit(details: unknown): Required<KeptLimit> | null {
  const { limit, firedAt } = (details ?? {}) as Partial<KeptLimit>
  return limit && firedAt !== undefined ? (details as Required<KeptLimit>) : null
}

/** From a worker of another process. */
export function checkNote({ events, limitMs, limitOf, letters }: Note, at: string): Note {
  if (events.length > MAX_NOTED || letters.length > MAX_NOTED) throw invalid(`${at} notes too much`)
  if (typeof limitMs === 'number' && !(limitMs >= 0 && limitMs <= LONGEST_DURATION_MS))
    throw invalid(`${at}.limit_ms is no length of time`)
  if (limitOf !== undefined) {
    if (typeof limitOf !== 'object' || limitOf === null) throw invalid(`${at}.limit_of is no limit`)
    encodeJson(limitOf, `${at}.limit_of`, MAX_DETAILS_BYTES)
  }
  for (const event of events) {
    if (!COMMAND_EVENTS.includes(event?.type)) throw invalid(`${at}.events: ${String(event?.type)} is none`)
    encodeJson(event, `${at}.events`, MAX_DETAILS_BYTES)
  }
  for (const one of letters) {
    for (const key of ['jobId', 'itemId'] as const) {
      if (typeof one?.[key] !== 'string' || !ID.test(one[key]) || one[key].length > MAX_NAME_LENGTH)
        throw invalid(`${at}.letters: its ${key} is none`)
    }
    const { letter } = one
    if (letter === null) continue
    if (!DEAD_LETTER_ERRORS.includes(letter?.errorType) || typeof letter.message !== 'string')
      throw invalid(`${at}.letters: it does not say what went wrong`)
    encodeJson(letter, `${at}.letters`, MAX_LETTER_BYTES)
  }
  return { events, letters, ...(limitMs !== undefined && { limitMs }), ...(limitOf && { limitOf }) }
}

const ID = /^[\w.:-]+$/

function invalid(message: string): CurfewError {
  return new CurfewError('invalid_request', message)
}
