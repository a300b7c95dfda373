// A connection of the benchmark's own, for looking at what a contender wrote.

import { Client } from 'pg'

export interface DatabaseProbe {
  /** The first column of the first row. */
  value<T>(sql: string, values?: unknown[]): Promise<T>
  rows<T extends object>(sql: string, values?: unknown[]): Promise<T[]>
  end(): Promise<void>
}

export async function probeDatabase(url: string): Promise<DatabaseProbe> {
  const client = new Client({ connectionString: url })
  await client.connect()
  return {
    value: async <T>(sql: string, values?: unknown[]) => {
      const { rows } = await client.query<[T]>({ text: sql, values, rowMode: 'array' })
      const row = rows[0]
      if (!row) throw new Error(`no rows: ${sql}`)
      return row[0]
    },
    rows: async <T extends object>(sql: string, values?: unknown[]) =>
      (await client.query<T>(sql, values)).rows,
    end: () => client.end(),
  }
}
