/**
 * The hot five on PostgreSQL: rows travel as arrays, one round trip each.
 * Plans must not depend on statistics (a table analyzed while nothing ran makes the planner expect one running
 * row): write transactions switch off everything but index scans and nested loops.
 */
import type { ClaimedTask, HotStatements, NewBelow, NewRow, Started } from '../hot-statements.ts'
import {
  CLAIMED_FIELDS,
  claimSets,
  completeSets,
  fieldsOf,
  shapeOf,
  withoutLongInputs,
} from '../hot-statements.ts'
import type { Statement } from '../statement.ts'
import { column, selectList, TASK_COLUMNS, TASK_FIELDS } from '../task-row.ts'
import { arrayLiteral, arrayOf } from './array-literal.ts'

/** What differs between tasks of one call; the rest is sent once per group. */
const VARYING = ['id', 'key', 'input', 'ready', 'startAt', 'deadlineAt', 'queueDeadlineAt', 'dueAt'] as const
const VARYING_BELOW = [...VARYING, 'parentId', 'rootId', 'step', 'title'] as const

type Whole = Started<NewBelow>

interface Shape {
  sql: string
  varying: readonly (keyof Whole)[]
  shared: readonly (keyof Whole)[]
}

function makeShape(fields: readonly (keyof Whole)[], varying: readonly (keyof Whole)[]): Shape {
  const shared = fields.filter((field) => !varying.includes(field))
  const given = shared.map((field, i) => `$${varying.length + i + 1}::${TASK_COLUMNS[field]}`)
  const columns = [...varying, ...shared].map(column)
  if (fields.includes('live')) {
    const live = given[shared.indexOf('live')]
    const kind = given[shared.indexOf('kind')]
    columns.push('held')
    given.push(kind ? `case when ${kind} = 'task' then ${live} else 0 end` : `${live}`)
  }
  const sql = `
insert into curfew.tasks (${columns.join(', ')})
select u.*, ${given.join(', ')}
from unnest(${varying.map((field, i) => `$${i + 1}::${TASK_COLUMNS[field]}[]`).join(', ')}) as u`
  return { sql, varying, shared }
}

const shapes: (Shape | undefined)[] = []

function shape(row: NewRow): Shape {
  const kind = shapeOf(row)
  shapes[kind] ??= makeShape(fieldsOf(row), 'kind' in row ? VARYING_BELOW : VARYING)
  return shapes[kind]
}

const TIME_LEFT = `(t.deadline_at is null or t.deadline_at > $1)
      and (t.attempt > 0 or t.queue_deadline_at is null or t.queue_deadline_at > $1)`

/** The next ones of one queue and name, locked. Those that somebody else has are passed by. */
function lockNext(queue: string, name: string, limit: string, and = ''): string {
  return `select t.ctid as place from curfew.tasks t
    where t.ready = 1 and t.queue = ${queue} and t.name = ${name} and ${TIME_LEFT} ${and}
    order by t.priority, t.id limit ${limit} for update skip locked`
}

/**
 * The update names places (ctid) and nothing else: any further condition lets the planner walk an index and compare
 * each row with all of them.
 */
function claimText(counts: string, places: string, fields: readonly (keyof ClaimedTask)[]): string {
  return `${counts} update curfew.tasks t set ${claimSets('least(due_at, $1 + first_due_ms)')}, held = 1
where t.ctid = any(array(${places})) returning ${fields.map(unlessUsual).join(', ')}`
}

/** What most tasks have is not sent: nothing costs less on its way, and to be read. */
const USUAL = { priority: 0, attempt: 1, policy: '{}', graceMs: 5_000, detached: 0 } as const

function unlessUsual(field: keyof ClaimedTask): string {
  if (!(field in USUAL)) return `t.${column(field)}`
  const usual = USUAL[field as keyof typeof USUAL]
  return `nullif(t.${column(field)}, ${typeof usual === 'number' ? usual : `'${usual}'`})`
}

/** In the order in which they are read; name and queue only where they are not known beforehand. */
const READ_FIELDS = [
  ...CLAIMED_FIELDS.filter((field) => field !== 'name' && field !== 'queue'),
  ...(['name', 'queue'] as const),
]
const WITHOUT_KNOWN = READ_FIELDS.slice(0, -2)

/** Written out: each claim makes hundreds, and a literal is several times faster than setting fields by name. */
function claimedTask(values: readonly unknown[], name: unknown, queue: unknown): ClaimedTask {
  const row: Record<keyof ClaimedTask, unknown> = {
    id: values[0],
    name,
    queue,
    priority: values[1] ?? USUAL.priority,
    attempt: values[2] ?? USUAL.attempt,
    input: values[3],
    details: values[4],
    policy: values[5] ?? USUAL.policy,
    startAt: values[6],
    deadlineAt: values[7],
    attemptDeadlineAt: values[8],
    graceMs: values[9] ?? USUAL.graceMs,
    dueAt: values[10],
    parentId: values[11],
    rootId: values[12],
    step: values[13],
    detached: values[14] ?? USUAL.detached,
  }
  return row as ClaimedTask
}

const CLAIM_ONE = claimText('', lockNext('$4', '$5', '$6'), WITHOUT_KNOWN)

/** Those that were claimed stand in the index until it is cleaned, and are passed one by one: this begins behind them. */
const CLAIM_AFTER = claimText(
  '',
  lockNext('$4', '$5', '$6', 'and (t.priority, t.id) > ($7, $8)'),
  WITHOUT_KNOWN,
)

