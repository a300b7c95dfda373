/** A task as its caller holds it. */

import type { Duration } from '../core/duration.ts'
import { durationMs } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import { decodeJson } from '../core/json.ts'
import { checkKnown } from '../core/known-options.ts'
import type { WorkKind } from '../core/own-work.ts'
import type { CancelAnswer, TaskStatus } from '../core/states.ts'
import { outcomeError, WaitTimedOut } from '../core/task-errors.ts'
import type {
  AttemptView,
  Explanation,
  Settled,
  TaskEventView,
  TaskService,
  TaskView,
} from '../wire/task-service.ts'

/** How long a caller waits; the work goes on. */
export interface WaitLimit {
  /** Default: as long as it takes. */
  timeout?: Duration
}

export function waitLimitMs(options: WaitLimit): number | null {
  checkKnown('wait', options, ['timeout'])
  return options.timeout === undefined ? null : durationMs(options.timeout, 'timeout')
}

export interface CancelOutcome {
  /** Everything has really stopped. */
  success: boolean
  errors: string[]
  /** Every attempt, and how it ended. */
  ledger: AttemptView[]
}

export class TaskHandle<Output = unknown> {
  readonly kind: WorkKind = 'task'
  readonly id: string
  /** A task with this key was there already; this is it. */
  readonly existing: boolean
  readonly #service: TaskService

  constructor(service: TaskService, id: string, existing = false) {
    this.#service = service
    this.id = id
    this.existing = existing
  }

  protected get service(): TaskService {
    return this.#service
  }

  /** The whole record; throws `not_found`. */
  async view(): Promise<TaskView> {
    const view = await this.#service.get(this.id)
    if (!view)
      throw new CurfewError('not_found', `there is no ${this.kind} ${this.id}`, { fields: { id: this.id } })
    return view
  }

  async status(): Promise<TaskStatus> {
    return (await this.view()).status
  }

  /**
   * Waits until the task has ended and its last attempt has stopped. Answers its output, or throws `TaskFailed`,
   * `TaskTimedOut`, `TaskCancelled`; `WaitTimedOut` when `timeout` was over first, and the task goes on.
   */
  async result(options: WaitLimit = {}): Promise<Output> {
    const settled = await this.#settled(options)
    if (settled.status === 'completed') return decodeJson(settled.output) as Output
    throw outcomeError(settled.task)
  }

  /** Answers at once; `cancelled()` waits until everything has stopped. */
  async cancel(): Promise<CancelAnswer> {
    return this.#service.cancel(this.id)
  }

  /** Waits until a cancelled task has really stopped. */
  async cancelled(options: WaitLimit = {}): Promise<CancelOutcome> {
    const settled = await this.#settled(options)
    const status = settled.status === 'completed' ? 'completed' : settled.task.status
    const ledger = await this.#service.attempts(this.id)
    const errors: string[] = []
    if (status !== 'cancelled') errors.push(`it was not cancelled: it is ${status}`)
    for (const { attempt, receipt, taskId, name } of ledger) {
      const isAgent = !taskId.startsWith('t_')
      const of = taskId === this.id ? '' : ` of ${isAgent ? 'agent' : 'task'} ${name} (${taskId})`
      const which = `${isAgent ? 'turn' : 'attempt'} ${attempt}${of}`
      if (receipt === 'abandoned')
        errors.push(`${which} ${isAgent ? 'did not clean up in time' : 'ignored its signal and still runs'}`)
      if (receipt === 'unreachable') errors.push(`${which}: its worker did not answer`)
    }
    return { success: errors.length === 0, errors, ledger }
  }

  /** By an operator: moves every limit that holds by any amount. */
  async extend(by: Duration): Promise<{ deadlineAt: number | null }> {
    return this.#service.extend(this.id, durationMs(by, 'extend'))
  }

  /** Lets a parked task go on. */
  async resume(): Promise<void> {
    await this.#service.resume(this.id)
  }

  async explain(): Promise<Explanation> {
    return this.#service.explain(this.id)
  }

  async events(): Promise<TaskEventView[]> {
    return this.#service.events(this.id)
  }

  async #settled(options: WaitLimit): Promise<Settled> {
    const timeoutMs = waitLimitMs(options)
    const settled = await this.#service.settled(this.id, timeoutMs)
    if (!settled) throw new WaitTimedOut(`${this.kind} ${this.id}`, timeoutMs ?? 0)
    return settled
  }
}
