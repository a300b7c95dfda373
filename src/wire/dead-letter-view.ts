/** Dead letters as plain data: items of a map-reduce that were given up, and what is asked about them. */
import type { DeadLetterError, DeadLetterState } from '../core/dead-letter.ts'

export interface DeadLetterView {
  jobId: string
  itemId: string
  /** The item, as people know it. */
  name: string
  state: DeadLetterState
  errorType: DeadLetterError
  message: string
  /** All that were made, retries included. */
  attempts: number
  createdAt: number
  updatedAt: number
  /** The run that works on it again. */
  retryId: string | null
  /** When it was last taken to be worked on again. */
  retriedAt: number | null
  /** What there is to know of it; null in a list. */
  body: Record<string, unknown> | null
}

/** One with all there is to know. */
export type DeadLetter = DeadLetterView & { body: Record<string, unknown> }

/** Which of the dead letters of a job are meant: those with these ids, else all. */
export interface DeadLetterChoice {
  jobId: string
  itemIds: string[] | null
  errorType: DeadLetterError | null
}

export interface DeadLettersRequest {
  jobId: string | null
  state: DeadLetterState | null
  errorType: DeadLetterError | null
  /** Only what this run works on again. */
  retryId: string | null
  /** With their bodies: then a page is shorter. */
  bodies: boolean
  cursor: string | null
  limit: number
}

export interface DeadLettersPage {
  letters: DeadLetterView[]
  cursor: string | null
}

export interface DeadLetterService {
  /** By job, the newest first, then by item. */
  deadLetters(request: DeadLettersRequest): Promise<DeadLettersPage>
  deadLetter(jobId: string, itemId: string): Promise<DeadLetter>
  /** Answers how many it has discarded. */
  discardDeadLetters(choice: DeadLetterChoice): Promise<number>
  /**
   * Says that a run works on them again, before it is started. Refused while another one does (`being_retried`); the
   * same run may ask again. Answers how many they are.
   */
  claimDeadLetters(choice: DeadLetterChoice, retryId: string): Promise<number>
}
