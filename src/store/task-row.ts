/** The row of a task: every field of it, and how each dialect keeps it. Written and read by these names alone. */
import type { Receipt, TaskStatus, TimeoutKind } from '../core/states.ts'

export type Flag = 0 | 1

export interface TaskRow {
  id: string
  name: string
  queue: string
  priority: number
  key: string | null
  status: TaskStatus
  /** May be claimed now. */
  ready: Flag
  /** Not written since it was stored (PostgreSQL): see `postgres/postgres-light.ts`. */
  light: Flag
  /** An attempt holds a slot: running, stopping, or abandoned and still running. */
  live: Flag
  /** The attempt was told to stop and its receipt has not come. */
  stopping: Flag
  /** A reason why nothing of it is handed out. */
  parked: string | null
  input: string
  output: string | null
  failure: string | null
  timeoutKind: TimeoutKind | null
  receipt: Receipt | null
  policy: string
  attempt: number
  /** Attempts that used up a retry. */
  failures: number
  /** Attempts lost in a row. */
  losses: number
  token: string | null
  /** The process that accepted or last claimed it: it watches its deadlines, and runs its live attempt. */
  nodeId: string
  createdAt: number
  /** When it may start: the creation, or the delayed start. */
  startAt: number
  startedAt: number | null
  endedAt: number | null
  /** The outcome may be told: it ended, and its attempt has stopped. */
  settledAt: number | null
  deadlineAt: number | null
  queueDeadlineAt: number | null
  attemptDeadlineAt: number | null
  heartbeatDeadlineAt: number | null
  stuckDeadlineAt: number | null
  /** Set when the extensions are used up; fires as stuck. */
  exhaustedDeadlineAt: number | null
  /** Until when the receipt of a stopping attempt is waited for. */
  stopBoundAt: number | null
  retryAt: number | null
  attemptTimeoutMs: number | null
  heartbeatTimeoutMs: number | null
  stuckAfterMs: number | null
  /** From the start of an attempt to the first moment anything of it may be due. */
  firstDueMs: number | null
  graceMs: number
  /** The earliest of everything above that can fire; may be early, never late. The one that is indexed. */
  dueAt: number | null
  /** Bits of the warnings already given. */
  warned: number
  progress: string | null
  details: string | null
  /** When it last progressed or was granted time. */
  activeAt: number | null
  extension: string | null
  /** The largest total granted to one attempt. */
  extendedMs: number
  /** Event numbers: the last given out, that of the current attempt's start, that of the end. */
  seq: number
  startedSeq: number | null
  endedSeq: number | null
  kind: 'task' | 'agent'
  /** The name of a workflow or job; of work below one, its node. */
  title: string | null
  /** The agent that scheduled it, and the one at the top; both null for work that was started alone. */
  parentId: string | null
  rootId: string | null
  /** The number of the parent's step. */
  step: number | null
  /** Where its end stands among the parent's results. */
  resultSeq: number | null
  /** Goes on when its parent ends. */
  detached: Flag
  /** Of an agent: a turn may be claimed since then. */
  wokenAt: number | null
  /** Of an agent: results there are, results its code has seen, steps on record, children not settled. */
  results: number
  seen: number
  steps: number
  open: number
  /** Of an agent: what it waits for, as JSON text. */
  waits: string | null
  /** Of an agent: rises with every write of its row. */
  version: number
}

export type ColumnType = 'text' | 'int4' | 'int8'

