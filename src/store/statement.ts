/**
 * Work against the store is written as generators that yield statements and get rows back.
 * SQLite drives them without ever awaiting, so nothing can come between two statements of a transaction;
 * PostgreSQL drives the same ones over a connection.
 */

export interface Statement<Row = unknown> {
  readonly sql: string
  readonly params: readonly unknown[]
  /** SQLite: run once per set of parameters, in one go. */
  readonly each?: readonly (readonly unknown[])[]
  /** SQLite, with `each`: answers the first parameter, as `id`, of every set that changed a row. */
  readonly changed?: boolean
  /** Types only. */
  readonly row?: Row
}

export type Work<T> = Generator<Statement, T, unknown[]>

export function* run<Row>(statement: Statement<Row>): Work<Row[]> {
  return (yield statement) as Row[]
}

export function* runAll<Row>(statements: Statement<Row>[]): Work<Row[]> {
  const rows: Row[] = []
  for (const statement of statements) rows.push(...(yield* run(statement)))
  return rows
}
