/** Light tasks (`postgres-light.ts`) in a transaction: whose rows are written out, before anybody decides about them. */
import type { LightAttempt } from '../store/postgres/postgres-light.ts'
import type { Work } from '../store/statement.ts'
import { run, start, startAll } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { Answer, Command } from './command.ts'

interface Parts {
  statements: Statements
  nodeId: string
}

/** Claims that are old enough. Waits for nobody, and comes last: others may wait for what it has locked. */
export function* writeOutAsked(
  { statements, nodeId }: Parts,
  commands: readonly Command[],
  answers: Answer[],
): Work<void> {
  for (let index = 0; index < commands.length; index++) {
    const command = commands[index] as Command
    if (command.type !== 'write_out' || !statements.light) continue
    const { attempts, tokens } = command
    if (attempts.length) yield* start(statements.light.writeOutClaimedFree(nodeId, attempts))
    const kept = yield* run(statements.light.forgetClaims(tokens, attempts))
    answers[index] = { type: 'written_out', kept: kept.map(({ token }) => token) }
  }
}

/** What this process knows to be light, and is to be decided about, is written out without a search; answers it. */
export function* writeOutKnown(
  { statements, nodeId }: Parts,
  inputs: readonly Extract<Command, { type: 'input' }>[],
): Work<LightAttempt[]> {
  const known: LightAttempt[] = []
  for (const { taskId: id, input, lightSince } of inputs) {
    if (typeof lightSince === 'number' && 'token' in input && input.token !== undefined)
      known.push({ id, token: input.token, startedAt: lightSince })
  }
  if (statements.light && known.length) yield* start(statements.light.writeOutClaimed(nodeId, known))
  return known
}

/** The rows with these ids, locked, none of them light. */
export function* lockTasks(statements: Statements, ids: readonly string[]): Work<TaskRow[]> {
  const rows = yield* run(statements.lockTasks(ids))
  const light = lightOf(rows)
  if (!statements.light || light.length === 0) return rows
  yield* startAll(statements.light.writeOut(light))
  return yield* readAgain(statements, rows, light)
}

/** Of these rows, which are locked, those that nobody is claiming; none of them light. */
export function* withoutClaimed(statements: Statements, rows: TaskRow[]): Work<TaskRow[]> {
  const light = lightOf(rows)
  if (!statements.light || light.length === 0) return rows
  yield* startAll(statements.light.writeOutFree(light))
  const again = yield* readAgain(statements, rows, light)
  return again.filter((row) => row.light === 0)
}

function lightOf(rows: readonly TaskRow[]): string[] {
  return rows.filter(({ light }) => light === 1).map(({ id }) => id)
}

function* readAgain(statements: Statements, rows: TaskRow[], ids: readonly string[]): Work<TaskRow[]> {
  const whole = new Map((yield* run(statements.lockTasks(ids))).map((row) => [row.id, row]))
  return rows.map((row) => whole.get(row.id) ?? row)
}
