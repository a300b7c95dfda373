/** What is asked about agents and what they scheduled, beyond what tasks have in common with them. */
import type { Dialect } from './dialect.ts'
import { wholeInput } from './hot-statements.ts'
import type { Statement } from './statement.ts'
import type { AgentRow, TaskRow } from './task-row.ts'
import {
  AGENT_FIELDS,
  AGENT_ROW_FIELDS,
  selectList,
  TASK_COLUMNS,
  TASK_FIELDS,
  TURN_FIELDS,
} from './task-row.ts'

export interface SignalRow {
  agentId: string
  /** The number of its event: they are taken in this order. */
  no: number
  name: string
  value: string
}

/** `part`: 0 steps, 1 results. `body`: a JSON array. */
export interface JournalRow {
  agentId: string
  part: 0 | 1
  no: number
  body: string
}

export interface TurnClaim {
  now: number
  nodeId: string
  token: string
  names: readonly string[]
  limit: number
  /** Agents that were last run by one of these are left to it until `patience`. */
  peers: readonly string[]
  patience: number
}

/** A child as it stands in its parent's journal. */
export type ChildRow = Pick<
  TaskRow,
  'id' | 'kind' | 'name' | 'input' | 'step' | 'resultSeq' | 'status' | 'output'
>

/** A child by its title. */
export type TitledChild = Pick<TaskRow, 'id' | 'title' | 'status'>

const CHILD_FIELDS = ['id', 'kind', 'name', 'input', 'step', 'resultSeq', 'status', 'output'] as const

/** What stands in indexes instead of what it follows from. SQLite needs none. */
const KEEPER = `keeper = case when u.settled_at is null then u.node_id end`
export const ENDED_BADLY = `ended_badly = case when u.status in ('failed', 'timed_out', 'cancelled') then u.status end`

/** It runs in the process of its manager, and dies with it: see `isRemoteToken`. */
export const NOT_REMOTE = `token not like 'r\\_%' escape '\\'`

/** The ids of everything below `$1`, at any depth. */
function allBelow(s: string): string {
  return `with recursive below (id) as (
    select id from ${s}tasks where parent_id = $1
    union all select t.id from below b join ${s}tasks t on t.parent_id = b.id)`
}

const MAY_START = 'woken_at is not null and live = 0 and parked is null'

/** SQLite takes at most 500 terms in a compound select; above this the index no longer gives the order. */
const MOST_NAMES = 200

/** The next ones of each name, straight from the index, then the first of those. */
function nextTurnsSqlite(names: number): string {
  const parameters = Array.from({ length: names }, (_, i) => `$${5 + i}`)
  if (names === 0 || names > MOST_NAMES) {
    return `id in (select id from tasks where ${MAY_START} and name in (${parameters.join(', ')})
      order by woken_at, id limit $4)`
  }
  const each = parameters.map(
    (name) => `select * from (select woken_at, id from tasks where ${MAY_START} and name = ${name}
      order by woken_at, id limit $4)`,
  )
  return `id in (select id from (${each.join(' union all ')}) order by woken_at, id limit $4)`
}

/**
 * By place and nothing else, as tasks are claimed. One that a peer has in memory is left to it for a while; without a
 * token nobody has.
 */
const NEXT_TURNS_POSTGRES = `ctid = any(array(select c.place from unnest($5::text[]) as w (name)
  cross join lateral (select t.ctid as place, t.woken_at, t.id from curfew.tasks t where ${MAY_START}
    and t.name = w.name
    and (t.token is null or t.node_id = $2 or t.woken_at <= $7 or t.node_id <> all($6::text[]))
    order by t.woken_at, t.id limit $4 for update skip locked) as c
  order by c.woken_at, c.id limit $4))`

export class AgentStatements {
  readonly #d: Dialect

  constructor(dialect: Dialect) {
    this.#d = dialect
  }

  /** Whose rows have to be locked first. */
  places(ids: readonly string[]): Statement<Pick<TaskRow, 'id' | 'parentId' | 'rootId' | 'kind'>> {
    const d = this.#d
    return {
      sql: `select ${selectList(['id', 'parentId', 'rootId', 'kind'], 't')} from ${d.s}tasks t where id ${d.inList('$1')}`,
      params: [d.list(ids)],
    }
  }

