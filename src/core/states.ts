/** The states and kinds of DESIGN.md section 2: one spelling, in code, SQL, wire and docs. */

/** `cancelling` is of agents alone: their clean-up, and what is below them, has not ended yet. */
export const TASK_STATUSES = [
  'pending',
  'running',
  'cancelling',
  'completed',
  'failed',
  'timed_out',
  'cancelled',
] as const
export type TaskStatus = (typeof TASK_STATUSES)[number]

export function isEnded(status: TaskStatus): boolean {
  return status !== 'pending' && status !== 'running' && status !== 'cancelling'
}

export type AttemptStatus =
  | 'running'
  | 'stopping'
  | 'completed'
  | 'failed'
  | 'timed_out'
  | 'cancelled'
  | 'lost'

/** Which limit fired. Those of a task, in the order in which they are looked at when several are due. */
export const TASK_TIMEOUT_KINDS = [
  'job',
  'workflow',
  'agent',
  'total',
  'queue',
  'execution',
  'heartbeat',
  'stuck',
] as const
export type TimeoutKind = (typeof TASK_TIMEOUT_KINDS)[number]

/**
 * How an attempt stopped. `exited`: it had ended by itself. `aborted`: it followed its signal. `terminated`,
 * `killed`: it had to be. `abandoned`: it still runs and could not be killed. `unreachable`: nobody could tell.
 */
export const RECEIPTS = ['exited', 'aborted', 'terminated', 'killed', 'abandoned', 'unreachable'] as const
export type Receipt = (typeof RECEIPTS)[number]

/** Progress as a handler reports it: a fraction, or items done. */
export interface Progress {
  fraction?: number
  completed?: number
  total?: number
}

export const STOP_CODES = ['timed_out', 'cancelled', 'stale', 'lease_over', 'closing', 'soft_stop'] as const

/** Why an attempt is asked to stop; becomes the reason of its abort signal. */
export interface StopReason {
  code: (typeof STOP_CODES)[number]
  message: string
  kind?: TimeoutKind
  deadlineAt?: number
  /** Of a timeout: how long it was. Of a lease: for how long nobody had renewed it. */
  timeoutMs?: number
}

/** A run whose code decides how it ended: a job ends as what ended it. */
export interface EndsAs {
  status: 'failed' | 'timed_out' | 'cancelled'
  timeoutKind: TimeoutKind | null
}

/** What a request to cancel is told, at once. */
export type CancelAnswer =
  | 'cancelled'
  | 'pending_cancelled'
  | 'already_cancelled'
  | 'already_completed'
  | 'not_found'
