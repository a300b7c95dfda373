// Fresh databases on a server that is already running. A test gets the server's URL from vitest:
//   const url = await createDatabase(inject('postgresUrl'))

import { randomBytes } from 'node:crypto'
import { Client, escapeIdentifier } from 'pg'

/** Makes an empty database on the server of this URL and answers the new one's URL. */
export async function createDatabase(serverUrl: string): Promise<string> {
  const name = `test_${randomBytes(6).toString('hex')}`
  // template0: nobody can be connected to it, so several of these may run at once.
  await execute(serverUrl, `create database ${escapeIdentifier(name)} template template0`)
  return databaseUrl(serverUrl, name)
}

/** Ends the connections that are still open to it. */
export async function dropDatabase(url: string): Promise<void> {
  const name = decodeURIComponent(new URL(url).pathname.slice(1))
  await execute(
    databaseUrl(url, 'postgres'),
    `drop database if exists ${escapeIdentifier(name)} with (force)`,
  )
}

/** The same server and credentials, another database. */
export function databaseUrl(serverUrl: string, database: string): string {
  const url = new URL(serverUrl)
  url.pathname = `/${encodeURIComponent(database)}`
  return url.href
}

async function execute(url: string, statement: string): Promise<void> {
  const client = new Client({ connectionString: url })
  await client.connect()
  try {
    await client.query(statement)
  } finally {
    await client.end()
  }
}
