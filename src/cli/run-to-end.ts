/**
 * Works on a piece of work until it has settled: with the store open here, or as a client of the process that has it,
 * whose place it takes when that one goes. The first signal cancels the work and waits until it has stopped; the
 * second ends at once.
 */
import type { Client } from '../client/client.ts'
import { CurfewError } from '../core/errors.ts'
import { isEnded } from '../core/states.ts'
import type { TaskView, WatchView } from '../curfew.ts'
import type { Config } from './config.ts'
import type { Display } from './display.ts'
import { openDisplay } from './display.ts'
import { EXIT } from './exit-code.ts'
import type { Engine, Place } from './find-engine.ts'
import { connectManagers, findProcess, isLost, onceFree, openOwn, refuseMissing } from './find-engine.ts'
import { follow } from './follow.ts'
import type { Io } from './io.ts'
import type { OnlyQueue } from './lent-worker.ts'
import { attachWorker, LentWorker } from './lent-worker.ts'
import type { Definitions } from './load-modules.ts'
import { printOutcome } from './outcome.ts'
import { handleOf } from './work-handle.ts'
import type { WorkedMembers } from './worked-members.ts'

export interface RunToEnd {
  config: Config
  place: Place
  definitions: Definitions
  json: boolean
  /** Starts or resumes it and answers its id; asked again only of another engine, when the first one was lost. */
  begin(engine: Engine): Promise<string>
  /** Of work that others run a signal only ends the looking. */
  cancelsOthers: boolean
  /** It is in a store, which is not made where there is none. */
  isStored?: boolean
  only?: OnlyQueue
  /**
   * Done before anything fires, where this process takes the store; else as soon as it can be. Asked of each that has
   * the store, one after the other.
   */
  first?: (client: Client) => Promise<void>
  /** Of a job: the map-reduces among its workflows, whose commands run here. */
  members?: WorkedMembers
}

const LISTEN_AFTER_MS = 500
/** A process that is closing lets go of the store in this time. */
const TAKE_WITHIN_MS = 15_000

export async function runToEnd(io: Io, options: RunToEnd): Promise<void> {
  const display = openDisplay(io, io.stderr)
  const interrupt = new Interrupt(io, display, options.cancelsOthers)
  const lent = new LentWorker(io, options.config, options.definitions)
  options.members?.shownOn(display)
  let id: string | null = null
  try {
    for (;;) {
      const engine = await openEngine(io, options)
      let isLeft = false
      try {
        await lent.attach(engine)
        id = await runOn(io, engine, id, { ...options, display, interrupt })
        if (id === null) return
        isLeft = true
      } catch (error) {
        if (!(await isLost(io, engine, error))) throw error
        isLeft = true
      } finally {
        interrupt.forget()
        if (!isLeft)
          await Promise.all([options.members?.detach(), lent.close({ reports: !engine.gone.aborted })])
        await engine.close()
      }
      display.note(`${engine.who} is gone.`)
      // What has not begun needs it attached, and not on its way.
      if (id === null) await lent.close({ reports: false })
    }
  } finally {
    interrupt.close()
    await lent.close({ reports: false })
    await options.members?.close()
  }
}

/** Null when everything is done; else the id of what has to go on elsewhere. */
async function runOn(
  io: Io,
  engine: Engine,
  known: string | null,
  options: RunToEnd & { display: Display; interrupt: Interrupt },
): Promise<string | null> {
  const { config, display, interrupt, json, members } = options
  await members?.attach((own, only) => attachWorker(io, engine, config, own, { only }))
  const id = known ?? (await options.begin(engine))
  interrupt.of(engine, id)
  const parked = new AbortController()
  const signal = AbortSignal.any([engine.gone, interrupt.left, parked.signal])
  const onSeen = ({ work }: WatchView) => {
    // Here nobody else could let it go on.
    if (engine.via === 'own' && work.parked !== null && !isEnded(work.status)) parked.abort()
  }
  const last = await follow(io, engine, id, { display, signal, onSeen })
  if (parked.signal.aborted && last) throw isParked(last)
  if (interrupt.left.aborted && !last?.settled) {
    display.note(leftText(id, members !== undefined))
    io.exitCode = EXIT.interrupted
    return null
  }
  if (!last?.settled) return id
  const mapreduces = await members?.end(engine.client)
  await printOutcome(io, engine.client, id, { json, ...(mapreduces && { mapreduces }) })
  return null
}

