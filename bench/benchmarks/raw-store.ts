// The statements of the raw limit, on each store in the shape that is fastest there.

import { DatabaseSync } from 'node:sqlite'
import { Client } from 'pg'
import { encodePolicy } from '../../src/definitions/policy-text.ts'
import { task } from '../../src/definitions/task.ts'
import { META_TABLE, MIGRATIONS, schemaText } from '../../src/store/migrations.ts'

export const BATCH = 500

export interface Claimed {
  id: string
  token: string
}

/** Each call writes and commits one batch. */
export interface RawStore {
  insert(): Promise<void> | void
  claim(): Promise<Claimed[]> | Claimed[]
  end(claimed: Claimed[]): Promise<void> | void
  close(): Promise<void> | void
}

const POLICY = encodePolicy(task({ name: 'noop', run: () => null }).policy)
export const NODE = `n_${'0'.repeat(26)}`
export const COLUMNS = 'name, queue, priority, status, ready, policy, node_id, created_at, start_at, grace_ms'
export const TYPES = ['text', 'text', 'int', 'text', 'int', 'text', 'text', 'int8', 'int8', 'int8']

export function sharedValues(name = 'noop', ready: 0 | 1 = 1): (string | number)[] {
  const now = Date.now()
  return [name, 'default', 0, 'pending', ready, POLICY, NODE, now, now, 5_000]
}

function idSource(): () => string[] {
  let next = 0
  return () => Array.from({ length: BATCH }, () => `t_${String(next++).padStart(26, '0')}`)
}

/** SQLite. */
const CLAIMABLE = `ready = 1 and queue = 'default' and name = 'noop' order by priority, id limit ${BATCH}`
export const STARTED = `status = 'running', ready = 0, live = 1, attempt = 1, started_seq = 2, seq = 2`
export const ENDED = `status = 'completed', live = 0, ended_seq = 3, seq = 3`

export async function openRawPostgres(url: string): Promise<RawStore> {
  const connect = async () => {
    const client = new Client({ connectionString: url })
    await client.connect()
    return client
  }
  const [inserter, claimer, ender] = await Promise.all([connect(), connect(), connect()])
  await createTables(inserter)
  const nextIds = idSource()
  let claims = 0
  const given = TYPES.map((type, i) => `$${i + 3}::${type}`)
  const start = given[8]
  const insert = `with u as materialized (select * from unnest($1::text[], $2::text[]) as u (id, input)),
    waits as (insert into curfew.light_ready (id, input, name, queue, priority, start_at)
      select u.id, u.input, ${given[0]}, ${given[1]}, ${given[2]}, ${start} from u)
    insert into curfew.tasks (id, input, light, ${COLUMNS}) select u.id, u.input, 1, ${given.join()} from u`
  const claim = `with taken as materialized (delete from curfew.light_ready where ctid = any (array(
      select ctid from curfew.light_ready where queue = 'default' and name = 'noop'
      order by priority, id limit ${BATCH} for update skip locked)) returning *),
    claimed as (insert into curfew.light_claims
      select $3, 'default', $1, $2, array_agg(id) from taken having count(*) > 0)
    select id, $3 as token, input, policy from taken`
  // The lateral lock cannot be flattened into a join, so no statistics make the planner scan the table.
  const end = `with ended as materialized (
      select l.ctid as place, u.token, u.output
      from unnest($1::text[], $2::text[], $3::text[]) as u (id, token, output)
      cross join lateral (select t.ctid from curfew.tasks t where t.id = u.id and t.light = 1 for update) l)
    update curfew.tasks t set ${ENDED}, light = 0, attempt = 1, started_seq = 2, started_at = $4, node_id = $5,
      token = ended.token, output = ended.output, ended_at = $4, settled_at = $4
    from ended where t.ctid = ended.place`
  const forget = 'delete from curfew.light_claims where token = $1'
  return {
    insert: async () => {
      const ids = nextIds()
      await inserter.query(insert, [ids, ids.map((_, n) => String(n)), ...sharedValues('noop', 0)])
    },
    claim: async () => (await claimer.query<Claimed>(claim, [NODE, Date.now(), `a_${++claims}`])).rows,
    end: async (claimed) => {
      const ids = claimed.map(({ id }) => id)
      const tokens = claimed.map(({ token }) => token)
      await ender.query('begin')
      await ender.query(end, [ids, tokens, ids.map(() => 'null'), Date.now(), NODE])
      await ender.query(forget, [tokens[0]])
      await ender.query('commit')
    },
    close: async () => {
      await Promise.all([inserter.end(), claimer.end(), ender.end()])
    },
  }
}

export async function createTables(client: Client): Promise<void> {
  await client.query('create schema if not exists curfew')
  for (const migration of [META_TABLE, ...MIGRATIONS]) await client.query(schemaText(migration, 'postgres'))
}

export function createFile(file: string): DatabaseSync {
  const database = new DatabaseSync(file)
  database.exec('pragma journal_mode = wal; pragma synchronous = full; pragma foreign_keys = on')
  for (const migration of [META_TABLE, ...MIGRATIONS]) database.exec(schemaText(migration, 'sqlite'))
  return database
}

/** Commits what the work has written. */
export function commit<T>(database: DatabaseSync, work: () => T): T {
  database.exec('begin immediate')
  const result = work()
  database.exec('commit')
  return result
}

export function openRawSqlite(file: string): RawStore {
  const database = createFile(file)
  const nextIds = idSource()
  const insert = database.prepare(
    `insert into tasks (id, input, ${COLUMNS})
    select value ->> 0, value ->> 1, ${TYPES.map(() => '?').join()} from json_each(?)`,
  )
  const claim = database.prepare(
    `update tasks set ${STARTED}, token = lower(hex(randomblob(16))), node_id = ?, started_at = ?
    where rowid in (select rowid from tasks where ${CLAIMABLE}) returning id, token, input, policy, attempt`,
  )
  const end = database.prepare(
    `update tasks set ${ENDED}, output = ?, ended_at = ?, settled_at = ?
    where id = ? and token = ? and status = 'running'`,
  )
  return {
    insert: () =>
      commit(database, () => {
        insert.run(...sharedValues(), JSON.stringify(nextIds().map((id, n) => [id, String(n)])))
      }),
    claim: () => commit(database, () => claim.all(NODE, Date.now()) as unknown as Claimed[]),
    end: (claimed) =>
      commit(database, () => {
        const now = Date.now()
        for (const { id, token } of claimed) end.run('null', now, now, id, token)
      }),
    close: () => database.close(),
  }
}
