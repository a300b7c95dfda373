/**
 * `Curfew.open`: manager, worker and client in one process, over a SQLite file or a PostgreSQL database.
 */
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import pino from 'pino'
import { Client } from './client/client.ts'
import { ConnectedClient } from './client/connected-client.ts'
import { announcedDefinitions, knowsNothing, submitNamed, withFixedId } from './client/submit-named.ts'
import type { ConnectedCurfew } from './connecting.ts'
import type { Clock } from './core/clock.ts'
import { durationMs } from './core/duration.ts'
import { entryFile } from './core/entry-file.ts'
import { CurfewError } from './core/errors.ts'
import { IdSource } from './core/id.ts'
import type { Logger } from './core/logger.ts'
import { isEnded } from './core/states.ts'
import { SystemClock, SystemRandomness } from './core/system-clock.ts'
import type { Registry } from './definitions/workflow-names.ts'
import { ATTEMPT_LEASE_BASE_MS } from './leadership/lease-times.ts'
import { checkListening, Listening, socketOf } from './listening.ts'
import type { Engine } from './manager/engine.ts'
import { openEngine } from './manager/engine.ts'
import { openReader } from './manager/open-reader.ts'
import type { EmbeddedMembers, StoredJob } from './mapreduce/embedded-members.ts'
import type { ConnectOptions, OpenOptions, WorkOptions } from './options.ts'
import {
  checkConnectOptions,
  checkLabels,
  checkLogger,
  checkOptions,
  checkWorkOptions,
  invalid,
} from './options.ts'
import { storeLocation } from './store/store-location.ts'
import type { Role } from './wire/roles.ts'
import type { TokenEntry } from './wire/tokens.ts'
import { createToken as makeToken } from './wire/tokens.ts'
import type { CloseOptions } from './worker/closing.ts'
import { Closing } from './worker/closing.ts'
import { needProcesses } from './worker/command-task.ts'
import { isTaskProcess } from './worker/marker.ts'
import { OWN_AGENTS } from './worker/own-agents.ts'
import type { ProcessEnvironment } from './worker/process-attempt.ts'
import { ProcessTable } from './worker/process-table.ts'
import { killMarked } from './worker/process-tree.ts'
import { Supervisor } from './worker/supervisor.ts'
import { Worker } from './worker/worker.ts'
import type { WorkerProcess } from './working.ts'

export { type CurfewConfig, defineConfig } from './cli/curfew-config.ts'
export { AgentHandle } from './client/agent-handle.ts'
export type {
  NamedWork,
  RunOptions as WorkflowRunOptions,
  ScheduleManyOptions,
  ScheduleOptions,
  StartOptions,
  SubmitOptions,
} from './client/client.ts'
export type { ConnectedClient } from './client/connected-client.ts'
export type { DeadLetterChoiceOptions, DeadLetterListOptions, DeadLetters } from './client/dead-letters.ts'
export { JobHandle, JobWorkflowHandle } from './client/job-handle.ts'
export type { ListOptions } from './client/list-options.ts'
export { type CancelOutcome, TaskHandle } from './client/task-handle.ts'
export { WorkflowHandle } from './client/workflow-handle.ts'
export type { ConnectedCurfew } from './connecting.ts'
export type { Clock } from './core/clock.ts'
export type { DeadLetterError, DeadLetterState } from './core/dead-letter.ts'
export type { Duration } from './core/duration.ts'
export { CurfewError } from './core/errors.ts'
export type { ExtensionAnswer } from './core/extension.ts'
export { type Failure, HandlerError } from './core/failure.ts'
export type { Logger } from './core/logger.ts'
export type { Outcome, SettledOutcomes } from './core/settled-outcomes.ts'
export type { CancelAnswer, Progress, Receipt, TaskStatus, TimeoutKind } from './core/states.ts'
export {
  AllTasksFailed,
  RunFailed,
  Stopped,
  TaskCancelled,
  TaskFailed,
  TaskTimedOut,
  WaitTimedOut,
} from './core/task-errors.ts'
export type { TraceContext } from './core/trace-context.ts'
export {
  type AgentContext,
  type AgentDefinition,
  type AgentOptions,
  type AgentScheduleOptions,
  agent,
  type ChildOptions,
  type RunOptions,
  type StepHandle,
  type WaitOptions,
  type WorkHandle,
} from './definitions/agent.ts'
export {
  type CheckedJob,
  type JobDefinition,
  type JobOptions,
  job,
  loadJob,
  validateJob,
} from './definitions/job.ts'
export { DefinitionError, type Problem } from './definitions/problem.ts'
export { type TaskContext, type TaskDefinition, type TaskOptions, task } from './definitions/task.ts'
export {
  type CheckedWorkflow,
  loadWorkflow,
  validateWorkflow,
  type WorkflowDefinition,
  type WorkflowOptions,
  workflow,
} from './definitions/workflow.ts'
export { graph } from './definitions/workflow-graph.ts'
export type { ListenOptions } from './listening.ts'
export type { ConnectOptions, OpenOptions, WorkOptions } from './options.ts'
export { findHolder, type Holder } from './store/sqlite/file-lock.ts'
export type { DeadLetter, DeadLettersPage, DeadLetterView } from './wire/dead-letter-view.ts'
export type { JoinView, MemberView, RunView, TokenView } from './wire/run-view.ts'
export type {
  AttemptView,
  Explanation,
  MetricView,
  StatusView,
  Submitted,
  TaskEventView,
  TaskView,
  WaitView,
  WatchView,
  WorkerView,
} from './wire/task-service.ts'
export { type TokenEntry, tokenText } from './wire/tokens.ts'
export type { WorkerProcess } from './working.ts'

