/** Requests that have come before: remembered in the transaction that did them, so that they are done once. */
import type { CancelAnswer } from '../core/states.ts'
import type { Work } from '../store/statement.ts'
import { run, start } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { Answer, Command } from './command.ts'
import type { TaskEventBody } from './task-event.ts'

export interface Repeated {
  index: number
  first: number | null
}

export class RepeatedRequests {
  readonly #statements: Statements
  readonly #now: number
  readonly #remembered: string[] = []

  constructor(statements: Statements, now: number) {
    this.#statements = statements
    this.#now = now
  }

  /**
   * Answers the places of those that were done before; `first`: of the one they repeat, where that is in this batch
   * and may still be refused. Comes before any other lock: two that bring the same request wait for each other here
   * and nowhere else.
   */
  *remember(commands: readonly Command[]): Work<Repeated[]> {
    const first = new Map<string, number>()
    const repeated: Repeated[] = []
    for (let index = 0; index < commands.length; index++) {
      const id = requestIdOf(commands[index] as Command)
      if (id === null) continue
      const before = first.get(id)
      if (before === undefined) first.set(id, index)
      else repeated.push({ index, first: before })
    }
    if (first.size === 0) return repeated
    const ids = [...first.keys()].sort()
    const isNew = new Set<string>()
    for (const { id } of yield* run(this.#statements.rememberRequests(ids, this.#now))) isNew.add(id)
    for (const [id, index] of first) {
      if (isNew.has(id)) this.#remembered.push(id)
      else repeated.push({ index, first: null })
    }
    return repeated
  }

  /** What was refused was not done: it may be asked again. */
  *forgetRefused(commands: readonly Command[], answers: readonly Answer[]): Work<void> {
    if (this.#remembered.length === 0) return
    const refused = commands.flatMap((command, index) => {
      const id = requestIdOf(command)
      return id !== null && !wasDone(answers[index]) ? [id] : []
    })
    if (refused.length) yield* start(this.#statements.forgetRequests(refused))
  }
}

/** What the cancel that ended this was answered, by what is on record of it. */
export function* cancelAnswer(statements: Statements, row: TaskRow): Work<CancelAnswer> {
  let ran = row.attempt > 0
  if (row.kind === 'task') {
    for (const { body } of yield* run(statements.events([row.id])))
      for (const event of JSON.parse(body) as TaskEventBody[])
        if (event.type === 'task_cancelled') ran = event.wasRunning
  }
  return ran ? 'cancelled' : 'pending_cancelled'
}

function wasDone(answer: Answer | undefined): boolean {
  if (answer?.type === 'cancel') return answer.answer === 'cancelled' || answer.answer === 'pending_cancelled'
  return answer !== undefined && answer.type !== 'unchanged' && answer.type !== 'not_found'
}

function requestIdOf(command: Command): string | null {
  return 'requestId' in command ? (command.requestId ?? null) : null
}
