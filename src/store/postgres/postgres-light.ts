/**
 * Light tasks. Most tasks are stored, run once and complete, and nobody looks at them meanwhile. The row of such a one
 * is written twice, stored and completed, and not in between: while it waits `light_ready` has it, and a claim takes it
 * out of there and is itself one row for all it took (`light_claims`).
 *
 * Whoever wants to decide about a light task has its row written out first; from then on it is a row like any other,
 * and it never becomes light again. So a claim that was not written out can be nobody's but its own token's. Readers
 * see the row as if it had been written out. A claim locks rows of `light_ready` alone and waits for nobody; to write
 * out waits for claims under way. (SQLite has none of this: there a row costs little.)
 */

import type { ClaimedTask, ClaimRequest, CompletedTask, NewRow } from '../hot-statements.ts'
import { claimSets, shapeOf } from '../hot-statements.ts'
import type { Statement } from '../statement.ts'
import { column } from '../task-row.ts'
import { arrayLiteral, arrayOf } from './array-literal.ts'

/** The claim of a light task, as its process knows it. */
export interface LightAttempt {
  id: string
  token: string
  startedAt: number
}

export interface LightStatements {
  /** As `completeTasks`, of what was light when it was claimed. */
  complete(
    now: number,
    nodeId: string,
    rows: readonly (CompletedTask & LightAttempt)[],
  ): Statement<{ id: string }>
  /** Whether this new task, which may start now, can be stored as one that was claimed already. */
  mayStart(row: NewRow): boolean
  /** The claim of such tasks. */
  claimStarted(nodeId: string, token: string, startedAt: number, tasks: readonly ClaimedTask[]): Statement
  /** Writes out the rows of these, wherever they are. */
  writeOut(ids: readonly string[]): Statement[]
  /** The same of rows that are locked; what somebody claims just now stays light. */
  writeOutFree(ids: readonly string[]): Statement[]
  /** The same for those that this process has claimed. */
  writeOutClaimed(nodeId: string, rows: readonly LightAttempt[]): Statement
  /** The same without a wait; what somebody has locked stays light. */
  writeOutClaimedFree(nodeId: string, rows: readonly LightAttempt[]): Statement
  /** What a process has claimed. */
  writeOutOf(nodeId: string): Statement
  /** What anybody claimed so long ago: whoever it was has forgotten it, or its main loop stands still. */
  writeOutBefore(time: number): Statement
  /** These claims, of which nothing is light any more. */
  forgetEnded(tokens: readonly string[]): Statement
  /** These claims, of which nothing but these attempts may be light. Answers those that it had to leave. */
  forgetClaims(tokens: readonly string[], left: readonly LightAttempt[]): Statement<{ token: string }>
}

/**
 * A limit of an attempt is in the index of what is due once the row is written out: until that has happened, at the
 * latest when the process that claimed it is given up, none may be due.
 */
const LEAST_FIRST_DUE_MS = 20_000

/** What stands in `light_ready` a second time. */
const LONG_INPUT = 500

/** Whether a new row is one of a light task. */
export function isLight(row: NewRow): boolean {
  return (
    shapeOf(row) === 0 &&
    (row.ready === 1 || isStartedLight(row)) &&
    row.key === null &&
    (row.firstDueMs === null || row.firstDueMs >= LEAST_FIRST_DUE_MS)
  )
}

/** One that never waits: its claim is stored with it. */
function isStartedLight(row: NewRow): boolean {
  return 'light' in row && row.light === 1
}

/** What differs between light tasks of one call. */
const VARYING = ['id', 'input', 'startAt', 'deadlineAt', 'queueDeadlineAt', 'dueAt'] as const
const VARYING_TYPES = ['text', 'text', 'int8', 'int8', 'int8', 'int8']
const SHARED = [
  'name',
  'queue',
  'priority',
  'status',
  'policy',
  'nodeId',
  'createdAt',
  'attemptTimeoutMs',
  'heartbeatTimeoutMs',
  'stuckAfterMs',
  'firstDueMs',
  'graceMs',
] as const
const SHARED_TYPES = [
  ...['text', 'text', 'int4', 'text', 'text', 'text', 'int8', 'int8', 'int8', 'int8', 'int8', 'int8'],
]