/** First how many of each queue and name are next, then exactly so many locks: nothing is locked in vain. */
const CLAIM_MANY = claimText(
  `with next as (
  select w.queue, w.name, c.priority, c.id
  from (select q.queue, n.name from unnest($4::text[]) as q (queue), unnest($5::text[]) as n (name)) as w
  cross join lateral (
    select t.priority, t.id from curfew.tasks t
    where t.ready = 1 and t.queue = w.queue and t.name = w.name and ${TIME_LEFT}
    order by t.priority, t.id limit $6) as c
  order by c.priority, c.id limit $6),
shares as (select queue, name, count(*) as share from next group by queue, name)`,
  `select p.place from shares s cross join lateral (${lockNext('s.queue', 's.name', 's.share')}) as p`,
  READ_FIELDS,
)

const COMPLETE = `
update curfew.tasks t set ${completeSets('$1')}, held = 0, output = u.output
from unnest($2::text[], $3::text[], $4::text[]) as u (id, token, output)
where t.id = u.id and t.token = u.token and t.status = 'running'`

const COMPLETE_BELOW = `
update curfew.tasks t set ${completeSets('$1')}, held = 0, output = u.output, result_seq = u.result_seq
from unnest($2::text[], $3::text[], $4::text[], $5::int4[]) as u (id, token, output, result_seq)
where t.id = u.id and t.token = u.token and t.status = 'running'`

const DUE = `
select ${selectList(TASK_FIELDS, 't')} from curfew.tasks t
where due_at <= $1 and (due_at <= $3 or node_id <> all($2::text[])) order by due_at limit $4 for update skip locked`

const BEAT = `
update curfew.tasks t set
  progress = coalesce(u.progress, t.progress), details = coalesce(u.details, t.details),
  -- what an operator gave is not taken back
  heartbeat_deadline_at = greatest(t.heartbeat_deadline_at, $1 + t.heartbeat_timeout_ms),
  stuck_deadline_at = case when u.moved = 1 then greatest(t.stuck_deadline_at, $1 + t.stuck_after_ms)
    else t.stuck_deadline_at end,
  active_at = case when u.moved = 1 then $1 else t.active_at end
from unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::int4[]) as u (id, token, progress, details, moved)
where t.id = u.id and t.token = u.token and t.status = 'running'`

/** Of these attempts: those that this transaction has not written. */
const MISSED = `
select u.id from unnest($1::text[], $2::text[]) as u (id, token)
where not exists (select 1 from curfew.tasks t
  where t.id = u.id and t.token = u.token and t.xmin = pg_current_xact_id()::xid)`

/** A count is all that is asked for: which of them it was matters only where one is missing. */
function guarded<Row extends { id: string; token: string }>(
  sql: string,
  now: number,
  rows: readonly Row[],
  fields: readonly (keyof Row)[],
): Statement<{ id: string }> {
  const [ids, tokens, ...rest] = [...(['id', 'token'] as const), ...fields].map((field) =>
    arrayOf(rows, field),
  )
  return {
    ...{ sql, params: [now, ids, tokens, ...rest] },
    unless: { changed: rows.length, ask: { sql: MISSED, params: [ids, tokens] } },
  }
}

/** One whose key was taken has no row. */
const LONG_INPUT = `
insert into curfew.journal (agent_id, part, no, body)
select t.id, 2, 0, u.input from unnest($1::text[], $2::text[]) as u (id, input) join curfew.tasks t on t.id = u.id`

export const POSTGRES_HOT: HotStatements = {
  insertTasks(all) {
    const { rows, long } = withoutLongInputs(all)
    const groups = new Map<string, NewRow[]>()
    for (const row of rows) {
      const { shared } = shape(row)
      const key = shared.map((field) => (row as Whole)[field]).join('\u0000')
      const group = groups.get(key)
      if (group) group.push(row)
      else groups.set(key, [row])
    }
    // By name first, so that the same keys are mostly met in the same order.
    const inserts = [...groups].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, group]) => insertGroup(group))
    if (long.length) inserts.push({ sql: LONG_INPUT, params: [arrayOf(long, 'id'), arrayOf(long, 'input')] })
    return inserts
  },
  claimTasks({ now, nodeId, token, queues, names, limit, after }) {
    // Planning the many costs more than claiming: most processes have one queue and often one name.
    if (queues.length === 1 && names.length === 1) {
      const [queue, name] = [queues[0] as string, names[0] as string]
      const params = [now, nodeId, token, queue, name, limit]
      const read = (values: readonly unknown[]) => claimedTask(values, name, queue)
      return after
        ? { sql: CLAIM_AFTER, params: [...params, after.priority, after.id], read }
        : { sql: CLAIM_ONE, params, read }
    }
    const read = (values: readonly unknown[]) => claimedTask(values, values.at(-2), values.at(-1))
    return {
      sql: CLAIM_MANY,
      read,
      params: [now, nodeId, token, arrayLiteral(queues), arrayLiteral(names), limit],
    }
  },
  completeTasks: (now, rows) => guarded(COMPLETE, now, rows, ['output']),
  completeBelow: (now, rows) => guarded(COMPLETE_BELOW, now, rows, ['output', 'resultSeq']),
  dueTasks(now, peers, overdueMs, limit) {
    return { sql: DUE, params: [now, arrayLiteral(peers), now - overdueMs, limit] }
  },
  beatTasks: (now, rows) => guarded(BEAT, now, rows, ['progress', 'details', 'moved']),
}

function insertGroup(rows: readonly NewRow[]): Statement<{ id: string }> {
  const first = rows[0] as Whole
  const { sql, varying, shared } = shape(first)
  const keyed = rows.some(({ key }) => key !== null)
  return {
    sql: keyed ? `${sql} on conflict (name, key) where key is not null do nothing returning id` : sql,
    params: [
      ...varying.map((field) => arrayOf(rows as readonly Whole[], field)),
      ...shared.map((field) => first[field]),
    ],
  }
}
