/** What commands end with: how the work ended, or what was wrong with the call. */
import { CurfewError } from '../core/errors.ts'
import type { TaskStatus } from '../core/states.ts'

export const EXIT = {
  completed: 0,
  failed: 1,
  /** An invalid definition, or a call that cannot be understood. */
  usage: 2,
  timedOut: 124,
  /** Interrupted or cancelled. */
  interrupted: 130,
} as const

export function exitCodeOf(status: TaskStatus): number {
  switch (status) {
    case 'completed':
      return EXIT.completed
    case 'timed_out':
      return EXIT.timedOut
    case 'cancelled':
    case 'cancelling':
      return EXIT.interrupted
    case 'failed':
    case 'pending':
    case 'running':
      return EXIT.failed
  }
}

const CODES: Record<string, number> = {
  usage: EXIT.usage,
  no_such_file: EXIT.usage,
  unsafe_listen: EXIT.usage,
  not_yet: EXIT.usage,
  too_big: EXIT.usage,
  unknown_task: EXIT.usage,
  unknown_agent: EXIT.usage,
  unknown_workflow: EXIT.usage,
  program_not_found: EXIT.usage,
  task_timed_out: EXIT.timedOut,
  wait_timed_out: EXIT.timedOut,
  task_cancelled: EXIT.interrupted,
  interrupted: EXIT.interrupted,
}

export function errorExitCode(error: unknown): number {
  if (!(error instanceof CurfewError)) return EXIT.failed
  return error.code.startsWith('invalid_') ? EXIT.usage : (CODES[error.code] ?? EXIT.failed)
}

/** A call that cannot be understood, where commander cannot tell. */
export function usageError(message: string, hint?: string): CurfewError {
  return new CurfewError('usage', message, hint === undefined ? {} : { hint })
}
