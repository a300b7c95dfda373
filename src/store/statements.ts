/** Every other statement: one text for both dialects, apart from locks and lists. */
import type { WorkKind } from '../core/own-work.ts'
import { isOwnRun, JOB, mapreduceQueue, WORKFLOW } from '../core/own-work.ts'
import type { TaskStatus, TimeoutKind } from '../core/states.ts'
import { AgentStatements, ENDED_BADLY, NOT_REMOTE } from './agent-statements.ts'
import type { AttemptRow, EventRow } from './attempt-row.ts'
import { ATTEMPT_COLUMNS, EVENT_COLUMNS } from './attempt-row.ts'
import type { Dialect } from './dialect.ts'
import { POSTGRES, SQLITE } from './dialect.ts'
import type { HotStatements } from './hot-statements.ts'
import { wholeInput } from './hot-statements.ts'
import { LetterStatements } from './letter-statements.ts'
import {
  AS_WRITTEN_OUT,
  asWrittenOut,
  hasStatus,
  MAY_START,
  WITH_CLAIM,
  WITH_CLAIMS,
} from './postgres/light-rows.ts'
import { POSTGRES_HOT } from './postgres/postgres-hot.ts'
import type { LightStatements } from './postgres/postgres-light.ts'
import { POSTGRES_LIGHT } from './postgres/postgres-light.ts'
import { SQLITE_HOT } from './sqlite/sqlite-hot.ts'
import type { Statement } from './statement.ts'
import type { TaskRow } from './task-row.ts'
import { CHANGING_FIELDS, selectList, TASK_COLUMNS, TASK_FIELDS } from './task-row.ts'

export interface TaskFilter {
  statuses: readonly TaskStatus[] | null
  name: string | null
  queue: string | null
  timeoutKind: TimeoutKind | null
  kind: WorkKind | null
  parentId: string | null
  parked: boolean | null
  /** The id after which the page starts; newest first. */
  after: string | null
  limit: number
}

export interface QueueRow {
  name: string
  concurrency: number | null
}

const SWEPT_FIELDS = [
  'id',
  'status',
  'ready',
  'live',
  'parked',
  'nodeId',
  'settledAt',
  'dueAt',
  'policy',
  'kind',
  'parentId',
  'detached',
  'wokenAt',
  'open',
  'waits',
] as const satisfies readonly (keyof TaskRow)[]

export type SweptTask = Pick<TaskRow, (typeof SWEPT_FIELDS)[number]>

/** What stands in indexes instead of what it follows from. SQLite computes it, or needs none. */
const HOLDER = `holder = case when t.kind = 'task' and u.live = 1 then u.node_id end`

export class Statements {
  readonly hot: HotStatements
  readonly agents: AgentStatements
  readonly letters: LetterStatements
  /** PostgreSQL alone has such. */
  readonly light: LightStatements | null
  readonly #d: Dialect

  constructor(dialect: 'sqlite' | 'postgres') {
    this.#d = dialect === 'sqlite' ? SQLITE : POSTGRES
    this.hot = dialect === 'sqlite' ? SQLITE_HOT : POSTGRES_HOT
    this.agents = new AgentStatements(this.#d)
    this.letters = new LetterStatements(this.#d)
    this.light = dialect === 'sqlite' ? null : POSTGRES_LIGHT
  }

  /** The rows with these ids, locked in the order of their ids. */
  lockTasks(ids: readonly string[]): Statement<TaskRow> {
    const d = this.#d
    return {
      sql: `select ${selectList(TASK_FIELDS, 't')} from ${d.s}tasks t where id ${d.inList('$1')} order by id ${d.lock.forUpdate}`,
      params: [d.list(ids)],
    }
  }

  /** The same without a lock, as they would be if nothing of them were light: for readers. */
  readTasks(ids: readonly string[]): Statement<TaskRow> {
    const d = this.#d
    return {
      sql: `${this.#readTask} where t.id ${d.inList('$1')}`,
      params: [d.list(ids)],
    }
  }

  get #readTask(): string {
    return this.light === null
      ? `select ${selectList(TASK_FIELDS, 't')} from tasks t`
      : `select ${AS_WRITTEN_OUT} from curfew.tasks t ${WITH_CLAIM}`
  }

  /** How far it is, and what came out: all that a waiting caller needs of a task that completes. */
  outcomes(ids: readonly string[]): Statement<Pick<TaskRow, 'id' | 'status' | 'settledAt' | 'output'>> {
    const d = this.#d
    return {
      sql: `select id, status, settled_at as "settledAt", output from ${d.s}tasks where id ${d.inList('$1')}`,
      params: [d.list(ids)],
    }
  }

  tasksByKey(name: string, keys: readonly string[]): Statement<Pick<TaskRow, 'id' | 'key' | 'input'>> {
    const d = this.#d
    return {
      sql: `select id, key, ${wholeInput(d.s, 't')} as input from ${d.s}tasks t
        where name = $1 and key is not null and key ${d.inList('$2')}`,
      params: [name, d.list(keys)],
    }
  }

  /** What these were scheduled with. */
  scheduledTasks(ids: readonly string[]): Statement<Pick<TaskRow, 'id' | 'name' | 'input'>> {
    const d = this.#d
    return {
      sql: `select id, name, ${wholeInput(d.s, 't')} as input from ${d.s}tasks t where id ${d.inList('$1')}`,
      params: [d.list(ids)],
    }
  }

  /** Which of these have settled: the cheap question of a waiting caller. */
  settledTasks(ids: readonly string[]): Statement<{ id: string }> {
    const d = this.#d
    return {
      sql: `select id from ${d.s}tasks where id ${d.inList('$1')} and settled_at is not null`,
      params: [d.list(ids)],
    }
  }

  updateTasks(rows: readonly TaskRow[]): Statement {
    return this.#d.update(
      `${this.#d.s}tasks`,
      TASK_COLUMNS,
      CHANGING_FIELDS,
      rows,
      `${HOLDER}, ${ENDED_BADLY}`,
    )
  }

