/**
 * Runs attempts: takes assignments from a manager through the port, gives each to its handler, inline or in a
 * process of its own, and reports. Knows no store.
 */
import { AttemptMap } from '../core/attempt-map.ts'
import type { Clock, Randomness } from '../core/clock.ts'
import type { IdSource } from '../core/id.ts'
import type { Logger } from '../core/logger.ts'
import type { StopReason } from '../core/states.ts'
import type { AgentDefinition } from '../definitions/agent.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import type {
  Assignment,
  AttachedWorker,
  DownMessage,
  ManagerPort,
  Report,
  ReportAnswer,
  WorkerSession,
} from '../wire/worker-port.ts'
import { AgentRunner } from './agent-runner.ts'
import type { AttemptCallbacks, NoteCallback, RunningAttempt } from './attempt.ts'
import { CommandRunner } from './command.ts'
import { CommandAttempt, isCommandTask } from './command-task.ts'
import { InlineAttempt } from './inline-attempt.ts'
import { Outbox } from './outbox.ts'
import type { ProcessEnvironment } from './process-attempt.ts'
import { startProcessAttempt } from './process-attempt.ts'
import type { AttemptHost } from './worker-attempt.ts'
import { WorkerAttempt } from './worker-attempt.ts'

export interface WorkerOptions {
  workerId: string
  tasks: readonly TaskDefinition[]
  queues: readonly string[] | null
  concurrency: number
  clock: Clock
  logger: Logger
  agents: readonly AgentDefinition[]
  /** What this process knows. */
  registry: Registry
  /** Turns of agents at a time. */
  turns: number
  randomness: Randomness
  ids: IdSource
  /** How many suspended agents stay in memory, and how much of it they may take. */
  residents: { count: number; bytes: number }
  /** For commands, and tasks in processes of their own; null when there are none. */
  processes: ProcessEnvironment | null
}

/** Tasks of one queue that this process alone has the code of, with slots of their own. */
export interface OwnQueue {
  queue: string
  tasks: readonly TaskDefinition[]
  concurrency: number
}

export class Worker {
  readonly #options: WorkerOptions
  readonly #host: AttemptHost
  readonly #tasks: Map<string, TaskDefinition>
  readonly #ownQueues = new Map<string, { own: OwnQueue; session: WorkerSession | null }>()
  #manager: ManagerPort | null = null
  readonly #attempts = new AttemptMap<WorkerAttempt>()
  #session: WorkerSession | null = null
  readonly #outbox: Outbox<Report, ReportAnswer>
  #refusing: StopReason | null = null
  readonly #commands: CommandRunner | null
  readonly #agents: AgentRunner

