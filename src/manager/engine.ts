/** Everything of an engine but its worker: store, time, membership, manager, service, sweeper; opened and closed in order. */
import type { Clock, Randomness, Timer } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import type { IdSource } from '../core/id.ts'
import { MAX_FIRED } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import { ATTEMPT_LEASE_BASE_MS } from '../leadership/lease-times.ts'
import { NodeStatements } from '../leadership/node-statements.ts'
import { openStore } from '../store/open-store.ts'
import type { PostgresStore } from '../store/postgres/postgres-store.ts'
import { run } from '../store/statement.ts'
import type { QueueRow } from '../store/statements.ts'
import type { Store } from '../store/store.ts'
import type { StoreError } from '../store/store-error.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { ManagerPort } from '../wire/worker-port.ts'
import { LocalTaskService } from './local-task-service.ts'
import { Manager } from './manager.ts'
import type { Attempts } from './membership.ts'
import { Membership, signIn } from './membership.ts'
import { readTime } from './read-time.ts'
import { RemoteWorkers } from './remote-workers.ts'
import { SettledWaiters } from './settled-waiters.ts'
import { Sweeper } from './sweeper.ts'

export interface EngineOptions {
  store: string
  queues: QueueRow[]
  taskQueues: string[]
  clock: Clock
  randomness: Randomness
  logger: Logger
  ids: IdSource
  /** Ends what a dead process left running on this machine. */
  endLeftovers(nodeId: string): Promise<void>
}

export interface EngineWorker extends Attempts {
  readonly idle: boolean
  attach(port: ManagerPort): void
}

/** Asking the store for the ends of others' tasks: often at first, then once a second. One process needs it only as a backstop. */
const POLL = { postgres: { firstMs: 20, longestMs: 1_000 }, sqlite: { firstMs: 5_000, longestMs: 5_000 } }

export async function openEngine(options: EngineOptions): Promise<Engine> {
  const { clock, logger, ids } = options
  const nodeId = ids.next('n', clock.wall())
  const store = await openStore(options.store, clock, logger, nodeId)
  try {
    const time = await readTime(store, clock)
    const queues = await setQueues(store, options)
    const epoch = await signIn(store, time, nodeId)
    const fence = await raiseFence(store)
    return new Engine(options, { store, time, nodeId, epoch, fence, queues })
  } catch (error) {
    await store.close()
    throw error
  }
}

export class Engine {
  readonly nodeId: string
  readonly service: LocalTaskService
  /** What a witness needs to tell peers; null where there are none. */
  readonly witness: { url: string; nodeId: string } | null
  readonly #options: EngineOptions
  readonly #store: Store
  readonly #time: StoreTime
  readonly #nodes: NodeStatements
  readonly #membership: Membership | null
  readonly #manager: Manager
  readonly #waiters: SettledWaiters
  readonly #sweeper: Sweeper
  readonly workers: RemoteWorkers
  readonly #fence: number
  /** Until silent workers are looked after again, by the process that they had before. */
  readonly #looks = new Map<string, Timer>()
  #leave: (() => void) | null = null
  #failed: StoreError | null = null
  #closed = false
  #started = false
  readonly #startedUp = Promise.withResolvers<void>()
  #onFailed: () => void = () => undefined

