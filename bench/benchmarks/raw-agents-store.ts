// The statements of the raw limit of agents, on each store in the shape that is fastest there.

import { Client } from 'pg'
import { numbers } from '../benchmark.ts'
import type { Child, RawAgents } from './raw-agents.ts'
import {
  COLUMNS,
  commit,
  createFile,
  createTables,
  ENDED,
  NODE,
  STARTED,
  sharedValues,
  TYPES,
} from './raw-store.ts'

const FIRST_TURN = `status = 'running', live = 1, attempt = 1, woken_at = null, started_seq = 2, seq = 2`
const WAITING = 'live = 0, seen = results, steps = steps + 1, open = open + 1'
const NEXT_TURN = 'live = 1, attempt = attempt + 1, results = results + 1, open = open - 1'
const AGENT_ENDED = `status = 'completed', live = 0, seen = results, waits = null, token = null,
  output = 'null', ended_seq = 3, seq = 3`

const waitText = (step: number, left: 0 | 1) =>
  JSON.stringify({ steps: [{ mode: 'each', steps: [[step, step]], left }], since: Date.now() })

function tokenSource(): () => string {
  let made = 0
  return () => `a_${String(made++).padStart(26, '0')}`
}

const nextToken = tokenSource()
let tasks = 0
const taskIds = (count: number) => numbers(count).map(() => `t_${String(tasks++).padStart(26, '0')}`)

export async function openPostgresAgents(url: string, connections: number): Promise<RawAgents[]> {
  const clients = await Promise.all(
    numbers(connections).map(async () => {
      const client = new Client({ connectionString: url })
      await client.connect()
      // As the engine does: no statistics make the planner scan the table.
      await client.query('set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off')
      return client
    }),
  )
  await createTables(clients[0]!)
  return clients.map((client, n) => postgresLane(client, `noop-${n}`))
}

function postgresLane(client: Client, taskName: string): RawAgents {
  const shared = (from: number) => TYPES.map((type, i) => `$${i + from}::${type}`).join()
  const statement = async (name: string, text: string, values: unknown[]) =>
    (await client.query({ name, text, values })).rows
  const insertAgents = `insert into curfew.tasks (id, woken_at, input, kind, ${COLUMNS})
    select u.id, $2, 'null', 'agent', ${shared(3)} from unnest($1::text[]) as u (id)`
  const firstTurn = `update curfew.tasks set ${FIRST_TURN}, token = $2, node_id = $3, started_at = $4
    where id = any ($1::text[]) and live = 0`
  const wait = `with children as (
      insert into curfew.tasks (id, parent_id, root_id, step, input, ${COLUMNS})
      select u.id, u.parent_id, u.parent_id, $3, $4, ${shared(6)}
      from unnest($1::text[], $2::text[]) as u (id, parent_id))
    update curfew.tasks set ${WAITING}, waits = $5 where id = any ($2::text[]) and live = 1`
  const claim = `update curfew.tasks set ${STARTED}, holder = $3, token = $2, node_id = $3, started_at = $4
    where ctid = any (array(
      select ctid from curfew.tasks where ready = 1 and queue = 'default' and name = $1
      order by priority, id limit 500 for update skip locked))
    returning id, token, input, policy, attempt, step, parent_id as "parentId"`
  const resume = `with ended as (
      update curfew.tasks t set ${ENDED}, holder = null, output = 'null', result_seq = $4, ended_at = $5, settled_at = $5
      from unnest($1::text[], $2::text[]) as u (id, token)
      where t.id = u.id and t.token = u.token and t.status = 'running')
    update curfew.tasks set ${NEXT_TURN}, token = $6, waits = $7 where id = any ($3::text[]) and live = 0`
  const end = `update curfew.tasks set ${AGENT_ENDED}, ended_at = $2, settled_at = $2
    where id = any ($1::text[]) and live = 1`
  return {
    start: async (ids) => {
      await statement('insert', insertAgents, [ids, Date.now(), ...sharedValues('steps', 0)])
      await statement('first', firstTurn, [ids, nextToken(), NODE, Date.now()])
    },
    wait: async (ids, step) => {
      const input = JSON.stringify({ step })
      const values = [taskIds(ids.length), ids, step, input, waitText(step, 1), ...sharedValues(taskName)]
      await statement('wait', wait, values)
    },
    claim: () => statement('claim', claim, [taskName, nextToken(), NODE, Date.now()]),
    resume: async (children, step) => {
      const column = (field: keyof Child) => children.map((child) => child[field])
      const places = [step + 1, Date.now(), nextToken(), waitText(step, 0)]
      await statement('resume', resume, [column('id'), column('token'), column('parentId'), ...places])
    },
    end: async (ids) => {
      await statement('end', end, [ids, Date.now()])
    },
    close: () => client.end(),
  }
}

export function openSqliteAgents(file: string): RawAgents {
  const database = createFile(file)
  const marks = TYPES.map(() => '?').join()
  const insertAgent = database.prepare(
    `insert into tasks (id, woken_at, input, kind, ${COLUMNS}) values (?, ?, 'null', 'agent', ${marks})`,
  )
  const firstTurn = database.prepare(
    `update tasks set ${FIRST_TURN}, token = ?, node_id = ?, started_at = ? where id = ? and live = 0`,
  )
  const insertChild = database.prepare(
    `insert into tasks (id, parent_id, root_id, step, input, ${COLUMNS}) values (?, ?, ?, ?, ?, ${marks})`,
  )
  const wait = database.prepare(`update tasks set ${WAITING}, waits = ? where id = ? and live = 1`)
  const claim = database.prepare(
    `update tasks set ${STARTED}, token = ?, node_id = ?, started_at = ?
    where rowid in (select rowid from tasks where ready = 1 and queue = 'default' and name = 'noop'
      order by priority, id limit 500)
    returning id, token, input, policy, attempt, step, parent_id as "parentId"`,
  )
  const endChild = database.prepare(
    `update tasks set ${ENDED}, output = 'null', result_seq = ?, ended_at = ?, settled_at = ?
    where id = ? and token = ? and status = 'running'`,
  )
  const nextTurn = database.prepare(
    `update tasks set ${NEXT_TURN}, token = ?, waits = ? where id = ? and live = 0`,
  )
  const end = database.prepare(
    `update tasks set ${AGENT_ENDED}, ended_at = ?, settled_at = ? where id = ? and live = 1`,
  )
  return {
    start: (ids) => {
      const now = Date.now()
      commit(database, () => {
        for (const id of ids) insertAgent.run(id, now, ...sharedValues('steps', 0))
      })
      commit(database, () => {
        for (const id of ids) firstTurn.run(nextToken(), NODE, now, id)
      })
    },
    wait: (ids, step) =>
      commit(database, () => {
        const input = JSON.stringify({ step })
        const waits = waitText(step, 1)
        const values = sharedValues()
        for (const [n, child] of taskIds(ids.length).entries()) {
          insertChild.run(child, ids[n]!, ids[n]!, step, input, ...values)
          wait.run(waits, ids[n]!)
        }
      }),
    claim: () => commit(database, () => claim.all(nextToken(), NODE, Date.now()) as unknown as Child[]),
    resume: (children, step) =>
      commit(database, () => {
        const now = Date.now()
        const token = nextToken()
        const waits = waitText(step, 0)
        for (const child of children) {
          endChild.run(step + 1, now, now, child.id, child.token)
          nextTurn.run(token, waits, child.parentId)
        }
      }),
    end: (ids) =>
      commit(database, () => {
        const now = Date.now()
        for (const id of ids) end.run(now, now, id)
      }),
    close: () => database.close(),
  }
}
