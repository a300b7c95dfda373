/** The words that dead letters are told apart by. */

/** What an item was given up for. */
export const DEAD_LETTER_ERRORS = ['timeout', 'failure', 'conflict', 'lost'] as const
export type DeadLetterError = (typeof DEAD_LETTER_ERRORS)[number]

/** `resolved`: it was worked on again, and is done. */
export const DEAD_LETTER_STATES = ['open', 'resolved', 'discarded'] as const
export type DeadLetterState = (typeof DEAD_LETTER_STATES)[number]
