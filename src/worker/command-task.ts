/**
 * A task of Curfew's own whose handler runs commands: in this process, and yet it can be killed, for what it does is
 * done by processes. An attempt has ended when its handler has and nothing that its commands started is left.
 */
import type { Clock } from '../core/clock.ts'
import { sleep, within } from '../core/clock.ts'
import type { StopReason } from '../core/states.ts'
import type { TaskContext, TaskDefinition } from '../definitions/task.ts'
import type { Assignment } from '../wire/worker-port.ts'
import type { AttemptCallbacks, AttemptEnd, NoteCallback, RunningAttempt } from './attempt.ts'
import type { CommandCallbacks, CommandEnd, CommandRequest, CommandRunner } from './command.ts'
import { stoppedBefore } from './command-start.ts'
import { InlineAttempt } from './inline-attempt.ts'
import { RunningCommand } from './running-command.ts'
import type { TaskContextParts } from './task-context.ts'

export interface CommandTask extends TaskDefinition {
  readonly commands: true
  readonly run: (input: never, context: TaskContext, commands?: AttemptCommands) => unknown
}

/** What such a handler is given beside its context. */
export interface AttemptCommands extends NoteCallback {
  /** The system's: processes run on real time. */
  readonly clock: Clock
  /** Of the attempt. */
  readonly graceMs: number
  /**
   * To its end. When the attempt is told to stop it is asked to, and killed when the attempt's grace is over; then, and
   * for every one after that, it is for the handler to give up.
   */
  run(request: Omit<CommandRequest, 'marker'>, callbacks?: CommandCallbacks): Promise<CommandEnd>
  /** Ends what its commands have left so far. */
  endLeft(): Promise<{ killed: boolean; left: number[] }>
}

/** For a command that was killed while it started. */
const START_MS = 2_000
/** For the handler, when its commands are gone: it has nothing to wait for. */
const GIVE_UP_MS = 2_000

export function isCommandTask(definition: TaskDefinition): definition is CommandTask {
  return 'commands' in definition
}

/** Whether any of them needs a supervisor. */
export function needProcesses(tasks: readonly TaskDefinition[]): boolean {
  return tasks.some((definition) => definition.isolation === 'process' || isCommandTask(definition))
}

export class CommandAttempt implements RunningAttempt {
  readonly ended: Promise<AttemptEnd>
  readonly #inline: InlineAttempt
  readonly #commands: OwnCommands
  readonly #clock: Clock

  constructor(
    definition: CommandTask,
    assignment: Assignment,
    parts: TaskContextParts,
    runner: CommandRunner,
    callbacks: AttemptCallbacks & NoteCallback,
  ) {
    // Tasks that were claimed together share their token: what marks the processes of one must not be another's.
    const marker = `${assignment.token}:${assignment.taskId}`
    const commands = new OwnCommands(runner, marker, assignment.graceMs, callbacks)
    const run = (input: never, context: TaskContext) => definition.run(input, context, commands)
    this.#commands = commands
    this.#clock = runner.clock
    this.#inline = new InlineAttempt({ ...definition, run }, assignment, parts, callbacks)
    this.ended = this.#inline.ended.then(async (end) => {
      commands.kill()
      await commands.end()
      return end
    })
  }

  abort(reason: StopReason): void {
    this.#inline.abort(reason)
    this.#commands.terminate()
  }

  setDeadline(deadlineAt: number | null, remainingMs: number | null): void {
    this.#inline.setDeadline(deadlineAt, remainingMs)
  }

  async kill(): Promise<'killed' | 'abandoned'> {
    this.#commands.kill()
    const gone = await this.#commands.end()
    const over = new AbortController()
    const returned = this.ended.then(() => true)
    const late = sleep(this.#clock, GIVE_UP_MS, over.signal).then(() => false)
    const hasReturned = await Promise.race([returned, late])
    over.abort()
    return gone && hasReturned ? 'killed' : 'abandoned'
  }
}

class OwnCommands implements AttemptCommands {
  readonly clock: Clock
  readonly graceMs: number
  readonly note: NoteCallback['note']
  readonly #runner: CommandRunner
  readonly #marker: string
  readonly #running = new Set<RunningCommand>()
  readonly #starting = new Set<Promise<unknown>>()
  /** Those that are starting are asked as soon as they run. */
  #isStopped = false
  readonly #killed = new AbortController()
  #mayHaveLeft = false
  #gone = true

  constructor(runner: CommandRunner, marker: string, graceMs: number, noting: NoteCallback) {
    this.note = (note) => noting.note(note)
    this.clock = runner.clock
    this.graceMs = graceMs
    this.#runner = runner
    this.#marker = marker
  }

  async run(request: Omit<CommandRequest, 'marker'>, callbacks: CommandCallbacks = {}): Promise<CommandEnd> {
    if (this.#isStopped) return stoppedBefore(request.argv[0] ?? '')
    const starting = this.#runner.start({ ...request, marker: this.#marker }, callbacks, this.#killed.signal)
    this.#starting.add(starting)
    const command = await starting
    this.#starting.delete(starting)
    if (!(command instanceof RunningCommand)) return command
    this.#running.add(command)
    if (this.#killed.signal.aborted) command.kill()
    else if (this.#isStopped) command.terminate()
    this.#mayHaveLeft ||= request.sweep === 'later'
    const end = await command.ended
    this.#running.delete(command)
    if (end.left.length > 0) this.#gone = false
    return end
  }

  async endLeft(): Promise<{ killed: boolean; left: number[] }> {
    this.#mayHaveLeft = false
    const end = await this.#runner.endLeft(this.#marker)
    if (end.left.length > 0) this.#gone = false
    return end
  }

  terminate(): void {
    this.#isStopped = true
    for (const command of this.#running) command.terminate()
  }

  kill(): void {
    this.#isStopped = true
    this.#killed.abort()
    for (const command of this.#running) command.kill()
  }

  /** Whether nothing is left of them, however they ended. */
  async end(): Promise<boolean> {
    await within(this.clock, START_MS, Promise.all(this.#starting))
    if (this.#starting.size > 0) this.#gone = false
    await Promise.all(Array.from(this.#running, ({ ended }) => ended))
    if (this.#mayHaveLeft) await this.endLeft()
    return this.#gone
  }
}
