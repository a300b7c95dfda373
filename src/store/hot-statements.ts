/**
 * The hot five: schedule, claim, report, fire, heartbeat. Each dialect has its own text for them
 * (`sqlite/sqlite-hot.ts`, `postgres/postgres-hot.ts`); rows in and out are the same, and one conformance test
 * holds both to it.
 */
import type { Statement, Work } from './statement.ts'
import type { TaskRow } from './task-row.ts'

/** What a new task's row starts with; everything else has a default in the schema. */
export const NEW_TASK_FIELDS = [
  'id',
  'name',
  'queue',
  'priority',
  'key',
  'status',
  'ready',
  'input',
  'policy',
  'nodeId',
  'createdAt',
  'startAt',
  'deadlineAt',
  'queueDeadlineAt',
  'attemptTimeoutMs',
  'heartbeatTimeoutMs',
  'stuckAfterMs',
  'firstDueMs',
  'graceMs',
  'dueAt',
] as const satisfies readonly (keyof TaskRow)[]

/** An agent's row, or that of something an agent scheduled, has these besides. */
export const NEW_BELOW_FIELDS = [
  ...NEW_TASK_FIELDS,
  'kind',
  'title',
  'parentId',
  'rootId',
  'step',
  'detached',
  'wokenAt',
] as const satisfies readonly (keyof TaskRow)[]

/** One that the process which stores it starts at once has these besides: it is never there to be claimed. */
export const STARTED_FIELDS = [
  'live',
  'attempt',
  'token',
  'startedAt',
  'attemptDeadlineAt',
  'heartbeatDeadlineAt',
  'stuckDeadlineAt',
  'seq',
  'startedSeq',
] as const satisfies readonly (keyof TaskRow)[]

export type NewTask = Pick<TaskRow, (typeof NEW_TASK_FIELDS)[number]>
export type NewBelow = Pick<TaskRow, (typeof NEW_BELOW_FIELDS)[number]>
export type Started<Row> = Row & Pick<TaskRow, (typeof STARTED_FIELDS)[number]>
/** The same without another word in its row: see `postgres/postgres-light.ts`. */
export type StartedLight = NewTask & { light: 1 }
export type NewRow = NewTask | NewBelow | Started<NewTask> | Started<NewBelow> | StartedLight

/** The fields of a new row, by what it is. */
export function fieldsOf(row: NewRow): readonly (keyof Started<NewBelow>)[] {
  return FIELDS[shapeOf(row)]
}

const FIELDS = [
  NEW_TASK_FIELDS,
  NEW_BELOW_FIELDS,
  [...NEW_TASK_FIELDS, ...STARTED_FIELDS],
  [...NEW_BELOW_FIELDS, ...STARTED_FIELDS],
] as const

export function shapeOf(row: NewRow): 0 | 1 | 2 | 3 {
  const below = 'kind' in row
  return 'token' in row ? (below ? 3 : 2) : below ? 1 : 0
}

/**
 * An agent's row is written twice for every step, and whatever stands in it is written again each time. An input of
 * more than this stands in the journal instead, and the row has an empty text for it.
 */
const LONG_INPUT = 500

/** New rows as they are written, and the long inputs of those that are agents. */
export function withoutLongInputs(rows: readonly NewRow[]): {
  rows: readonly NewRow[]
  long: { id: string; input: string }[]
} {
  const long: { id: string; input: string }[] = []
  const isLong = (row: NewRow) => 'kind' in row && row.kind === 'agent' && row.input.length > LONG_INPUT
  if (!rows.some(isLong)) return { rows, long }
  const written = rows.map((row) => {
    if (!isLong(row)) return row
    long.push({ id: row.id, input: row.input })
    return { ...row, input: '' }
  })
  return { rows: written, long }
}

/** The input of the row `t`, wherever it stands. `s`: the prefix of tables. */
export function wholeInput(s: string, t: string): string {
  return `case when ${t}.input <> '' then ${t}.input
    else (select j.body from ${s}journal j where j.agent_id = ${t}.id and j.part = 2 and j.no = 0) end`
}

