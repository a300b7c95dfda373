/**
 * The hot five on PostgreSQL: rows travel as arrays, one round trip each.
 * Plans must not depend on statistics (a table analyzed while nothing ran makes the planner expect one running
 * row): write transactions switch off everything but index scans and nested loops.
 */
import type {
  ClaimedTask,
  ClaimRequest,
  HotStatements,
  NewBelow,
  NewRow,
  Started,
} from '../hot-statements.ts'
import {
  CLAIMED_FIELDS,
  claimSets,
  completeSets,
  fieldsOf,
  shapeOf,
  withoutLongInputs,
} from '../hot-statements.ts'
import type { Statement } from '../statement.ts'
import { run, start } from '../statement.ts'
import { column, selectList, TASK_COLUMNS, TASK_FIELDS } from '../task-row.ts'
import { arrayLiteral, arrayOf } from './array-literal.ts'
import type { Waiting } from './postgres-light.ts'
import {
  claimLight,
  claimOfOne,
  insertLight,
  isLight,
  LIGHT_VALUES,
  lockNextLight,
  makeReady,
  nextLight,
  takeLight,
  unlessAll,
} from './postgres-light.ts'

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
  const node = given[shared.indexOf('nodeId')]
  const kind = given[shared.indexOf('kind')]
  if (fields.includes('live')) {
    const live = `${given[shared.indexOf('live')]} = 1`
    columns.push('holder')
    given.push(`case when ${kind ? `${kind} = 'task' and ${live}` : live} then ${node} end`)
  }
  if (kind) {
    columns.push('keeper')
    given.push(`case when ${kind} = 'agent' then ${node} end`)
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
function claimText(places: string, fields: readonly (keyof ClaimedTask)[]): string {
  return `update curfew.tasks t set ${claimSets('least(due_at, $1 + first_due_ms)')}, holder = $2
where t.ctid = any(array(${places})) returning ${fields.map(unlessUsual).join(', ')}`
}

/** What most tasks have is not sent: nothing costs less on its way, and to be read. */
const USUAL = { priority: 0, attempt: 1, policy: '{}', graceMs: 5_000, detached: 0 } as const

function unlessUsual(field: keyof ClaimedTask): string {
  if (!(field in USUAL)) return `t.${column(field)}`
  const usual = USUAL[field as keyof typeof USUAL]
  return `nullif(t.${column(field)}, ${typeof usual === 'number' ? usual : `'${usual}'`})`
}

/** In the order in which they are read; the last only where they are not known beforehand. */
const OFTEN_KNOWN = ['name', 'queue', 'light'] as const satisfies readonly (keyof ClaimedTask)[]
const WITHOUT_KNOWN = CLAIMED_FIELDS.filter((field) => !(OFTEN_KNOWN as readonly string[]).includes(field))
const READ_FIELDS = [...WITHOUT_KNOWN, ...OFTEN_KNOWN]

/** Written out: each claim makes hundreds, and a literal is several times faster than setting fields by name. */
function claimedTask(values: readonly unknown[], name: unknown, queue: unknown, light: unknown): ClaimedTask {
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
    light,
  }
  return row as ClaimedTask
}

const CLAIM_ONE = claimText(lockNext('$4', '$5', '$6'), WITHOUT_KNOWN)

/** Those that were claimed stand in the index until it is cleaned, and are passed one by one: this begins behind them. */
const CLAIM_AFTER = claimText(lockNext('$4', '$5', '$6', 'and (t.priority, t.id) > ($7, $8)'), WITHOUT_KNOWN)

const PAIRS = `(select q.queue, n.name from unnest($4::text[]) as q (queue), unnest($5::text[]) as n (name)) as w`

/**
 * Where light tasks are looked for: behind the floor of their queue and name, and before it those of a higher priority;
 * where there is none, everywhere.
 */
const RANGES = `
floors as (select * from unnest($7::text[], $8::text[], $9::int4[], $10::text[]) as f (queue, name, priority, id)),
ranges as (
  select w.queue, w.name, ${-(2 ** 31)} as priority, '' as id, coalesce(f.priority, ${2 ** 31}) as below
  from ${PAIRS} left join floors f on f.queue = w.queue and f.name = w.name
  union all select f.*, ${2 ** 31} from floors f)`
const inRange = (range: string) =>
  `and (r.priority, r.id) > (${range}.priority, ${range}.id) and r.priority < ${range}.below`

/** First how many of each queue and name are next, then exactly so many locks: nothing is locked in vain. */
function claimManyText(andLight: boolean): string {
  const light = `
  union all
  select w.queue, w.name, 1, w.priority, w.id, w.below, c.priority, c.id from ranges w
  cross join lateral (${nextLight('w.queue', 'w.name', '$6', inRange('w'))}) as c`
  const next = `
with ${andLight ? `${RANGES},` : ''}
next as (
  select w.queue, w.name, 0 as light, 0 as from_priority, '' as from_id, 0::int8 as below, c.priority, c.id
  from ${PAIRS}
  cross join lateral (
    select t.priority, t.id from curfew.tasks t
    where t.ready = 1 and t.queue = w.queue and t.name = w.name and ${TIME_LEFT}
    order by t.priority, t.id limit $6) as c${andLight ? light : ''}
  order by priority, id limit $6),
shares as (
  select queue, name, light, from_priority as priority, from_id as id, below, count(*) as share
  from next group by queue, name, light, from_priority, from_id, below)`
  const places = (light: 0 | 1, next: string) =>
    `select p.place from shares s cross join lateral (${next}) as p where s.light = ${light}`
  const others = claimText(places(0, lockNext('s.queue', 's.name', 's.share')), READ_FIELDS)
  if (!andLight) return `${next} ${others}`
  const values = READ_FIELDS.map((field) => LIGHT_VALUES[field] ?? `null::${TASK_COLUMNS[field]}`)
  return `${next},
${takeLight(places(1, lockNextLight('s.queue', 's.name', 's.share', inRange('s'))))},
others as (${others})
select * from others union all select ${values.join(', ')} from taken r`
}