/** What most have is not stored here: nothing costs less on its way, and to be read. */
const USUAL_POLICY = '{}'
const USUAL_GRACE_MS = 5_000

function insertText(waits: boolean): string {
  const given = (field: (typeof SHARED)[number]) => {
    const at = SHARED.indexOf(field)
    return `$${VARYING.length + at + 1}::${SHARED_TYPES[at]}`
  }
  const varying = VARYING.map(column)
  const rows = `unnest(${VARYING_TYPES.map((type, i) => `$${i + 1}::${type}[]`).join(', ')}) as u (${varying.join(', ')})`
  const insert = (from: string) => `
insert into curfew.tasks (${varying.join(', ')}, ${SHARED.map(column).join(', ')}, ready, light)
select u.*, ${SHARED.map(given).join(', ')}, 0, 1 from ${from}`
  if (!waits) return insert(rows)
  return `
with u as materialized (select * from ${rows}),
waits as (
  insert into curfew.light_ready (id, input, start_at, deadline_at, queue_deadline_at, due_at, name, queue, priority,
    policy, attempt_timeout_ms, first_due_ms, grace_ms)
  select u.id, case when length(u.input) <= ${LONG_INPUT} then u.input end, u.start_at, u.deadline_at,
    u.queue_deadline_at, u.due_at, ${given('name')}, ${given('queue')}, ${given('priority')},
    nullif(${given('policy')}, '${USUAL_POLICY}'), ${given('attemptTimeoutMs')}, ${given('firstDueMs')},
    nullif(${given('graceMs')}, ${USUAL_GRACE_MS}) from u)${insert('u')}`
}

const INSERT = insertText(true)
const INSERT_STARTED = insertText(false)

/** Of light tasks: all of them have what is shared in common, and wait or are started. */
export function insertLight(rows: readonly NewRow[]): Statement<{ id: string }> {
  const first = rows[0] as NewRow
  return {
    sql: isStartedLight(first) ? INSERT_STARTED : INSERT,
    params: [...VARYING.map((field) => arrayOf(rows, field)), ...SHARED.map((field) => first[field])],
  }
}

const TIME_LEFT = `(r.deadline_at is null or r.deadline_at > $1)
      and (r.queue_deadline_at is null or r.queue_deadline_at > $1)`

/** The next ones of one queue and name, locked. Those that somebody else has are passed by. */
export function lockNextLight(queue: string, name: string, limit: string, and = ''): string {
  return `select r.ctid as place from curfew.light_ready r
    where r.queue = ${queue} and r.name = ${name} and ${TIME_LEFT} ${and}
    order by r.priority, r.id limit ${limit} for update skip locked`
}

/** The same, only to be counted. */
export function nextLight(queue: string, name: string, limit: string, and: string): string {
  return `select r.priority, r.id from curfew.light_ready r
    where r.queue = ${queue} and r.name = ${name} and ${TIME_LEFT} ${and} order by r.priority, r.id limit ${limit}`
}

/** Takes what stands at these places out of `light_ready`, and makes it a claim. */
export function takeLight(places: string): string {
  return `taken as materialized (
  delete from curfew.light_ready r where r.ctid = any(array(${places})) returning r.*),
claimed as (
  insert into curfew.light_claims (token, queue, node_id, started_at, ids)
  select $3, queue, $2, $1, array_agg(id) from taken group by queue)`
}

const CLAIM_STARTED = `
insert into curfew.light_claims (token, queue, node_id, started_at, ids)
select $2, u.queue, $1, $3::int8, array_agg(u.id) from unnest($4::text[], $5::text[]) as u (queue, id) group by u.queue`

/** What a claim answers of a task `r` that it took, by the fields it is asked for. */
export const LIGHT_VALUES: Readonly<Partial<Record<keyof ClaimedTask, string>>> = {
  id: 'r.id',
  priority: 'nullif(r.priority, 0)',
  input: 'coalesce(r.input, (select t.input from curfew.tasks t where t.id = r.id))',
  policy: 'r.policy',
  startAt: 'r.start_at',
  deadlineAt: 'r.deadline_at',
  attemptDeadlineAt: '$1 + r.attempt_timeout_ms',
  graceMs: 'r.grace_ms',
  dueAt: 'least(r.due_at, $1 + r.first_due_ms)',
  light: '1',
  name: 'r.name',
  queue: 'r.queue',
}