export class Curfew extends Client {
  readonly #engine: Engine
  readonly #worker: Worker
  readonly #supervisor: Supervisor | null
  readonly #listening: Listening
  readonly #closing: Closing
  readonly #members: EmbeddedMembers | null
  #announced: { revision: number; known: Registry } | null = null

  private constructor(
    parts: {
      engine: Engine
      worker: Worker
      supervisor: Supervisor | null
      members: EmbeddedMembers | null
      clock: Clock
    },
    registry: Registry,
  ) {
    const { engine, worker, supervisor, members, clock } = parts
    super(engine.service, registry)
    this.#members = members
    this.#engine = engine
    this.#worker = worker
    this.#supervisor = supervisor
    this.#closing = new Closing(worker, clock)
    this.#listening = new Listening(engine)
    const startedAt = clock.monotonic()
    engine.service.setSubmit((request) => {
      const known = this.#known(registry)
      const { requestId } = request
      const service = requestId === null ? engine.service : withFixedId(engine.service, requestId)
      const awaitsWorkers = clock.monotonic() - startedAt < ATTEMPT_LEASE_BASE_MS && knowsNothing(known)
      return submitNamed(new Client(service, known), known, request, { awaitsWorkers })
    })
  }

  /** What this process and its workers know: put together once for each set of workers. */
  #known(registry: Registry): Registry {
    const { workers } = this.#engine
    if (this.#announced?.revision !== workers.revision) {
      const known = withRegistry(registry, announcedDefinitions(workers.definitions()))
      this.#announced = { revision: workers.revision, known }
    }
    return this.#announced.known
  }

  /** Where others reach this engine, as `Curfew.connect` takes it. */
  get addresses(): string[] {
    return this.#listening.addresses
  }

  /** The first of them that is no Unix socket; null when there is none. */
  get url(): string | null {
    return this.addresses.find((address) => !address.startsWith('unix:')) ?? null
  }

  get nodeId(): string {
    return this.#engine.nodeId
  }

  /** Settles when it was closed, or closed itself because its store failed. */
  get closed(): Promise<void> {
    return this.#closing.closed
  }

  /** The same methods over a manager that is somewhere else: `http://host:port`, `https://…` or `unix:/path`. */
  static async connect(
    urls: string | readonly string[],
    options: ConnectOptions = {},
  ): Promise<ConnectedCurfew> {
    const { managers, registry } = checkConnectOptions(urls, options)
    const { token, tls } = options
    const { connect } = await import('./connecting.ts')
    return connect(managers, { token, tls }, registry)
  }

  /** Runs the work of managers that are somewhere else, in this process. */
  static async work(options: WorkOptions): Promise<WorkerProcess> {
    refuseInsideTask('Curfew.work')
    const { managers, registry, turns, residents, concurrency, workQueues } = checkWorkOptions(options)
    const { token, tls, labels } = options
    const logger = checkLogger(options.logger ?? defaultLogger(), 'Curfew.work')
    const randomness = new SystemRandomness()
    const { WorkerProcess: start } = await import('./working.ts')
    return start.start({
      ...{ managers, connection: { token, tls }, labels: checkLabels(labels), registry, logger },
      worker: { turns, residents, queues: workQueues, concurrency },
      ...{ witness: options.witness ?? false, beatsInLoop: false },
      ...{ clock: new SystemClock(), randomness, ids: new IdSource(randomness) },
    })
  }

  /** Opens the store, ends and repeats what a dead process left over a SQLite file, and starts to work. */
  static async open(options: OpenOptions): Promise<Curfew> {
    refuseInsideTask('Curfew.open')
    const { registry, turns, residents, concurrency, queues, workQueues } = checkOptions(options)
    const listen = checkListening(options.listen)
    const socketAfterMs =
      options.listenAfter === undefined ? 0 : durationMs(options.listenAfter, 'listenAfter')
    const tasks = [...registry.tasks.values()]
    const agents = [...registry.agents.values(), ...OWN_AGENTS]
    const clock = options.clock ?? new SystemClock()
    const randomness = new SystemRandomness()
    const logger = checkLogger(options.logger ?? defaultLogger())
    const ids = new IdSource(randomness)
    const engine = await openEngine({
      store: options.store,
      queues,
      taskQueues: tasks.map(({ policy }) => policy.queue),
      clock,
      randomness,
      logger,
      ids,
      endLeftovers: (nodeId) => endLeftovers(nodeId),
    })
    let supervisor: Supervisor | null = null
    let curfew: Curfew | null = null
    let members: EmbeddedMembers | null = null
    try {
      if (options.witness || options.mapreduce || needProcesses(tasks)) {
        supervisor = await Supervisor.start({
          nodeId: engine.nodeId,
          clock: new SystemClock(),
          logger,
          obituary: engine.witness && {
            module: pathToFileURL(entryFile('leadership/witness-process')).href,
            argument: engine.witness,
          },
        })
      }
      const processes: ProcessEnvironment | null = supervisor && {
        nodeId: engine.nodeId,
        supervisor,
        clock: new SystemClock(),
        logger,
      }
      const worker = new Worker({
        workerId: engine.nodeId,
        tasks,
        agents,
        registry,
        turns,
        residents,
        queues: workQueues,
        concurrency,
        clock,
        randomness,
        ids,
        logger,
        processes,
      })
      for (const own of options.ownQueues ?? []) worker.takeQueue(own)
      if (options.mapreduce)
        members = await openMembers(engine, worker, { store: options.store, randomness, ids, logger })
      curfew = new Curfew({ engine, worker, supervisor, members, clock }, registry)
      const file = options.clock || options.listen === false ? null : fileOf(options.store)
      const socket = file === null ? null : socketOf(file)
      // An address that cannot be had is told before anything is begun; callers wait until the engine has started.
      await curfew.#listening.start(listen)
      if (socket !== null) {
        if (socketAfterMs === 0) await curfew.#listening.startSocket(socket, logger)
        else curfew.#listening.startSocketAfter(socketAfterMs, socket, clock, logger)
      }
      const opened = curfew
      await engine.start(
        worker,
        () => void opened.close(),
        async () => {
          await options.first?.(opened)
          await members?.takeUp()
        },
      )
      return curfew
    } catch (error) {
      if (curfew) await curfew.#listening.close()
      members?.leave()
      await engine.close()
      await members?.close()
      await supervisor?.close()
      throw error
    }
  }

  /**
   * Looks at a store without working on it: nothing is made, written or fired, and what would change something is
   * refused (`read_only`). A SQLite file must be there and in nobody's use.
   */
  static async read(
    store: string,
    options: { clock?: Clock; logger?: Logger } = {},
  ): Promise<ConnectedClient> {
    const { clock = new SystemClock() } = options
    const logger = checkLogger(options.logger ?? defaultLogger(), 'Curfew.read')
    return new ConnectedClient(await openReader(store, { clock, logger }))
  }

  /**
   * Stops working. `drain`: running attempts and turns of agents may end first, at most so long (`true`: as long as they take);
   * otherwise, and after that, they are stopped and go back to the queue for another process or the next start.
   */
  async close(options: CloseOptions = {}): Promise<void> {
    await this.#closing.close(options, {
      stopTaking: () => this.#engine.stopClaiming(),
      reported: () => this.#reported(),
      end: () => this.#end(),
    })
  }

  async #reported(): Promise<void> {
    if (this.#engine.failed) return
    await this.#engine.claimsSettled()
    await this.#worker.reported()
  }

  async #end(): Promise<void> {
    this.#worker.detach()
    // Workers hear it first, then callers get their last answers.
    this.#members?.leave()
    this.#engine.sendAway()
    await this.#listening.close()
    try {
      await this.#engine.close()
    } finally {
      await this.#members?.close()
      await this.#supervisor?.close()
    }
  }

  protected override storeJob(...[definition, store]: Parameters<Client['storeJob']>): Promise<StoredJob> {
    return this.#members ? this.#members.store(definition, store) : store(definition)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }
}

