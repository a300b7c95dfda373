/** A run of a workflow as its caller holds it. */
import type { RunView } from '../wire/run-view.ts'
import { TaskHandle } from './task-handle.ts'

export class WorkflowHandle<Output = unknown> extends TaskHandle<Output> {
  override readonly kind = 'workflow'

  /** Its tokens, joins and state, as they are now. */
  async run(): Promise<RunView> {
    return this.service.run(this.id)
  }
}