  /** The agents with these ids, locked in the order of their ids. */
  lockAgents(ids: readonly string[]): Statement<AgentRow> {
    const d = this.#d
    return {
      sql: `select ${selectList(AGENT_ROW_FIELDS, 't')} from ${d.s}tasks t where id ${d.inList('$1')} order by id ${d.lock.forUpdate}`,
      params: [d.list(ids)],
    }
  }

  /** The same for rows that are known: whether they still are as they were. */
  lockVersions(ids: readonly string[]): Statement<Pick<TaskRow, 'id' | 'version'>> {
    const d = this.#d
    return {
      sql: `select id, version from ${d.s}tasks t where id ${d.inList('$1')} order by id ${d.lock.forUpdate}`,
      params: [d.list(ids)],
    }
  }

  /** The rows with these ids that nobody else has locked. */
  tryLockTasks(ids: readonly string[]): Statement<TaskRow> {
    const d = this.#d
    return {
      sql: `select ${selectList(TASK_FIELDS, 't')} from ${d.s}tasks t where id ${d.inList('$1')} order by id ${d.lock.skipLocked}`,
      params: [d.list(ids)],
    }
  }

  /** What a turn changes; `all`: whatever may change of an agent. */
  updateAgents(rows: readonly TaskRow[], all: boolean): Statement {
    const fields = all ? AGENT_FIELDS : TURN_FIELDS
    return this.#d.update(
      `${this.#d.s}tasks`,
      TASK_COLUMNS,
      fields,
      rows,
      all ? `${KEEPER}, ${ENDED_BADLY}` : undefined,
    )
  }

  /** Turns that may start, those that wait longest first. */
  claimTurns({ now, nodeId, token, names, limit, peers, patience }: TurnClaim): Statement<TaskRow> {
    const sqlite = this.#d.name === 'sqlite'
    return {
      sql: `update ${this.#d.s}tasks set live = 1, woken_at = null, attempt = attempt + 1, version = version + 1, node_id = $2,
          token = $3, ${sqlite ? '' : 'keeper = $2,'} started_at = coalesce(started_at, $1),
          status = case when status = 'pending' then 'running' else status end,
          seq = case when started_seq is null then seq + 1 else seq end, started_seq = coalesce(started_seq, seq + 1)
        where ${sqlite ? nextTurnsSqlite(names.length) : NEXT_TURNS_POSTGRES}
        returning ${this.#whole(TASK_FIELDS, 'tasks')}`,
      params: sqlite
        ? [now, nodeId, token, limit, ...names]
        : [now, nodeId, token, limit, this.#d.list(names), this.#d.list(peers), patience],
    }
  }

  /** As `selectList`, with the input wherever it stands. */
  #whole(fields: readonly (keyof TaskRow)[], t: string): string {
    const others = fields.filter((field) => field !== 'input')
    return `${selectList(others, t)}, ${wholeInput(this.#d.s, t)} as "input"`
  }

  /** Turns that run in this process; `local`: those of its workers elsewhere left out. */
  liveTurns(nodeId: string, limit: number, local: boolean): Statement<TaskRow> {
    const d = this.#d
    return {
      sql: `select ${selectList(TASK_FIELDS, 't')} from ${d.s}tasks t
        where ${d.keeps('$1')} and live = 1 ${local ? `and ${NOT_REMOTE}` : ''} order by id limit $2 ${d.lock.skipLocked}`,
      params: [nodeId, limit],
    }
  }

  /** Those it has to stop before it can settle. */
  openChildren(parentId: string): Statement<TaskRow> {
    return this.#open(parentId)
  }

  /** Those of them whose deadline is bound by the one above: of many most often none. */
  inheritingChildren(parentId: string): Statement<TaskRow> {
    return this.#open(parentId, `and policy like '%"keptBackMs":%'`)
  }

  #open(parentId: string, also = ''): Statement<TaskRow> {
    const d = this.#d
    return {
      sql: `select ${selectList(TASK_FIELDS, 't')} from ${d.s}tasks t
        where parent_id = $1 and result_seq is null and detached = 0 ${also} order by id ${d.lock.forUpdate}`,
      params: [parentId],
    }
  }

  /** The ends that the code of these agents has not seen. */
  unseenChildren(agentIds: readonly string[]): Statement<TaskRow> {
    const d = this.#d
    return {
      sql: `select ${selectList(TASK_FIELDS, 't')} from ${d.s}tasks p
        join ${d.s}tasks t on t.parent_id = p.id and t.result_seq > p.seen where p.id ${d.inList('$1')}`,
      params: [d.list(agentIds)],
    }
  }

  /** The same for results without a row of their own; a row may begin with some that were seen. */
  unseenResults(agentIds: readonly string[]): Statement<JournalRow> {
    const d = this.#d
    return {
      sql: `select ${selectList(['agentId', 'part', 'no', 'body'], 'j')} from ${d.s}tasks p
        join ${d.s}journal j on j.agent_id = p.id and j.part = 1 and j.no > p.seen where p.id ${d.inList('$1')}`,
      params: [d.list(agentIds)],
    }
  }

  input(agentId: string): Statement<{ input: string }> {
    const { s } = this.#d
    return { sql: `select ${wholeInput(s, 't')} as input from ${s}tasks t where id = $1`, params: [agentId] }
  }

  /** A page of what has ended, in the order of the results. */
  endedChildren(agentId: string, after: number, limit: number): Statement<TaskRow> {
    return {
      sql: `select ${this.#whole(TASK_FIELDS, 't')} from ${this.#d.s}tasks t
        where parent_id = $1 and result_seq > $2 order by result_seq limit $3`,
      params: [agentId, after, limit],
    }
  }

  /** A page of what has not, in the order of the steps. */
  unendedChildren(agentId: string, after: number, limit: number): Statement<ChildRow> {
    return {
      sql: `select ${this.#whole(CHILD_FIELDS, 't')} from ${this.#d.s}tasks t
        where parent_id = $1 and result_seq is null and step > $2 order by step limit $3`,
      params: [agentId, after, limit],
    }
  }

  /** When anything below it moved last, and what of it runs without a limit. */
  activity(agentId: string): Statement<{ lastAt: number | null; unbounded: number; example: string | null }> {
    const { s, name } = this.#d
    const latest = name === 'sqlite' ? 'max' : 'greatest'
    const moved = ['created_at', 'started_at', 'ended_at', 'settled_at', 'active_at']
      .map((column) => `coalesce(t.${column}, 0)`)
      .join(', ')
    const unbounded = `t.kind = 'task' and t.live = 1 and t.status = 'running' and t.deadline_at is null and t.attempt_deadline_at is null
      and t.heartbeat_deadline_at is null and t.stuck_deadline_at is null`
    return {
      sql: `${allBelow(s)}
        select max(${latest}(${moved})) as "lastAt",
          coalesce(sum(case when ${unbounded} then 1 else 0 end), 0) as "unbounded",
          min(case when ${unbounded} then t.id end) as "example"
        from ${s}tasks t where t.id in (select id from below)`,
      params: [agentId],
    }
  }

  /** What is above it, the outermost first. */
  above(id: string): Statement<TaskRow> {
    const { s } = this.#d
    return {
      sql: `with recursive above (id, parent_id, depth) as (
          select p.id, p.parent_id, 1 from ${s}tasks t join ${s}tasks p on p.id = t.parent_id where t.id = $1
          union all select p.id, p.parent_id, a.depth + 1 from above a join ${s}tasks p on p.id = a.parent_id)
        select ${selectList(TASK_FIELDS, 't')} from above a join ${s}tasks t on t.id = a.id order by a.depth desc`,
      params: [id],
    }
  }

  /** What is below it, at any depth, what has not ended first. */
  below(id: string, limit: number): Statement<TaskRow> {
    const { s } = this.#d
    return {
      sql: `${allBelow(s)}
        select ${selectList(TASK_FIELDS, 't')} from ${s}tasks t where t.id in (select id from below)
        order by case when t.settled_at is null then 0 else 1 end, t.id limit $2`,
      params: [id, limit],
    }
  }

  /** All of it, as it is; without `outputs` those are null, for together they may be large. */
  childrenOf(parentId: string, { outputs }: { outputs: boolean }): Statement<TaskRow> {
    const others = TASK_FIELDS.filter((field) => field !== 'output')
    return {
      sql: `select ${selectList(others, 't')}, ${outputs ? 't.output' : 'null'} as "output"
        from ${this.#d.s}tasks t where parent_id = $1 order by step`,
      params: [parentId],
    }
  }

  titledChildren(parentId: string, titles: readonly string[]): Statement<TitledChild> {
    const d = this.#d
    return {
      sql: `select ${selectList(['id', 'title', 'status'], 't')} from ${d.s}tasks t
        where parent_id = $1 and title ${d.inList('$2')}`,
      params: [parentId, d.list(titles)],
    }
  }

  /** What explains an agent that waits. */
  waitedFor(
    agentId: string,
    limit: number,
  ): Statement<
    Pick<
      TaskRow,
      | 'id'
      | 'kind'
      | 'name'
      | 'title'
      | 'policy'
      | 'step'
      | 'status'
      | 'createdAt'
      | 'deadlineAt'
      | 'stopBoundAt'
    >
  > {
    const fields = [
      'id',
      'kind',
      'name',
      'title',
      'policy',
      'step',
      'status',
      'createdAt',
      'deadlineAt',
      'stopBoundAt',
    ] as const
    return {
      sql: `select ${selectList(fields, 't')} from ${this.#d.s}tasks t
        where parent_id = $1 and result_seq is null order by step limit $2`,
      params: [agentId, limit],
    }
  }

  /** What was begun below an agent, at any depth, and cancelled; of agents those that did not clean up in time. */
  cancelledBelow(agentId: string, after: string, limit: number): Statement<TaskRow> {
    const { s } = this.#d
    return {
      sql: `${allBelow(s)}
        select ${selectList(TASK_FIELDS, 't')} from ${s}tasks t where t.id in (select id from below)
          and t.attempt > 0 and (t.kind = 'task' and t.status = 'cancelled' or t.kind = 'agent' and t.receipt = 'abandoned')
          and t.id > $2 order by t.id limit $3`,
      params: [agentId, after, limit],
    }
  }

  /** Some of what these agents scheduled, at any depth, that has nothing below itself and is over. */
  leavesBelow(agentIds: readonly string[], limit: number): Statement<{ id: string }> {
    const { s, inList } = this.#d
    return {
      sql: `with recursive below (id) as (
          select id from ${s}tasks where parent_id ${inList('$1')} and detached = 0
          union all select t.id from below b join ${s}tasks t on t.parent_id = b.id and t.detached = 0)
        select t.id from ${s}tasks t where t.id in (select id from below) and t.settled_at is not null and t.live = 0
          and not exists (select 1 from ${s}tasks c where c.parent_id = t.id and c.detached = 0) limit $2`,
      params: [this.#d.list(agentIds), limit],
    }
  }

  insertJournal(rows: readonly JournalRow[]): Statement {
    return this.#d.insert(
      `${this.#d.s}journal`,
      { agentId: 'text', part: 'int4', no: 'int4', body: 'text' },
      rows,
    )
  }

  journal(agentId: string, part: 0 | 1, after: number, limit: number): Statement<JournalRow> {
    return {
      sql: `select ${selectList(['agentId', 'part', 'no', 'body'], 'j')} from ${this.#d.s}journal j
        where agent_id = $1 and part = $2 and no > $3 order by no limit $4`,
      params: [agentId, part, after, limit],
    }
  }

  insertSignals(rows: readonly SignalRow[]): Statement {
    return this.#d.insert(
      `${this.#d.s}signals`,
      { agentId: 'text', no: 'int4', name: 'text', value: 'text' },
      rows,
    )
  }

  signals(agentId: string, name: string, limit: number): Statement<SignalRow> {
    return {
      sql: `select ${selectList(['agentId', 'no', 'name', 'value'], 'g')} from ${this.#d.s}signals g
        where agent_id = $1 and name = $2 order by no limit $3`,
      params: [agentId, name, limit],
    }
  }

  deleteSignal({ agentId, no }: SignalRow): Statement {
    return { sql: `delete from ${this.#d.s}signals where agent_id = $1 and no = $2`, params: [agentId, no] }
  }
}
