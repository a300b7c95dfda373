/**
 * The worker's side of an attempt in a process of its own. Owns that process: its group, its marks, its registration
 * with the supervisor, and its end. An attempt has ended when its main process is gone and nothing it started is left.
 */
import type { ChildProcess } from 'node:child_process'
import { spawn } from 'node:child_process'
import type { Clock } from '../core/clock.ts'
import { within } from '../core/clock.ts'
import { entryFile } from '../core/entry-file.ts'
import type { Failure } from '../core/failure.ts'
import { failureOf, HandlerError } from '../core/failure.ts'
import type { Logger } from '../core/logger.ts'
import type { StopReason } from '../core/states.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import type { Assignment } from '../wire/worker-port.ts'
import type { AttemptCallbacks, AttemptEnd, RunningAttempt } from './attempt.ts'
import { markedEnvironment } from './marker.ts'
import { childEnvironment, childExecArgv } from './node-options.ts'
import { startTimeOf } from './process-table.ts'
import type { TreeRoot } from './process-tree.ts'
import { killTree } from './process-tree.ts'
import type { Supervisor } from './supervisor.ts'
import { remainingMsOf } from './task-context.ts'
import type { Envelope, FromTaskProcess, ToTaskProcess } from './task-process-messages.ts'
import { tracedEnvironment } from './traced-environment.ts'

export interface ProcessEnvironment {
  nodeId: string
  supervisor: Supervisor
  /** The system's: processes run on real time. */
  clock: Clock
  logger: Logger
}

/** From the handler's end to its process's, for what it does at its exit; then it is killed. */
const EXIT_MS = 2_000

export function startProcessAttempt(
  definition: TaskDefinition,
  assignment: Assignment,
  callbacks: AttemptCallbacks,
  environment: ProcessEnvironment,
): RunningAttempt {
  return new ProcessAttempt(definition, assignment, callbacks, environment)
}

class ProcessAttempt implements RunningAttempt {
  readonly ended: Promise<AttemptEnd>
  readonly #assignment: Assignment
  readonly #callbacks: AttemptCallbacks
  readonly #environment: ProcessEnvironment
  readonly #file: string
  readonly #exited = Promise.withResolvers<void>()
  readonly #disconnected = Promise.withResolvers<void>()
  #child: ChildProcess | null = null
  #root: TreeRoot | null = null
  #ready = false
  #deadlineAt: number | null
  #remainingMs: number | null
  #countedFrom: number
  #reason: StopReason | null = null
  #end: AttemptEnd | null = null
  #crash: Failure | null = null
  #startError: Error | null = null
  #killing: Promise<'killed' | 'abandoned'> | null = null

  constructor(
    definition: TaskDefinition,
    assignment: Assignment,
    callbacks: AttemptCallbacks,
    environment: ProcessEnvironment,
  ) {
    this.#assignment = assignment
    this.#callbacks = callbacks
    this.#environment = environment
    this.#file = definition.file ?? ''
    this.#deadlineAt = assignment.deadlineAt
    this.#remainingMs = remainingMsOf(assignment)
    this.#countedFrom = environment.clock.monotonic()
    try {
      this.#start()
    } catch (error) {
      this.#startError = error as Error
      this.#child?.kill('SIGKILL') // it listens to nobody yet and has begun nothing
      this.#exited.resolve()
    }
    this.ended = this.#finish()
  }

