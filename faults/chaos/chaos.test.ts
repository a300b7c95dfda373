import { expect, inject, test } from 'vitest'
import { createDatabase, dropDatabase } from '../../scripts/postgres/database.ts'
import type { ChaosOptions } from './driver.ts'
import { runChaos } from './driver.ts'

const seconds = Number(process.env.FAULTS_CHAOS_SECONDS ?? 40)
const seed = Number(process.env.FAULTS_CHAOS_SEED ?? Math.floor(Math.random() * 2 ** 31))
const LIMIT_MS = (seconds + 300) * 1_000

async function expectNoComplaints(options: ChaosOptions): Promise<void> {
  const { summary, complaints, kept } = await runChaos(options)
  console.table([summary])
  if (kept) console.error(`seed ${seed}; journal and records are kept in ${kept}`)
  expect(complaints.slice(0, 20)).toEqual([])
  expect(summary.tasks).toBeGreaterThan(0)
  expect(summary.kills).toBeGreaterThan(0)
}

async function withDatabase(run: (url: string) => Promise<void>): Promise<void> {
  const url = await createDatabase(inject('postgresUrl'))
  try {
    await run(url)
  } finally {
    await dropDatabase(url)
  }
}

test('over SQLite an engine that is killed again and again keeps its promises', { timeout: LIMIT_MS }, () =>
  expectNoComplaints({ seconds, seed }),
)

test('on PostgreSQL three that are killed again and again do', { timeout: LIMIT_MS }, () =>
  withDatabase((postgresUrl) => expectNoComplaints({ seconds, seed, postgresUrl })),
)

test('on PostgreSQL three whose connections end at random do', { timeout: LIMIT_MS }, () =>
  withDatabase((postgresUrl) =>
    expectNoComplaints({
      seconds: Math.min(seconds, 20),
      seed,
      postgresUrl,
      kills: false,
      terminateConnections: true,
    }),
  ),
)
