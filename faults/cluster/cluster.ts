/**
 * One manager, workers, clients and proxies between them, over one store. The manager may die and come back on the
 * same port. Nothing of it outlives its test.
 */
import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'
import { test as base, inject } from 'vitest'
import { createDatabase, dropDatabase } from '../../scripts/postgres/database.ts'
import type { ConnectedCurfew, TaskEventView } from '../../src/curfew.ts'
import { Curfew } from '../../src/curfew.ts'
import { journalOf } from '../engine-process.ts'
import type { Fact } from '../journal.ts'
import { Scratch } from '../scratch.ts'
import { until } from '../wait.ts'
import { agents, tasks, workflows } from './cluster-work.ts'
import { FaultyProxy } from './faulty-proxy.ts'
import { JournalFollower } from './journal-follower.ts'
import { Member } from './member.ts'

/** A worker that no manager renews stops its attempts after this. */
export const ORPHAN_GRACE_MS = 5_000
/** An attempt of a silent worker is given away after this and its own grace. */
export const LEASE_MS = 10_000

export class Cluster {
  readonly scratch = new Scratch()
  readonly journal = new JournalFollower(journalOf(this.scratch))
  readonly #port: number
  readonly #store: string
  readonly #ends: (() => Promise<unknown>)[] = []
  readonly #members: Member[] = []
  #manager: Member | null = null

  /** `store`: of PostgreSQL; a file in the scratch folder unless given. */
  static async start(store?: string): Promise<Cluster> {
    const cluster = new Cluster(await freePort(), store)
    try {
      await cluster.startManager()
      return cluster
    } catch (error) {
      await cluster.end()
      throw error
    }
  }

  private constructor(port: number, store?: string) {
    this.#port = port
    this.#store = store ?? this.scratch.path('store.db')
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`
  }

  get manager(): Member {
    if (!this.#manager) throw new Error('no manager was started')
    return this.#manager
  }

  /** A process that has only to open to be the manager. */
  prepareManager(): Promise<Member> {
    return this.#prepare('manager-program.ts', { store: this.#store, port: this.#port })
  }

  async startManager(prepared?: Member): Promise<void> {
    this.#manager = prepared ?? (await this.prepareManager())
    await this.#manager.open()
  }

  /** `via`: through this proxy. */
  prepareWorker({
    concurrency = 20,
    via,
  }: {
    concurrency?: number
    via?: FaultyProxy
  } = {}): Promise<Member> {
    return this.#prepare('worker-program.ts', { managers: [via?.url ?? this.url], concurrency })
  }

  async startWorker(options?: Parameters<Cluster['prepareWorker']>[0]): Promise<Member> {
    return (await this.prepareWorker(options)).open()
  }

  async connect(via?: FaultyProxy): Promise<ConnectedCurfew> {
    const client = await Curfew.connect(via?.url ?? this.url, { tasks, agents, workflows })
    this.#ends.push(() => client.close())
    return client
  }

  async startProxy(): Promise<FaultyProxy> {
    const proxy = await FaultyProxy.start(this.#port)
    this.#ends.push(() => proxy.close())
    return proxy
  }

  facts(type: string, id?: string): Fact[] {
    return this.journal
      .read()
      .filter((fact) => fact.type === type && (id === undefined || fact.taskId === id))
  }

  /** Waits until this attempt of each of these has started. */
  async started(ids: readonly string[], { attempt = 1, within = 60_000 } = {}): Promise<Fact[]> {
    return until(`attempt ${attempt} of ${ids.length} tasks has started`, within, () => {
      const found = this.facts('attempt_started').filter(
        (fact) => fact.attempt === attempt && ids.includes(fact.taskId ?? ''),
      )
      return new Set(found.map(({ taskId }) => taskId)).size === ids.length ? found : null
    })
  }

  /** Workers first, then the manager, each as a user would; then nothing is left. */
  async close(): Promise<void> {
    const alive = this.#members.filter((member) => member.alive && member !== this.#manager)
    await Promise.all(alive.map((member) => member.close()))
    await this.#manager?.close()
    await until('no process is left', 20_000, () => this.scratch.processes().length === 0)
  }

  /** Whatever is left, at once. */
  async end(): Promise<void> {
    for (const end of this.#ends.toReversed()) await end()
    await this.scratch.remove()
  }

  async #prepare(program: string, options: object): Promise<Member> {
    const member = await Member.prepare(this.scratch, program, options)
    this.#members.push(member)
    return member
  }
}

export async function eventsOf(client: ConnectedCurfew, id: string, type: string): Promise<TaskEventView[]> {
  return (await client.task(id).events()).filter((event) => event.type === type)
}

/** A test with a cluster of its own over a SQLite file, or over PostgreSQL. */
export const clusterTest = base.extend<{ file: Cluster; postgres: Cluster }>({
  // biome-ignore lint/correctness/noEmptyPattern: vitest reads what a fixture needs from its pattern
  file: async ({}, use) => {
    const cluster = await Cluster.start()
    await use(cluster).finally(() => cluster.end())
  },
  // biome-ignore lint/correctness/noEmptyPattern: vitest reads what a fixture needs from its pattern
  postgres: async ({}, use) => {
    const url = await createDatabase(inject('postgresUrl'))
    try {
      const cluster = await Cluster.start(url)
      await use(cluster).finally(() => cluster.end())
    } finally {
      await dropDatabase(url)
    }
  },
})

/**
 * Below the ports that the system gives to outgoing connections: while the manager is down, one of those must not
 * take its port.
 */
async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(15_000, 32_000)
    const server = createServer().listen(port, '127.0.0.1')
    const free = await Promise.race([
      once(server, 'listening').then(() => true),
      once(server, 'error').then(() => false),
    ])
    if (!free) continue
    server.close()
    await once(server, 'close')
    return port
  }
}