const CLAIMED = [
  ...['id', 'priority', 'input', 'policy', 'startAt', 'deadlineAt', 'attemptDeadlineAt', 'graceMs', 'dueAt'],
] as const
const CLAIMED_VALUES = CLAIMED.map((field) => LIGHT_VALUES[field as keyof ClaimedTask]).join(', ')

/** Written out: each claim makes hundreds. */
function lightTask(values: readonly unknown[], name: string, queue: string): ClaimedTask {
  const row: Record<keyof ClaimedTask, unknown> = {
    id: values[0],
    name,
    queue,
    priority: values[1] ?? 0,
    attempt: 1,
    input: values[2],
    details: null,
    policy: values[3] ?? USUAL_POLICY,
    startAt: values[4],
    deadlineAt: values[5],
    attemptDeadlineAt: values[6],
    graceMs: values[7] ?? USUAL_GRACE_MS,
    dueAt: values[8],
    parentId: null,
    rootId: null,
    step: null,
    detached: 0,
    light: 1,
  }
  return row as ClaimedTask
}

/** Instead of tasks that were claimed: whether there are others, and light ones besides. */
export interface Waiting {
  waiting: { others: boolean; light: boolean }
}

/** Each table is named once: planning it costs as much as a hundred tasks. */
function claimText(after: (table: string) => string): string {
  const places = lockNextLight('$4', '$5', '$6', `and not exists (select 1 from others) ${after('r')}`)
  const nothing = CLAIMED.slice(3).map(() => 'null')
  return `with others as materialized (
  select t.id from curfew.tasks t where t.ready = 1 and t.queue = $4 and t.name = $5 ${after('t')}
  order by t.priority, t.id limit 1),
${takeLight(places)}
select ${CLAIMED_VALUES} from taken r
union all select null, (select count(*) from others)::int4, (
  select r.id from curfew.light_ready r where r.queue = $4 and r.name = $5 ${after('r')}
  order by r.priority, r.id limit 1), ${nothing.join(', ')}
where not exists (select 1 from taken)`
}

const CLAIM = claimText(() => '')
/** Those that were claimed stand in the index until it is cleaned: this begins behind them. */
const CLAIM_AFTER = claimText((table) => `and (${table}.priority, ${table}.id) > ($7, $8)`)

/** The claim of one queue and name: from the front, or behind a place. */
export function claimOfOne<Row>(
  { now, nodeId, token, queues, names, limit, after }: ClaimRequest,
  sql: { front: string; behind: string },
  read: (values: readonly unknown[], name: string, queue: string) => Row,
): Statement<Row> {
  const [queue, name] = [queues[0] as string, names[0] as string]
  const params = [now, nodeId, token, queue, name, limit]
  return {
    sql: after ? sql.behind : sql.front,
    params: after ? [...params, after.priority, after.id] : params,
    read: (values) => read(values, name, queue),
  }
}

/** Of one queue and name, where nothing but light tasks waits. */
export function claimLight(request: ClaimRequest): Statement<ClaimedTask | Waiting> {
  return claimOfOne(request, { front: CLAIM, behind: CLAIM_AFTER }, readLight)
}

function readLight(values: readonly unknown[], name: string, queue: string): ClaimedTask | Waiting {
  if (values[0] !== null) return lightTask(values, name, queue)
  return { waiting: { others: values[1] === 1, light: values[2] !== null } }
}

/**
 * The next of these queues and names become rows like any others. Where a row is locked it is passed by: whoever has it
 * may wait for what is locked here.
 */
const MAKE_READY = `
with next as materialized (
  select r.ctid as place, t.ctid as row
  from (select q.queue, n.name from unnest($2::text[]) as q (queue), unnest($3::text[]) as n (name)) as w
  cross join lateral (
    select r.ctid, r.id from curfew.light_ready r where r.queue = w.queue and r.name = w.name and ${TIME_LEFT}
    order by r.priority, r.id limit $4) as c
  join curfew.light_ready r on r.ctid = c.ctid join curfew.tasks t on t.id = c.id
  order by r.priority, r.id limit $4 for update of r, t skip locked),
gone as (delete from curfew.light_ready where ctid = any(array(select place from next)))
update curfew.tasks set light = 0, ready = 1 where ctid = any(array(select row from next))`

