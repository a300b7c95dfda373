/** A job as its caller holds it, and each of its workflows. */
import { checkKnown } from '../core/known-options.ts'
import type { CancelAnswer } from '../core/states.ts'
import { outcomeError, WaitTimedOut } from '../core/task-errors.ts'
import { checkName } from '../definitions/task-policy.ts'
import type { MemberView } from '../wire/run-view.ts'
import { memberOf } from '../wire/run-view.ts'
import type { TaskService } from '../wire/task-service.ts'
import type { CancelOutcome, WaitLimit } from './task-handle.ts'
import { TaskHandle, waitLimitMs } from './task-handle.ts'

export interface CancelOptions {
  /** Those that wait for it too; default true. */
  dependents?: boolean
  /** The same request twice is one request. */
  requestId?: string
}

export class JobHandle<Output = Record<string, unknown>> extends TaskHandle<Output> {
  override readonly kind = 'job'

  /** What came out of each of its workflows, by their ids; throws as that of a task when one did not complete. */
  override async result(options: WaitLimit = {}): Promise<Output> {
    await super.result(options)
    const members = await this.workflows()
    return Object.fromEntries(members.map(({ id, output }) => [id, output])) as Output
  }

  /** Every workflow of it: how far it is, what came out, or why it did not run. */
  async workflows(): Promise<MemberView[]> {
    return this.service.members(this.id)
  }

  /** One of its workflows, by its id in the job. */
  workflow(id: string): JobWorkflowHandle {
    return new JobWorkflowHandle(this.service, this.id, id)
  }
}

export class JobWorkflowHandle {
  readonly jobId: string
  readonly id: string
  readonly #service: TaskService

  constructor(service: TaskService, jobId: string, id: string) {
    this.#service = service
    this.jobId = jobId
    this.id = id
  }

  async view(): Promise<MemberView> {
    return memberOf(this.jobId, this.id, await this.#service.members(this.jobId))
  }

  /** Answers at once; `cancelled()` waits until everything of it has stopped. */
  async cancel(options: CancelOptions = {}): Promise<CancelAnswer> {
    checkKnown('cancel', options, ['dependents', 'requestId'])
    const { dependents = true, requestId } = options
    if (requestId !== undefined) checkName('requestId', requestId)
    return this.#service.cancelMember(this.jobId, this.id, { dependents, requestId: requestId ?? null })
  }

  /** Waits until it has ended, and everything of it has stopped. */
  async settled(options: WaitLimit = {}): Promise<MemberView> {
    const timeoutMs = waitLimitMs(options)
    const member = await this.#service.memberSettled(this.jobId, this.id, timeoutMs)
    if (!member) throw new WaitTimedOut(`workflow ${this.id} of job ${this.jobId}`, timeoutMs ?? 0)
    return member
  }

  /** As that of a job: its output, or throws how it ended. */
  async result(options: WaitLimit = {}): Promise<unknown> {
    const { runId, status, output, failure, timeoutKind } = await this.settled(options)
    if (status === 'completed') return output
    if (runId !== null) return new TaskHandle(this.#service, runId).result()
    throw outcomeError({
      ...{ kind: 'workflow', id: this.id, name: this.id, attempts: 0, status, failure, timeoutKind },
      ...{ deadlineAt: null, startedAt: null, timeoutMs: null, receipt: null, progress: null, details: null },
    })
  }

  /** Waits until a cancelled one has really stopped. */
  async cancelled(options: WaitLimit = {}): Promise<CancelOutcome> {
    const member = await this.settled(options)
    if (member.runId !== null) return new TaskHandle(this.#service, member.runId).cancelled(options)
    const errors = member.status === 'cancelled' ? [] : [`it was not cancelled: it is ${member.status}`]
    return { success: errors.length === 0, errors, ledger: [] }
  }
}
