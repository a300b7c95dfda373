// One PostgreSQL server for a whole run of the tests. A test file makes itself a database on it:
//   const url = await createDatabase(inject('postgresUrl'))

import type { TestProject } from 'vitest/node'
import { startPostgres } from './postgres.ts'

declare module 'vitest' {
  export interface ProvidedContext {
    /** A superuser's URL of the run's PostgreSQL server. */
    postgresUrl: string
  }
}

export default async function setUp(project: TestProject): Promise<() => Promise<void>> {
  const server = await startPostgres()
  project.provide('postgresUrl', server.url())
  return () => server.remove()
}