/** For a queue with a limit, whose slots are counted by the rows of what runs. */
export function makeReady({ now, queues, names, limit }: ClaimRequest): Statement {
  return { sql: MAKE_READY, params: [now, arrayLiteral(queues), arrayLiteral(names), limit] }
}

/** Most of a batch are of a few claims: each row has the number of its own, and that stands in lists of claims. */
const TOKEN = '($5::text[])[u.claim]'
const STARTED_AT = '($6::int8[])[u.claim]'
const SINCE = `case when t.light = 1 then ${STARTED_AT}`

function byClaim(rows: readonly LightAttempt[]): { claims: number[]; tokens: string[]; startedAt: number[] } {
  const claims: number[] = []
  const tokens: string[] = []
  const startedAt: number[] = []
  let claim = 0
  for (const row of rows) {
    if (tokens[claim - 1] !== row.token) {
      claim = tokens.indexOf(row.token) + 1
      if (claim === 0) {
        claim = tokens.push(row.token)
        startedAt.push(row.startedAt)
      }
    }
    claims.push(claim)
  }
  return { claims, tokens, startedAt }
}

/** Also of those that were written out meanwhile. */
const COMPLETE = `
update curfew.tasks t set status = 'completed', live = 0, losses = 0, ended_at = $1, settled_at = $1, due_at = null,
  holder = null, output = u.output, token = ${TOKEN}, attempt = attempt + light, light = 0,
  node_id = case when light = 1 then $2 else node_id end,
  started_at = ${SINCE} else t.started_at end,
  attempt_deadline_at = ${SINCE} + attempt_timeout_ms else attempt_deadline_at end,
  heartbeat_deadline_at = ${SINCE} + heartbeat_timeout_ms else heartbeat_deadline_at end,
  stuck_deadline_at = ${SINCE} + stuck_after_ms else stuck_deadline_at end,
  started_seq = case when light = 1 then seq + 1 else started_seq end,
  seq = seq + 1 + light, ended_seq = seq + 1 + light
from unnest($3::text[], $4::int4[], $7::text[]) as u (id, claim, output)
where t.id = u.id and (t.light = 1 or t.token = ${TOKEN} and t.status = 'running')`

const CLAIM_SETS = (now: string, node: string, token: string) =>
  `${claimSets(`least(due_at, ${now} + first_due_ms)`, { now, node, token })}, holder = ${node}, light = 0`

const writeOutWaiting = (lock: string) => `
with waiting as materialized (
  select r.ctid as place from curfew.tasks t
  join curfew.light_ready r on r.queue = t.queue and r.name = t.name and r.priority = t.priority and r.id = t.id
  where t.id = any($1::text[]) and t.light = 1 order by r.id ${lock}),
gone as (delete from curfew.light_ready where ctid = any(array(select place from waiting)) returning id)
update curfew.tasks t set light = 0, ready = 1 from gone g where t.id = g.id and t.light = 1`

const WRITE_OUT_WAITING = writeOutWaiting('for update of r')
const WRITE_OUT_FREE = writeOutWaiting('for update of r skip locked')

const WRITE_OUT_RUNNING = `
update curfew.tasks t set ${CLAIM_SETS('c.started_at', 'c.node_id', 'c.token')}
from curfew.light_claims c cross join unnest(c.ids) as m (id)
where m.id = any($1::text[]) and t.id = m.id and t.light = 1`

/** Nobody should ever find one: it is better begun again than lost. */
const WRITE_OUT_LOST = `
update curfew.tasks set light = 0, ready = 1 where id = any($1::text[]) and light = 1`

const WRITE_OUT_CLAIMED = `
update curfew.tasks t set ${CLAIM_SETS('u.started_at', '$1', 'u.token')}
from unnest($2::text[], $3::text[], $4::int8[]) as u (id, token, started_at)
where t.id = u.id and t.light = 1`