/** In the order in which statements name them. */
export const TASK_COLUMNS: Record<keyof TaskRow, ColumnType> = {
  id: 'text',
  name: 'text',
  queue: 'text',
  priority: 'int4',
  key: 'text',
  status: 'text',
  ready: 'int4',
  light: 'int4',
  live: 'int4',
  stopping: 'int4',
  parked: 'text',
  input: 'text',
  output: 'text',
  failure: 'text',
  timeoutKind: 'text',
  receipt: 'text',
  policy: 'text',
  attempt: 'int4',
  failures: 'int4',
  losses: 'int4',
  token: 'text',
  nodeId: 'text',
  createdAt: 'int8',
  startAt: 'int8',
  startedAt: 'int8',
  endedAt: 'int8',
  settledAt: 'int8',
  deadlineAt: 'int8',
  queueDeadlineAt: 'int8',
  attemptDeadlineAt: 'int8',
  heartbeatDeadlineAt: 'int8',
  stuckDeadlineAt: 'int8',
  exhaustedDeadlineAt: 'int8',
  stopBoundAt: 'int8',
  retryAt: 'int8',
  attemptTimeoutMs: 'int8',
  heartbeatTimeoutMs: 'int8',
  stuckAfterMs: 'int8',
  firstDueMs: 'int8',
  graceMs: 'int8',
  dueAt: 'int8',
  warned: 'int4',
  progress: 'text',
  details: 'text',
  activeAt: 'int8',
  extension: 'text',
  extendedMs: 'int8',
  seq: 'int4',
  startedSeq: 'int4',
  endedSeq: 'int4',
  kind: 'text',
  title: 'text',
  parentId: 'text',
  rootId: 'text',
  step: 'int4',
  resultSeq: 'int4',
  detached: 'int4',
  wokenAt: 'int8',
  results: 'int4',
  seen: 'int4',
  steps: 'int4',
  open: 'int4',
  waits: 'text',
  version: 'int4',
}

/** Written out: rows are copied for every decision, and a literal is many times faster than a spread of so many. */
export function copyRow(row: TaskRow): TaskRow {
  return {
    id: row.id,
    name: row.name,
    queue: row.queue,
    priority: row.priority,
    key: row.key,
    status: row.status,
    ready: row.ready,
    light: row.light,
    live: row.live,
    stopping: row.stopping,
    parked: row.parked,
    input: row.input,
    output: row.output,
    failure: row.failure,
    timeoutKind: row.timeoutKind,
    receipt: row.receipt,
    policy: row.policy,
    attempt: row.attempt,
    failures: row.failures,
    losses: row.losses,
    token: row.token,
    nodeId: row.nodeId,
    createdAt: row.createdAt,
    startAt: row.startAt,
    startedAt: row.startedAt,
    endedAt: row.endedAt,
    settledAt: row.settledAt,
    deadlineAt: row.deadlineAt,
    queueDeadlineAt: row.queueDeadlineAt,
    attemptDeadlineAt: row.attemptDeadlineAt,
    heartbeatDeadlineAt: row.heartbeatDeadlineAt,
    stuckDeadlineAt: row.stuckDeadlineAt,
    exhaustedDeadlineAt: row.exhaustedDeadlineAt,
    stopBoundAt: row.stopBoundAt,
    retryAt: row.retryAt,
    attemptTimeoutMs: row.attemptTimeoutMs,
    heartbeatTimeoutMs: row.heartbeatTimeoutMs,
    stuckAfterMs: row.stuckAfterMs,
    firstDueMs: row.firstDueMs,
    graceMs: row.graceMs,
    dueAt: row.dueAt,
    warned: row.warned,
    progress: row.progress,
    details: row.details,
    activeAt: row.activeAt,
    extension: row.extension,
    extendedMs: row.extendedMs,
    seq: row.seq,
    startedSeq: row.startedSeq,
    endedSeq: row.endedSeq,
    kind: row.kind,
    title: row.title,
    parentId: row.parentId,
    rootId: row.rootId,
    step: row.step,
    resultSeq: row.resultSeq,
    detached: row.detached,
    wokenAt: row.wokenAt,
    results: row.results,
    seen: row.seen,
    steps: row.steps,
    open: row.open,
    waits: row.waits,
    version: row.version,
  }
}

/** What an agent's row never has, and its input, which only a replay needs: reading it costs as much as the rest. */
const OF_TASKS = [
  'input',
  'queue',
  'priority',
  'key',
  'ready',
  'light',
  'failures',
  'queueDeadlineAt',
  'attemptDeadlineAt',
  'heartbeatDeadlineAt',
  'stuckDeadlineAt',
  'exhaustedDeadlineAt',
  'retryAt',
  'attemptTimeoutMs',
  'heartbeatTimeoutMs',
  'stuckAfterMs',
  'firstDueMs',
  'graceMs',
  'progress',
  'details',
  'activeAt',
  'extension',
  'kind',
] as const satisfies readonly (keyof TaskRow)[]

export type AgentRow = Omit<TaskRow, (typeof OF_TASKS)[number]>

