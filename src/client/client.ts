/** What programs call: typed by the definitions, over the service port. */
import type { Duration } from '../core/duration.ts'
import { durationMs, isZero } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import { encodeJson } from '../core/json.ts'
import { MAX_BULK_ROWS, MAX_KEY_LENGTH, MAX_PAGE } from '../core/limits.ts'
import type { TaskStatus, TimeoutKind } from '../core/states.ts'
import { TASK_STATUSES } from '../core/states.ts'
import { parseInput } from '../definitions/input-schema.ts'
import type { TaskDefinition, TaskOptions } from '../definitions/task.ts'
import type { TaskPolicy } from '../definitions/task-policy.ts'
import { applyOptions, checkName } from '../definitions/task-policy.ts'
import type { MetricView, ScheduleRequest, TaskService, TaskView } from '../wire/task-service.ts'
import { TaskHandle } from './task-handle.ts'

export interface ScheduleOptions extends TaskOptions {
  /** Unique per task name for as long as the record lives: a second call answers the first one's task. */
  key?: string
  delay?: Duration
  startAt?: Date | number
}

export type ScheduleManyOptions = Omit<ScheduleOptions, 'key'> & {
  /** One key per input. */
  keys?: readonly string[]
}

export interface ListOptions {
  status?: TaskStatus | readonly TaskStatus[]
  name?: string
  queue?: string
  timeoutKind?: TimeoutKind
  cursor?: string
  limit?: number
}

/** A task that takes nothing is scheduled without an input. */
type ScheduleArguments<Input> = undefined extends Input
  ? [input?: Input, options?: ScheduleOptions]
  : [input: Input, options?: ScheduleOptions]

export class Client {
  readonly #service: TaskService

  constructor(service: TaskService) {
    this.#service = service
  }

  /** Stores one task; when this resolves it is committed. */
  async schedule<Input, Output>(
    definition: TaskDefinition<Input, Output>,
    ...[input, options = {}]: ScheduleArguments<Input>
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
   * Stores many tasks of one kind. Everything is checked before anything is stored; up to 500 are stored together
   * or not at all, more in steps of 500.
   */
  async scheduleMany<Input, Output>(
    definition: TaskDefinition<Input, Output>,
    inputs: readonly NoInfer<Input>[],
    options: ScheduleManyOptions = {},
  ): Promise<TaskHandle<Output>[]> {
    checkDefinition(definition)
    const { keys, delay, startAt, ...taskOptions } = options
    if (keys && keys.length !== inputs.length) {
      throw new CurfewError('invalid_option', `keys: ${keys.length} keys for ${inputs.length} inputs`)
    }
    const request = {
      name: definition.name,
      policy: policyOf(definition, taskOptions),
      start: startOf(definition.name, delay, startAt),
    }
    const tasks: ScheduleRequest['tasks'] = []
    for (const [i, input] of inputs.entries()) {
      if (definition.schema) await parseInput(definition.name, definition.schema, input)
      const what =
        inputs.length === 1 ? `input of task ${definition.name}` : `input ${i} of task ${definition.name}`
      const key = keys?.[i]
      tasks.push({
        input: encodeJson(input, what),
        key: key === undefined ? null : checkName(`task ${definition.name}: key`, key, MAX_KEY_LENGTH),
      })
    }
    const steps: Promise<TaskHandle<Output>[]>[] = []
    for (let i = 0; i < tasks.length; i += MAX_BULK_ROWS) {
      steps.push(this.#step({ ...request, tasks: tasks.slice(i, i + MAX_BULK_ROWS) }))
    }
    return (await allOrFirstError(steps)).flat()
  }

  /** The task with this id, whether or not there is one. */
  task<Output = unknown>(id: string): TaskHandle<Output> {
    return new TaskHandle<Output>(this.#service, checkName('task id', id))
  }

  /** Newest first; `cursor` of one page asks for the next. */
  async list(options: ListOptions = {}): Promise<{ tasks: TaskView[]; cursor: string | null }> {
    const { status, name, queue, timeoutKind, cursor, limit = 100 } = options
    const statuses = status === undefined ? null : typeof status === 'string' ? [status] : [...status]
    for (const one of statuses ?? []) {
      if (!TASK_STATUSES.includes(one)) {
        throw new CurfewError(
          'invalid_option',
          `list: status '${one}' is none of ${TASK_STATUSES.join(', ')}`,
        )
      }
    }
    if (!Number.isInteger(limit) || limit < 1 || limit > MAX_PAGE) {
      throw new CurfewError('invalid_option', `list: limit must be between 1 and ${MAX_PAGE}, got ${limit}`)
    }
    return this.#service.list({
      statuses,
      name: name ?? null,
      queue: queue ?? null,
      timeoutKind: timeoutKind ?? null,
      cursor: cursor ?? null,
      limit,
    })
  }

  async metrics(): Promise<MetricView[]> {
    return this.#service.metrics()
  }

  async #step<Output>(request: ScheduleRequest): Promise<TaskHandle<Output>[]> {
    const scheduled = await this.#service.schedule(request)
    return scheduled.map(({ id, existing }) => new TaskHandle<Output>(this.#service, id, existing))
  }
}

/** Waits for all, so that nothing goes on behind the caller's back, then throws the first error. */
async function allOrFirstError<T>(promises: Promise<T>[]): Promise<T[]> {
  const results = await Promise.allSettled(promises)
  const failed = results.find((result) => result.status === 'rejected')
  if (failed) throw failed.reason
  return results.map((result) => (result as PromiseFulfilledResult<T>).value)
}

function checkDefinition(definition: TaskDefinition<never, unknown> | unknown): void {
  if ((definition as TaskDefinition)?.kind !== 'task') {
    throw new CurfewError('invalid_option', 'schedule takes a task made with task({ … })')
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

function startOf(
  name: string,
  delay: Duration | undefined,
  startAt: Date | number | undefined,
): ScheduleRequest['start'] {
  if (delay !== undefined && startAt !== undefined) {
    throw new CurfewError('invalid_option', `task ${name}: delay and startAt exclude each other`)
  }
  if (startAt !== undefined) {
    const at = Number(startAt)
    if (!Number.isFinite(at)) throw new CurfewError('invalid_option', `task ${name}: startAt is not a time`)
    return { at: Math.ceil(at) }
  }
  return { delayMs: delay === undefined || isZero(delay) ? 0 : durationMs(delay, `task ${name}: delay`) }
}