const WRITE_OUT_CLAIMED_FREE = `
with free as materialized (
  select l.ctid as place, u.token, u.started_at
  from unnest($2::text[], $3::text[], $4::int8[]) as u (id, token, started_at)
  cross join lateral (
    select t.ctid from curfew.tasks t where t.id = u.id and t.light = 1 for update skip locked) l)
update curfew.tasks t set ${CLAIM_SETS('u.started_at', '$1', 'u.token')} from free u where t.ctid = u.place`

const FORGET = `
with kept as materialized (
  select distinct u.token from unnest($2::text[], $3::text[]) as u (id, token)
  join curfew.tasks t on t.id = u.id and t.light = 1),
gone as (
  delete from curfew.light_claims c where c.token = any($1::text[]) and c.token not in (select token from kept))
select token from kept`

/** What is taken out and what is written out is of one moment: a claim that comes meanwhile is neither. */
function writeOutClaims(which: string, params: readonly unknown[]): Statement {
  return {
    sql: `with c as (delete from curfew.light_claims c where ${which} returning c.*)
      update curfew.tasks t set ${CLAIM_SETS('c.started_at', 'c.node_id', 'c.token')}
      from c cross join unnest(c.ids) as m (id) where t.id = m.id and t.light = 1`,
    params,
  }
}

function attemptLists(rows: readonly LightAttempt[]): string[] {
  return (['id', 'token', 'startedAt'] as const).map((field) => arrayOf(rows, field))
}

/** Of these attempts: those that this transaction has not written. */
const MISSED = `
select u.id from unnest($1::text[], $2::text[]) as u (id, token)
where not exists (select 1 from curfew.tasks t
  where t.id = u.id and t.token = u.token and t.xmin = pg_current_xact_id()::xid)`

/** A count is all that is asked for: which of them it was matters only where one is missing. */
export function unlessAll(
  rows: readonly { id: string; token: string }[],
): Statement<{ id: string }>['unless'] {
  const ask = () => ({ sql: MISSED, params: [arrayOf(rows, 'id'), arrayOf(rows, 'token')] })
  return { changed: rows.length, ask }
}

export const POSTGRES_LIGHT: LightStatements = {
  complete(now, nodeId, rows) {
    const { claims, tokens, startedAt } = byClaim(rows)
    const lists = [claims, tokens, startedAt].map((list) => arrayLiteral(list))
    const params = [now, nodeId, arrayOf(rows, 'id'), ...lists, arrayOf(rows, 'output')]
    return { sql: COMPLETE, params, unless: unlessAll(rows) }
  },
  mayStart: isLight,
  claimStarted: (nodeId, token, startedAt, tasks) => ({
    sql: CLAIM_STARTED,
    params: [nodeId, token, startedAt, arrayOf(tasks, 'queue'), arrayOf(tasks, 'id')],
  }),
  writeOut(ids) {
    const params = [arrayLiteral(ids)]
    return [WRITE_OUT_WAITING, WRITE_OUT_RUNNING, WRITE_OUT_LOST].map((sql) => ({ sql, params }))
  },
  writeOutFree(ids) {
    const params = [arrayLiteral(ids)]
    return [WRITE_OUT_FREE, WRITE_OUT_RUNNING].map((sql) => ({ sql, params }))
  },
  writeOutClaimed: (nodeId, rows) => ({ sql: WRITE_OUT_CLAIMED, params: [nodeId, ...attemptLists(rows)] }),
  writeOutClaimedFree: (nodeId, rows) => ({
    sql: WRITE_OUT_CLAIMED_FREE,
    params: [nodeId, ...attemptLists(rows)],
  }),
  writeOutOf: (nodeId) => writeOutClaims('c.node_id = $1', [nodeId]),
  writeOutBefore: (time) => writeOutClaims('c.started_at < $1', [time]),
  forgetEnded: (tokens) => ({
    sql: 'delete from curfew.light_claims where token = any($1::text[])',
    params: [arrayLiteral(tokens)],
  }),
  forgetClaims: (tokens, left) => ({
    sql: FORGET,
    params: [arrayLiteral(tokens), arrayOf(left, 'id'), arrayOf(left, 'token')],
  }),
}