export function agentRow(row: AgentRow): TaskRow {
  return {
    id: row.id,
    name: row.name,
    queue: '',
    priority: 0,
    key: null,
    status: row.status,
    ready: 0,
    light: 0,
    live: row.live,
    stopping: row.stopping,
    parked: row.parked,
    input: '',
    output: row.output,
    failure: row.failure,
    timeoutKind: row.timeoutKind,
    receipt: row.receipt,
    policy: row.policy,
    attempt: row.attempt,
    failures: 0,
    losses: row.losses,
    token: row.token,
    nodeId: row.nodeId,
    createdAt: row.createdAt,
    startAt: row.startAt,
    startedAt: row.startedAt,
    endedAt: row.endedAt,
    settledAt: row.settledAt,
    deadlineAt: row.deadlineAt,
    queueDeadlineAt: null,
    attemptDeadlineAt: null,
    heartbeatDeadlineAt: null,
    stuckDeadlineAt: null,
    exhaustedDeadlineAt: null,
    stopBoundAt: row.stopBoundAt,
    retryAt: null,
    attemptTimeoutMs: null,
    heartbeatTimeoutMs: null,
    stuckAfterMs: null,
    firstDueMs: null,
    graceMs: 0,
    dueAt: row.dueAt,
    warned: row.warned,
    progress: null,
    details: null,
    activeAt: null,
    extension: null,
    extendedMs: row.extendedMs,
    seq: row.seq,
    startedSeq: row.startedSeq,
    endedSeq: row.endedSeq,
    kind: 'agent',
    title: row.title,
    parentId: row.parentId,
    rootId: row.rootId,
    step: row.step,
    resultSeq: row.resultSeq,
    detached: row.detached,
    wokenAt: row.wokenAt,
    results: row.results,
    seen: row.seen,
    steps: row.steps,
    open: row.open,
    waits: row.waits,
    version: row.version,
  }
}

/** What no decision changes. */
const FIXED: readonly (keyof TaskRow)[] = [
  'id',
  'name',
  'queue',
  'priority',
  'key',
  'input',
  'policy',
  'light',
  'createdAt',
  'startAt',
  'attemptTimeoutMs',
  'heartbeatTimeoutMs',
  'stuckAfterMs',
  'firstDueMs',
  'graceMs',
  'kind',
  'title',
  'parentId',
  'rootId',
  'step',
  'detached',
]

/** Of agents alone. */
const OF_AGENTS: readonly (keyof TaskRow)[] = [
  'wokenAt',
  'results',
  'seen',
  'steps',
  'open',
  'waits',
  'version',
]

const ALL = Object.keys(TASK_COLUMNS) as (keyof TaskRow)[]
export const CHANGING_FIELDS = ALL.filter((field) => !FIXED.includes(field) && !OF_AGENTS.includes(field))

export const AGENT_ROW_FIELDS = ALL.filter((field) => !(OF_TASKS as readonly string[]).includes(field))

/** What a turn of an agent changes, and what its start, its end or its limits change besides. */
export const TURN_FIELDS = [
  'live',
  'attempt',
  'token',
  'results',
  'seen',
  'steps',
  'open',
  'waits',
  'version',
] as const satisfies readonly (keyof TaskRow)[]
export const AGENT_FIELDS: readonly (keyof TaskRow)[] = [
  ...TURN_FIELDS,
  'wokenAt',
  'status',
  'nodeId',
  'startedAt',
  'dueAt',
  'seq',
  'startedSeq',
  'stopping',
  'parked',
  'output',
  'failure',
  'timeoutKind',
  'receipt',
  'losses',
  'endedAt',
  'settledAt',
  'deadlineAt',
  'stopBoundAt',
  'warned',
  'extendedMs',
  'endedSeq',
  'resultSeq',
]

const COLUMNS = new Map<string, string>()

export function column(field: string): string {
  const known = COLUMNS.get(field)
  if (known !== undefined) return known
  const name = field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
  COLUMNS.set(field, name)
  return name
}

/** `t.created_at as "createdAt", …` */
export function selectList(fields: readonly string[], table: string): string {
  return fields.map((field) => `${table}.${column(field)} as "${field}"`).join(', ')
}

export const TASK_FIELDS: readonly (keyof TaskRow)[] = ALL