  constructor(
    options: EngineOptions,
    opened: {
      store: Store
      time: StoreTime
      nodeId: string
      epoch: number
      fence: number
      queues: QueueRow[]
    },
  ) {
    const { clock, randomness, logger, ids } = options
    const { store, time, nodeId } = opened
    this.#options = options
    this.#store = store
    this.#time = time
    this.nodeId = nodeId
    this.#nodes = new NodeStatements(store.dialect)
    const database = store.dialect === 'postgres' ? (store as PostgresStore) : null
    this.#membership =
      database && new Membership(nodeId, opened.epoch, { store: database, time, clock, logger })
    this.witness = database && { url: database.url, nodeId }
    this.#waiters = new SettledWaiters(clock, (asked) => this.#askSettled(asked), POLL[store.dialect])
    this.#manager = new Manager({
      nodeId,
      store,
      time,
      lease: this.#membership?.lease ?? null,
      clock,
      randomness,
      ids,
      logger,
      queues: opened.queues,
      told: {
        settled: (id, settled) => this.#waiters.settled(id, settled),
        workWaits: () => this.#membership?.workWaits(),
        stopElsewhere: (node) => this.#membership?.stopElsewhere(node),
        newsElsewhere: (node) => this.#membership?.newsElsewhere(node),
        storeFailed: (error) => this.#fail(error),
      },
    })
    this.#fence = opened.fence
    this.workers = new RemoteWorkers({
      ...{ nodeId, manager: this.#manager, store, time, clock, logger },
      fence: () => this.#membership?.lease.fence() ?? null,
    })
    this.service = new LocalTaskService({
      workers: this.workers,
      fence: () => this.#fence,
      lease: () => this.#membership?.lease.fence() ?? null,
      ready: () => this.ready,
      nodeId,
      manager: this.#manager,
      waiters: this.#waiters,
      store,
      time,
      clock,
      ids,
    })
    this.#sweeper = new Sweeper({
      nodeId,
      store,
      manager: this.#manager,
      time,
      clock,
      logger,
      fence: () => this.#membership?.lease.fence() ?? null,
      mark: () => this.#mark(),
      nodes: async () => (await store.read(() => run(this.#nodes.list()))).map(({ id }) => id),
    })
  }

  /** It may decide: the store answers, its lease is renewed, and it is not closing. */
  get ready(): boolean {
    return (
      this.#started &&
      !this.#closed &&
      !this.#failed &&
      !this.#manager.paused &&
      (this.#membership?.lease.leading ?? true)
    )
  }

  /** Where others find this process; over a file it stands in its lock. */
  setSocket(path: string | null): void {
    this.#store.lock?.setSocket(path)
  }

  /** What listens for others has to know. */
  get serving() {
    const { nodeId, workers, service } = this
    const { clock, logger } = this.#options
    return {
      ...{ nodeId, workers, service, manager: this.#manager, clock, logger },
      ready: () => this.ready,
      started: this.#startedUp.promise,
      leaseAgeMs: () => this.#membership?.lease.ageMs ?? 0,
    }
  }

  get failed(): boolean {
    return this.#failed !== null
  }

  /** First what is overdue and what a dead process left, then work. */
  /** `first`: what is asked for before anything is fired or handed out. */
  async start(
    worker: EngineWorker,
    onFailed: () => void,
    first: () => Promise<void> = async () => {},
  ): Promise<void> {
    this.#onFailed = onFailed
    this.#membership?.start(this.#manager, worker)
    await first()
    if (!this.#membership) await this.#recover()
    this.#manager.watcher.look()
    worker.attach(this.#manager)
    this.#started = true
    this.#startedUp.resolve()
    this.#leave =
      this.#options.clock.virtual?.join({
        idle: () =>
          this.#manager.paused
            ? !this.#membership?.renewing
            : this.#manager.idle &&
              worker.idle &&
              this.service.idle &&
              this.#waiters.idle &&
              this.#sweeper.idle &&
              (this.#membership?.idle ?? true),
      }) ?? null
  }

  stopClaiming(): void {
    this.#closed = true
    this.#manager.desk.claims.stop()
    this.#manager.turns.stopClaiming()
  }

  /** Nothing that was claimed is still on its way to the worker. */
  async claimsSettled(): Promise<void> {
    while (!this.#manager.desk.claims.settled && !this.#manager.paused) {
      await new Promise<void>((resolve) => this.#options.clock.endOfTurn(resolve))
    }
  }

  /** Workers go elsewhere, and whoever waits for an end asks elsewhere: a listener that closes would wait for them. */
  sendAway(): void {
    this.workers.close()
    this.#waiters.close()
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#leave?.()
    this.#sweeper.close()
    for (const look of this.#looks.values()) look.cancel()
    this.sendAway()
    // What runs in workers elsewhere outlives this process: its tokens are spared.
    const leftBehind = this.#manager.desk.slots().some(({ session }) => !session.remote)
    if (!this.#failed && !this.#membership && leftBehind) await this.#letGo()
    this.#manager.close(this.#failed ?? new CurfewError('closed', 'this engine was closed'))
    // A handler that still runs keeps its lease: peers wait it out before they start another.
    await this.#membership?.close({ goodbye: !leftBehind })
    try {
      if (!this.#membership && !this.#failed) {
        await this.#mark()
        await this.#store.write(null, () => run(this.#nodes.setGone(this.nodeId, this.#time.now())))
      }
    } catch (error) {
      this.#options.logger.warn(
        { error: (error as Error).message },
        'could not say goodbye; the next open will see',
      )
    } finally {
      await this.#store.close()
    }
  }

  /** On PostgreSQL every renewal is a mark. */
  async #mark(): Promise<void> {
    const now = this.#time.now()
    if (!this.#membership) await this.#store.write(null, () => run(this.#nodes.raiseMeta('clock_mark', now)))
  }

  async #letGo(): Promise<void> {
    try {
      await this.#manager.letGo()
    } catch (error) {
      this.#options.logger.warn(
        { error: (error as Error).message },
        'could not let go of attempts; their lease will',
      )
    }
  }

  /** Over a file its lock proves that whoever held it is gone: what it ran is ended, then lost. */
  async #recover(): Promise<void> {
    const left = await this.#store.read(() => run(this.#nodes.list()))
    for (const { id, goneAt } of left) {
      if (id === this.nodeId) continue
      if (goneAt === null) await this.#options.endLeftovers(id)
      const now = this.#time.now()
      await this.#store.write(null, () => run(this.#nodes.setGone(id, now)))
      await this.#lose(id, null)
      const live = await this.#store.read(() => run(this.#store.statements.liveAttempts(id)))
      if (live.length) this.#awaitWorkersOf(id, now)
    }
    const now = this.#time.now()
    await this.#store.write(null, () => run(this.#nodes.removeGone(now + 1)))
  }

  async #lose(nodeId: string, lease: { renewedAt: number; baseMs: number } | null): Promise<void> {
    const receipt = lease ? 'unreachable' : 'killed'
    for (;;) {
      const answer = await this.#manager.submit({ type: 'lose', nodeId, receipt, proven: true, lease })
      if (answer.type !== 'lost' || answer.count < MAX_FIRED) return
    }
  }

  /** What its workers run outlived it: they have until the end of their lease to come back with it. */
  #awaitWorkersOf(nodeId: string, renewedAt: number): void {
    const { clock, logger } = this.#options
    const look = async () => {
      await this.#lose(nodeId, { renewedAt, baseMs: ATTEMPT_LEASE_BASE_MS })
      const live = await this.#store.read(() => run(this.#store.statements.liveAttempts(nodeId)))
      if (live.length) arm(1_000)
    }
    const arm = (delayMs: number) => {
      if (this.#closed) return
      const timer = clock.setTimer(delayMs, () => {
        look().catch((error: Error) => {
          if (this.#closed) return
          logger.warn(
            { error: error.message },
            'looking after workers that are silent failed; it is tried again',
          )
          arm(1_000)
        })
      })
      this.#looks.set(nodeId, timer)
    }
    arm(ATTEMPT_LEASE_BASE_MS + 1)
  }

  async #askSettled(ids: string[]): Promise<string[]> {
    const rows = await this.#store.read(() => run(this.#store.statements.settledTasks(ids)))
    return rows.map(({ id }) => id)
  }

  /** Nothing is acknowledged any more; the host is left alone. */
  #fail(error: StoreError): void {
    if (this.#failed) return
    this.#failed = error
    this.#options.logger.error({ error: error.message }, 'the store failed; the engine closes')
    this.#manager.close(error)
    this.#onFailed()
  }
}

async function setQueues(store: Store, { queues, taskQueues }: EngineOptions): Promise<QueueRow[]> {
  const { statements } = store
  return store.write(null, function* () {
    // In the order of their names, as claims lock them.
    for (const name of [...new Set(['default', ...taskQueues])].sort()) yield* run(statements.addQueue(name))
    for (const { name, concurrency } of queues.toSorted((a, b) => (a.name < b.name ? -1 : 1)))
      yield* run(statements.setQueue(name, concurrency))
    return yield* run(statements.queues())
  })
}

/** Rises with every process that signs in: an answer or a request with a lower one is an old leader's. */
async function raiseFence(store: Store): Promise<number> {
  const statements = new NodeStatements(store.dialect)
  return store.write(null, function* () {
    const [row] = yield* run(statements.nextMeta('fence'))
    return Number(row?.value ?? 1)
  })
}
