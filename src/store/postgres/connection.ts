/** How every connection to PostgreSQL is made. */
import pg from 'pg'

const INT8 = 20

/** Times and counts fit a double; pg would give texts. */
const types: pg.CustomTypesConfig = {
  getTypeParser: (oid: number, format?: string) =>
    oid === INT8 ? Number : pg.types.getTypeParser(oid, format as 'text'),
}

/** A server that stopped answering must not hold a caller for ever. Statements of transactions have less than that. */
export const ANSWER_WITHIN_MS = 35_000

export function connectionOptions(url: string): pg.ClientConfig {
  return {
    connectionString: url,
    types,
    connectionTimeoutMillis: 5_000,
    query_timeout: ANSWER_WITHIN_MS,
    keepAlive: true,
    application_name: 'curfew',
  }
}

/** The one place that asks the database for the time. */
export const READ_CLOCK = 'select floor(extract(epoch from clock_timestamp()) * 1000)::int8 as raw'
