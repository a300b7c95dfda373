/** The reports that need no row: good ends and heartbeats. A guarded write decides about each. */
import type { Beat, CompletedTask } from '../store/hot-statements.ts'
import type { LightAttempt } from '../store/postgres/postgres-light.ts'
import type { Scope } from './agent-batch.ts'
import type { Command } from './command.ts'

export class HotReports {
  readonly completed: CompletedTask[] = []
  /** Of what this process has claimed and is light. */
  readonly light: (CompletedTask & LightAttempt)[] = []
  /** Of what an agent scheduled. */
  readonly below: (CompletedTask & Scope)[] = []
  readonly beats: Beat[] = []
  /** One of each kind per task: which of two was meant by a changed row could not be told. */
  readonly #completing = new Map<string, number>()
  readonly #beating = new Map<string, number>()

  /** `decidedSlowly`: tasks whose reports are not decided like this. `isLocked`: an agent is. */
  constructor(
    commands: readonly Command[],
    decidedSlowly: ReadonlySet<string>,
    isLocked: (agentId: string) => boolean,
  ) {
    const noting = notingIn(commands)
    for (let index = 0; index < commands.length; index++) {
      const command = commands[index] as Command
      if (command.type !== 'input') continue
      const { taskId: id, input, scope, lightSince } = command
      if (decidedSlowly.has(id) || noting?.has(id) || scope === undefined) continue
      if (input.type === 'completed' && !this.#completing.has(id)) {
        this.#completing.set(id, index)
        const { token, output } = input
        if (scope && isLocked(scope.parentId)) this.below.push({ ...scope, id, token, output })
        else if (typeof lightSince === 'number') this.light.push({ id, token, output, startedAt: lightSince })
        else this.completed.push({ id, token, output })
      } else if (input.type === 'beat' && !this.#beating.has(id)) {
        this.#beating.set(id, index)
        const progress = input.progress ? JSON.stringify(input.progress) : null
        this.beats.push({
          id,
          token: input.token,
          progress,
          details: input.details,
          moved: input.moved ? 1 : 0,
        })
      }
    }
  }

  /** The commands that are answered by it. */
  *indexes(): Iterable<number> {
    yield* this.#beating.values()
    yield* this.#completing.values()
  }
}

/** Tasks that are told more of than their end: that is decided in the order in which it was said. */
function notingIn(commands: readonly Command[]): ReadonlySet<string> | null {
  let ids: Set<string> | null = null
  for (const command of commands) {
    if (command.type !== 'input') continue
    const { input, taskId, lightSince } = command
    // One that is light has no row that a beat could be written to.
    const isLightBeat = input.type === 'beat' && typeof lightSince === 'number'
    if (input.type !== 'note' && !isLightBeat) continue
    ids ??= new Set()
    ids.add(taskId)
  }
  return ids
}
