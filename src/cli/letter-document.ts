/** A dead letter as the command line tells it: one object, with everything there is to know. */
import type { DeadLetter } from '../curfew.ts'

/** What a letter holds of one attempt. Anything may be missing: it comes from the worker that made it. */
export interface LetterAttempt {
  jobId?: string
  attempt?: number
  startedAt?: number
  tookMs?: number
  status?: string
  timeout?: LetterTimeout | null
  failure?: { code?: string; message?: string; text?: string; exitCode?: number | null } | null
  kept?: KeptWork | null
}

export interface LetterTimeout {
  kind?: string
  /** In the history, where `kind` is called so. */
  type?: string
  command?: number
  commandIndex?: number
  commandType?: string
  text?: string
  limitMs?: number
  elapsedMs?: number
  source?: string
  resolution?: string
}

export interface LetterStep {
  command?: number
  commandType?: string
  text?: string
  status?: string
  exitCode?: number | null
  tookMs?: number
  limitMs?: number | null
  source?: string
}

export interface KeptWork {
  ref?: string | null
  commit?: string | null
  changedFiles?: string[]
  diffStat?: string
}

export interface LetterBody {
  item?: unknown
  file?: string | null
  timeout?: LetterTimeout | null
  failure?: { code?: string; message?: string } | null
  partial?: { steps?: LetterStep[]; captures?: Record<string, unknown>; kept?: KeptWork | null }
  output?: { stdout?: string; stderr?: string }
  history?: LetterAttempt[]
}

export type LetterDocument = Omit<DeadLetter, 'body'> & LetterBody & { eligible: boolean }

/** What the store says of it wins over what its worker said, but for the message, which the store cuts. */
export function letterDocument({ body, ...head }: DeadLetter): LetterDocument {
  const { message } = body
  return {
    ...head,
    ...body,
    ...head,
    message: typeof message === 'string' ? message : head.message,
    eligible: head.state === 'open' && body.eligible !== false,
  }
}
