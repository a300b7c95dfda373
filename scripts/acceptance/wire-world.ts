// What the tests of the wire stand on: engines that listen, workers and clients in this process, over real sockets and
// on the real clock. They wait for what happens, never for time to pass.
//   onEachWire('clients', (test) => test('…', async ({ wire }) => { const manager = await wire.open({ … }) }))

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import pg from 'pg'
import { test as base, describe, expect, inject, vi } from 'vitest'
import type { ConnectedCurfew, Logger, OpenOptions, WorkerProcess } from '../../src/curfew.ts'
import { Curfew } from '../../src/curfew.ts'
import { createDatabase, dropDatabase } from '../postgres/database.ts'

export const WIRE_STORES = ['file', 'postgres'] as const
export type WireStore = (typeof WIRE_STORES)[number]

type ConnectOptions = NonNullable<Parameters<typeof Curfew.connect>[1]>
type WorkOptions = Parameters<typeof Curfew.work>[0]

interface LogLine {
  level: keyof Logger
  fields: Record<string, unknown>
  message: string
}

export class WireWorld {
  readonly kind: WireStore
  readonly store: string
  readonly folder: string
  readonly log: LogLine[] = []
  readonly logger: Logger
  /** Closed in the opposite order, however the test ends. */
  readonly #closings: (() => Promise<unknown>)[] = []
  #stores = 0

  constructor(kind: WireStore, store: string, folder: string) {
    this.kind = kind
    this.store = store
    this.folder = folder
    const write = (level: keyof Logger) => (fields: object, message: string) => {
      this.log.push({ level, fields: { ...fields }, message })
    }
    this.logger = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') }
  }

  /** On loopback, unless something else is asked for. */
  async open(options: Omit<OpenOptions, 'store'> & { store?: string } = {}): Promise<Curfew> {
    const defaults = { store: this.store, listen: '127.0.0.1:0', logger: this.logger }
    const curfew = await Curfew.open({ ...defaults, ...options })
    this.atEnd(() => curfew.close())
    return curfew
  }

  /** Another one of the same kind. */
  async freshStore(): Promise<string> {
    if (this.kind === 'file') return path.join(this.folder, `fresh-${++this.#stores}.db`)
    const database = await createDatabase(inject('postgresUrl'))
    this.atEnd(() => dropDatabase(database))
    return database
  }

  /** An engine that runs nothing itself but graphs and jobs. */
  manager(options: Omit<OpenOptions, 'store'> & { store?: string } = {}): Promise<Curfew> {
    return this.open({ concurrency: 0, ...options })
  }

  async connect(to: Curfew | string, options: ConnectOptions = {}): Promise<ConnectedCurfew> {
    const client = await Curfew.connect(urlOf(to), options)
    this.atEnd(() => client.close())
    return client
  }

  /** Attached when it is answered. */
  async work(to: Curfew | string, options: Omit<WorkOptions, 'managers'> = {}): Promise<WorkerProcess> {
    const worker = await Curfew.work({ managers: urlOf(to), logger: this.logger, ...options })
    this.atEnd(() => worker.close())
    await worker.attached()
    return worker
  }

  /** Statements past the engine: on PostgreSQL at any time, on a file only while no engine has it open. */
  async sql(text: string, ...values: string[]): Promise<Record<string, unknown>[]> {
    if (this.kind === 'file') {
      const { DatabaseSync } = await import('node:sqlite')
      const database = new DatabaseSync(this.store)
      try {
        return database.prepare(text.replaceAll('curfew.', '').replaceAll(/\$(\d)/g, '?$1')).all(...values)
      } finally {
        database.close()
      }
    }
    const client = new pg.Client({ connectionString: this.store })
    await client.connect()
    try {
      return (await client.query(text, values)).rows
    } finally {
      await client.end()
    }
  }

  atEnd(close: () => Promise<unknown>): void {
    this.#closings.push(close)
  }

  async dispose(): Promise<void> {
    const failures: unknown[] = []
    for (const close of this.#closings.splice(0).reverse()) {
      await close().catch((error: unknown) => failures.push(error))
    }
    if (failures.length > 0) throw failures[0]
    // A request that fails for no reason of its caller is a bug, whatever the test was about.
    const ours = this.log.filter(({ message }) => message === 'a request failed for a reason of ours')
    expect(ours).toEqual([])
  }
}

function urlOf(to: Curfew | string): string {
  if (typeof to === 'string') return to
  const [first] = to.addresses
  if (first === undefined) throw new Error('this engine does not listen')
  return to.url ?? first
}

/** Asks until it is true, or answers something; a test that waits for nothing fails. */
export function until<T>(ask: () => T | Promise<T>, timeoutMs = 20_000): Promise<T> {
  return vi.waitFor(
    async () => {
      const answer = await ask()
      if (answer === false || answer === undefined || answer === null) throw new Error(`it never was: ${ask}`)
      return answer
    },
    { timeout: timeoutMs, interval: 10 },
  )
}

/** Handlers that stay until they are let go, by their input. */
export class Gates {
  readonly #gates = new Map<string, PromiseWithResolvers<unknown>>()
  readonly entered: string[] = []

  /** Resolves when it is opened; rejects when the signal aborts. */
  async pass(name: string, signal: AbortSignal): Promise<unknown> {
    this.entered.push(name)
    const stopped = Promise.withResolvers<never>()
    const onAbort = () => stopped.reject(signal.reason)
    signal.addEventListener('abort', onAbort, { once: true })
    try {
      return await Promise.race([this.#gate(name).promise, stopped.promise])
    } finally {
      signal.removeEventListener('abort', onAbort)
    }
  }

  open(name: string, value: unknown = name): void {
    this.#gate(name).resolve(value)
  }

  #gate(name: string): PromiseWithResolvers<unknown> {
    const gate = this.#gates.get(name) ?? Promise.withResolvers<unknown>()
    this.#gates.set(name, gate)
    return gate
  }
}

const withWire = (kind: WireStore) =>
  base.extend<{ wire: WireWorld }>({
    // biome-ignore lint/correctness/noEmptyPattern: vitest reads the names of the parameters
    wire: async ({}, use) => {
      const folder = await mkdtemp(path.join(tmpdir(), 'curfew-wire-'))
      const database = kind === 'postgres' ? await createDatabase(inject('postgresUrl')) : null
      const wire = new WireWorld(kind, database ?? path.join(folder, 'tasks.db'), folder)
      try {
        await use(wire)
      } finally {
        try {
          await wire.dispose()
        } finally {
          if (database !== null) await dropDatabase(database)
          await rm(folder, { recursive: true, force: true })
        }
      }
    },
  })

export function onEachWire(
  subject: string,
  suite: (test: ReturnType<typeof withWire>, kind: WireStore) => void,
  kinds: readonly WireStore[] = WIRE_STORES,
): void {
  for (const kind of kinds) describe(`${subject} (${kind})`, () => suite(withWire(kind), kind))
}
