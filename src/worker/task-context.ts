/**
 * What a handler is given, inline and in a process of its own alike.
 * Most handlers never look at most of it, so everything that costs is made when it is first asked for.
 */
import type { Clock } from '../core/clock.ts'
import { isMore } from '../core/extension.ts'
import { decodeJson, encodeJson } from '../core/json.ts'
import { MAX_DETAILS_BYTES } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import type { Progress, StopReason } from '../core/states.ts'
import { Stopped } from '../core/task-errors.ts'
import type { TraceContext } from '../core/trace-context.ts'
import type { TaskContext } from '../definitions/task.ts'
import type { Assignment } from '../wire/worker-port.ts'
import type { AttemptCallbacks } from './attempt.ts'
import { toProgress } from './progress.ts'

/** The context and what its runner does to it. */
export interface OpenTaskContext {
  readonly context: TaskContext
  /** Why it was told to stop. */
  readonly stopped: Stopped | null
  /** Idempotent; the first reason stays. */
  abort(reason: StopReason): void
  setDeadline(deadlineAt: number | null, remainingMs: number | null): void
}

/** The same for every attempt of a process. */
export interface TaskContextParts {
  clock: Clock
  logger: Logger
}

/** To be called when the assignment arrives: its remaining times count from here. */
export function createTaskContext(
  assignment: Assignment,
  parts: TaskContextParts,
  callbacks: AttemptCallbacks,
): OpenTaskContext {
  return new AttemptControl(assignment, parts, callbacks)
}

/** What is left at arrival, of the limit that ends first. */
export function remainingMsOf(limits: { attemptMs: number | null; totalMs: number | null }): number | null {
  const ms = Math.min(limits.attemptMs ?? Infinity, limits.totalMs ?? Infinity)
  return ms === Infinity ? null : ms
}

class AttemptControl implements OpenTaskContext {
  readonly context: TaskContext
  stopped: Stopped | null = null
  deadlineAt: number | null = null
  readonly #clock: Clock
  #remainingMs: number | null = null
  #countedFrom = 0
  #controller: AbortController | null = null

  constructor(assignment: Assignment, parts: TaskContextParts, callbacks: AttemptCallbacks) {
    this.#clock = parts.clock
    this.context = new HandlerContext(this, assignment, parts.logger, callbacks)
    this.setDeadline(assignment.deadlineAt, remainingMsOf(assignment))
  }

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController()
      if (this.stopped) this.#controller.abort(this.stopped)
    }
    return this.#controller.signal
  }

  abort(reason: StopReason): void {
    if (this.stopped) return
    this.stopped = new Stopped(reason)
    this.#controller?.abort(this.stopped)
  }

  setDeadline(deadlineAt: number | null, remainingMs: number | null): void {
    this.deadlineAt = deadlineAt
    this.#remainingMs = remainingMs
    this.#countedFrom = remainingMs === null ? 0 : this.#clock.monotonic()
  }

  remaining(): number {
    if (this.#remainingMs === null) return Infinity
    return Math.max(0, this.#remainingMs - (this.#clock.monotonic() - this.#countedFrom))
  }
}

class HandlerContext implements TaskContext {
  readonly taskId: string
  readonly attempt: number
  readonly #control: AttemptControl
  readonly #assignment: Assignment
  readonly #logger: Logger
  readonly #callbacks: AttemptCallbacks
  #log: Logger | null = null
  #progress: Progress = {}
  #extensions = 0

  constructor(control: AttemptControl, assignment: Assignment, logger: Logger, callbacks: AttemptCallbacks) {
    this.taskId = assignment.taskId
    this.attempt = assignment.attempt
    this.#control = control
    this.#assignment = assignment
    this.#logger = logger
    this.#callbacks = callbacks
  }

  get signal(): AbortSignal {
    return this.#control.signal
  }

  get deadline(): number | null {
    return this.#control.deadlineAt
  }

  get previousDetails(): unknown {
    return this.#assignment.details === null ? undefined : decodeJson(this.#assignment.details)
  }

  get trace(): TraceContext | null {
    return this.#assignment.trace
  }

  get log(): Logger {
    this.#log ??= taskLogger(this.#logger, this.#assignment)
    return this.#log
  }

  // Functions of their own, made when asked for: handlers take the context apart in their parameter list.
  get remaining(): TaskContext['remaining'] {
    return () => this.#control.remaining()
  }

  get progress(): TaskContext['progress'] {
    return (value, details) => {
      const progress = toProgress(value)
      const encoded = encodeDetails(details)
      const moved = isMore(progress, this.#progress)
      this.#progress = progress
      this.#callbacks.beat({ progress, details: encoded, moved })
    }
  }

  get heartbeat(): TaskContext['heartbeat'] {
    return (details) => {
      this.#callbacks.beat({ progress: null, details: encodeDetails(details), moved: false })
    }
  }

  get extend(): TaskContext['extend'] {
    return async (request = {}) => {
      const progress = request.progress === undefined ? this.#progress : toProgress(request.progress)
      const requestId = request.requestId ?? `${this.#assignment.token}:${++this.#extensions}`
      return await this.#callbacks.extend({ requestId, progress })
    }
  }
}

function encodeDetails(details: unknown): string | null {
  return details === undefined
    ? null
    : encodeJson(details, 'the details of a progress report', MAX_DETAILS_BYTES)
}

/** Says with every line whose it is. */
function taskLogger(logger: Logger, { taskId, name, attempt }: Assignment): Logger {
  const own = { taskId, task: name, attempt }
  return {
    debug: (fields, message) => logger.debug({ ...own, ...fields }, message),
    info: (fields, message) => logger.info({ ...own, ...fields }, message),
    warn: (fields, message) => logger.warn({ ...own, ...fields }, message),
    error: (fields, message) => logger.error({ ...own, ...fields }, message),
  }
}
