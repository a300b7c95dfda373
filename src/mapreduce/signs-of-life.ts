/** What a command prints, as progress of its task: a job in which nothing moves is ended as stuck. */
import type { TaskContext } from '../definitions/task.ts'
import type { AttemptCommands } from '../worker/command-task.ts'

export function withSignsOfLife(commands: AttemptCommands, context: TaskContext): AttemptCommands {
  const { clock, graceMs } = commands
  let completed = 0
  return {
    ...{ clock, graceMs },
    note: (note) => commands.note(note),
    endLeft: () => commands.endLeft(),
    run: (request, callbacks = {}) =>
      commands.run(request, {
        ...callbacks,
        onOutput: (stream, chunk) => {
          completed += chunk.length
          context.progress({ completed })
          callbacks.onOutput?.(stream, chunk)
        },
      }),
  }
}
