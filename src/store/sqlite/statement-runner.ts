/** Runs work on one connection, without ever awaiting. Statements are prepared once. */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { Statement, Work } from '../statement.ts'

export class StatementRunner {
  readonly #database: DatabaseSync
  readonly #prepared = new Map<string, StatementSync>()

  constructor(database: DatabaseSync) {
    this.#database = database
  }

  drive<T>(work: Work<T>): T {
    let step = work.next()
    while (!step.done) {
      const request = step.value
      if ('start' in request) request.ticket.rows = this.#run(request.start)
      step = work.next('sql' in request ? this.#run(request) : [])
    }
    return step.value
  }

  #run({ sql, params, each, missed }: Statement): unknown[] {
    let prepared = this.#prepared.get(sql)
    if (!prepared) {
      prepared = this.#database.prepare(sql.replace(/\$(\d+)/g, '?$1'))
      this.#prepared.set(sql, prepared)
    }
    if (!each) return prepared.all(...(params as never[]))
    const rows: unknown[] = []
    // A count is much cheaper than `returning`, which goes through a table of its own.
    if (missed) {
      for (const set of each) if (prepared.run(...(set as never[])).changes === 0) rows.push({ id: set[0] })
      return rows
    }
    for (const set of each) {
      const row = prepared.get(...(set as never[]))
      if (row !== undefined) rows.push(row)
    }
    return rows
  }

  /** Before its database is closed. */
  clear(): void {
    this.#prepared.clear()
  }
}
