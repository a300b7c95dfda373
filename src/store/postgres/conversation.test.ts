import pg from 'pg'
import { afterAll, beforeAll, expect, inject, test } from 'vitest'
import { createDatabase } from '../../../scripts/postgres/database.ts'
import { leftBehind } from '../../core/fixtures/old-space.ts'
import { VirtualClock } from '../../testing/testing.ts'
import { SharedDatabase } from '../fixtures/shared-database.ts'
import { run, start } from '../statement.ts'
import { connectionOptions } from './connection.ts'
import { Conversation } from './conversation.ts'
import { postgresError } from './postgres-error.ts'

let shared: SharedDatabase
beforeAll(async () => {
  shared = await SharedDatabase.open(() => createDatabase(inject('postgresUrl')))
})
afterAll(() => shared[Symbol.asyncDispose]())

const hold = { sql: 'select pg_advisory_lock(1)', params: [] }

async function connect(): Promise<pg.Client & AsyncDisposable> {
  const client = new pg.Client({ ...connectionOptions(shared.db.location), query_timeout: undefined })
  client.on('error', () => undefined) // the statement says it
  await client.connect()
  return Object.assign(client, { [Symbol.asyncDispose]: () => client.end() })
}

test('a server that does not answer is given up in time, and whatever was sent behind it with it', async () => {
  const clock = new VirtualClock()
  await using holder = await connect()
  await holder.query(hold.sql)
  await using client = await connect()
  const talk = new Conversation(client, clock)
  const waiting = Promise.allSettled([talk.drive(run(hold)), talk.commit()])
  await shared.untilWaiting('advisory')
  await clock.advance('34s')
  // Still there.
  await shared.untilWaiting('advisory')
  await clock.advance('2s')
  const [statement, commit] = await waiting
  for (const { reason } of [statement, commit] as PromiseRejectedResult[])
    expect(postgresError(reason)).toMatchObject({ code: 'store_unavailable' })
})

test('a commit behind a statement that failed says why, also where both are answered in one breath', async () => {
  const answers: ((error: Error | null, result?: unknown) => void)[] = []
  const client = { query: (_: unknown, answered: (typeof answers)[number]) => answers.push(answered) }
  const talk = new Conversation(client as unknown as pg.PoolClient)
  await talk.drive(start({ sql: 'insert', params: [] }))
  const error = talk.commit().catch((thrown: unknown) => thrown)
  answers[0]?.(Object.assign(new Error('away'), { code: '57P03' }))
  answers[1]?.(null, { command: 'ROLLBACK', rows: [] })
  expect(await error).toMatchObject({ message: 'away' })
})

test('one that answers has all the time again with the next', async () => {
  const clock = new VirtualClock()
  await using client = await connect()
  const talk = new Conversation(client, clock)
  for (let i = 0; i < 3; i++) {
    await talk.drive(run({ sql: 'select 1', params: [] }))
    await clock.advance('30s')
  }
  await talk.drive(run({ sql: 'select 1', params: [] }))
})

test('rows that were read do not stay in memory for those that came later', async () => {
  const sql = `select g, repeat('x', 300) as text from generate_series(1, $1::int) g`
  const read = (values: readonly unknown[]) => [...values]
  await using client = await connect()
  const megabytes = await leftBehind(async () => {
    for (let i = 0; i < 10; i++) await new Conversation(client).drive(run({ sql, params: [200], read }))
  })
  expect(megabytes).toBeLessThan(10)
})
