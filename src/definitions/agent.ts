/** What users write to define an agent, and what its function is given. */
import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Duration } from '../core/duration.ts'
import type { Logger } from '../core/logger.ts'
import type { SettledOutcomes } from '../core/settled-outcomes.ts'
import type { TraceContext } from '../core/trace-context.ts'
import { checkAgentOptions } from './agent-policy.ts'
import type { TaskDefinition, TaskOptions } from './task.ts'
import type { TaskPolicy } from './task-policy.ts'
import type { WorkflowDefinition } from './workflow.ts'

/** The options a definition and a single call share; the call's win. */
export interface AgentOptions {
  /** From the start to the end of the function; everything below it is stopped with it. None unless set. */
  timeout?: Duration | null
  /** How long `finally` code may take, and what it schedules, once the agent was cancelled or timed out; default 30 s. */
  cleanup?: Duration
  /** The share of the timeout at which a warning is recorded; default 0.8. */
  warnAt?: number
  /** How long the records of the agent and of everything below it are kept after its end; default 7 days. */
  retention?: Duration
  /** Everything below it ends before its deadline; default false. */
  inherit?: boolean
  /** How long before it; the grace of what inherits and a second unless set. */
  reserve?: Duration
}

/** Something an agent can wait for. Native `Promise.all`, `race`, `any` and `allSettled` take it too. */
export interface StepHandle<T = unknown> extends PromiseLike<T> {
  catch<R = never>(onRejected?: ((reason: unknown) => R | PromiseLike<R>) | null): Promise<T | R>
  finally(onFinally?: (() => void) | null): Promise<T>
}

/** A task or a child agent, scheduled by an agent. */
export interface WorkHandle<T = unknown> extends StepHandle<T> {
  readonly id: string
  readonly name: string
}

export interface AgentScheduleOptions extends TaskOptions {
  delay?: Duration
  startAt?: Date | number
  /** Goes on when the agent ends. */
  detached?: boolean
  /** Ends before the agent's own deadline; what is left until then is its timeout. */
  inherit?: boolean
  /** How long before it; its grace and a second unless set. */
  reserve?: Duration
  /** Instead of the agent's. */
  trace?: TraceContext
}

export interface ChildOptions extends AgentOptions {
  detached?: boolean
  /** Ends before the agent's own deadline, and what it schedules before its. */
  inherit?: boolean
  reserve?: Duration
  /** Instead of the agent's, for it and everything below it. */
  trace?: TraceContext
}

export interface WaitOptions {
  /** Durable: counts from the commit that starts the wait, over restarts. */
  timeout?: Duration
  /** Cancels what is still open when the wait is over. On when the timeout ended it, else off. */
  cancelRest?: boolean
}

export interface RunOptions {
  /** Tries after the first; default 0. */
  retries?: number
  /** Each try. */
  timeout?: Duration
  backoff?: { initial?: Duration; factor?: number; max?: Duration; jitter?: number }
}

type Values<T extends readonly StepHandle[]> = { -readonly [K in keyof T]: Awaited<T[K]> }
type NoInput = undefined

/** A task that takes nothing is scheduled without an input. */
type WorkArguments<Input, Options> = NoInput extends Input
  ? [input?: Input, options?: Options]
  : [input: Input, options?: Options]

export interface AgentContext {
  readonly agentId: string
  /** Aborts when the agent was cancelled or timed out; its reason is a `Stopped` error with a code. */
  readonly signal: AbortSignal
  /** Silent while the journal is replayed. */
  readonly log: Logger
  /** Of the call it came from, or of what is above it. What it schedules has it too. */
  readonly trace: TraceContext | null
  /** Goes out with the run's next commit, awaited or not; its clock starts there. */
  schedule<Input, Output>(
    task: TaskDefinition<Input, Output>,
    ...rest: WorkArguments<Input, AgentScheduleOptions>
  ): WorkHandle<Output>
  child<Input, Output>(
    agent: AgentDefinition<Input, Output>,
    ...rest: WorkArguments<Input, ChildOptions>
  ): WorkHandle<Output>
  child<Input, Output>(
    workflow: WorkflowDefinition<Input, Output>,
    ...rest: WorkArguments<
      Input,
      Pick<ChildOptions, 'timeout' | 'detached' | 'inherit' | 'reserve' | 'trace'>
    >
  ): WorkHandle<Output>
  /** All values, or the first failure in time. */
  all<const T extends readonly StepHandle[]>(handles: T, options?: WaitOptions): StepHandle<Values<T>>
  /** Every outcome with its index. On timeout the rest is listed as timed out. */
  allSettled<const T extends readonly StepHandle[]>(
    handles: T,
    options?: WaitOptions,
  ): StepHandle<SettledOutcomes<Values<T>>>
  /** The first success; `AllTasksFailed` when there is none. */
  any<const T extends readonly StepHandle[]>(
    handles: T,
    options?: WaitOptions,
  ): StepHandle<{ index: number; value: Values<T>[number] }>
  /** The first that ends, well or badly. */
  race<const T extends readonly StepHandle[]>(
    handles: T,
    options?: WaitOptions,
  ): StepHandle<{ index: number; value: Values<T>[number] }>
  sleep(duration: Duration): StepHandle<void>
  sleepUntil(time: Date | number): StepHandle<void>
  /** The next signal of that name nobody has taken, in the order of their arrival. */
  waitForSignal<T = unknown>(name: string, options?: { timeout?: Duration }): StepHandle<T>
  /** Runs once: its result is journalled before it is handed on. Everything that is not from `ctx` belongs in one. */
  run<T>(
    name: string,
    fn: (run: { signal: AbortSignal; attempt: number }) => T | PromiseLike<T>,
    options?: RunOptions,
  ): StepHandle<T>
  /** Asks what the handle stands for to stop. Its own end comes through the handle, with the receipt. */
  cancel(handle: StepHandle): void
  /** The store's time in milliseconds, the same on replay. */
  now(): number
  /** Uniform in [0, 1), the same on replay. */
  random(): number
  /** The same on replay. */
  uuid(): string
}

export interface AgentDefinition<Input = unknown, Output = unknown> {
  readonly kind: 'agent'
  readonly name: string
  readonly policy: TaskPolicy
  readonly schema: StandardSchemaV1 | null
  readonly run: (input: never, context: AgentContext) => unknown
  /** Types only. */
  readonly types?: { input: Input; output: Output }
}

type Run<Input, Output> = (input: Input, context: AgentContext) => Output

/** A name and a plain async function that may wait for days. */
export function agent<Schema extends StandardSchemaV1, Output>(
  definition: AgentOptions & {
    name: string
    input: Schema
    run: Run<StandardSchemaV1.InferOutput<Schema>, Output>
  },
): AgentDefinition<StandardSchemaV1.InferInput<Schema>, Awaited<Output>>
export function agent<Input = unknown, Output = unknown>(
  definition: AgentOptions & { name: string; input?: undefined; run: Run<Input, Output> },
): AgentDefinition<Input, Awaited<Output>>
export function agent(
  definition: AgentOptions & { name: string; input?: StandardSchemaV1; run: Run<never, unknown> },
): AgentDefinition {
  const { name, input, run, ...options } = definition
  const policy = checkAgentOptions(name, options, { input, run })
  return { kind: 'agent', name, policy, schema: input ?? null, run }
}
