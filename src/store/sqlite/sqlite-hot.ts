/** The hot five on SQLite. There is no round trip to save, so bulk means a prepared statement in a loop. */
import { SQLITE } from '../dialect.ts'
import type { ClaimedTask, HotStatements, NewRow } from '../hot-statements.ts'
import {
  CLAIMED_FIELDS,
  claimSets,
  completeSets,
  fieldsOf,
  shapeOf,
  withoutLongInputs,
} from '../hot-statements.ts'
import type { Statement } from '../statement.ts'
import { run } from '../statement.ts'
import { column, selectList, TASK_COLUMNS, TASK_FIELDS } from '../task-row.ts'

function columnsOf(row: NewRow): Record<keyof NewRow, 'text'> {
  return Object.fromEntries(fieldsOf(row).map((field) => [field, TASK_COLUMNS[field]])) as Record<
    keyof NewRow,
    'text'
  >
}

function returning(fields: readonly string[]): string {
  return fields.map((field) => `${column(field)} as "${field}"`).join(', ')
}

const TIME_LEFT = `(deadline_at is null or deadline_at > $1)
    and (attempt > 0 or queue_deadline_at is null or queue_deadline_at > $1)`

/** SQLite takes at most 500 terms in a compound select; above this the index no longer gives the order. */
const MOST_PAIRS = 200

function claimText(queues: number, names: number): string {
  return `
update tasks set ${claimSets(`min(coalesce(due_at, $1 + first_due_ms), coalesce($1 + first_due_ms, due_at))`)}
where id in (${queues * names > MOST_PAIRS ? nextOfAll(queues, names) : nextByPair(queues, names)})
returning ${returning(CLAIMED_FIELDS)}`
}

/** The next ones of each queue and name, straight from the index, then the first of those. */
function nextByPair(queues: number, names: number): string {
  const pairs: string[] = []
  for (let q = 0; q < queues; q++) {
    for (let n = 0; n < names; n++) {
      pairs.push(`select * from (select priority, id from tasks
    where ready = 1 and queue = $${5 + q} and name = $${5 + queues + n} and ${TIME_LEFT}
    order by priority, id limit $4)`)
    }
  }
  return `select id from (${pairs.join(' union all ')}) order by priority, id limit $4`
}

function nextOfAll(queues: number, names: number): string {
  const list = (from: number, count: number) =>
    Array.from({ length: count }, (_, i) => `$${from + i}`).join(', ')
  return `select id from tasks where ready = 1 and queue in (${list(5, queues)})
    and name in (${list(5 + queues, names)}) and ${TIME_LEFT} order by priority, id limit $4`
}

const COMPLETE = `
update tasks set ${completeSets('$4')}, output = $3
where id = $1 and token = $2 and status = 'running'`

const COMPLETE_BELOW = `
update tasks set ${completeSets('$4')}, output = $3, result_seq = $5
where id = $1 and token = $2 and status = 'running'`

const DUE = `
select ${selectList(TASK_FIELDS, 't')} from tasks t
where due_at <= $1 order by due_at limit $2`

const BEAT = `
update tasks set
  progress = coalesce($3, progress), details = coalesce($4, details),
  -- what an operator gave is not taken back
  heartbeat_deadline_at = max(coalesce(heartbeat_deadline_at, 0), $6 + heartbeat_timeout_ms),
  stuck_deadline_at = case when $5 = 1 then max(coalesce(stuck_deadline_at, 0), $6 + stuck_after_ms) else stuck_deadline_at end,
  active_at = case when $5 = 1 then $6 else active_at end
where id = $1 and token = $2 and status = 'running'`

/** One whose key was taken has no row. */
const LONG_INPUT = `
insert into journal (agent_id, part, no, body) select id, 2, 0, $2 from tasks where id = $1`

export const SQLITE_HOT: HotStatements = {
  insertTasks(all) {
    const { rows, long } = withoutLongInputs(all)
    const keyed = rows.some(({ key }) => key !== null)
    const suffix = keyed ? 'on conflict (name, key) where key is not null do nothing returning id' : ''
    const groups: NewRow[][] = [[], [], [], []]
    for (const row of rows) groups[shapeOf(row)]?.push(row)
    const inserts = groups.flatMap((group) =>
      group[0]
        ? [SQLITE.insert('tasks', columnsOf(group[0]), group, suffix) as Statement<{ id: string }>]
        : [],
    )
    if (long.length)
      inserts.push({ sql: LONG_INPUT, params: [], each: long.map(({ id, input }) => [id, input]) })
    return inserts
  },
  *claimTasks({ now, nodeId, token, queues, names, limit }) {
    return yield* run<ClaimedTask>({
      sql: claimText(queues.length, names.length),
      params: [now, nodeId, token, limit, ...queues, ...names],
    })
  },
  completeTasks(now, rows) {
    return {
      sql: COMPLETE,
      params: [],
      each: rows.map(({ id, token, output }) => [id, token, output, now]),
      missed: true,
    }
  },
  completeBelow(now, rows) {
    return {
      sql: COMPLETE_BELOW,
      params: [],
      each: rows.map(({ id, token, output, resultSeq }) => [id, token, output, now, resultSeq]),
      missed: true,
    }
  },
  dueTasks(now, _peers, _overdueMs, limit) {
    return { sql: DUE, params: [now, limit] }
  },
  beatTasks(now, rows) {
    return {
      sql: BEAT,
      params: [],
      each: rows.map(({ id, token, progress, details, moved }) => [id, token, progress, details, moved, now]),
      missed: true,
    }
  },
}
