/**
 * The program in which the handler of a task with `isolation: 'process'` runs: one attempt, then it exits, whatever
 * else its event loop still holds. When its worker is gone, so is it.
 */
import { CurfewError } from '../core/errors.ts'
import { failureOf } from '../core/failure.ts'
import { SystemClock } from '../core/system-clock.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import type { AttemptEnd } from './attempt.ts'
import { runHandler } from './handler.ts'
import { markTaskProcess } from './marker.ts'
import { TaskChannel } from './task-channel.ts'
import type { OpenTaskContext } from './task-context.ts'
import { createTaskContext } from './task-context.ts'
import type { Envelope, ToTaskProcess } from './task-process-messages.ts'

const clock = new SystemClock()
const channel = new TaskChannel(clock, process)
let open: OpenTaskContext | null = null

markTaskProcess()
process.on('disconnect', () => process.exit(1))
process.on('uncaughtExceptionMonitor', (error) =>
  channel.send({ type: 'crashed', failure: failureOf(error) }),
)
process.on('message', ({ curfew: message }: Partial<Envelope<ToTaskProcess>>) => {
  if (!message) return
  if (message.type === 'run') {
    open = createTaskContext(message.assignment, { clock, logger: channel.logger }, channel)
    if (message.stop) open.abort(message.stop)
    run(message, open).then(
      (end) => channel.end(end, () => process.exit(0)),
      (error) => channel.end({ type: 'failed', failure: failureOf(error) }, () => process.exit(1)),
    )
  } else if (message.type === 'abort') open?.abort(message.reason)
  else if (message.type === 'deadline') open?.setDeadline(message.deadlineAt, message.remainingMs)
  else channel.answer(message)
})
channel.send({ type: 'ready' })

async function run(
  { file, assignment }: Extract<ToTaskProcess, { type: 'run' }>,
  context: OpenTaskContext,
): Promise<AttemptEnd> {
  let definition: TaskDefinition
  try {
    definition = findTask((await import(file)) as object, file, assignment.name)
  } catch (thrown) {
    const notFound = thrown instanceof CurfewError && thrown.code === 'task_not_found'
    const error = notFound ? thrown : cannotImport(file, assignment.name, thrown)
    return { type: 'failed', failure: { ...failureOf(error), retryable: false, details: error.fields } }
  }
  return runHandler(definition, assignment, context)
}

/** Among the exports, or one level inside an exported list or object. */
function findTask(exports: object, file: string, name: string): TaskDefinition {
  for (const value of Object.values(exports)) {
    if (isTask(value, name)) return value
    if (typeof value !== 'object' || value === null) continue
    for (const inner of Object.values(value)) if (isTask(inner, name)) return inner
  }
  throw new CurfewError('task_not_found', `${file} exports no task named '${name}'`, {
    hint: 'A task in a process of its own has to be exported by the module in its `file`.',
    fields: { file, name },
  })
}

function isTask(value: unknown, name: string): value is TaskDefinition {
  const candidate = value as Partial<TaskDefinition> | null | undefined
  return typeof candidate === 'object' && candidate?.kind === 'task' && candidate.name === name
}

function cannotImport(file: string, name: string, cause: unknown): CurfewError {
  return new CurfewError('task_not_found', `${file}, which exports the task '${name}', cannot be imported`, {
    hint: 'It is imported again in the process of the task: it should define tasks and start nothing.',
    fields: { file, name },
    cause,
  })
}
