/**
 * The port between a program and a manager: everything one can ask about tasks, as plain JSON data.
 * In one process it is a direct call.
 */
import type { Failure } from '../core/failure.ts'
import type { WorkKind } from '../core/own-work.ts'
import type {
  AttemptStatus,
  CancelAnswer,
  Progress,
  Receipt,
  TaskStatus,
  TimeoutKind,
} from '../core/states.ts'
import type { TraceContext } from '../core/trace-context.ts'
import type { DeadLetterService } from './dead-letter-view.ts'
import type { MemberView, RunView } from './run-view.ts'

/** Options of one call, checked and made whole by the caller. */
export interface ScheduleRequest {
  name: string
  /** JSON text of the policy's differences from the defaults is the manager's; here it is plain data. */
  policy: unknown
  /** From now, or an absolute time on the store's clock. */
  start: { delayMs: number } | { at: number }
  /** `id`: made by a caller that may have to ask again; the same id again is the same work. */
  tasks: { input: string; key: string | null; id?: string }[]
  kind: 'task' | 'agent'
  /** The name of a workflow or job. */
  title?: string
}

export interface ScheduledTask {
  id: string
  /** There was one with this key already. */
  existing: boolean
}

export interface AttemptView {
  taskId: string
  name: string
  attempt: number
  status: AttemptStatus
  startedAt: number
  endedAt: number | null
  timeoutKind: TimeoutKind | null
  failure: Failure | null
  receipt: Receipt | null
  grantedMs: number
}

export interface TaskView {
  id: string
  /** The attempts of all but tasks are turns. */
  kind: WorkKind
  name: string
  /** Of work below a workflow its node, below a job the id of the workflow. */
  title: string | null
  queue: string
  priority: number
  key: string | null
  status: TaskStatus
  /** The outcome may be relied on: it ended, and its attempt has stopped. */
  settled: boolean
  parked: string | null
  attempts: number
  createdAt: number
  startAt: number
  startedAt: number | null
  endedAt: number | null
  deadlineAt: number | null
  /** Of the attempt that runs. */
  attemptDeadlineAt: number | null
  timeoutKind: TimeoutKind | null
  /** How long that limit was. */
  timeoutMs: number | null
  failure: Failure | null
  receipt: Receipt | null
  progress: Progress | null
  details: unknown
  /** Null until it completed. */
  output: unknown
  /** The agent that scheduled it. */
  parentId: string | null
  /** The `traceparent` it was submitted with, or what is above it was. */
  trace: string | null
}

/** What a suspended agent waits for. */
export interface WaitView {
  what: 'task' | 'agent' | 'workflow' | 'signal' | 'time' | 'join'
  /** Of a task or child agent. */
  id: string | null
  /** Of a task, child agent or signal; of a join its transition. */
  name: string | null
  status: TaskStatus | null
  since: number
  /** When the wait is over at the latest; null: as long as it takes. */
  until: number | null
}

export interface LimitView {
  kind: TimeoutKind
  option: string
  timeoutMs: number
  setBy: 'definition' | 'call' | 'node' | 'action' | 'workflow' | 'transition' | 'default' | 'inherited'
  deadlineAt: number | null
  remainingMs: number | null
  /** In force now. */
  active: boolean
  /** The one that will fire first. */
  binding: boolean
}

export interface Explanation {
  id: string
  name: string
  kind: WorkKind
  status: TaskStatus
  /** One sentence: what it does or waits for, or why it ended. */
  summary: string
  limits: LimitView[]
  retries: { used: number; allowed: number; nextAt: number | null }
  extensions: { granted: number; grantedMs: number; left: number }
  attempts: AttemptView[]
  /** Of an agent: what it waits for, at most 100 of them. */
  waits: WaitView[]
  /** Of an agent: what is on record. */
  journal: { steps: number; results: number; turns: number; open: number } | null
  /** Limits that cannot hold together, slots that are lost: what somebody should look at. */
  warnings: string[]
  /** Of work below a workflow its node, below a job the id of the workflow. */
  title: string | null
  /** The `traceparent` it was submitted with, or what is above it was. */
  trace: string | null
  /** Of all limits that hold, its own and those above it, the one that ends first. */
  binding: BindingView | null
  /** What it has begun, in that order, at any depth; at most 500 in all. */
  below: Explanation[]
}

export interface BindingView {
  /** Whose limit it is. */
  id: string
  name: string
  kind: TimeoutKind
  deadlineAt: number
  remainingMs: number
}

