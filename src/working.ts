/** A worker in a process of its own, attached to managers over the wire: `Curfew.work`. */
import { pathToFileURL } from 'node:url'
import type { Clock } from './core/clock.ts'
import { entryFile } from './core/entry-file.ts'
import type { IdSource } from './core/id.ts'
import type { Logger } from './core/logger.ts'
import type { SystemRandomness } from './core/system-clock.ts'
import type { ConnectionOptions } from './wire/http-client.ts'
import { checkConnection, endpointOf } from './wire/http-client.ts'
import type { CloseOptions } from './worker/closing.ts'
import { Closing } from './worker/closing.ts'
import { needProcesses } from './worker/command-task.ts'
import { isProcessGone, thisMachine } from './worker/machine.ts'
import type { ProcessEnvironment } from './worker/process-attempt.ts'
import { ProcessTable } from './worker/process-table.ts'
import { killMarked } from './worker/process-tree.ts'
import type { ProcessRegistry } from './worker/registry.ts'
import { RemoteManager } from './worker/remote-manager.ts'
import { Supervisor } from './worker/supervisor.ts'
import type { WorkerOptions } from './worker/worker.ts'
import { Worker } from './worker/worker.ts'
import type { ObituaryArgument } from './worker/worker-obituary.ts'

export interface WorkingParts {
  managers: readonly string[]
  connection: ConnectionOptions
  labels: Record<string, string>
  registry: ProcessRegistry
  worker: Pick<WorkerOptions, 'turns' | 'residents' | 'queues' | 'concurrency'>
  witness: boolean
  /** Beats in the event loop instead of a thread. */
  beatsInLoop: boolean
  clock: Clock
  randomness: SystemRandomness
  ids: IdSource
  logger: Logger
}

export interface WorkerCloseOptions extends CloseOptions {
  /** False: nothing is told to the managers, and nobody waits for them. */
  reports?: boolean
}

export class WorkerProcess {
  readonly workerId: string
  readonly #worker: Worker
  readonly #manager: RemoteManager
  readonly #supervisor: Supervisor | null
  readonly #closing: Closing

  private constructor(parts: {
    workerId: string
    worker: Worker
    manager: RemoteManager
    supervisor: Supervisor | null
    clock: Clock
  }) {
    this.workerId = parts.workerId
    this.#worker = parts.worker
    this.#manager = parts.manager
    this.#supervisor = parts.supervisor
    this.#closing = new Closing(parts.worker, parts.clock)
  }

  static async start(parts: WorkingParts): Promise<WorkerProcess> {
    const { clock, logger, ids, registry, randomness } = parts
    const connection = checkConnection(parts.connection)
    const workerId = ids.next('n', clock.wall())
    const endpoints = parts.managers.map((url) => endpointOf(url, connection, clock))
    const tasks = [...registry.tasks.values()]
    const agents = [...registry.agents.values()]
    const obituary: ObituaryArgument = {
      ...{ workerId, token: connection.token, tls: connection.tls },
      managers: endpoints.map(({ request }) => ({
        href: request.origin.href,
        socketPath: request.socketPath,
      })),
    }
    const supervisor =
      parts.witness || needProcesses(tasks)
        ? await Supervisor.start({
            ...{ nodeId: workerId, clock, logger },
            obituary: {
              module: pathToFileURL(entryFile('worker/worker-obituary')).href,
              argument: obituary,
            },
          })
        : null
    const processes: ProcessEnvironment | null = supervisor && { nodeId: workerId, supervisor, clock, logger }
    const worker = new Worker({
      ...{ workerId, tasks, agents, registry, clock, randomness, ids, logger, processes },
      ...parts.worker,
    })
    const manager = new RemoteManager({
      ...{ endpoints, token: connection.token, tls: connection.tls, clock, randomness, logger },
      ...{ labels: parts.labels, machine: thisMachine(), beatsInLoop: parts.beatsInLoop },
      definitions: announced(registry),
      isGone: async ({ workerId: gone, ...process }) => {
        if (!isProcessGone(process)) return false
        await killMarked({ nodeId: gone }, { clock, table: new ProcessTable(clock) })
        return true
      },
    })
    worker.attach(manager)
    return new WorkerProcess({ workerId, worker, manager, supervisor, clock })
  }

  get closed(): Promise<void> {
    return this.#closing.closed
  }

  /** Resolves with the first attach, to its address; rejects when the managers refuse it for a reason that stays. */
  attached(): Promise<string> {
    return this.#manager.attached
  }

  /**
   * Stops working. `drain`: running attempts may end first, at most so long (`true`: as long as they take); otherwise,
   * and after that, they are stopped and go back to the queue. `reports: false`: whoever would hear of that has gone.
   */
  async close({ reports = true, ...options }: WorkerCloseOptions = {}): Promise<void> {
    await this.#closing.close(options, {
      stopTaking: () => (reports ? this.#manager.drain() : this.#manager.close()),
      reported: () => this.#worker.reported(),
      end: () => this.#end(reports),
    })
  }

  async #end(reports: boolean): Promise<void> {
    // A handler that ignored its signal still runs: its lease has to be waited out.
    if (reports && this.#worker.isEmpty) await this.#manager.leave()
    this.#worker.detach()
    this.#manager.close()
    await this.#supervisor?.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/** What the manager may tell others that this worker knows. */
function announced({ tasks, agents, workflows }: ProcessRegistry) {
  return [
    ...[...tasks.values()].map(({ name, policy }) => ({ kind: 'task' as const, name, body: policy })),
    ...[...agents.values()].map(({ name, policy }) => ({ kind: 'agent' as const, name, body: policy })),
    ...[...workflows.values()].map(({ name, model }) => ({ kind: 'workflow' as const, name, body: model })),
  ]
}
