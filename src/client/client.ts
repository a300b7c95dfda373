/** What programs call: typed by the definitions, over the service port. */

import type { Duration } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import { encodeJson } from '../core/json.ts'
import { checkKnown } from '../core/known-options.ts'
import { MAX_KEY_LENGTH } from '../core/limits.ts'
import { JOB, runKey, WORKFLOW } from '../core/own-work.ts'
import type { TraceContext } from '../core/trace-context.ts'
import type { AgentDefinition, AgentOptions } from '../definitions/agent.ts'
import { applyAgentOptions } from '../definitions/agent-policy.ts'
import { parseInput } from '../definitions/input-schema.ts'
import type { JobDefinition } from '../definitions/job.ts'
import { jobOf } from '../definitions/job.ts'
import { startTime } from '../definitions/start-time.ts'
import type { TaskDefinition, TaskOptions } from '../definitions/task.ts'
import type { TaskPolicy } from '../definitions/task-policy.ts'
import { applyOptions, checkName, withTrace } from '../definitions/task-policy.ts'
import type { WorkflowDefinition } from '../definitions/workflow.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import { withUsed } from '../definitions/workflow-names.ts'
import { calledPolicy, jobName, jobPolicy } from '../graph/run-policy.ts'
import { jobStart, workflowStart } from '../graph/run-start.ts'
import type { JobStart, WorkflowStart } from '../graph/start-input.ts'
import { encodeStart } from '../graph/start-input.ts'
import type {
  MetricView,
  ScheduleRequest,
  StatusView,
  SubmitRequest,
  Submitted,
  TaskService,
  TaskView,
  WatchView,
  WorkerView,
} from '../wire/task-service.ts'
import { AgentHandle } from './agent-handle.ts'
import { DeadLetters } from './dead-letters.ts'
import { JobHandle } from './job-handle.ts'
import type { ListOptions } from './list-options.ts'
import { listRequest } from './list-options.ts'
import { allOrFirstError, inSteps } from './schedule-steps.ts'
import { TaskHandle } from './task-handle.ts'
import { WorkflowHandle } from './workflow-handle.ts'

export interface ScheduleOptions extends TaskOptions {
  /** Unique per task name for as long as the record lives: a second call answers the first one's task. */
  key?: string
  delay?: Duration
  startAt?: Date | number
  /** Reaches the handler. */
  trace?: TraceContext
}

export type ScheduleManyOptions = Omit<ScheduleOptions, 'key'> & {
  /** One key per input. */
  keys?: readonly string[]
}

export interface StartOptions extends AgentOptions {
  /** Unique per agent name for as long as the record lives: a second call answers the first one's run. */
  key?: string
  /** Reaches the agent and everything below it. */
  trace?: TraceContext
}

/** Of a run of a workflow. */
export interface RunOptions {
  /** Unique per workflow name for as long as the record lives: a second call answers the first one's run. */
  key?: string
  /** Instead of the definition's. */
  timeout?: Duration | null
  /** Reaches everything below it. */
  trace?: TraceContext
  /** Made beforehand, by an `IdSource`: asked for again it is the same run. */
  id?: string
}

/** Of a job. */
export interface SubmitOptions {
  /** Unique per job name for as long as the record lives: a second call answers the first one's job. */
  key?: string
  /** Reaches everything below it. */
  trace?: TraceContext
}

/** One of `task`, `agent`, `workflow` (names) and `definition` (text), and what goes with it. */
export interface NamedWork {
  task?: string
  agent?: string
  workflow?: string
  definition?: string
  input?: unknown
  key?: string
  /** `30s`, `2h`. */
  timeout?: string
  /** Of a task. */
  delay?: string
  traceparent?: string
  tracestate?: string
  /** The same request again is answered with the same work. */
  requestId?: string
}

const WHATS = ['definition', 'task', 'agent', 'workflow']
const NEVER = new AbortController().signal

/** What takes nothing is scheduled without an input. */
type WithInput<Input, Options> = undefined extends Input
  ? [input?: Input, options?: Options]
  : [input: Input, options?: Options]

