// What every contender is measured through. A session is one open engine in the process that called open:
// it schedules tasks of one kind, and runs them with the handler it was given.

/** What the session is opened for; a contender takes its fastest documented settings for it. */
export type Purpose = 'throughput' | 'schedule' | 'pickup' | 'crash' | 'timeouts' | 'idle'

export interface Attempt {
  /** The number that the task was scheduled with. */
  n: number
  /** Aborts when the task's limit has passed. */
  signal?: AbortSignal
  /** When the limit falls, in Unix milliseconds; without it, the limit counts from the handler's start. */
  deadlineAt?: number
}

export interface SessionOptions {
  /** A PostgreSQL URL, or the path of a SQLite file. */
  store: string
  purpose: Purpose
  concurrency: number
  handler: (attempt: Attempt) => Promise<void>
}

export interface ScheduleOptions {
  delayMs?: number
  /** The limit of one attempt. */
  limitMs?: number
  /** The limit from scheduling to the outcome. */
  totalMs?: number
}

export interface Session {
  /** Resolves when the task is acknowledged. */
  schedule(n: number, options?: ScheduleOptions): Promise<unknown>
  scheduleMany(numbers: readonly number[], options?: ScheduleOptions): Promise<unknown>
  /** How many tasks have not ended, as the store knows it. */
  unfinished(): Promise<number>
  /** How long after their limits the store decided that tasks had timed out, in milliseconds, where it says. */
  decisionLateness?(): Promise<number[]>
  close(): Promise<void>
}

export type OpenSession = (options: SessionOptions) => Promise<Session>

/** Agents of one kind: as many steps that do nothing as it was opened with, one after the other. */
export interface AgentSession {
  /** Starts so many at once; resolves when the store knows that all have ended. */
  runAgents(count: number): Promise<void>
  close(): Promise<void>
}

export interface AgentSessionOptions {
  store: string
  steps: number
}

export type OpenAgents = (options: AgentSessionOptions) => Promise<AgentSession>

export interface WorkOrder {
  store: string
  /** The address of the manager, of a contender that has one. */
  manager: string | null
  concurrency: number
}

export interface ClusterWorker {
  close(): Promise<void>
}

/** Several processes that work on one store together. */
export interface ClusterContender {
  /** Makes this process the manager; answers its address. */
  manage?(store: string): Promise<string>
  /** Makes this process a worker, which calls the handler for every task. */
  work(order: WorkOrder, handler: () => void): Promise<ClusterWorker>
  /** For storing tasks while no worker is there. */
  connect(at: { store: string; manager: string | null }): Promise<{
    schedule(count: number): Promise<void>
    close(): Promise<void>
  }>
  /** The statement that counts tasks which have not ended. */
  unfinished: string
  /** Tasks at a time; more would take it minutes. */
  most?: number
}

export type LoadCluster = () => Promise<ClusterContender>
