/**
 * The port between a program and a manager: everything one can ask about tasks, as plain JSON data.
 * In one process it is a direct call.
 */
import type { Failure } from '../core/failure.ts'
import type {
  AttemptStatus,
  CancelAnswer,
  Progress,
  Receipt,
  TaskStatus,
  TimeoutKind,
} from '../core/states.ts'

/** Options of one call, checked and made whole by the caller. */
export interface ScheduleRequest {
  name: string
  /** JSON text of the policy's differences from the defaults is the manager's; here it is plain data. */
  policy: unknown
  /** From now, or an absolute time on the store's clock. */
  start: { delayMs: number } | { at: number }
  tasks: { input: string; key: string | null }[]
}

export interface ScheduledTask {
  id: string
  /** There was one with this key already. */
  existing: boolean
}

export interface AttemptView {
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
  name: string
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
  /** JSON text; null until it completed. */
  output: string | null
}

export interface LimitView {
  kind: TimeoutKind
  option: string
  timeoutMs: number
  setBy: 'definition' | 'call'
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
  status: TaskStatus
  /** One sentence: what it does or waits for, or why it ended. */
  summary: string
  limits: LimitView[]
  retries: { used: number; allowed: number; nextAt: number | null }
  extensions: { granted: number; grantedMs: number; left: number }
  attempts: AttemptView[]
  /** Limits that cannot hold together, slots that are lost: what somebody should look at. */
  warnings: string[]
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
}

export interface MetricView {
  name: string
  help: string
  type: string
  values: { labels: Record<string, string | number>; value: number; metricName?: string }[]
}

/** How a task ended; a completed one is its output alone. */
export type Settled = { status: 'completed'; output: string } | { status: 'not_completed'; task: TaskView }

export interface TaskService {
  schedule(request: ScheduleRequest): Promise<ScheduledTask[]>
  get(id: string): Promise<TaskView | null>
  /** Resolves when it has settled; null when `timeoutMs` was over first. */
  settled(id: string, timeoutMs: number | null): Promise<Settled | null>
  cancel(id: string): Promise<CancelAnswer>
  extend(id: string, byMs: number): Promise<{ deadlineAt: number | null }>
  resume(id: string): Promise<void>
  attempts(id: string): Promise<AttemptView[]>
  events(id: string): Promise<TaskEventView[]>
  explain(id: string): Promise<Explanation>
  list(request: ListRequest): Promise<{ tasks: TaskView[]; cursor: string | null }>
  metrics(): Promise<MetricView[]>
}