export class Client {
  readonly #service: TaskService
  readonly #registry: Registry
  /** Items of map-reduces that were given up. */
  readonly deadLetters: DeadLetters

  /** `registry`: what this program knows; names in definitions are looked up there. */
  constructor(service: TaskService, registry: Registry = {}) {
    this.#service = service
    this.#registry = registry
    this.deadLetters = new DeadLetters(service)
  }

  /** Stores one task; when this resolves it is committed. */
  async schedule<Input, Output>(
    definition: TaskDefinition<Input, Output>,
    ...[input, options = {}]: WithInput<Input, ScheduleOptions>
  ): Promise<TaskHandle<Output>> {
    const { key, ...rest } = options
    const keys = key === undefined ? undefined : [key]
    const [handle] = await this.scheduleMany(definition, [input as NoInfer<Input>], {
      ...rest,
      ...(keys && { keys }),
    })
    return handle as TaskHandle<Output>
  }

  /**
   * Stores many tasks of one kind. Everything is checked before anything is stored; up to 500 with up to 4 MiB of
   * input are stored together or not at all, more in steps of that.
   */
  async scheduleMany<Input, Output>(
    definition: TaskDefinition<Input, Output>,
    inputs: readonly NoInfer<Input>[],
    options: ScheduleManyOptions = {},
  ): Promise<TaskHandle<Output>[]> {
    checkDefinition(definition)
    const { keys, delay, startAt, trace, ...taskOptions } = options
    if (keys && keys.length !== inputs.length) {
      throw new CurfewError('invalid_option', `keys: ${keys.length} keys for ${inputs.length} inputs`)
    }
    const request = {
      kind: 'task' as const,
      name: definition.name,
      policy: withTrace(`task ${definition.name}`, policyOf(definition, taskOptions), trace),
      start: startTime(`task ${definition.name}`, delay, startAt),
    }
    const tasks: ScheduleRequest['tasks'] = []
    for (const [i, input] of inputs.entries()) {
      if (definition.schema) await parseInput(definition.kind, definition.name, definition.schema, input)
      const what =
        inputs.length === 1 ? `input of task ${definition.name}` : `input ${i} of task ${definition.name}`
      const key = keys?.[i]
      tasks.push({
        input: encodeJson(input, what),
        key: key === undefined ? null : checkName(`task ${definition.name}: key`, key, MAX_KEY_LENGTH),
      })
    }
    const steps: Promise<TaskHandle<Output>[]>[] = []
    for (const step of inSteps(tasks)) steps.push(this.#step({ ...request, tasks: step }))
    return (await allOrFirstError(steps)).flat()
  }

  /** Stores the start of an agent or a workflow; when this resolves it is committed. */
  start<Input, Output>(
    definition: AgentDefinition<Input, Output>,
    ...rest: WithInput<Input, StartOptions>
  ): Promise<AgentHandle<Output>>
  start<Input, Output>(
    definition: WorkflowDefinition<Input, Output>,
    ...rest: WithInput<Input, RunOptions>
  ): Promise<WorkflowHandle<Output>>
  async start(
    definition: AgentDefinition | WorkflowDefinition,
    input?: unknown,
    options: StartOptions = {},
  ): Promise<TaskHandle> {
    if (definition?.kind === 'workflow') return this.#startWorkflow(definition, input, options)
    if (definition?.kind !== 'agent') {
      throw new CurfewError('invalid_option', 'start takes an agent({ … }) or a workflow({ … })', {
        ...((definition as { kind?: string })?.kind === 'task' && {
          hint: 'Tasks are scheduled: schedule(task, input).',
        }),
      })
    }
    const { name, schema } = definition
    const { key, trace, ...agentOptions } = options
    const own = Object.keys(agentOptions).length
      ? applyAgentOptions(`agent ${name}`, definition.policy, agentOptions, 'call')
      : definition.policy
    const policy = withTrace(`agent ${name}`, own, trace)
    if (schema) await parseInput('agent', name, schema, input)
    const run = {
      input: encodeJson(input, `input of agent ${name}`),
      key: key === undefined ? null : checkName(`agent ${name}: key`, key, MAX_KEY_LENGTH),
    }
    const [started] = await this.#service.schedule({
      kind: 'agent',
      name,
      policy,
      start: { delayMs: 0 },
      tasks: [run],
    })
    return new AgentHandle(this.#service, started?.id ?? '', started?.existing)
  }

