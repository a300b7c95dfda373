/** A handler in this process: it can be asked to stop, not made to. */
import type { Clock } from '../core/clock.ts'
import type { Logger } from '../core/logger.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import type { Assignment } from '../wire/worker-port.ts'
import type { AttemptCallbacks, RunningAttempt } from './attempt.ts'
import { runHandler } from './handler.ts'
import { createTaskContext } from './task-context.ts'

export function startInlineAttempt(
  definition: TaskDefinition,
  assignment: Assignment,
  callbacks: AttemptCallbacks,
  { clock, logger }: { clock: Clock; logger: Logger },
): RunningAttempt {
  const open = createTaskContext(assignment, { clock, logger, callbacks })
  return {
    ended: runHandler(definition, assignment, open),
    abort: (reason) => open.abort(reason),
    setDeadline: (deadlineAt, remainingMs) => open.setDeadline(deadlineAt, remainingMs),
    kill: async () => 'abandoned',
  }
}
