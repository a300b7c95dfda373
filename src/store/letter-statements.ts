/** The statements of dead letters: one text for both dialects. */
import type { DeadLetterState } from '../core/dead-letter.ts'
import type { Dialect } from './dialect.ts'
import type { LetterRow } from './letter-row.ts'
import { LETTER_COLUMNS } from './letter-row.ts'
import type { Statement } from './statement.ts'
import { selectList } from './task-row.ts'

export interface LetterFilter {
  jobId: string | null
  itemIds: readonly string[] | null
  state: DeadLetterState | null
  errorType: string | null
  /** Only what this run works on again. */
  retryId: string | null
}

/** Where a page starts. */
export interface LetterPlace {
  jobId: string
  itemId: string
}

/** All but the body, which may be long. */
const HEAD_FIELDS = Object.keys(LETTER_COLUMNS).filter((field) => field !== 'body')

/** `item-9` before `item-10`. */
const ITEM_ORDER = 'length(item_id), item_id'

const CHANGED = ['state', 'error_type', 'message', 'name', 'body', 'attempts', 'updated_at', 'retry_id']
  .map((name) => `${name} = excluded.${name}`)
  .join(', ')

export class LetterStatements {
  readonly #d: Dialect

  constructor(dialect: Dialect) {
    this.#d = dialect
  }

  /** New ones, or in place of what was there. No two of the same item. */
  put(rows: readonly LetterRow[]): Statement {
    const suffix = `on conflict (job_id, item_id) do update set ${CHANGED}`
    return this.#d.insert(`${this.#d.s}dead_letters`, LETTER_COLUMNS, rows, suffix)
  }

  /** In place of one that this run works on again; of nobody else's. */
  putRetried(row: LetterRow, runIds: readonly string[]): Statement {
    const d = this.#d
    return {
      sql: `update ${d.s}dead_letters set state = 'open', error_type = $4, message = $5, name = $6, body = $7,
        attempts = $8, updated_at = $9, retry_id = null
        where job_id = $1 and item_id = $2 and retry_id ${d.inList('$3')}`,
      params: [
        ...[row.jobId, row.itemId, d.list(runIds), row.errorType, row.message, row.name, row.body],
        ...[row.attempts, row.updatedAt],
      ],
    }
  }

  /** `runIds`: only one that one of these works on again. */
  resolve({ jobId, itemId }: LetterPlace, now: number, runIds: readonly string[] | null): Statement {
    const d = this.#d
    const whose = runIds === null ? '' : `and retry_id ${d.inList('$4')}`
    return {
      sql: `update ${d.s}dead_letters set state = 'resolved', updated_at = $3, retry_id = null
        where job_id = $1 and item_id = $2 and state <> 'resolved' ${whose}`,
      params: [jobId, itemId, now, ...(runIds === null ? [] : [d.list(runIds)])],
    }
  }

  /** By job, the newest first, then by item. */
  list(
    filter: LetterFilter,
    { after, limit, bodies }: { after: LetterPlace | null; limit: number; bodies: boolean },
  ): Statement<Omit<LetterRow, 'body'> & { body?: string }> {
    const { where, params, param } = this.#where(filter)
    if (after) {
      const [job, item] = [param(after.jobId), `cast(${param(after.itemId)} as text)`]
      where.push(`(job_id < ${job} or job_id = ${job} and (length(item_id) > length(${item})
        or length(item_id) = length(${item}) and item_id > ${item}))`)
    }
    const fields = bodies ? [...HEAD_FIELDS, 'body'] : HEAD_FIELDS
    return {
      sql: `select ${selectList(fields, 'l')} from ${this.#d.s}dead_letters l where ${where.join(' and ')}
        order by job_id desc, ${ITEM_ORDER} limit ${param(limit)}`,
      params,
    }
  }

  /** Locked, in the order of their items. */
  lock(filter: LetterFilter): Statement<Pick<LetterRow, 'itemId' | 'state' | 'retryId' | 'retriedAt'>> {
    const { where, params } = this.#where(filter)
    const fields = selectList(['itemId', 'state', 'retryId', 'retriedAt'], 'l')
    return {
      sql: `select ${fields} from ${this.#d.s}dead_letters l where ${where.join(' and ')}
        order by job_id, item_id ${this.#d.lock.forUpdate}`,
      params,
    }
  }

  /** Of these runs those that have a record, and whether they have come to their end. */
  runs(ids: readonly string[]): Statement<{ id: string; isOver: 0 | 1 }> {
    const d = this.#d
    return {
      sql: `select id, case when settled_at is null then 0 else 1 end as "isOver" from ${d.s}tasks
        where id ${d.inList('$1')}`,
      params: [d.list(ids)],
    }
  }

  claim(jobId: string, itemIds: readonly string[], retryId: string, now: number): Statement {
    const d = this.#d
    return {
      sql: `update ${d.s}dead_letters set retry_id = $3, retried_at = $4
        where job_id = $1 and item_id ${d.inList('$2')}`,
      params: [jobId, d.list(itemIds), retryId, now],
    }
  }

  discard(jobId: string, itemIds: readonly string[], now: number): Statement {
    const d = this.#d
    return {
      sql: `update ${d.s}dead_letters set state = 'discarded', updated_at = $3, retry_id = null
        where job_id = $1 and item_id ${d.inList('$2')}`,
      params: [jobId, d.list(itemIds), now],
    }
  }

  /** Some of those that have not been open since then. */
  removeOver(before: number, limit: number): Statement {
    const table = `${this.#d.s}dead_letters`
    return {
      sql: `delete from ${table} where (job_id, item_id) in
        (select job_id, item_id from ${table} where state <> 'open' and updated_at < $1 limit $2)`,
      params: [before, limit],
    }
  }

  #where({ jobId, itemIds, state, errorType, retryId }: LetterFilter) {
    const d = this.#d
    const params: unknown[] = []
    const param = (value: unknown) => `$${params.push(value)}`
    const where = ['1 = 1']
    if (jobId !== null) where.push(`job_id = ${param(jobId)}`)
    if (itemIds !== null) where.push(`item_id ${d.inList(param(d.list(itemIds)))}`)
    if (state !== null) where.push(`state = ${param(state)}`)
    if (errorType !== null) where.push(`error_type = ${param(errorType)}`)
    if (retryId !== null) where.push(`retry_id = ${param(retryId)}`)
    return { where, params, param }
  }
}