const CLAIM_MANY = claimManyText(true)
/** Of what is not light. */
const CLAIM_OTHERS = claimManyText(false)

/** Of one queue and name, none of them light. */
function claimOne(request: ClaimRequest): Statement<ClaimedTask> {
  return claimOfOne(request, { front: CLAIM_ONE, behind: CLAIM_AFTER }, (values, name, queue) =>
    claimedTask(values, name, queue, 0),
  )
}

export function claimMany({
  now,
  nodeId,
  token,
  queues,
  names,
  limit,
  counted,
  floors = [],
}: ClaimRequest): Statement<ClaimedTask> {
  const others = [now, nodeId, token, arrayLiteral(queues), arrayLiteral(names), limit]
  const places = (['queue', 'name', 'priority', 'id'] as const).map((field) => arrayOf(floors, field))
  const read = (values: readonly unknown[]) =>
    claimedTask(values, values.at(-3), values.at(-2), values.at(-1))
  return counted
    ? { sql: CLAIM_OTHERS, params: others, read }
    : { sql: CLAIM_MANY, params: [...others, ...places], read }
}

const COMPLETE = `
update curfew.tasks t set ${completeSets('$1')}, holder = null, output = u.output
from unnest($2::text[], $3::text[], $4::text[]) as u (id, token, output)
where t.id = u.id and t.token = u.token and t.status = 'running'`

const COMPLETE_BELOW = `
update curfew.tasks t set ${completeSets('$1')}, holder = null, output = u.output, result_seq = u.result_seq
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

function guarded<Row extends { id: string; token: string }>(
  sql: string,
  now: number,
  rows: readonly Row[],
  fields: readonly (keyof Row)[],
): Statement<{ id: string }> {
  const lists = [...(['id', 'token'] as const), ...fields].map((field) => arrayOf(rows, field))
  return { sql, params: [now, ...lists], unless: unlessAll(rows) }
}

/** One whose key was taken has no row. */
const LONG_INPUT = `
insert into curfew.journal (agent_id, part, no, body)
select t.id, 2, 0, u.input from unnest($1::text[], $2::text[]) as u (id, input) join curfew.tasks t on t.id = u.id`

export const POSTGRES_HOT: HotStatements = {
  insertTasks(all) {
    const { rows, long } = withoutLongInputs(all)
    const groups = new Map<string, NewRow[]>()
    let last: { shape: Shape; group: NewRow[] } | null = null
    for (const row of rows) {
      // Rows of one call are mostly alike, and comparing two costs less than a name for each.
      if (last && isAlike(last.shape, last.group[0] as Whole, row as Whole)) {
        last.group.push(row)
        continue
      }
      const own = shape(row)
      const light = isLight(row) ? `light ${row.ready}` : ''
      const key = [light, ...own.shared.map((field) => (row as Whole)[field])].join('\u0000')
      const group = groups.get(key) ?? []
      group.push(row)
      groups.set(key, group)
      last = { shape: own, group }
    }
    // By name first, so that the same keys are mostly met in the same order.
    const inserts = [...groups].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, group]) => insertGroup(group))
    if (long.length) inserts.push({ sql: LONG_INPUT, params: [arrayOf(long, 'id'), arrayOf(long, 'input')] })
    return inserts
  },
  *claimTasks(request) {
    const { queues, names, counted, after, floors = [] } = request
    // Planning the many costs more than claiming: most processes have one queue and often one name.
    const oneRange = counted || after || floors.length === 0
    const one = oneRange && queues.length === 1 && names.length === 1
    if (counted) yield* start(makeReady(request))
    else if (one) {
      const rows = yield* run(claimLight(request))
      const instead = (rows[0] as Waiting | undefined)?.waiting
      if (!instead) return rows as ClaimedTask[]
      if (!instead.others) return []
      if (instead.light) return yield* run(claimMany(request))
    }
    return yield* run(one ? claimOne(request) : claimMany(request))
  },
  completeTasks: (now, rows) => guarded(COMPLETE, now, rows, ['output']),
  completeBelow: (now, rows) => guarded(COMPLETE_BELOW, now, rows, ['output', 'resultSeq']),
  dueTasks(now, peers, overdueMs, limit) {
    return { sql: DUE, params: [now, arrayLiteral(peers), now - overdueMs, limit] }
  },
  beatTasks: (now, rows) => guarded(BEAT, now, rows, ['progress', 'details', 'moved']),
}

/** Whether both stand in one group; `like` is in one of that shape. */
function isAlike({ shared }: Shape, like: Whole, row: Whole): boolean {
  return (
    shapeOf(row) === shapeOf(like) &&
    row.ready === like.ready &&
    isLight(row) === isLight(like) &&
    shared.every((field) => row[field] === like[field])
  )
}

function insertGroup(rows: readonly NewRow[]): Statement<{ id: string }> {
  const first = rows[0] as Whole
  if (isLight(first)) return insertLight(rows)
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