/** The token is for its holder; the entry, which has only its hash, for `listen: { tokens }` of the managers. */
export function createToken(role: Role, name?: string): { token: string; entry: TokenEntry } {
  return makeToken(role, new SystemRandomness(), name)
}

async function openMembers(
  { service }: Engine,
  worker: Worker,
  {
    store,
    randomness,
    ids,
    logger,
  }: { store: string; randomness: SystemRandomness; ids: IdSource; logger: Logger },
): Promise<EmbeddedMembers> {
  const { EmbeddedMembers: Members } = await import('./mapreduce/embedded-members.ts')
  const file = fileOf(store)
  return new Members({
    ...{ worker, clock: new SystemClock(), chance: () => randomness.next(), ids, logger },
    place: file === null ? null : { store: path.resolve(file), isFile: true },
    isOver: async (jobId) => {
      const view = await service.get(jobId)
      return view && isEnded(view.status)
    },
    settled: async (jobId, signal) => (await service.settled(jobId, null, { signal })) !== null,
  })
}

const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug']

function defaultLogger(level = process.env.CURFEW_LOG ?? 'warn'): Logger {
  if (!LOG_LEVELS.includes(level)) {
    throw invalid(`CURFEW_LOG is '${level}'; it may be ${LOG_LEVELS.join(', ')}`)
  }
  // At once: what is written later cannot fail where it is caught, and an exit waits for it on a full disk.
  return pino({ name: 'curfew', level }, pino.destination({ fd: 2, sync: true }))
}

/** What a dead process left running on this machine. */
async function endLeftovers(nodeId: string): Promise<void> {
  const clock = new SystemClock()
  await killMarked({ nodeId }, { clock, table: new ProcessTable(clock) })
}

function refuseInsideTask(what: string): void {
  if (!isTaskProcess()) return
  throw new CurfewError('inside_task', `${what} was called inside the process of a task`, {
    hint: 'The file of a task is imported there: open the engine in another file.',
  })
}

function fileOf(store: string): string | null {
  const location = storeLocation(store)
  return location.dialect === 'sqlite' && location.file !== ':memory:' ? location.file : null
}

/** What this process knows, and what its workers do. */
function withRegistry(own: Registry, announced: Required<Registry>): Registry {
  return {
    tasks: new Map([...announced.tasks, ...(own.tasks ?? [])]),
    agents: new Map([...announced.agents, ...(own.agents ?? [])]),
    workflows: new Map([...announced.workflows, ...(own.workflows ?? [])]),
  }
}