  insertAttempts(rows: readonly AttemptRow[]): Statement {
    return this.#d.insert(
      `${this.#d.s}attempts`,
      ATTEMPT_COLUMNS,
      rows,
      'on conflict (task_id, attempt) do nothing',
    )
  }

  /** How the attempt of an earlier record really stopped, when that is learnt later. */
  updateReceipt(taskId: string, attempt: number, receipt: string): Statement {
    return {
      sql: `update ${this.#d.s}attempts set receipt = $3 where task_id = $1 and attempt = $2`,
      params: [taskId, attempt, receipt],
    }
  }

  attempts(taskIds: readonly string[]): Statement<AttemptRow> {
    const d = this.#d
    return {
      sql: `select ${selectList(Object.keys(ATTEMPT_COLUMNS), 'a')} from ${d.s}attempts a
        where task_id ${d.inList('$1')} order by task_id, attempt`,
      params: [d.list(taskIds)],
    }
  }

  insertEvents(rows: readonly EventRow[]): Statement {
    return this.#d.insert(`${this.#d.s}events`, EVENT_COLUMNS, rows)
  }

  events(rootIds: readonly string[]): Statement<EventRow> {
    const d = this.#d
    return {
      sql: `select ${selectList(Object.keys(EVENT_COLUMNS), 'e')} from ${d.s}events e
        where root_id ${d.inList('$1')} order by root_id, seq`,
      params: [d.list(rootIds)],
    }
  }

  listTasks(filter: TaskFilter): Statement<TaskRow> {
    const d = this.#d
    const params: unknown[] = []
    const param = (value: unknown) => `$${params.push(value)}`
    const where = ['1 = 1']
    if (filter.statuses) {
      const is = d.inList(param(d.list(filter.statuses)))
      where.push(this.light ? hasStatus(filter.statuses, is) : `status ${is}`)
    }
    if (filter.name !== null) {
      const name = param(filter.name)
      where.push(
        `(name = ${name} or title = ${name} and name in ('${WORKFLOW}', '${JOB}') and parent_id is null)`,
      )
    }
    if (filter.queue !== null) where.push(`queue = ${param(filter.queue)}`)
    if (filter.timeoutKind !== null) where.push(`timeout_kind = ${param(filter.timeoutKind)}`)
    if (filter.kind !== null) where.push(ofKind(filter.kind))
    if (filter.parentId !== null) where.push(`parent_id = ${param(filter.parentId)}`)
    if (filter.parked !== null) where.push(`parked is ${filter.parked ? 'not ' : ''}null`)
    if (filter.after !== null) where.push(`t.id < ${param(filter.after)}`)
    const some = `where ${where.join(' and ')} order by t.id desc limit ${param(filter.limit)}`
    const sql =
      this.light === null
        ? `${this.#readTask} ${some}`
        : `select ${AS_WRITTEN_OUT} from (select * from curfew.tasks t ${some}) t ${WITH_CLAIMS} order by t.id desc`
    return { sql, params }
  }

  /** The next moment anything may be due; on PostgreSQL only until `horizon`, so that peers' rows cost nothing. */
  nextDue(peers: readonly string[], horizon: number): Statement<{ dueAt: number | null }> {
    if (this.#d.name === 'sqlite') {
      return { sql: 'select min(due_at) as "dueAt" from tasks where due_at is not null', params: [] }
    }
    return {
      sql: `select min(due_at) as "dueAt" from curfew.tasks where due_at <= $2 and node_id <> all($1::text[])`,
      params: [this.#d.list(peers), horizon],
    }
  }

  /** Attempts that hold a slot of this node, those in workers of other processes left out. */
  liveTasks(nodeId: string, limit: number): Statement<TaskRow> {
    const d = this.#d
    return {
      sql: `select ${selectList(TASK_FIELDS, 't')} from ${d.s}tasks t
        where ${d.holds('$1')} and ${NOT_REMOTE} order by id limit $2 ${d.lock.skipLocked}`,
      params: [nodeId, limit],
    }
  }

  /** The row of a process that is gone, or that has not renewed since. */
  lockGone(nodeId: string, renewedAt: number | null): Statement<{ id: string }> {
    const condition =
      renewedAt === null ? 'gone_at is not null' : 'gone_at is null and lead_until = 0 and renewed_at = $2'
    return {
      sql: `select id from ${this.#d.s}nodes where id = $1 and ${condition} ${this.#d.name === 'postgres' ? 'for share' : ''}`,
      params: renewedAt === null ? [nodeId] : [nodeId, renewedAt],
    }
  }

  /** What the store thinks this node runs, and since when. */
  liveAttempts(nodeId: string): Statement<Pick<TaskRow, 'id' | 'token' | 'kind' | 'startedAt'>> {
    const { s, holds, keeps } = this.#d
    const light = `union all select t.id, c.token, t.kind, c.started_at from curfew.light_claims c
      cross join unnest(c.ids) as m (id) join curfew.tasks t on t.id = m.id and t.light = 1 where c.node_id = $1`
    return {
      sql: `select id, token, kind, started_at as "startedAt" from ${s}tasks where ${holds('$1')}
        union all
        select id, token, kind, started_at as "startedAt" from ${s}tasks where ${keeps('$1')} and live = 1
        ${this.light ? light : ''}`,
      params: [nodeId],
    }
  }

  /** Attempts of this node that are to stop. */
  stoppingTasks(
    nodeId: string,
  ): Statement<Pick<TaskRow, 'id' | 'token' | 'status' | 'timeoutKind' | 'graceMs'>> {
    return {
      sql: `select ${selectList(['id', 'token', 'status', 'timeoutKind', 'graceMs'], 't')} from ${this.#d.s}tasks t
        where ${this.#d.holds('$1')} and stopping = 1`,
      params: [nodeId],
    }
  }

  /** Of a node that is no more and that none will be: those whose lease is over. */
  expiredTasks(
    nodeId: string,
    renewedAt: number,
    now: number,
    baseLeaseMs: number,
    limit: number,
  ): Statement<TaskRow> {
    const d = this.#d
    return {
      sql: `select ${selectList(TASK_FIELDS, 't')} from ${d.s}tasks t
        where ${d.holds('$1')} and cast(grace_ms as bigint) < $2 order by id limit $3 ${d.lock.skipLocked}`,
      params: [nodeId, now - renewedAt - baseLeaseMs, limit],
    }
  }

  /** Answers those that were not known. */
  rememberRequests(ids: readonly string[], now: number): Statement<{ id: string }> {
    const d = this.#d
    const values =
      d.name === 'postgres'
        ? 'select id, $2 from unnest($1::text[]) as r (id)'
        : 'select value, $2 from json_each($1) where true'
    return {
      sql: `insert into ${d.s}requests (id, at) ${values} on conflict (id) do nothing returning id`,
      params: [d.list(ids), now],
    }
  }

  forgetRequests(ids: readonly string[]): Statement {
    const d = this.#d
    return { sql: `delete from ${d.s}requests where id ${d.inList('$1')}`, params: [d.list(ids)] }
  }

  /** Nobody asks again after so long. */
  removeRequests(before: number): Statement {
    return { sql: `delete from ${this.#d.s}requests where at < $1`, params: [before] }
  }

  /** They are this node's from now on. */
  adoptAttempts(ids: readonly string[], nodeId: string): Statement {
    const d = this.#d
    const indexed = `, holder = case when holder is not null then $2 end, keeper = case when keeper is not null then $2 end`
    return {
      sql: `update ${d.s}tasks set node_id = $2, version = version + 1 ${this.light ? indexed : ''} where id ${d.inList('$1')}`,
      params: [d.list(ids), nodeId],
    }
  }

  /** A record that cannot be decided about: nothing of it is handed out and nothing of it is due. */
  parkTask(id: string, reason: string): Statement {
    return {
      sql: `update ${this.#d.s}tasks set parked = $2, ready = 0, due_at = null, woken_at = null, version = version + 1,
        live = case when kind = 'agent' then 0 else live end where id = $1`,
      params: [id, reason],
    }
  }

  queues(): Statement<QueueRow> {
    return { sql: `select name, concurrency from ${this.#d.s}queues order by name`, params: [] }
  }

  addQueue(name: string): Statement {
    return {
      sql: `insert into ${this.#d.s}queues (name) values ($1) on conflict (name) do nothing`,
      params: [name],
    }
  }

  setQueue(name: string, concurrency: number | null): Statement {
    return {
      sql: `insert into ${this.#d.s}queues (name, concurrency) values ($1, $2) on conflict (name) do update set concurrency = excluded.concurrency`,
      params: [name, concurrency],
    }
  }

  /** Locks the queue's row, so that claims from it come one after the other. */
  lockQueue(name: string): Statement<QueueRow> {
    return {
      sql: `select name, concurrency from ${this.#d.s}queues where name = $1 ${this.#d.lock.forUpdate}`,
      params: [name],
    }
  }

  /** Slots are counted from what lives, never kept in a counter. */
  liveCount(queue: string): Statement<{ count: number }> {
    const { s, holds } = this.#d
    const light = `+ (select count(*) from curfew.light_claims c cross join unnest(c.ids) as m (id)
      join curfew.tasks t on t.id = m.id and t.light = 1 where c.queue = $1)`
    return {
      sql: `select (select count(*) from ${s}nodes n join ${s}tasks t on ${holds('n.id')} and t.queue = $1)
        ${this.light ? light : ''} as count`,
      params: [queue],
    }
  }

  /** A stretch of the walk over all records. */
  sweepTasks(after: string, limit: number): Statement<SweptTask> {
    const params = [after, limit]
    if (this.light === null) {
      return {
        sql: `select ${selectList(SWEPT_FIELDS, 't')} from tasks t where id > $1 order by id limit $2`,
        params,
      }
    }
    const values = SWEPT_FIELDS.map(
      (field) => `${field === 'ready' ? MAY_START : asWrittenOut(field)} as "${field}"`,
    )
    return {
      sql: `select ${values.join(', ')} from (
          select * from curfew.tasks t where t.id > $1 order by t.id limit $2) t ${WITH_CLAIMS} order by t.id`,
      params,
    }
  }

  /** Answers the ids of what was removed. */
  deleteTasks(ids: readonly string[]): Statement<{ id: string }>[] {
    const { s } = this.#d
    const list = this.#d.list(ids)
    // Of each its own children: left to PostgreSQL, those of everybody may be read and compared.
    const below =
      this.#d.name === 'postgres'
        ? `cross join lateral (select id from ${s}tasks where parent_id = o.id and detached = 0 offset 0) c`
        : `join ${s}tasks c on c.parent_id = o.id and c.detached = 0`
    // What an agent scheduled goes with it. A detached one stays while its agent might still be replayed.
    const over = `with recursive over_ids (id) as (
      select t.id from ${s}tasks t where t.id ${this.#d.inList('$1')} and t.settled_at is not null and t.live = 0
        and not exists (select 1 from ${s}tasks p where p.id = t.parent_id and p.settled_at is null)
        and (select c.id from ${s}tasks c where c.parent_id = t.id and c.detached = 0 and c.live = 1 limit 1) is null
      union select c.id from over_ids o ${below})`
    const these = 'in (select id from over_ids)'
    const queues = ids.filter(isOwnRun).map(mapreduceQueue)
    return [
      { sql: `${over} delete from ${s}events where root_id ${these}`, params: [list] },
      { sql: `${over} delete from ${s}tasks where id ${these} returning id`, params: [list] },
      // The queue of a map-reduce goes with it.
      ...(queues.length === 0
        ? []
        : [
            {
              sql: `delete from ${s}queues where name ${this.#d.inList('$1')} and name not in
                (select '${mapreduceQueue('')}' || t.id from ${s}tasks t where t.id ${this.#d.inList('$2')})`,
              params: [this.#d.list(queues), list],
            },
          ]),
    ]
  }
}

function ofKind(kind: WorkKind): string {
  if (kind === 'workflow') return `name = '${WORKFLOW}'`
  if (kind === 'job') return `name = '${JOB}'`
  return kind === 'task' ? `kind = 'task'` : `kind = 'agent' and name not in ('${WORKFLOW}', '${JOB}')`
}
