// What the acceptance tests stand on: an engine on the virtual clock, over every kind of store.
//   onEachStore('limits', (test) => test('…', async ({ world }) => { const curfew = await world.open({ … }) }))

import { copyFile, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import pg from 'pg'
import { test as base, describe, inject } from 'vitest'
import type { Clock, Logger, MetricView, OpenOptions } from '../../src/curfew.ts'
import { Curfew } from '../../src/curfew.ts'
import { HELD_WRONGLY } from '../../src/store/fixtures/stores.ts'
import { VirtualClock } from '../../src/testing/testing.ts'
import { createDatabase } from '../postgres/database.ts'

export const STORE_KINDS = ['memory', 'file', 'postgres'] as const
export type StoreKind = (typeof STORE_KINDS)[number]

interface LogLine {
  level: keyof Logger
  fields: Record<string, unknown>
  message: string
}

/** One store, the engines opened over it, and the clock they share. */
export class World {
  readonly kind: StoreKind
  readonly log: LogLine[] = []
  readonly logger: Logger
  store: string
  clock = new VirtualClock()
  readonly #folder: string
  readonly #engines = new Map<Curfew, VirtualClock | null>()
  #copies = 0

  constructor(kind: StoreKind, store: string, folder: string) {
    this.kind = kind
    this.store = store
    this.#folder = folder
    const write = (level: keyof Logger) => (fields: object, message: string) => {
      this.log.push({ level, fields: { ...fields }, message })
    }
    this.logger = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') }
  }

  get now(): number {
    return this.clock.wall()
  }

  /** On the world's clock, unless another one is given; closed by the end of the test. */
  async open(options: Omit<OpenOptions, 'store' | 'clock'> & { clock?: Clock } = {}): Promise<Curfew> {
    const curfew = await Curfew.open({
      clock: this.clock,
      logger: this.logger,
      ...options,
      store: this.store,
    })
    this.#engines.set(curfew, options.clock ? null : this.clock)
    return curfew
  }

  /**
   * As if the process had been killed now: what is committed is kept, the engines so far never act again. (Their
   * clock stands still. Over a file the next one works on a copy, as the lock dies only with its process.)
   */
  async crash(): Promise<void> {
    this.clock = new VirtualClock(this.now)
    if (this.kind !== 'file') return
    const copy = path.join(this.#folder, `copy-${++this.#copies}.db`)
    await copyFile(this.store, copy)
    await copyFile(`${this.store}-wal`, `${copy}-wal`)
    this.store = copy
  }

  /** Second by second, so that every renewal of a lease takes place: with processes that have died it matters. */
  async runFor(seconds: number): Promise<void> {
    for (let second = 0; second < seconds; second++) await this.clock.advance('1s')
  }

  /** Closes it while its clock runs on. */
  async close(curfew: Curfew, options: Parameters<Curfew['close']>[0] = {}): Promise<void> {
    const clock = this.#engines.get(curfew)
    this.#engines.delete(curfew)
    let closed = false
    const closing = curfew.close(options).finally(() => {
      closed = true
    })
    for (let turns = 1; clock && !closed; turns++) {
      // Time runs only while something waits for it: attempts, or (every so often) leases to be renewed.
      if ((await metric(curfew, 'curfew_slots', { state: 'taken' })) > 0 || turns % 20_000 === 0) {
        await clock.advance('1s')
      } else await new Promise<void>((resolve) => setImmediate(resolve))
    }
    await closing
  }

  /** Statements past the engine: on PostgreSQL at any time, on a file only while no engine has it open. */
  async sql(text: string, ...values: unknown[]): Promise<Record<string, unknown>[]> {
    if (this.kind === 'postgres') return query(this.store, text, values)
    const { DatabaseSync } = await import('node:sqlite')
    const database = new DatabaseSync(this.store)
    try {
      return database.prepare(text.replaceAll('curfew.', '')).all(...(values as string[]))
    } finally {
      database.close()
    }
  }

  async dispose(): Promise<void> {
    for (const curfew of [...this.#engines.keys()].reverse()) await this.close(curfew)
    if (this.kind !== 'postgres') return
    const wrong = await this.sql(`select id from curfew.tasks where ${HELD_WRONGLY.postgres}`)
    if (wrong.length) throw new Error(`held is not what live says: ${JSON.stringify(wrong)}`)
  }
}

async function query(url: string, text: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    return (await client.query(text, values)).rows
  } finally {
    await client.end()
  }
}

/** One database for a file of tests, emptied before each. */
let database: Promise<string> | undefined

async function emptyDatabase(): Promise<string> {
  if (database !== undefined) {
    const url = await database
    await query(
      url,
      `truncate curfew.tasks, curfew.light_ready, curfew.light_claims, curfew.journal, curfew.signals, curfew.attempts,
        curfew.events, curfew.nodes, curfew.queues`,
    )
    await query(url, `delete from curfew.meta where key <> 'schema_version'`)
    return url
  }
  database = createDatabase(inject('postgresUrl'))
  return database
}

const withWorld = (kind: StoreKind) =>
  base.extend<{ world: World }>({
    // biome-ignore lint/correctness/noEmptyPattern: vitest reads the names of the parameters
    world: async ({}, use) => {
      const folder = await mkdtemp(path.join(tmpdir(), 'curfew-world-'))
      const store =
        kind === 'postgres'
          ? await emptyDatabase()
          : kind === 'file'
            ? path.join(folder, 'tasks.db')
            : ':memory:'
      const world = new World(kind, store, folder)
      try {
        await use(world)
      } finally {
        await world.dispose()
        await rm(folder, { recursive: true, force: true })
      }
    },
  })

export function onEachStore(
  subject: string,
  suite: (test: ReturnType<typeof withWorld>, kind: StoreKind) => void,
  kinds: readonly StoreKind[] = STORE_KINDS,
): void {
  for (const kind of kinds) describe(`${subject} (${kind})`, () => suite(withWorld(kind), kind))
}

/** The value of one series; 0 when it was never touched. `part`: `count` or `sum` of a histogram. */
export async function metric(
  curfew: Curfew,
  name: string,
  labels: Record<string, string> = {},
  part?: 'count' | 'sum',
): Promise<number> {
  const found = (await curfew.metrics()).find((one: MetricView) => one.name === name)
  if (!found) throw new Error(`there is no metric ${name}`)
  const series = part && `${name}_${part}`
  return found.values
    .filter(({ metricName }) => series === undefined || metricName === series)
    .filter((value) => Object.entries(labels).every(([key, wanted]) => value.labels[key] === wanted))
    .reduce((sum, { value }) => sum + value, 0)
}

/** The error a promise ends with, of the class that is expected. */
export async function errorOf<T extends Error>(
  promise: Promise<unknown>,
  // biome-ignore lint/suspicious/noExplicitAny: any constructor of it
  type: new (...args: any[]) => T,
): Promise<T> {
  const outcome = await promise.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  )
  if (!('error' in outcome)) throw new Error(`expected ${type.name}, got ${JSON.stringify(outcome.value)}`)
  if (!(outcome.error instanceof type)) throw outcome.error
  return outcome.error
}
