/** A run of an agent as its caller holds it: like a task, and it can be sent signals. */
import { encodeJson } from '../core/json.ts'
import { checkName } from '../definitions/task-policy.ts'
import type { TaskService } from '../wire/task-service.ts'
import { TaskHandle } from './task-handle.ts'

export class AgentHandle<Output = unknown> extends TaskHandle<Output> {
  override readonly kind = 'agent'
  readonly #service: TaskService

  constructor(service: TaskService, id: string, existing = false) {
    super(service, id, existing)
    this.#service = service
  }

  /** Kept until the agent asks for it, in the order of arrival. When this resolves it is committed. */
  async signal(name: string, value?: unknown): Promise<void> {
    await this.#service.signal(this.id, checkName('signal name', name), encodeJson(value, `signal ${name}`))
  }
}