  constructor(options: WorkerOptions) {
    this.#options = options
    this.#outbox = new Outbox(options.clock, (reports) => this.#session?.report(reports) ?? null, {
      type: 'accepted',
    })
    this.#agents = new AgentRunner(options)
    const { processes } = options
    this.#commands = processes && new CommandRunner({ ...processes, table: processes.supervisor.table })
    this.#host = {
      clock: options.clock,
      report: (report) => this.#outbox.add(report),
      start: (assignment, callbacks) => this.#startHandler(assignment, callbacks),
      gone: (attempt) => this.#attempts.delete(attempt),
    }
    this.#tasks = new Map(options.tasks.map((definition) => [definition.name, definition]))
  }

  attach(manager: ManagerPort): void {
    const { workerId, queues, concurrency, agents, turns } = this.#options
    this.#session = manager.attach(
      {
        workerId,
        names: [...this.#tasks.keys()],
        queues: queues ? [...queues] : null,
        concurrency,
        agents: agents.map(({ name }) => name),
        turns,
      },
      (message) => this.#receive(message),
      { held: () => this.#held(), stopAll: (reason) => this.stopAll(reason) },
    )
    this.#agents.attach(this.#session)
    this.#manager = manager
    for (const { own } of this.#ownQueues.values()) this.takeQueue(own)
  }

  /** For a manager in this process: each queue has a session of its own, whose tasks may be named as those of others. */
  takeQueue(own: OwnQueue): void {
    const { queue, tasks, concurrency } = own
    const { workerId } = this.#options
    const session = this.#manager?.attach(
      {
        ...{ workerId: `${workerId}/${queue}`, names: tasks.map(({ name }) => name), queues: [queue] },
        ...{ concurrency, agents: [], turns: 0 },
      },
      (message) => this.#receive(message),
      { held: () => ({ attempts: [], turns: [] }), stopAll: () => undefined },
    )
    this.#ownQueues.set(queue, { own, session: session ?? null })
  }

  /** Nothing of it will come any more. */
  leaveQueue(queue: string): void {
    this.#ownQueues.get(queue)?.session?.detach()
    this.#ownQueues.delete(queue)
  }

  #held(): ReturnType<AttachedWorker['held']> {
    const attempts = [...this.#attempts].map(({ assignment: { taskId, token, graceMs } }) => ({
      ...{ id: taskId, token, graceMs },
    }))
    return { attempts, turns: this.#agents.held() }
  }

  /** Nothing runs here any more. */
  get isEmpty(): boolean {
    return this.#attempts.size === 0
  }

  get idle(): boolean {
    return this.#outbox.idle && this.#agents.idle
  }

  /** Agents in memory that wait. */
  get residents(): number {
    return this.#agents.residents
  }

  /** Tasks that are still handed out are given back unstarted: whoever hands them out hears a moment later of it. */
  refuseTasks(reason: StopReason): void {
    this.#refusing = reason
  }

  refuse(reason: StopReason): void {
    this.refuseTasks(reason)
    this.#agents.refuse()
  }

  /** Everything goes down the ladder. */
  stopAll(reason: StopReason): void {
    for (const attempt of this.#attempts) attempt.stop(reason, attempt.assignment.graceMs)
    this.#agents.releaseAll()
  }

  get longestGraceMs(): number {
    return Math.max(0, ...[...this.#attempts].map(({ assignment }) => assignment.graceMs))
  }

  /** Resolves when every attempt and every turn has come to its end by itself. */
  async drained(): Promise<void> {
    await Promise.all([this.reported(), this.#agents.drained()])
  }

  /** Resolves when every attempt has ended or was given up. */
  async reported(): Promise<void> {
    const seen = new Set<WorkerAttempt>()
    for (;;) {
      const left = [...this.#attempts].filter((attempt) => !seen.has(attempt))
      await this.#agents.released()
      if (left.length === 0) return
      await Promise.all(left.map((attempt) => attempt.reported()))
      for (const attempt of left) seen.add(attempt)
    }
  }

  detach(): void {
    this.#session?.detach()
    this.#session = null
    this.#manager = null
    for (const { session } of this.#ownQueues.values()) session?.detach()
  }

  #receive(message: DownMessage): void {
    if (message.type === 'start') {
      for (const assignment of message.assignments) {
        if (this.#refusing) this.#reportUnknown({ ...assignment, reason: this.#refusing })
        else this.#start(assignment)
      }
      return
    }
    if (message.type === 'turns') return this.#agents.turns(message.turns)
    if (message.type === 'news') return this.#agents.news(message)
    const attempt = this.#attempts.get(message)
    if (message.type === 'stop') {
      if (attempt) attempt.stop(message.reason, message.graceMs)
      else this.#reportUnknown(message)
    } else attempt?.setLimits(message)
  }

  #start(assignment: Assignment): void {
    // A manager that does not know whether it arrived sends it again.
    if (this.#attempts.get(assignment)) return
    this.#attempts.add(new WorkerAttempt(assignment, this.#host))
  }

  #startHandler(assignment: Assignment, callbacks: AttemptCallbacks & NoteCallback): RunningAttempt {
    const { name, queue } = assignment
    const own = this.#ownQueues.get(queue)?.own.tasks.find((task) => task.name === name)
    const definition = own ?? this.#tasks.get(name)
    const { processes } = this.#options
    if (!definition) throw new Error(`curfew: assigned ${name}, which this worker did not announce`)
    if (definition.isolation === 'process' && processes) {
      return startProcessAttempt(definition, assignment, callbacks, processes)
    }
    if (isCommandTask(definition) && this.#commands)
      return new CommandAttempt(definition, assignment, this.#options, this.#commands, callbacks)
    return new InlineAttempt(definition, assignment, this.#options, callbacks)
  }

  /** Told to stop what does not run here: it has ended, and its report is on its way or was lost. */
  #reportUnknown({ taskId, token, reason }: { taskId: string; token: string; reason: StopReason }): void {
    void this.#outbox.add({ type: 'stopped', taskId, token, reason, receipt: 'exited', late: null })
  }
}
