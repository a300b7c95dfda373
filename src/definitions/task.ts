/** What users write to define a task, and what its handler is given. */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Duration } from '../core/duration.ts'
import type { ExtensionAnswer } from '../core/extension.ts'
import type { Logger } from '../core/logger.ts'
import type { Progress } from '../core/states.ts'
import type { TraceContext } from '../core/trace-context.ts'
import type { TaskPolicy, WorkKind } from './task-policy.ts'
import { checkTaskOptions } from './task-policy.ts'

/** The options a definition and a single call share; the call's win. */
export interface TaskOptions {
  /** Total: from scheduling (or the start of a delayed task) to the outcome, over all attempts. Never retried. */
  timeout?: Duration | null
  /** One attempt, from its start. */
  attemptTimeout?: Duration | null
  /** What happens when an attempt's limit fires; default: retry while retries remain. */
  onTimeout?: 'retry' | 'fail'
  /** From scheduling to the first start. Never retried. */
  queueTimeout?: Duration | null
  /** Between two heartbeats. Retried. */
  heartbeatTimeout?: Duration | null
  /** Without progress. Retried. */
  stuckAfter?: Duration | null
  /** Attempts after the first. */
  retries?: number
  backoff?: { initial?: Duration; factor?: number; max?: Duration; jitter?: number }
  /** Between the abort signal and the forced kill. */
  grace?: Duration
  /** The abort signal comes this long before the deadline; what is returned until then is the result. */
  softStop?: Duration
  /** The share of a limit at which a warning is recorded; default 0.8. */
  warnAt?: number
  queue?: string
  /** Lower first, then by age. */
  priority?: number
  /** Never repeat an attempt whose worker died. */
  atMostOnce?: boolean
  /** How long the record is kept after the end; default 7 days. */
  retention?: Duration
  extensions?: { base?: Duration; min?: Duration; max?: number; warnAtRemaining?: number }
}

export interface TaskContext {
  /** Aborts when the attempt has to stop; its reason is a `Stopped` error with a code. */
  readonly signal: AbortSignal
  readonly taskId: string
  readonly attempt: number
  /** The earlier of the attempt's and the total deadline, on the store's clock. */
  readonly deadline: number | null
  /** What the last attempt gave to `progress` or `heartbeat`. */
  readonly previousDetails: unknown
  readonly log: Logger
  /** Of the call it came from, or of what is above it. */
  readonly trace: TraceContext | null
  /** Milliseconds left until the deadline; Infinity without one. */
  remaining(): number
  /** The work moves: a fraction, or counts. */
  progress(progress: number | Progress, details?: unknown): void
  /** The process lives. */
  heartbeat(details?: unknown): void
  /** Asks for more time. The first is granted, later ones need more progress than the one before. */
  extend(request?: { progress?: number | Progress; requestId?: string }): Promise<ExtensionAnswer>
}

export interface TaskDefinition<Input = unknown, Output = unknown> {
  readonly kind: 'task'
  readonly name: string
  /** Of workflows that use it: which timeout is recommended. */
  readonly work: WorkKind | null
  readonly policy: TaskPolicy
  readonly isolation: 'inline' | 'process'
  /** The module that exports it, for process isolation. */
  readonly file: string | null
  readonly schema: StandardSchemaV1 | null
  readonly run: (input: never, context: TaskContext) => unknown
  /** Types only. */
  readonly types?: { input: Input; output: Output }
}

interface Shape {
  /** What it does: the validator of workflows recommends a timeout by it. */
  kind?: WorkKind
  /** How hard it can be stopped: in this process only by its signal, in one of its own by killing it. */
  isolation?: 'inline' | 'process'
  /** `import.meta.url` of the module that exports the task; needed for `isolation: 'process'`. */
  file?: string
}

type Run<Input, Output> = (input: Input, context: TaskContext) => Output

/** A name and a function, and the limits that hold for it. */
export function task<Schema extends StandardSchemaV1, Output>(
  definition: TaskOptions &
    Shape & {
      name: string
      input: Schema
      run: Run<StandardSchemaV1.InferOutput<Schema>, Output>
    },
): TaskDefinition<StandardSchemaV1.InferInput<Schema>, Awaited<Output>>
export function task<Input = unknown, Output = unknown>(
  definition: TaskOptions & Shape & { name: string; input?: undefined; run: Run<Input, Output> },
): TaskDefinition<Input, Awaited<Output>>
export function task(
  definition: TaskOptions & Shape & { name: string; input?: StandardSchemaV1; run: Run<never, unknown> },
): TaskDefinition {
  const { name, input, run, kind, isolation, file, ...options } = definition
  const policy = checkTaskOptions(name, options, { input, run, kind, isolation, file })
  return {
    kind: 'task',
    name,
    work: kind ?? null,
    policy,
    isolation: isolation ?? 'inline',
    file: file ?? null,
    schema: input ?? null,
    run,
  }
}
