/** The rows of processes: who there is, until when each may decide, and since when it is gone. */
import type { Dialect } from '../store/dialect.ts'
import { POSTGRES, SQLITE } from '../store/dialect.ts'
import type { Statement } from '../store/statement.ts'

export interface NodeRow {
  id: string
  epoch: number
  renewedAt: number
  leadUntil: number
  goneAt: number | null
}

const SELECT = `id, epoch, renewed_at as "renewedAt", lead_until as "leadUntil", gone_at as "goneAt"`

export class NodeStatements {
  readonly #s: string
  readonly #d: Dialect

  constructor(dialect: 'sqlite' | 'postgres') {
    this.#d = dialect === 'postgres' ? POSTGRES : SQLITE
    this.#s = this.#d.s
  }

  list(): Statement<NodeRow> {
    return { sql: `select ${SELECT} from ${this.#s}nodes order by id`, params: [] }
  }

  /** Signs in; a process that was declared gone comes back with a higher epoch. */
  signIn(node: {
    id: string
    host: string
    pid: number
    now: number
    leadUntil: number
  }): Statement<{ epoch: number }> {
    return {
      sql: `insert into ${this.#s}nodes (id, epoch, host, pid, started_at, renewed_at, lead_until)
        values ($1, 1, $2, $3, $4, $4, $5)
        on conflict (id) do update set epoch = nodes.epoch + 1, renewed_at = $4, lead_until = $5, gone_at = null
        returning epoch`,
      params: [node.id, node.host, node.pid, node.now, node.leadUntil],
    }
  }

  /** Ends the leadership of a process whose lease is over. Waits for its transaction in flight, if there is one. */
  depose(node: NodeRow): Statement<{ id: string }> {
    return {
      sql: `update ${this.#s}nodes set epoch = epoch + 1, lead_until = 0
        where id = $1 and epoch = $2 and renewed_at = $3 and gone_at is null returning id`,
      params: [node.id, node.epoch, node.renewedAt],
    }
  }

  /** Proven gone: by its goodbye, its witness, its lock, or because nothing of it lives any more. */
  setGone(nodeId: string, now: number): Statement {
    return {
      sql: `update ${this.#s}nodes set epoch = epoch + 1, lead_until = 0, gone_at = $2 where id = $1 and gone_at is null`,
      params: [nodeId, now],
    }
  }

  /** Forgets those that are gone and have nothing left. */
  removeGone(before: number): Statement {
    const { s, name, holds, keeps } = this.#d
    const light = `and not exists (select 1 from curfew.light_claims c where c.node_id = nodes.id)`
    return {
      sql: `delete from ${s}nodes where gone_at < $1
        and not exists (select 1 from ${s}tasks t where ${holds('nodes.id')})
        and not exists (select 1 from ${s}tasks t where ${keeps('nodes.id')} and live = 1)
        ${name === 'postgres' ? light : ''}`,
      params: [before],
    }
  }

  readMeta(key: string): Statement<{ value: string }> {
    return { sql: `select value from ${this.#s}meta where key = $1`, params: [key] }
  }

  /** Counts up, and answers where it is. */
  nextMeta(key: string): Statement<{ value: string }> {
    const int = this.#s ? 'bigint' : 'integer'
    return {
      sql: `insert into ${this.#s}meta (key, value) values ($1, '1') on conflict (key) do update
        set value = cast(cast(meta.value as ${int}) + 1 as text) returning value`,
      params: [key],
    }
  }

  /** A number that only ever rises. */
  raiseMeta(key: string, value: number): Statement {
    return {
      sql: `insert into ${this.#s}meta (key, value) values ($1, $2) on conflict (key) do update set value = excluded.value
        where cast(meta.value as ${this.#s ? 'bigint' : 'integer'}) < cast(excluded.value as ${this.#s ? 'bigint' : 'integer'})`,
      params: [key, String(value)],
    }
  }
}
