/** A client with something of its own to close: a connection, or a store that it reads. */
import type { Registry } from '../definitions/workflow-names.ts'
import type { TaskService } from '../wire/task-service.ts'
import { Client } from './client.ts'

export class ConnectedClient extends Client {
  readonly #service: { close(): Promise<void> }

  constructor(service: TaskService & { close(): Promise<void> }, registry?: Registry) {
    super(service, registry)
    this.#service = service
  }

  close(): Promise<void> {
    return this.#service.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}