  async #startWorkflow(
    definition: WorkflowDefinition,
    input: unknown,
    options: RunOptions,
  ): Promise<WorkflowHandle> {
    const { name, schema, model } = definition
    checkKnown(`workflow ${name}`, options, ['id', 'key', 'timeout', 'trace'])
    const { key, timeout, trace, id: given } = options
    if (schema) await parseInput('workflow', name, schema, input)
    const start = workflowStart(definition, this.#registry, input ?? null)
    const policy = withTrace(`workflow ${name}`, calledPolicy(model, timeout, `workflow ${name}`), trace)
    const { id, existing } = await this.#startRun(WORKFLOW, name, policy, start, key, given)
    return new WorkflowHandle(this.#service, id, existing)
  }

  /** Stores a job; when this resolves it is committed. A single workflow, agent or task is a job of one. */
  submit(job: JobDefinition, options?: SubmitOptions): Promise<JobHandle>
  submit<Input, Output>(
    work: AgentDefinition<Input, Output> | TaskDefinition<Input, Output> | WorkflowDefinition<Input, Output>,
    ...rest: WithInput<NoInfer<Input>, SubmitOptions>
  ): Promise<JobHandle<Record<string, Output>>>
  async submit(
    work: JobDefinition | AgentDefinition | TaskDefinition | WorkflowDefinition,
    ...rest: unknown[]
  ): Promise<JobHandle> {
    if (!['job', 'workflow', 'agent', 'task'].includes(work?.kind)) {
      throw new CurfewError('invalid_option', 'submit takes a job({ … }), or a workflow, agent or task')
    }
    const definition = work.kind === 'job' ? work : jobOf(work, rest.shift())
    const options = (rest[0] ?? {}) as SubmitOptions
    checkKnown('submit', options, ['key', 'trace'])
    const { key, trace } = options
    const policy = withTrace('submit', jobPolicy(definition.model), trace)
    const { id, existing } = await this.storeJob(definition, async (job, given) => {
      const start = jobStart(job, this.#registry)
      await this.#checkInputs(job)
      return this.#startRun(JOB, jobName(job.model), policy, start, key, given)
    })
    return new JobHandle(this.#service, id, existing)
  }

  /** For an engine that makes something of a job before it is stored: then under an id that is known before. */
  protected storeJob(
    definition: JobDefinition,
    store: (definition: JobDefinition, id?: string) => Promise<{ id: string; existing: boolean }>,
  ): Promise<{ id: string; existing: boolean }> {
    return store(definition)
  }

  async #checkInputs({ model, uses }: JobDefinition): Promise<void> {
    const { tasks, agents, workflows } = withUsed(this.#registry, uses)
    const known = { task: tasks, agent: agents, workflow: workflows, mapreduce: undefined }
    for (const { kind, name, input } of model.workflows) {
      const schema = known[kind]?.get(name)?.schema
      if (schema && kind !== 'mapreduce') await parseInput(kind, name, schema, input)
    }
  }

  async #startRun(
    name: typeof WORKFLOW | typeof JOB,
    title: string,
    policy: TaskPolicy,
    start: WorkflowStart | JobStart,
    key: string | undefined,
    id?: string,
  ): Promise<{ id: string; existing: boolean }> {
    const run = {
      ...(id !== undefined && { id: checkName(`${title}: id`, id) }),
      input: encodeStart(start, `definition and input of ${title}`),
      // Keys are unique per name, and all runs share one.
      key: key === undefined ? null : runKey(title, checkName(`${title}: key`, key, MAX_KEY_LENGTH)),
    }
    const [started] = await this.#service.schedule({
      ...{ kind: 'agent', name, title, policy },
      ...{ start: { delayMs: 0 }, tasks: [run] },
    })
    return { id: started?.id ?? '', existing: started?.existing ?? false }
  }

  /** The run of a workflow with this id, whether or not there is one. */
  workflow<Output = unknown>(id: string): WorkflowHandle<Output> {
    return new WorkflowHandle<Output>(this.#service, checkName('workflow id', id))
  }

  /** The job with this id, whether or not there is one. */
  job(id: string): JobHandle {
    return new JobHandle(this.#service, checkName('job id', id))
  }

  /** The agent with this id, whether or not there is one. */
  agent<Output = unknown>(id: string): AgentHandle<Output> {
    return new AgentHandle<Output>(this.#service, checkName('agent id', id))
  }

  /** Lets a parked agent or task go on. */
  async resume(id: string): Promise<void> {
    await this.#service.resume(checkName('id', id))
  }

  /** The task with this id, whether or not there is one. */
  task<Output = unknown>(id: string): TaskHandle<Output> {
    return new TaskHandle<Output>(this.#service, checkName('task id', id))
  }

  /** Of each kind the newest first; `cursor` of one page asks for the next. */
  async list(options: ListOptions = {}): Promise<{ tasks: TaskView[]; cursor: string | null }> {
    return this.#service.list(listRequest(options))
  }

  /**
   * Starts work by its name, or a job or workflow that is YAML or JSON text. What the names mean is known by the
   * engine and the workers attached to it.
   */
  async submitNamed(work: NamedWork): Promise<Submitted> {
    const { input, key, timeout, delay, traceparent, tracestate, requestId, ...what } = work
    const given = Object.entries(what).filter(([, value]) => value !== undefined)
    const [first] = given
    if (given.length !== 1 || !first || !WHATS.includes(first[0]))
      throw new CurfewError('invalid_option', `submitNamed takes one of ${WHATS.join(', ')}`)
    return this.#service.submit({
      what: { [first[0]]: first[1] } as unknown as SubmitRequest['what'],
      ...{ input: input ?? null, key: key ?? null, timeout: timeout ?? null, delay: delay ?? null },
      requestId: requestId === undefined ? null : checkName('requestId', requestId),
      trace:
        traceparent === undefined ? null : { traceparent, ...(tracestate !== undefined && { tracestate }) },
    })
  }

  /**
   * What happens to a piece of work, as it happens, until it has settled. `lastSequence` of one view asks for what
   * came after it.
   */
  async *watch(
    id: string,
    options: { lastSequence?: number; signal?: AbortSignal } = {},
  ): AsyncGenerator<WatchView> {
    checkKnown('watch', options, ['lastSequence', 'signal'])
    const { lastSequence = 0, signal = NEVER } = options
    if (!Number.isInteger(lastSequence) || lastSequence < 0)
      throw new CurfewError(
        'invalid_option',
        `watch: lastSequence must be a whole number, got ${lastSequence}`,
      )
    yield* this.#service.watch(checkName('id', id), lastSequence, signal)
  }

  /** Workers of other processes that are attached. */
  async workers(): Promise<WorkerView[]> {
    return this.#service.workers()
  }

  /** Of the engine that answers. */
  async serverStatus(): Promise<StatusView> {
    return this.#service.serverStatus()
  }

  async metrics(): Promise<MetricView[]> {
    return this.#service.metrics()
  }

  async #step<Output>(request: ScheduleRequest): Promise<TaskHandle<Output>[]> {
    const scheduled = await this.#service.schedule(request)
    return scheduled.map(({ id, existing }) => new TaskHandle<Output>(this.#service, id, existing))
  }
}

function checkDefinition(definition: TaskDefinition<never, unknown> | unknown): void {
  if ((definition as TaskDefinition)?.kind !== 'task') {
    throw new CurfewError('invalid_option', 'schedule takes a task made with task({ … })', {
      ...((definition as { kind?: string })?.kind === 'agent' && {
        hint: 'Agents are started: start(agent, input).',
      }),
    })
  }
}

/** The definition's own, unless the call sets something: one object per definition is encoded once. */
function policyOf(
  definition: TaskDefinition<never, unknown> | TaskDefinition,
  options: TaskOptions,
): TaskPolicy {
  for (const _ in options) return applyOptions(`task ${definition.name}`, definition.policy, options, 'call')
  return definition.policy
}
