/** Rows of light tasks (`postgres-light.ts`) as readers see them: as if they had been written out. */

import type { TaskStatus } from '../../core/states.ts'
import type { TaskRow } from '../task-row.ts'
import { column, TASK_FIELDS } from '../task-row.ts'

/** What a claim changes of a row, as it would be if `t` were written out; `c` is its claim. */
const OF_CLAIM: Readonly<Partial<Record<keyof TaskRow, string>>> = {
  status: `'running'`,
  ready: '0',
  live: '1',
  attempt: '1',
  nodeId: 'c.node_id',
  token: 'c.token',
  startedAt: 'c.started_at',
  attemptDeadlineAt: 'c.started_at + t.attempt_timeout_ms',
  heartbeatDeadlineAt: 'c.started_at + t.heartbeat_timeout_ms',
  stuckDeadlineAt: 'c.started_at + t.stuck_after_ms',
  dueAt: 'least(t.due_at, c.started_at + t.first_due_ms)',
  seq: 't.seq + 1',
  startedSeq: 't.seq + 1',
}

/** The claim of `t`, if that is light and runs: to stand behind the table, for a few rows. */
export const WITH_CLAIM = `left join lateral (select c.token, c.node_id, c.started_at from curfew.light_claims c
  where t.light = 1 and t.id = any(c.ids) limit 1) c on true`

/** The same for many rows: claims are looked through once, and not for each of them. */
export const WITH_CLAIMS = `left join (select m.id, c.token, c.node_id, c.started_at
  from curfew.light_claims c cross join unnest(c.ids) as m (id)) c on t.light = 1 and c.id = t.id`

/** Whether `t` is light and runs. */
const IS_CLAIMED = `t.light = 1 and t.id in (select unnest(c.ids) from curfew.light_claims c)`

/** A column of `t` as it would be. */
export function asWrittenOut(field: keyof TaskRow): string {
  if (field === 'light') return '0'
  const claimed = OF_CLAIM[field]
  if (claimed === undefined) return `t.${column(field)}`
  const waiting = field === 'ready' ? 'case when t.light = 1 then 1 else t.ready end' : `t.${column(field)}`
  return `case when c.token is null then ${waiting} else ${claimed} end`
}

export const AS_WRITTEN_OUT = TASK_FIELDS.map((field) => `${asWrittenOut(field)} as "${field}"`).join(', ')

/** Whether `t` may start, not by what it says of itself. */
export const MAY_START = `case when t.light = 0 then t.ready when c.token is not null then 0
  when exists (select 1 from curfew.light_ready r
    where r.queue = t.queue and r.name = t.name and r.priority = t.priority and r.id = t.id) then 1 else 0 end`

const BAD_ENDS: readonly TaskStatus[] = ['failed', 'timed_out', 'cancelled']

/** That `t` has one of these; `is` says so of a column. */
export function hasStatus(statuses: readonly TaskStatus[], is: string): string {
  // Bad ends have an index of their own.
  if (statuses.every((status) => BAD_ENDS.includes(status))) return `t.ended_badly ${is}`
  // What is light is stored as pending, and may run.
  const [pending, running] = (['pending', 'running'] as const).map((status) => statuses.includes(status))
  if (pending === running) return `t.status ${is}`
  return pending ? `t.status ${is} and not (${IS_CLAIMED})` : `(t.status ${is} or ${IS_CLAIMED})`
}
