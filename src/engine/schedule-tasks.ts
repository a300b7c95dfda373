/** New rows of one transaction. One whose key is taken is left out; the caller is answered the one that has it. */
import { isDeepStrictEqual } from 'node:util'
import { CurfewError } from '../core/errors.ts'
import { callersKey, comparedInput, workKind, workName } from '../core/own-work.ts'
import type { NewRow } from '../store/hot-statements.ts'
import type { Work } from '../store/statement.ts'
import { answer, run, start, startAll } from '../store/statement.ts'
import type { Statements } from '../store/statements.ts'
import type { Answer, Command } from './command.ts'

interface Scheduled {
  id: string
  existing: boolean
}

/** All calls in one statement, in the order of the keys: two processes with the same ones must not deadlock. */
export function* scheduleTasks(
  statements: Statements,
  calls: readonly (readonly NewRow[])[],
): Work<{ inserted: NewRow[]; scheduled: Scheduled[][] }> {
  const all = calls.length === 1 ? (calls[0] ?? []) : calls.flat()
  const keyed = all.some(({ key }) => key !== null)
  const inserts = yield* startAll(statements.hot.insertTasks(keyed ? all.toSorted(byKey) : all))
  const ids = new Set<string>()
  if (keyed) for (const insert of inserts) for (const { id } of yield* answer(insert)) ids.add(id)
  const isNew = ({ id, key }: NewRow) => key === null || ids.has(id)
  const scheduled: Scheduled[][] = []
  for (const tasks of calls) {
    scheduled.push(
      tasks.every(isNew)
        ? tasks.map(({ id }) => ({ id, existing: false }))
        : yield* existing(statements, tasks, isNew),
    )
  }
  return { inserted: all.filter(isNew), scheduled }
}

function* existing(
  statements: Statements,
  tasks: readonly NewRow[],
  isNew: (task: NewRow) => boolean,
): Work<Scheduled[]> {
  const name = tasks[0]?.name ?? ''
  const keys = tasks.flatMap(({ key }) => key ?? [])
  const rows = yield* run(statements.tasksByKey(name, keys))
  const found = new Map(rows.map((row) => [row.key, row]))
  return tasks.map((task) => {
    if (isNew(task)) return { id: task.id, existing: false }
    const row = found.get(task.key)
    if (row && sameInput(name, row.input, task.input)) return { id: row.id, existing: true }
    throw keyConflict(task, row?.id)
  })
}

function keyConflict(task: NewRow, taskId: string | undefined): CurfewError {
  const what = 'kind' in task ? `${workKind(task)} ${workName(task)}` : `task ${task.name}`
  // The keys of all workflows, and of all jobs, are told apart by the names of those.
  const title = 'kind' in task ? task.title : null
  const key = callersKey(title, task.key)
  return new CurfewError(
    'key_conflict',
    `${what}: the key '${key}' belongs to ${taskId ?? 'another task'}, which has another input`,
    {
      hint: 'A key stands for one piece of work: use another key for another input.',
      fields: { key, taskId },
    },
  )
}

/** Queues that were never used: claims go through their rows. In the order of their names, for the same reason. */
export function* addQueues(
  statements: Statements,
  commands: readonly Command[],
  answers: Answer[],
): Work<void> {
  const names: string[] = []
  for (let index = 0; index < commands.length; index++) {
    const command = commands[index] as Command
    if (command.type !== 'queue') continue
    names.push(command.name)
    answers[index] = { type: 'accepted' }
  }
  for (const name of names.sort()) yield* start(statements.addQueue(name))
}

function byKey(a: NewRow, b: NewRow): number {
  return (a.key ?? '') < (b.key ?? '') ? -1 : 1
}

/** The same value, in whatever order its keys stand. */
export function sameInput(name: string, a: string, b: string): boolean {
  return a === b || isDeepStrictEqual(comparedInput(name, a), comparedInput(name, b))
}
