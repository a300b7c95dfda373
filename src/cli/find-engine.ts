/**
 * What a command talks to: the managers it was told of; else the process that works on the store; else the store
 * itself. A command that only looks reads it and fires nothing; one that changes something opens it for the moment,
 * without running anybody's work.
 */
import { existsSync } from 'node:fs'
import path from 'node:path'
import type { Client } from '../client/client.ts'
import { sleep } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { maskUrl } from '../core/masked-url.ts'
import type { OpenOptions } from '../curfew.ts'
import { Colours } from './colours.ts'
import type { Config } from './config.ts'
import { loadConfig } from './config.ts'
import { callerOf } from './credentials.ts'
import { usageError } from './exit-code.ts'
import type { Io } from './io.ts'
import { storeLogger } from './logger.ts'
import type { Flags } from './options.ts'
import { printable } from './plain-text.ts'

export interface Engine {
  readonly client: Client
  /** `reader`: the store is only looked at. `own`: this process has it open. */
  readonly via: 'managers' | 'process' | 'reader' | 'own'
  /** Nobody works on it, and so nothing will happen. Of a database nobody can tell. */
  readonly standsStill: boolean
  /** For people: who answers. */
  readonly who: string
  /** Where it listens. */
  readonly addresses: readonly string[]
  /** Aborts when the process is not there any more, long before a connection to it is given up. */
  readonly gone: AbortSignal
  close(): Promise<void>
}

/** What a command wants of a store that nobody works on. */
export type Need = 'read' | 'write'

export interface StorePlace {
  store: string
  isFile: boolean
}

export type Place = { managers: readonly string[] } | StorePlace

const NEVER = new AbortController().signal
const NOWHERE = { addresses: [], gone: NEVER, standsStill: false }

const LOOK_AGAIN_MS = 50
/** A process that has just taken the store says a moment later where it listens. */
const LISTENS_WITHIN_MS = 3_000
const LOOK_FOR_HOLDER_MS = 250
/** From then on whoever waits for an answer should know from whom; then it is given up, before a client does: it knows less. */
const SILENT_MS = 3_000
const ANSWERS_WITHIN_MS = 14_000
const FREE_WITHIN_MS = 5_000
/** A process whose connections are cut is seen to be gone in this time. */
const GONE_WITHIN_MS = 2_000
/** What a client is told when whoever it talks to is closing or gone. */
const LOST = ['unreachable', 'closed', 'not_leading', 'store_unavailable']

/**
 * Opens what the settings name, for as long as `work` takes. Looking is begun again, elsewhere, when the process that
 * was asked goes.
 */
export async function withEngine<T>(
  io: Io,
  flags: Flags,
  need: Need,
  work: (engine: Engine) => Promise<T>,
): Promise<T> {
  const config = await loadConfig(io, 'client', flags)
  for (;;) {
    const engine = await findEngine(io, config, need)
    try {
      if (engine.standsStill) await tellNobodyWorks(io, engine)
      return await work(engine)
    } catch (error) {
      if (need === 'write' || !(await isLost(io, engine, error))) throw error
    } finally {
      await engine.close()
    }
  }
}

/** Nobody has answered, or nobody who can. */
export function isSilence(error: unknown): error is CurfewError {
  return error instanceof CurfewError && LOST.includes(error.code)
}

/** The process that was asked has gone, or one has come; whatever there is now can be asked. */
export async function isLost(io: Io, { via, gone }: Engine, error: unknown): Promise<boolean> {
  if (!isSilence(error)) return false
  if (via === 'reader') return error.code === 'store_unavailable'
  if (via !== 'process') return false
  await sleep(io.clock, GONE_WITHIN_MS, gone)
  return gone.aborted
}

export async function findEngine(io: Io, config: Config, need: Need): Promise<Engine> {
  const place = placeOf(io, config)
  if ('managers' in place) return connectManagers(io, place.managers, config)
  return onceFree(io, FREE_WITHIN_MS, () => findStore(io, config, place, need))
}

async function findStore(io: Io, config: Config, place: StorePlace, need: Need): Promise<Engine> {
  const process = await findProcess(io, place)
  if (process) return process
  if (need === 'write') {
    refuseMissing(place)
    return openOwn(io, config, place, { concurrency: 0 })
  }
  const { Curfew } = await import('../curfew.ts')
  const reader = await Curfew.read(place.store, {
    clock: io.clock,
    logger: storeLogger(io, config.settings.log),
  })
  const close = () => reader.close()
  return { client: reader, via: 'reader', who: nameOf(place), ...NOWHERE, standsStill: place.isFile, close }
}

/** A process that is closing has the store for a moment more, or another one was faster to take it. */
export async function onceFree(io: Io, withinMs: number, open: () => Promise<Engine>): Promise<Engine> {
  const until = io.clock.monotonic() + withinMs
  for (;;) {
    try {
      return await open()
    } catch (error) {
      const held =
        error instanceof CurfewError && error.code === 'store_unavailable' && 'file' in error.fields
      if (!held || io.clock.monotonic() >= until) throw error
    }
    await sleep(io.clock, LOOK_AGAIN_MS)
  }
}

/** Managers or a store: the one that was said more plainly. */
export function placeOf(io: Io, { settings, origins }: Config): Place {
  const said = ['default', 'file', 'environment', 'argument', 'flag']
  const managers = said.indexOf(origins.managers.from)
  const store = said.indexOf(origins.store.from)
  if (origins.managers.from === 'flag' && origins.store.from === 'flag') {
    throw usageError('--manager and --store cannot both be given', 'A manager knows its store by itself.')
  }
  if (settings.managers.length > 0 && managers >= store) return { managers: settings.managers }
  const isFile = !/^postgres(ql)?:\/\//.test(settings.store)
  if (settings.store === ':memory:') {
    throw usageError(':memory: ends with the process that has it: no other can look into it')
  }
  return { store: isFile ? path.resolve(io.cwd, settings.store) : settings.store, isFile }
}

