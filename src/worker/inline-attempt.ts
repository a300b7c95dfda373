/** A handler in this process: it can be asked to stop, not made to. */
import type { StopReason } from '../core/states.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import type { Assignment } from '../wire/worker-port.ts'
import type { AttemptCallbacks, AttemptEnd, RunningAttempt } from './attempt.ts'
import { runHandler } from './handler.ts'
import type { OpenTaskContext, TaskContextParts } from './task-context.ts'
import { createTaskContext } from './task-context.ts'

export class InlineAttempt implements RunningAttempt {
  readonly ended: Promise<AttemptEnd>
  readonly #open: OpenTaskContext

  constructor(
    definition: TaskDefinition,
    assignment: Assignment,
    parts: TaskContextParts,
    callbacks: AttemptCallbacks,
  ) {
    this.#open = createTaskContext(assignment, parts, callbacks)
    this.ended = runHandler(definition, assignment, this.#open)
  }

  abort(reason: StopReason): void {
    this.#open.abort(reason)
  }

  setDeadline(deadlineAt: number | null, remainingMs: number | null): void {
    this.#open.setDeadline(deadlineAt, remainingMs)
  }

  async kill(): Promise<'abandoned'> {
    return 'abandoned'
  }
}
