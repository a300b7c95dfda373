/** Around a handler: the facts of its attempt, written when it starts, while it runs, when it is told to stop, and at its end. */
import type { CurfewError, TaskContext } from '../src/curfew.ts'
import { note } from './journal.ts'

const ALIVE_EVERY_MS = 100

export function journalled<Input, Output = unknown>(
  run: (input: Input, context: TaskContext) => Output | Promise<Output>,
) {
  // Both are set by the process of the engine, and inherited by the process of a handler.
  const journal = process.env.FAULTS_JOURNAL ?? ''
  const owner = Number(process.env.FAULTS_OWNER ?? process.pid)
  return async (input: Input, context: TaskContext): Promise<Output> => {
    const { taskId, attempt, signal } = context
    const say = (type: string, more: object = {}) => note(journal, { type, taskId, attempt, owner, ...more })
    const told = () => {
      const { code, fields } = signal.reason as CurfewError
      const ofAttempt = fields.kind === 'execution' || fields.kind === 'total'
      const deadlineAt = fields.deadlineAt ?? (ofAttempt ? context.deadline : null)
      say('aborted', { code, kind: fields.kind, deadlineAt })
    }
    say('attempt_started', { deadlineAt: context.deadline })
    signal.addEventListener('abort', told)
    const ticking = setInterval(() => say('alive'), ALIVE_EVERY_MS)
    try {
      return await run(input, context)
    } finally {
      clearInterval(ticking)
      say('attempt_ended')
    }
  }
}
