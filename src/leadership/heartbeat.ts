/**
 * The one statement a second of a process on PostgreSQL: it renews the leases, reads the clock, and brings back
 * everything a quiet process has to know. Sent by a thread of its own, or from the main loop on a virtual clock.
 */
import type { Statement } from '../store/statement.ts'
import { HORIZON_MS, LEADERSHIP_MS } from './lease-times.ts'
import type { NodeRow } from './node-statements.ts'

export interface HeartbeatRequest {
  nodeId: string
  epoch: number
  /** Renews the leadership too: the main loop ticks. */
  lead: boolean
  /** Work is looked for in these; empty without a free slot. */
  queues: readonly string[]
  names: readonly string[]
  /** Agents whose turns could start here; empty without a free turn. */
  agents: readonly string[]
  /** Instead of the database's clock. */
  virtualNow: number | null
}

export interface HeartbeatRow {
  raw: number
  correction: number
  /** 0: another process has ended this one's lease. */
  renewed: number
  /** The highest time ever written by a renewal. */
  mark: number | null
  nextDue: number | null
  ready: boolean
  /** Since when the oldest claim of light tasks is there. */
  claimedSince: number | null
  peers: NodeRow[] | null
  /** Attempts of this process that somebody has decided to stop. */
  stops:
    | { taskId: string; token: string; status: string; timeoutKind: string | null; graceMs: number }[]
    | null
  queueList: { name: string; concurrency: number | null }[] | null
}

/**
 * Ready tasks are looked at from one queue and name to the next, the first of each: a million that wait for nobody here
 * must not hold up a renewal, and left to the planner each of them is read.
 */
const HEARTBEAT = `
with recursive clock as materialized (
  select coalesce($6::int8, floor(extract(epoch from clock_timestamp()) * 1000)::int8) as raw,
    case when $6::int8 is null then coalesce((select value::int8 from curfew.meta where key = 'clock_correction'), 0)
      else 0 end as correction,
    -- a virtual clock jumps over renewals
    case when $6::int8 is null then ${HORIZON_MS} else 1e12::int8 end as horizon),
renewed as (
  update curfew.nodes n set renewed_at = c.raw + c.correction,
    lead_until = case when $3 then c.raw + c.correction + ${LEADERSHIP_MS} else lead_until end
  from clock c where n.id = $1 and n.epoch = $2 and n.gone_at is null returning 1),
waiting (queue, name) as (
  (select queue, name from curfew.tasks where ready = 1 order by queue, name limit 1)
  union all select n.queue, n.name from waiting w cross join lateral (
    select t.queue, t.name from curfew.tasks t where t.ready = 1 and (t.queue, t.name) > (w.queue, w.name)
    order by t.queue, t.name limit 1) as n),
light (queue, name) as (
  (select queue, name from curfew.light_ready order by queue, name limit 1)
  union all select n.queue, n.name from light w cross join lateral (
    select r.queue, r.name from curfew.light_ready r where (r.queue, r.name) > (w.queue, w.name)
    order by r.queue, r.name limit 1) as n)
select c.raw, c.correction,
  (select count(*)::int4 from renewed) as renewed,
  (select max(renewed_at) from curfew.nodes) as mark,
  (select min(due_at) from curfew.tasks where due_at <= c.raw + c.correction + c.horizon and (node_id = $1
    or due_at <= c.raw + c.correction - ${LEADERSHIP_MS}
    or node_id not in (select id from curfew.nodes where gone_at is null))) as "nextDue",
  cardinality($5::text[]) > 0 and (
    exists (select 1 from waiting where queue = any($4::text[]) and name = any($5::text[]))
    or exists (select 1 from light where queue = any($4::text[]) and name = any($5::text[])))
  or exists (select 1 from unnest($7::text[]) as w (name) where (
    select t.id from curfew.tasks t where t.woken_at is not null and t.name = w.name and t.parked is null
    order by t.woken_at, t.id limit 1) is not null) as ready,
  (select min(started_at) from curfew.light_claims) as "claimedSince",
  (select json_agg(json_build_object('id', id, 'epoch', epoch, 'renewedAt', renewed_at, 'leadUntil', lead_until,
    'goneAt', gone_at)) from curfew.nodes where id <> $1) as peers,
  (select json_agg(json_build_object('taskId', id, 'token', token, 'status', status, 'timeoutKind', timeout_kind,
    'graceMs', grace_ms)) from curfew.tasks where holder = $1 and stopping = 1) as stops,
  (select json_agg(json_build_object('name', name, 'concurrency', concurrency)) from curfew.queues) as "queueList"
from clock c`

export function heartbeatStatement(request: HeartbeatRequest): Statement<HeartbeatRow> {
  const { nodeId, epoch, lead, queues, names, virtualNow, agents } = request
  return { sql: HEARTBEAT, params: [nodeId, epoch, lead, queues, names, virtualNow, agents] }
}