export interface ClaimRequest {
  now: number
  nodeId: string
  /** One per claim; with the task's id it names the attempt. */
  token: string
  queues: readonly string[]
  names: readonly string[]
  limit: number
  /** Of one queue and name: what stands before it, and itself, may be passed by. */
  after?: ClaimPlace | null
  /** Of these queues and names light tasks stand behind the place, or have a higher priority. */
  floors?: readonly ClaimFloor[]
  /** How many run is counted by their rows. */
  counted?: boolean
}

/** Where a task stands among those of its queue and name. */
export type ClaimPlace = Pick<TaskRow, 'priority' | 'id'>

/** A place up to which the light tasks of a queue and name were claimed. */
export type ClaimFloor = ClaimPlace & Pick<TaskRow, 'queue' | 'name'>

export function standsBefore(one: ClaimPlace, other: ClaimPlace): boolean {
  return one.priority === other.priority ? one.id < other.id : one.priority < other.priority
}

export const CLAIMED_FIELDS = [
  'id',
  'name',
  'queue',
  'priority',
  'attempt',
  'input',
  'details',
  'policy',
  'startAt',
  'deadlineAt',
  'attemptDeadlineAt',
  'graceMs',
  'dueAt',
  'parentId',
  'rootId',
  'step',
  'detached',
  'light',
] as const satisfies readonly (keyof TaskRow)[]

export type ClaimedTask = Pick<TaskRow, (typeof CLAIMED_FIELDS)[number]>

export interface CompletedTask {
  id: string
  token: string
  output: string
}

export interface Beat {
  id: string
  token: string
  progress: string | null
  details: string | null
  moved: 0 | 1
}

export interface HotStatements {
  /** schedule: answers at least the ids of those with a key that were inserted; one whose key exists is left out. */
  insertTasks(rows: readonly NewRow[]): Statement<{ id: string }>[]
  /** claim: ready tasks that have time left, by priority, then age; the attempt is counted before it is handed out. */
  claimTasks(request: ClaimRequest): Work<ClaimedTask[]>
  /** report: ends running attempts well; answers the ids that it did not change: they are stale. */
  completeTasks(now: number, rows: readonly CompletedTask[]): Statement<{ id: string }>
  /** The same for what agents scheduled, with the place of each among their results. */
  completeBelow(
    now: number,
    rows: readonly (CompletedTask & { resultSeq: number })[],
  ): Statement<{ id: string }>
  /** fire: what is due, the longest overdue first; a living peer's only when it is overdue by `overdueMs`. */
  dueTasks(now: number, peers: readonly string[], overdueMs: number, limit: number): Statement<TaskRow>
  /** heartbeat: answers the ids whose attempt is not the running one any more. */
  beatTasks(now: number, rows: readonly Beat[]): Statement<{ id: string }>
}

/** What starting an attempt sets, in both dialects. */
export function claimSets(least: string, { now, node, token } = CLAIM_PARAMETERS): string {
  return `status = 'running', ready = 0, live = 1, attempt = attempt + 1, node_id = ${node}, token = ${token},
    started_at = ${now}, retry_at = null, receipt = null, timeout_kind = null,
    attempt_deadline_at = ${now} + attempt_timeout_ms,
    heartbeat_deadline_at = ${now} + heartbeat_timeout_ms,
    stuck_deadline_at = ${now} + stuck_after_ms,
    due_at = ${least},
    -- the first two bits belong to the task, the others to the attempt
    warned = warned & 3, extension = null, exhausted_deadline_at = null,
    seq = seq + 1, started_seq = seq + 1`
}

const CLAIM_PARAMETERS = { now: '$1', node: '$2', token: '$3' }

/** What a good end sets, at the time in the parameter `now`. */
export function completeSets(now: string): string {
  return `status = 'completed', live = 0, losses = 0, ended_at = ${now}, settled_at = ${now}, due_at = null,
    seq = seq + 1, ended_seq = seq + 1`
}
