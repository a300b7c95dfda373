// Chaos runs by command: npm run faults -- [--load tasks|agents] [--store sqlite|postgres|both] [--seconds N] [--seed S]
// Prints a table; ends with 1 and keeps the journal when the auditor complains.

import { parseArgs } from 'node:util'
import { startPostgres } from '../scripts/postgres/postgres.ts'
import { AGENTS } from './agents/load.ts'
import type { ChaosOptions } from './chaos/driver.ts'
import { runChaos, runLoad } from './chaos/driver.ts'
import type { Run } from './chaos/summary.ts'

const MOST_SHOWN = 20

const { values } = parseArgs({
  options: {
    load: { type: 'string', default: 'tasks' },
    store: { type: 'string', default: 'both' },
    seconds: { type: 'string', default: '60' },
    seed: { type: 'string', default: String(Math.floor(Math.random() * 2 ** 31)) },
    'terminate-connections': { type: 'boolean', default: false },
  },
})
const seconds = Number(values.seconds)
const seed = Number(values.seed)
const known =
  ['tasks', 'agents'].includes(values.load) && ['sqlite', 'postgres', 'both'].includes(values.store)
if (!known || !(seconds > 0) || !Number.isInteger(seed)) {
  console.error(
    'usage: npm run faults -- [--load tasks|agents] [--store sqlite|postgres|both] [--seconds N] [--seed S]',
  )
  process.exit(2)
}

// Nothing is left behind: the watchers of the scratch folder and of the server see this process end.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(130))

const summaries: Run[] = []
console.log(`chaos of ${values.load} with seed ${seed}, ${seconds} s per store`)
if (values.store !== 'postgres') await run({ seconds, seed })
if (values.store !== 'sqlite') {
  const server = await startPostgres()
  try {
    const postgresUrl = await server.createDatabase()
    await run({ seconds, seed, postgresUrl, terminateConnections: values['terminate-connections'] })
  } finally {
    await server.remove()
  }
}
console.table(summaries)

async function run(options: ChaosOptions): Promise<void> {
  const { summary, complaints, kept } = await (values.load === 'agents'
    ? runLoad(AGENTS, options)
    : runChaos(options))
  summaries.push(summary)
  for (const { rule, taskId, text } of complaints.slice(0, MOST_SHOWN)) {
    console.error(`${rule}: ${taskId ?? ''} ${text}`)
  }
  if (kept === null) return
  console.error(`${complaints.length} complaints; journal and records are kept in ${kept}`)
  const { store } = summary
  console.error(
    `again: npm run faults -- --load ${values.load} --store ${store} --seconds ${seconds} --seed ${seed}`,
  )
  process.exitCode = 1
}
