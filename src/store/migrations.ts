/**
 * The schema, one text for both dialects. Migrations run at open, under a lock, each once.
 * Placeholders: {s} schema prefix, {id} the type of ids, {int4} {int8} integers, {strict} {room} table options;
 * {postgres} before a line: for that one alone.
 */

export const MIGRATIONS: readonly string[] = [
  `
create table {s}queues (
  name text not null primary key,
  -- null: no limit
  concurrency {int4}
) {strict};

create table {s}nodes (
  id {id} not null primary key,
  epoch {int4} not null,
  host text not null,
  pid {int4} not null,
  started_at {int8} not null,
  renewed_at {int8} not null,
  lead_until {int8} not null,
  -- proven dead: by its own goodbye, by its witness, or by the lock it no longer holds
  gone_at {int8}
) {strict};
-- an epoch is part of a key so that raising it waits for transactions that rely on it; a renewal does not
create unique index nodes_epoch on {s}nodes (id, epoch);

create table {s}tasks (
  id {id} not null primary key,
  name text not null,
  queue text not null,
  priority {int4} not null,
  key text,
  status text not null,
  ready {int4} not null,
  live {int4} not null default 0,
  stopping {int4} not null default 0,
  parked text,
  input text not null,
  output text,
  failure text,
  timeout_kind text,
  receipt text,
  policy text not null,
  attempt {int4} not null default 0,
  failures {int4} not null default 0,
  losses {int4} not null default 0,
  token text,
  node_id {id} not null,
  created_at {int8} not null,
  start_at {int8} not null,
  started_at {int8},
  ended_at {int8},
  settled_at {int8},
  deadline_at {int8},
  queue_deadline_at {int8},
  attempt_deadline_at {int8},
  heartbeat_deadline_at {int8},
  stuck_deadline_at {int8},
  exhausted_deadline_at {int8},
  stop_bound_at {int8},
  retry_at {int8},
  attempt_timeout_ms {int8},
  heartbeat_timeout_ms {int8},
  stuck_after_ms {int8},
  first_due_ms {int8},
  grace_ms {int8} not null,
  due_at {int8},
  warned {int4} not null default 0,
  progress text,
  details text,
  -- when it last progressed or was granted time
  active_at {int8},
  extension text,
  extended_ms {int8} not null default 0,
  seq {int4} not null default 1,
  started_seq {int4},
  ended_seq {int4},
  -- 'task' or 'agent'; an agent's attempts are its turns
  kind text not null default 'task',
  -- what it stands for, where its code is not a user's: the name of a workflow or job; of work below one, the node
  title text,
  -- the agent that scheduled it, and the one at the top, whose row is locked first
  parent_id {id},
  root_id {id},
  -- the number of the parent's step, and where its end stands among the parent's results
  step {int4},
  result_seq {int4},
  detached {int4} not null default 0,
  -- of an agent: a turn may be claimed since then
  woken_at {int8},
  -- of an agent: results there are, results its code has seen, steps on record, children not settled
  results {int4} not null default 0,
  seen {int4} not null default 0,
  steps {int4} not null default 0,
  open {int4} not null default 0,
  waits text,
  -- of an agent: rises with every write of its row
  version {int4} not null default 0,
  -- an attempt's slot. Turns, which come and go with every step, stay out of the index: their writes cost half
  held {int4} not null generated always as (case when kind = 'task' then live else 0 end) stored
) {strict} {room};
-- only what may start now
create index tasks_claim on {s}tasks (queue, name, priority, id) where ready = 1;
create index tasks_due on {s}tasks (due_at) where due_at is not null;
create index tasks_live on {s}tasks (node_id, queue) where held = 1;
create index tasks_agents on {s}tasks (node_id) where kind = 'agent' and settled_at is null;
create unique index tasks_key on {s}tasks (name, key) where key is not null;
-- those without a result are still open
create index tasks_children on {s}tasks (parent_id, result_seq) where parent_id is not null;
create index tasks_woken on {s}tasks (name, woken_at, id) where woken_at is not null;
create index tasks_ended_badly on {s}tasks (status, id) where status in ('failed', 'timed_out', 'cancelled');

create table {s}attempts (
  task_id {id} not null references {s}tasks (id) on delete cascade,
  attempt {int4} not null,
  status text not null,
  node_id {id} not null,
  started_at {int8} not null,
  started_seq {int4},
  ended_at {int8} not null,
  timeout_kind text,
  failure text,
  receipt text,
  granted_ms {int8} not null,
  progress text,
  details text,
  primary key (task_id, attempt)
) {strict};

-- steps (part 0) and results (part 1) of agents that have no row of their own: an array, and its first number;
-- part 2: the input of an agent, where it is long
create table {s}journal (
  agent_id {id} not null references {s}tasks (id) on delete cascade,
  part {int4} not null,
  no {int4} not null,
  body text not null,
  primary key (agent_id, part, no)
) {strict};

-- that nobody has taken yet
create table {s}signals (
  agent_id {id} not null references {s}tasks (id) on delete cascade,
  no {int4} not null,
  name text not null,
  value text not null,
  primary key (agent_id, no)
) {strict};

create table {s}events (
  root_id {id} not null,
  seq {int4} not null,
  at {int8} not null,
  body text not null,
  primary key (root_id, seq)
) {strict};
`,
  `
-- that were done, for callers who did not hear the answer and ask again
create table {s}requests (
  id {id} not null primary key,
  at {int8} not null
) {strict};
create index requests_at on {s}requests (at);
`,
  `
-- items that were given up; they outlive the records of their run
create table {s}dead_letters (
  job_id {id} not null,
  item_id {id} not null,
  -- open, resolved, discarded
  state text not null,
  error_type text not null,
  message text not null,
  name text not null,
  body text not null,
  attempts {int4} not null,
  created_at {int8} not null,
  updated_at {int8} not null,
  -- the run that works on it again, and since when
  retry_id {id},
  retried_at {int8},
  primary key (job_id, item_id)
) {strict};
create index dead_letters_over on {s}dead_letters (updated_at) where state <> 'open';
`,
  `
-- PostgreSQL: the last transaction that was committed, of those that came one after the other
create table {s}lanes (
  id {id} not null primary key,
  batch {int8} not null,
  at {int8} not null
) {strict} {room};
`,
  `
-- PostgreSQL makes such a row twice, once to compute from: whatever changes live writes held too
{postgres}alter table {s}tasks alter column held drop expression;
{postgres}alter table {s}tasks alter column held set default 0;
`,
  `
-- 1: not written since it was stored; whether it waits or runs is told by light_ready and light_claims
alter table {s}tasks add column light {int4} not null default 0;
-- What every end changes stands in no index of PostgreSQL, so that the row is written where it stands: the process
-- that an attempt holds a slot of, the one that an agent belongs to until it has settled, the status of a bad end.
{postgres}alter table {s}tasks add column holder {id}, add column keeper {id}, add column ended_badly text;
{postgres}update {s}tasks set holder = case when held = 1 then node_id end,
{postgres}  keeper = case when kind = 'agent' and settled_at is null then node_id end,
{postgres}  ended_badly = case when status in ('failed', 'timed_out', 'cancelled') then status end
{postgres}  where held = 1 or kind = 'agent' and settled_at is null or status in ('failed', 'timed_out', 'cancelled');
{postgres}drop index {s}tasks_live, {s}tasks_agents, {s}tasks_ended_badly;
{postgres}alter table {s}tasks drop column held;
{postgres}create index tasks_live on {s}tasks (holder, queue) where holder is not null;
{postgres}create index tasks_agents on {s}tasks (keeper) where keeper is not null;
{postgres}create index tasks_ended_badly on {s}tasks (ended_badly, id) where ended_badly is not null;
{postgres}alter table {s}tasks set (fillfactor = 45);

-- Light tasks that wait, with all that a claim needs. Null: the input is long and stands in the task's row.
{postgres}create table {s}light_ready (
{postgres}  queue text not null,
{postgres}  name text not null,
{postgres}  priority {int4} not null,
{postgres}  id {id} not null,
{postgres}  input text,
{postgres}  policy text,
{postgres}  start_at {int8} not null,
{postgres}  deadline_at {int8},
{postgres}  queue_deadline_at {int8},
{postgres}  due_at {int8},
{postgres}  attempt_timeout_ms {int8},
{postgres}  first_due_ms {int8},
{postgres}  grace_ms {int8}
{postgres});
{postgres}create index light_ready_claim on {s}light_ready (queue, name, priority, id);

-- Light tasks that run: all that one claim took of a queue. Those of them that are not light any more do not count.
{postgres}create table {s}light_claims (
{postgres}  token {id} not null,
{postgres}  queue text not null,
{postgres}  node_id {id} not null,
{postgres}  started_at {int8} not null,
{postgres}  ids text[] collate "C" not null,
{postgres}  primary key (token, queue)
{postgres});
{postgres}alter table {s}light_claims alter column ids set storage external;
`,
]

export const META_TABLE =
  'create table if not exists {s}meta (key text not null primary key, value text not null) {strict}'

export function schemaText(template: string, dialect: 'sqlite' | 'postgres'): string {
  const words =
    dialect === 'sqlite'
      ? { s: '', id: 'text', int4: 'integer', int8: 'integer', strict: 'strict', room: '', postgres: '-- ' }
      : {
          s: 'curfew.',
          id: 'text collate "C"',
          int4: 'integer',
          int8: 'bigint',
          strict: '',
          room: 'with (fillfactor = 80)',
          postgres: '',
        }
  return template.replace(/\{(\w+)\}/g, (_, word: string) => words[word as keyof typeof words])
}
