/** Where the two databases spell the same thing differently. */
import { arrayLiteral, arrayOf } from './postgres/array-literal.ts'
import type { Statement } from './statement.ts'
import { column } from './task-row.ts'

type Columns<Row> = Record<keyof Row & string, 'text' | 'int4' | 'int8'>

export interface Dialect {
  readonly name: 'sqlite' | 'postgres'
  /** Prefix of every table. */
  readonly s: string
  /** By the indexes of attempts that hold a slot of this process, and of agents that have not settled. */
  holds(node: string): string
  keeps(node: string): string
  /** Row locks; SQLite has one writer and needs none. */
  readonly lock: { forUpdate: string; skipLocked: string }
  /** `in (…)` over one parameter that carries a list of texts, and that parameter's value. */
  inList(parameter: string): string
  list(values: readonly string[]): unknown
  insert<Row>(table: string, columns: Columns<Row>, rows: readonly Row[], suffix?: string): Statement
  /** Sets `fields` of the rows with these ids. `also`: what PostgreSQL sets besides, by the stored row `t` and the given `u`. */
  update<Row extends { id: string }>(
    table: string,
    columns: Columns<Row>,
    fields: readonly (keyof Row & string)[],
    rows: readonly Row[],
    also?: string,
  ): Statement
}

export const SQLITE: Dialect = {
  name: 'sqlite',
  s: '',
  holds: (node) => `node_id = ${node} and held = 1`,
  keeps: (node) => `node_id = ${node} and kind = 'agent' and settled_at is null`,
  lock: { forUpdate: '', skipLocked: '' },
  inList: (parameter) => `in (select value from json_each(${parameter}))`,
  list: (values) => JSON.stringify(values),
  insert(table, columns, rows, suffix = '') {
    const fields = Object.keys(columns) as (keyof (typeof rows)[number] & string)[]
    const names = fields.map(column).join(', ')
    const values = fields.map((_, i) => `$${i + 1}`).join(', ')
    return {
      sql: `insert into ${table} (${names}) values (${values}) ${suffix}`,
      params: [],
      each: rows.map((row) => fields.map((field) => row[field])),
    }
  },
  update(table, _columns, fields, rows) {
    const sets = fields.map((field, i) => `${column(field)} = $${i + 2}`).join(', ')
    return {
      sql: `update ${table} set ${sets} where id = $1`,
      params: [],
      each: rows.map((row) => [row.id, ...fields.map((field) => row[field])]),
    }
  },
}

export const POSTGRES: Dialect = {
  name: 'postgres',
  s: 'curfew.',
  holds: (node) => `holder = ${node}`,
  keeps: (node) => `keeper = ${node}`,
  lock: { forUpdate: 'for update', skipLocked: 'for update skip locked' },
  inList: (parameter) => `= any(${parameter}::text[])`,
  list: (values) => arrayLiteral(values),
  insert(table, columns, rows, suffix = '') {
    const fields = Object.keys(columns) as (keyof (typeof rows)[number] & string)[]
    const arrays = fields.map((field, i) => `$${i + 1}::${columns[field]}[]`).join(', ')
    return {
      sql: `insert into ${table} (${fields.map(column).join(', ')}) select * from unnest(${arrays}) ${suffix}`,
      params: fields.map((field) => arrayOf(rows, field)),
    }
  },
  update(table, columns, fields, rows, also) {
    const arrays = fields.map((field, i) => `$${i + 2}::${columns[field]}[]`).join(', ')
    const own = fields.map((field) => `${column(field)} = u.${column(field)}`)
    const sets = [...own, ...(also ? [also] : [])].join(', ')
    return {
      sql: `update ${table} t set ${sets} from unnest($1::text[], ${arrays}) as u (id, ${fields.map(column).join(', ')}) where t.id = u.id`,
      params: [arrayOf(rows, 'id'), ...fields.map((field) => arrayOf(rows, field))],
    }
  },
}
