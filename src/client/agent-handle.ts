/** A run of an agent as its caller holds it: like a task, and it can be sent signals. */
import { encodeJson } from '../core/json.ts'
import { checkName } from '../definitions/task-policy.ts'
import { TaskHandle } from './task-handle.ts'

export class AgentHandle<Output = unknown> extends TaskHandle<Output> {
  override readonly kind = 'agent'

  /** Kept until the agent asks for it, in the order of arrival. When this resolves it is committed. */
  async signal(name: string, value?: unknown): Promise<void> {
    await this.service.signal(this.id, checkName('signal name', name), encodeJson(value, `signal ${name}`))
  }
}