function leftText(id: string, hasMembers: boolean): string {
  return hasMembers
    ? `Its map-reduces stand still. To go on with them: curfew resume ${id}`
    : `It goes on: curfew watch ${id}`
}

function isParked({ id, kind, name, parked }: TaskView): CurfewError {
  return new CurfewError('parked', `${kind} ${name} is parked: ${parked}`, {
    hint: `Once that is mended, curfew resume ${id} goes on with it.`,
    fields: { id },
  })
}

/** Whoever has the store, or this process. */
export async function openEngine(
  io: Io,
  {
    config,
    place,
    definitions,
    isStored = false,
    only,
    first,
    members,
  }: Pick<RunToEnd, 'config' | 'place' | 'definitions' | 'isStored' | 'only' | 'first' | 'members'>,
): Promise<Engine> {
  if ('managers' in place) return after(await connectManagers(io, place.managers, config), first)
  const { tasks, agents, workflows } = definitions
  const { concurrency, turns, queueLimits, allowPrivate } = config.settings
  const queues = Object.fromEntries(
    Object.entries(queueLimits).map(([name, limit]) => [name, { concurrency: limit }]),
  )
  const own = {
    ...{ tasks, agents, workflows, concurrency, turns, queues, http: { allowPrivate } },
    // Commands of workflows need it, and whatever is left running when this process is killed is ended.
    witness: true,
    // Most are over before anybody asks for them, and what it takes to answer takes a while to load.
    listenAfter: LISTEN_AFTER_MS,
    ...(only && { workQueues: [only.queue], concurrency: only.concurrency }),
    ...(first && { first }),
    ...(members && { ownQueues: members.ownQueues }),
  }
  return onceFree(io, TAKE_WITHIN_MS, async () => {
    const found = await findProcess(io, place)
    if (found) return after(found, first)
    if (isStored) refuseMissing(place)
    return openOwn(io, config, place, own)
  })
}

async function after(engine: Engine, first: RunToEnd['first']): Promise<Engine> {
  try {
    await first?.(engine.client)
    return engine
  } catch (error) {
    await engine.close()
    throw error
  }
}

class Interrupt {
  readonly #io: Io
  readonly #display: Display
  readonly #cancelsOthers: boolean
  readonly #ignore: () => void
  readonly #left = new AbortController()
  #asked = false
  #work: { engine: Engine; id: string } | null = null

  constructor(io: Io, display: Display, cancelsOthers: boolean) {
    this.#io = io
    this.#display = display
    this.#cancelsOthers = cancelsOthers
    this.#ignore = io.onSignal(() => this.#signal())
  }

  /** Aborts when the work is left to others. */
  get left(): AbortSignal {
    return this.#left.signal
  }

  /** What a signal is about, from now on. One that came before counts. */
  of(engine: Engine, id: string): void {
    this.#work = { engine, id }
    if (this.#asked) this.#stop(engine.client, id)
  }

  forget(): void {
    this.#work = null
  }

  close(): void {
    this.#ignore()
  }

  #signal(): void {
    if (this.#asked) return this.#io.exitNow(EXIT.interrupted)
    this.#asked = true
    if (this.#work) this.#stop(this.#work.engine.client, this.#work.id)
  }

  #stop(client: Client, id: string): void {
    if (this.#work?.engine.via !== 'own' && !this.#cancelsOthers) return this.#left.abort()
    this.#display.note('Cancelling: waiting until everything has stopped. Once more ends at once.')
    handleOf(client, id)
      .cancel()
      .catch((error: Error) => this.#display.note(`It could not be cancelled: ${error.message}`))
  }
}