export interface TaskEventView {
  type: string
  taskId: string
  seq: number
  at: number
  [field: string]: unknown
}

export interface ListRequest {
  statuses: TaskStatus[] | null
  name: string | null
  queue: string | null
  timeoutKind: TimeoutKind | null
  cursor: string | null
  limit: number
  kind: WorkKind | null
  /** Of what this agent scheduled. */
  parentId: string | null
  parked: boolean | null
}

export interface MetricView {
  name: string
  help: string
  type: string
  values: { labels: Record<string, string | number>; value: number; metricName?: string }[]
}

/** How a task ended; a completed one is its output alone. */
export type Settled = { status: 'completed'; output: string } | { status: 'not_completed'; task: TaskView }

/** Something to start, by its name or as text: the names and limits are those the engine and its workers know. */
export interface SubmitRequest {
  what: { definition: string } | { task: string } | { agent: string } | { workflow: string }
  input: unknown
  key: string | null
  timeout: string | null
  delay: string | null
  trace: TraceContext | null
  /** The same request again is answered with the same work. */
  requestId: string | null
}

export interface Submitted {
  id: string
  kind: WorkKind
  existing: boolean
}

/** What has happened to a piece of work since the last one of these. */
export interface WatchView {
  work: TaskView
  events: TaskEventView[]
  lastSequence: number
  /** Something after the sequence that was asked for is not on record any more. */
  truncated: boolean
  /** It has settled: nothing follows. */
  final: boolean
  /** Something below it changed. */
  below: boolean
}

/** A worker of another process. */
export interface WorkerView {
  id: string
  host: string
  pid: number
  version: string
  labels: Record<string, string>
  /** `silent`: it was not heard of for some seconds; what it runs has until the end of its lease. */
  status: 'attached' | 'silent'
  queues: string[]
  allQueues: boolean
  tasks: string[]
  agents: string[]
  concurrency: number
  running: number
  abandoned: number
  attachedAt: number
  heardAt: number
  managerId: string
}

export interface StatusView {
  nodeId: string
  version: string
  protocol: number
  store: 'sqlite' | 'postgres'
  /** It may decide: the store answers and it is not closing. */
  ready: boolean
  now: number
  workers: number
  /** Rises with every process that comes to lead. */
  fence: number
}

/** `requestId`: of a caller who may have to ask again; what was done is not done twice. */
export interface TaskService extends DeadLetterService {
  submit(request: SubmitRequest): Promise<Submitted>
  /** Ends by itself when the work has settled, or when the signal aborts. */
  watch(id: string, lastSequence: number, signal: AbortSignal): AsyncIterable<WatchView>
  workers(): Promise<WorkerView[]>
  serverStatus(): Promise<StatusView>
  schedule(request: ScheduleRequest): Promise<ScheduledTask[]>
  get(id: string): Promise<TaskView | null>
  /** Resolves when it has settled; null when `timeoutMs` was over first. */
  settled(id: string, timeoutMs: number | null): Promise<Settled | null>
  /** Resolves after its commit; throws when nobody would take it. */
  signal(id: string, name: string, value: string, requestId?: string): Promise<void>
  cancel(id: string, requestId?: string): Promise<CancelAnswer>
  extend(id: string, byMs: number, requestId?: string): Promise<{ deadlineAt: number | null }>
  resume(id: string, requestId?: string): Promise<void>
  /** Of an agent: those of everything below it that was cancelled. */
  attempts(id: string): Promise<AttemptView[]>
  events(id: string): Promise<TaskEventView[]>
  explain(id: string): Promise<Explanation>
  list(request: ListRequest): Promise<{ tasks: TaskView[]; cursor: string | null }>
  metrics(): Promise<MetricView[]>
  /** Of a workflow: its tokens, joins and state. */
  run(id: string): Promise<RunView>
  /** Of a job: its workflows. `outputs`: those of workflows that have completed; with them unless it says otherwise. */
  members(id: string, options?: { outputs?: boolean }): Promise<MemberView[]>
  cancelMember(
    jobId: string,
    id: string,
    options: { dependents: boolean; requestId: string | null },
  ): Promise<CancelAnswer>
  /** Resolves when a workflow of a job has settled; null when `timeoutMs` was over first. */
  memberSettled(jobId: string, id: string, timeoutMs: number | null): Promise<MemberView | null>
}
