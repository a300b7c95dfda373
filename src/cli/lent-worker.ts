/** The code of this process, for whoever has the store. */
import { sleep } from '../core/clock.ts'
import type { WorkerProcess } from '../curfew.ts'
import type { Config } from './config.ts'
import { callerOf } from './credentials.ts'
import type { Engine } from './find-engine.ts'
import { lost } from './find-engine.ts'
import type { Io } from './io.ts'
import type { Definitions } from './load-modules.ts'
import { storeLogger } from './logger.ts'

/** What is run of this queue alone. */
export interface OnlyQueue {
  queue: string
  concurrency: number
}

/** As long as a client waits for a manager that starts again. */
const ATTACH_WITHIN_MS = 15_000

/**
 * Lends the code of this process to whoever has the store, and then to the next that has it: what it runs goes on. Where
 * this process takes the store, it runs only what it has to its end.
 */
export class LentWorker {
  readonly #io: Io
  readonly #config: Config
  readonly #definitions: Definitions
  #worker: WorkerProcess | null = null

  constructor(io: Io, config: Config, definitions: Definitions) {
    this.#io = io
    this.#config = config
    this.#definitions = definitions
  }

  async attach(engine: Engine): Promise<void> {
    if (engine.via === 'own') {
      // It comes back by itself, over the socket of the store.
      void this.#worker?.close({ drain: true })
      return
    }
    if (this.#worker && engine.addresses.includes(await this.#worker.attached())) return
    await this.close({ reports: false })
    this.#worker = await attachWorker(this.#io, engine, this.#config, this.#definitions)
  }

  async close(options: { reports: boolean }): Promise<void> {
    const worker = this.#worker
    this.#worker = null
    await worker?.close(options)
  }
}

/** What only this process can run is run here, whoever has the store. Null also when `stop` aborts first. */
export async function attachWorker(
  io: Io,
  engine: Engine,
  config: Config,
  { tasks, agents, workflows }: Definitions,
  { only, stop }: { only?: OnlyQueue; stop?: AbortSignal } = {},
): Promise<WorkerProcess | null> {
  const { addresses, via, client } = engine
  // A manager gets a worker only from somebody who names modules; those in a file are meant for others.
  const isWorker =
    via === 'process' || (via === 'managers' && (only || config.origins.modules.from === 'flag'))
  if (!isWorker) return null
  // A worker looks for its manager for ever: whether there is one a client finds out.
  if (via === 'managers') await client.serverStatus()
  const { Curfew } = await import('../curfew.ts')
  const { concurrency, turns, allowPrivate, log } = config.settings
  const caller = via === 'managers' ? await callerOf(io, config) : {}
  const worker = await Curfew.work({
    ...{ ...caller, managers: addresses, tasks, agents, workflows, concurrency, turns },
    ...{ http: { allowPrivate }, witness: true, logger: storeLogger(io, log) },
    ...(only && { queues: [only.queue], concurrency: only.concurrency }),
  })
  try {
    // It announces the names that the definition refers to.
    if (await attachedTo(io, engine, worker, stop)) return worker
  } catch (error) {
    await worker.close()
    throw error
  }
  await worker.close()
  return null
}

/** False: it was told to stop. Throws when whoever has the store goes, or does not take it up in time. */
async function attachedTo(
  io: Io,
  engine: Engine,
  worker: WorkerProcess,
  stop: AbortSignal | undefined,
): Promise<boolean> {
  const settled = new AbortController()
  const signal = AbortSignal.any([engine.gone, settled.signal, ...(stop ? [stop] : [])])
  try {
    const taken = worker.attached().then(() => true)
    const givenUp = sleep(io.clock, ATTACH_WITHIN_MS, signal).then(() => false)
    if (await Promise.race([taken, givenUp])) return true
    if (stop?.aborted && !engine.gone.aborted) return false
    throw lost(engine)
  } finally {
    settled.abort()
  }
}