  abort(reason: StopReason): void {
    if (this.#reason) return
    this.#reason = reason
    if (this.#ready) this.#send({ type: 'abort', reason })
  }

  setDeadline(deadlineAt: number | null, remainingMs: number | null): void {
    this.#deadlineAt = deadlineAt
    this.#remainingMs = remainingMs
    this.#countedFrom = this.#environment.clock.monotonic()
    if (this.#ready) this.#send({ type: 'deadline', deadlineAt, remainingMs })
  }

  kill(): Promise<'killed' | 'abandoned'> {
    this.#killing ??= this.#kill()
    return this.#killing
  }

  /** Tasks that were claimed together share their token: what marks the processes of one must not be another's. */
  get #mark(): string {
    return `${this.#assignment.token}:${this.#assignment.taskId}`
  }

  async #kill(): Promise<'killed' | 'abandoned'> {
    const gone = await this.#killTree()
    if (gone) await this.#exited.promise // what was killed is reaped by now or in a moment
    return gone ? 'killed' : 'abandoned'
  }

  #start(): void {
    const { nodeId, supervisor } = this.#environment
    const { trace } = this.#assignment
    const token = this.#mark
    const program = entryFile('worker/task-process')
    const child = spawn(process.execPath, [...childExecArgv(process.execArgv), program], {
      detached: true,
      stdio: ['ignore', outputOfCode(), 'inherit', 'ipc'],
      env: markedEnvironment(tracedEnvironment(childEnvironment(process.env), trace), nodeId, token),
    })
    child.on('error', (error) => {
      this.#startError ??= error
      if (child.pid === undefined) this.#exited.resolve()
    })
    if (child.pid === undefined) return
    this.#child = child
    // It cannot have been reaped within this turn of the event loop, so this is its own start time.
    this.#root = { pid: child.pid, startTime: startTimeOf(child.pid) }
    supervisor.register({ ...this.#root, token })
    child.on('exit', () => this.#exited.resolve())
    child.on('disconnect', () => this.#disconnected.resolve())
    child.on('message', ({ curfew }: Partial<Envelope<FromTaskProcess>>) => {
      if (curfew && !this.#end) this.#receive(curfew)
    })
  }

  #receive(message: FromTaskProcess): void {
    if (message.type === 'ready') this.#run()
    else if (message.type === 'beat') {
      const { progress, details, moved } = message
      this.#callbacks.beat({ progress, details, moved })
    } else if (message.type === 'extend') this.#extend(message.requestId, message.progress)
    else if (message.type === 'log') this.#environment.logger[message.level](message.fields, message.message)
    else if (message.type === 'crashed') this.#crash = message.failure
    else {
      this.#end = message.end
      this.#killUnlessExited()
    }
  }

  /** It is registered and listens: what is left of its time is told now, so that its start is charged to it. */
  #run(): void {
    this.#ready = true
    const elapsedMs = this.#environment.clock.monotonic() - this.#countedFrom
    const attemptMs = this.#remainingMs === null ? null : Math.max(0, this.#remainingMs - elapsedMs)
    const assignment = { ...this.#assignment, deadlineAt: this.#deadlineAt, attemptMs, totalMs: null }
    this.#send({ type: 'run', file: this.#file, assignment, stop: this.#reason })
  }

  #extend(requestId: string, progress: object): void {
    this.#callbacks.extend({ requestId, progress }).then(
      (answer) => this.#send({ type: 'extension', requestId, answer }),
      (error) => this.#send({ type: 'extension_failed', requestId, failure: failureOf(error) }),
    )
  }

  #killUnlessExited(): void {
    const child = this.#child
    const timer = this.#environment.clock.setTimer(EXIT_MS, () => child?.kill('SIGKILL'))
    child?.on('exit', () => timer.cancel())
  }

  async #finish(): Promise<AttemptEnd> {
    await this.#exited.promise
    if (!this.#child || !this.#root) return { type: 'failed', failure: this.#notStarted() }
    const gone = await this.#killTree()
    // A result may still be in the pipe; its end is held open by nobody now.
    await within(this.#environment.clock, EXIT_MS, this.#disconnected.promise)
    // What is left stays registered: it ends with the worker at the latest.
    if (gone) this.#environment.supervisor.release(this.#root.pid)
    return this.#end ?? { type: 'failed', failure: this.#died(this.#child) }
  }

  async #killTree(): Promise<boolean> {
    if (!this.#root) return true
    const { supervisor, clock, logger } = this.#environment
    const { taskId } = this.#assignment
    const token = this.#mark
    const end = await killTree({ ...this.#root, marker: { token } }, { clock, table: supervisor.table })
    if (!end.gone) {
      const left = end.left.map(({ pid }) => pid)
      logger.error({ taskId, token, left, error: end.error }, 'processes of an attempt could not be ended')
    }
    return end.gone
  }

  #died({ exitCode, signalCode }: ChildProcess): Failure {
    const how = signalCode ? `was ended by ${signalCode}` : `exited with code ${exitCode}`
    const details = { exitCode, signal: signalCode }
    const message = `the process of task ${this.#assignment.name} ${how} before its handler had ended`
    const failure: Failure = { code: 'process_died', message, retryable: true, details }
    return this.#crash ? { ...failure, cause: this.#crash } : failure
  }

  #notStarted(): Failure {
    const message = `the process of task ${this.#assignment.name} could not be started`
    return failureOf(new HandlerError(message, { code: 'process_not_started', cause: this.#startError }))
  }

  /** A closed channel means that the process has ended: its exit is what is acted upon. */
  #send(message: ToTaskProcess): void {
    const envelope: Envelope<ToTaskProcess> = { curfew: message }
    if (this.#child?.connected) this.#child.send(envelope, () => {})
  }
}

/**
 * Where a command has another stream for what code prints, it is for the code of this process too. That of Node is not
 * looked at: it is made by the first who asks, and a pipe does not block from then on.
 */
function outputOfCode(): 'inherit' | number {
  const { value } = Object.getOwnPropertyDescriptor(process, 'stdout') ?? {}
  return typeof value?.fd === 'number' ? value.fd : 'inherit'
}
