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
  /** SQLite, with `each`: answers the first parameter, as `id`, of every set that changed no row. */
  readonly missed?: boolean
  /** PostgreSQL: it answers nothing when it changed so many rows, else what this does. */
  readonly unless?: { readonly changed: number; readonly ask: () => Statement<Row> }
  /** PostgreSQL: makes a row of its values. For many rows: the library's own way takes twice as long. */
  readonly read?: (values: readonly unknown[]) => Row
  /** Types only. */
  readonly row?: Row
}

/** The answer to a statement that was sent ahead. */
export interface Ticket<Row = unknown> {
  rows: Row[] | null
}

/** A statement whose answer is needed now; one that goes out ahead of the next; what has to be answered by now. */
export type Request = Statement | { start: Statement; ticket: Ticket } | { wait: Ticket | 'all' }

export type Work<T> = Generator<Request, T, unknown[]>

export function* run<Row>(statement: Statement<Row>): Work<Row[]> {
  return (yield statement) as Row[]
}

/**
 * Sends a statement without waiting: the next one goes out behind it, in the same round trip. Should it fail, so
 * does the transaction.
 */
export function* start<Row>(statement: Statement<Row>): Work<Ticket<Row>> {
  const ticket: Ticket<Row> = { rows: null }
  yield { start: statement, ticket }
  return ticket
}

export function* answer<Row>(ticket: Ticket<Row>): Work<Row[]> {
  if (ticket.rows === null) yield { wait: ticket }
  return ticket.rows ?? []
}

/** Waits for the answers to everything that was sent ahead. */
export function* allAnswered(): Work<void> {
  yield { wait: 'all' }
}

export function* startAll<Row>(statements: Statement<Row>[]): Work<Ticket<Row>[]> {
  const tickets: Ticket<Row>[] = []
  for (const statement of statements) tickets.push(yield* start(statement))
  return tickets
}

export function* runAll<Row>(statements: Statement<Row>[]): Work<Row[]> {
  const rows: Row[] = []
  for (const statement of statements) rows.push(...(yield* run(statement)))
  return rows
}