export async function connectManagers(io: Io, managers: readonly string[], config: Config): Promise<Engine> {
  const { Curfew } = await import('../curfew.ts')
  const client = await Curfew.connect(managers, await callerOf(io, config))
  const who = managers.map(maskUrl).join(', ')
  const close = () => client.close()
  return { client, via: 'managers', who, ...NOWHERE, addresses: managers, close }
}

/** The process that works on a file, over its socket; null when there is none. */
export async function findProcess(io: Io, place: StorePlace): Promise<Engine | null> {
  if (!place.isFile) return null
  const { Curfew, findHolder } = await import('../curfew.ts')
  const until = io.clock.monotonic() + LISTENS_WITHIN_MS
  let holder = findHolder(place.store)
  while (holder && holder.socket === null && io.clock.monotonic() < until) {
    await sleep(io.clock, LOOK_AGAIN_MS)
    holder = findHolder(place.store)
  }
  if (!holder) return null
  if (holder.socket === null) {
    throw new CurfewError(
      'store_unavailable',
      `${place.store} is in use by process ${holder.pid}, which does not listen`,
      {
        hint: 'It is closing, or was opened with listen: false. Wait for it, or close it.',
        fields: { file: place.store, ...holder },
      },
    )
  }
  const { pid } = holder
  const address = `unix:${holder.socket}`
  const client = await Curfew.connect(address)
  const closed = new AbortController()
  // One that is closing does not listen any more.
  const listens = () => {
    const now = findHolder(place.store)
    return now?.pid === pid && now.socket !== null
  }
  const gone = watchHolder(io, listens, closed.signal)
  const close = () => {
    closed.abort()
    return client.close()
  }
  const who = `process ${pid}`
  try {
    await untilAnswered(io, client, { pid, gone })
  } catch (error) {
    await close()
    throw error
  }
  return { client, via: 'process', who, ...NOWHERE, addresses: [address], gone, close }
}

/** One that is stopped or busy accepts connections all the same. Of one that goes meanwhile the next request tells. */
async function untilAnswered(
  io: Io,
  client: Client,
  { pid, gone }: { pid: number; gone: AbortSignal },
): Promise<void> {
  const note = () =>
    io.stderr.write(
      `${new Colours(io, io.stderr).dim(`Process ${pid} has the store, and does not answer.`)}\n`,
    )
  const noting = io.clock.setTimer(SILENT_MS, note)
  const over = new AbortController()
  const answered = client.serverStatus().catch((error: unknown) => {
    if (!isSilence(error)) throw error
  })
  const silent = sleep(io.clock, ANSWERS_WITHIN_MS, AbortSignal.any([gone, over.signal]))
  try {
    const isOver = await Promise.race([answered.then(() => true), silent.then(() => gone.aborted)])
    if (isOver) return
    throw new CurfewError('unreachable', `process ${pid} has the store, and does not answer`, {
      hint: `It is stopped, or busy. kill -CONT ${pid} lets it go on; kill -9 ${pid} ends it, and the next goes on with its work.`,
      fields: { pid },
    })
  } finally {
    noting.cancel()
    over.abort()
  }
}

function watchHolder(io: Io, isThere: () => boolean, closed: AbortSignal): AbortSignal {
  const gone = new AbortController()
  const look = async () => {
    while (!closed.aborted && isThere()) await sleep(io.clock, LOOK_FOR_HOLDER_MS, closed)
    if (!closed.aborted) gone.abort()
  }
  void look()
  return gone.signal
}

/** Takes the store: this process works on it until it is closed. */
export async function openOwn(
  io: Io,
  { settings }: Config,
  place: StorePlace,
  options: Omit<OpenOptions, 'store' | 'clock' | 'logger'>,
): Promise<Engine> {
  const { Curfew } = await import('../curfew.ts')
  const logger = storeLogger(io, settings.log)
  const client = await Curfew.open({ store: place.store, logger, ...options })
  return { client, via: 'own', who: nameOf(place), ...NOWHERE, close: () => client.close() }
}

/** Whoever looks at open work of a store that stands still should know. */
async function tellNobodyWorks(io: Io, { client, who }: Engine): Promise<void> {
  const { tasks } = await client.list({ status: ['pending', 'running', 'cancelling'], limit: 1 })
  if (tasks.length === 0) return
  const colours = new Colours(io, io.stderr)
  const note = `Nobody works on ${printable(path.relative(io.cwd, who) || who)}: what is open there stands still.`
  io.stderr.write(`${colours.dim(note)}\n`)
}

/** The address of a database may hold a password. */
function nameOf({ store, isFile }: StorePlace): string {
  return isFile ? store : 'the database'
}

/** What is not there is not made by somebody who wants to change what is in it. */
export function refuseMissing({ store, isFile }: StorePlace): void {
  if (!isFile || existsSync(store)) return
  throw new CurfewError('store_missing', `there is no store ${store}`, {
    hint: 'Check the path and the folder you are in.',
    fields: { store },
  })
}

/** Begins the looking again. */
export function lost({ who }: Engine): CurfewError {
  return new CurfewError('unreachable', `${who} is gone`)
}

/** Nothing more will happen to what is asked for. */
export function nobodyWorks({ who }: Engine): CurfewError {
  return new CurfewError('nobody_works', `nobody works on ${who}: nothing more happens to it`, {
    hint: 'curfew resume ID goes on with it; curfew dev works on everything in the store.',
  })
}
