/** The options of `Curfew.open`, `Curfew.connect` and `Curfew.work`, checked before anything is opened. */

import type { Client } from './client/client.ts'
import type { Clock } from './core/clock.ts'
import type { Duration } from './core/duration.ts'
import { CurfewError } from './core/errors.ts'
import { checkKnown } from './core/known-options.ts'
import { DEFAULT_TURNS, MAX_CONCURRENCY, MAX_RESIDENT_BYTES, MAX_RESIDENTS } from './core/limits.ts'
import type { Logger } from './core/logger.ts'
import { guardedLogger } from './core/logger.ts'
import type { AgentDefinition } from './definitions/agent.ts'
import type { TaskDefinition } from './definitions/task.ts'
import { checkName } from './definitions/task-policy.ts'
import type { WorkflowDefinition } from './definitions/workflow.ts'
import type { ListenOptions } from './listening.ts'
import type { ConnectionOptions } from './wire/http-client.ts'
import type { HttpOptions } from './worker/http-task.ts'
import { register } from './worker/registry.ts'
import type { OwnQueue } from './worker/worker.ts'

export interface OpenOptions {
  /** A file name, `:memory:`, or `postgres://…`. */
  store: string
  /** The tasks this process runs. Others can be scheduled by it and wait for a process that has their code. */
  tasks?: readonly TaskDefinition[]
  /** The agents this process runs. */
  agents?: readonly AgentDefinition[]
  /**
   * Workflows that others call by name, and whose actions this process runs. The tasks and agents they were given
   * need not be named again.
   */
  workflows?: readonly WorkflowDefinition[]
  /** What the action `http_request` may reach. */
  http?: HttpOptions
  /** Turns of agents at a time in this process; a suspended agent takes none. */
  turns?: number
  /** Suspended agents that stay in memory, and the bytes they may take; the others are replayed when woken. */
  residents?: { count?: number; bytes?: number }
  /** Attempts at a time in this process. */
  concurrency?: number
  /** Limits of queues, over all processes. `null` takes a limit away. */
  queues?: Record<string, { concurrency: number | null }>
  /** The queues this process works; all unless set. */
  workQueues?: readonly string[]
  /**
   * A process beside this one that ends what it leaves when it dies, and tells the others at once. On when a task
   * is isolated in a process.
   */
  witness?: boolean
  /**
   * Where others may reach this engine: workers, clients, `curfew` on a command line. Over a SQLite file it listens
   * on a Unix socket beside it by itself; `false` turns that off.
   */
  listen?: false | string | ListenOptions | readonly (string | ListenOptions)[]
  /** When that socket is there, for programs that are mostly over by then. At once unless set. */
  listenAfter?: Duration
  /** Done before any deadline fires and any work starts: a new limit for work whose old one is over by now. */
  first?: (client: Client) => Promise<void>
  /** Runs the map-reduces among the workflows of jobs that are submitted here: their commands run on this machine. */
  mapreduce?: boolean
  /** Tasks of queues that this process alone works on, beside the others and with slots of their own. */
  ownQueues?: readonly OwnQueue[]
  /** For tests: a `VirtualClock` of `curfew/testing`. */
  clock?: Clock
  logger?: Logger
}

export interface ConnectOptions extends ConnectionOptions {
  /** What this program knows: definitions that jobs and workflows name. */
  tasks?: readonly TaskDefinition[]
  agents?: readonly AgentDefinition[]
  workflows?: readonly WorkflowDefinition[]
}

export interface WorkOptions
  extends ConnectionOptions,
    Pick<
      OpenOptions,
      'tasks' | 'agents' | 'workflows' | 'http' | 'turns' | 'residents' | 'concurrency' | 'witness' | 'logger'
    > {
  /** `http://host:port`, `https://…` or `unix:/path`; several are tried in turn. */
  managers: string | readonly string[]
  /** The queues this worker works; all unless set. */
  queues?: readonly string[]
  /** What people know it by. */
  labels?: Record<string, string>
}

const DEFAULT_CONCURRENCY = 10

const RUN_OPTIONS = [
  ...['tasks', 'agents', 'workflows', 'http', 'turns', 'residents', 'concurrency', 'witness', 'logger'],
]
const OPEN_OPTIONS = [
  ...['store', ...RUN_OPTIONS, 'queues', 'workQueues', 'listen', 'listenAfter', 'first'],
  ...['mapreduce', 'ownQueues', 'clock'],
]
const WORK_OPTIONS = ['managers', 'token', 'tls', ...RUN_OPTIONS, 'queues', 'labels']
const CONNECT_OPTIONS = ['token', 'tls', 'tasks', 'agents', 'workflows']

export function checkOptions(options: OpenOptions) {
  const what = 'Curfew.open'
  checkKnown(what, options, OPEN_OPTIONS)
  const { queues = {}, first } = options
  if (options.mapreduce !== undefined && typeof options.mapreduce !== 'boolean')
    throw invalid(`mapreduce must be true or false, got ${options.mapreduce}`)
  if (first !== undefined && typeof first !== 'function') throw invalid('first must be a function')
  const rows = Object.entries(queues).map(([name, queue]) => {
    checkName('queues: name', name)
    const limit = queue?.concurrency
    if (limit !== null && (!Number.isInteger(limit) || limit < 1)) {
      throw invalid(`queues.${name}.concurrency must be a whole number above 0, or null, got ${limit}`)
    }
    return { name, concurrency: limit }
  })
  return { ...checkRunning(what, options, 'workQueues', options.workQueues), queues: rows }
}

export function checkWorkOptions(options: WorkOptions) {
  const what = 'Curfew.work'
  checkKnown(what, options, WORK_OPTIONS)
  const managers = addressesOf(what, options.managers)
  return { ...checkRunning(what, options, 'queues', options.queues), managers }
}

export function checkConnectOptions(urls: string | readonly string[], options: ConnectOptions) {
  const what = 'Curfew.connect'
  checkKnown(what, options, CONNECT_OPTIONS)
  return { managers: addressesOf(what, urls), registry: register(options, what) }
}

function addressesOf(what: string, urls: string | readonly string[]): readonly string[] {
  const addresses = typeof urls === 'string' ? [urls] : (urls ?? [])
  if (!Array.isArray(addresses)) throw invalid('managers must be an address or a list of them', what)
  if (addresses.length === 0) throw invalid('managers: at least one address is needed', what)
  return addresses
}

/** What `Curfew.open` and `Curfew.work` have in common; `key` is what they call the queues to work. */
function checkRunning(
  what: string,
  options: Pick<
    WorkOptions,
    'tasks' | 'agents' | 'workflows' | 'http' | 'turns' | 'residents' | 'concurrency' | 'witness'
  >,
  key: string,
  workQueues: readonly string[] | null = null,
) {
  const { concurrency = DEFAULT_CONCURRENCY, turns = DEFAULT_TURNS, residents = {} } = options
  if (workQueues !== null && !Array.isArray(workQueues)) throw invalid(`${key} must be a list of names`, what)
  for (const name of workQueues ?? []) checkName(key, name)
  if (!Number.isInteger(concurrency) || concurrency < 0 || concurrency > MAX_CONCURRENCY) {
    throw invalid(`concurrency must be a whole number up to ${MAX_CONCURRENCY}, got ${concurrency}`, what)
  }
  const registry = register(options, what)
  if (!Number.isInteger(turns) || turns < 1 || turns > MAX_CONCURRENCY) {
    throw invalid(`turns must be a whole number from 1 to ${MAX_CONCURRENCY}, got ${turns}`, what)
  }
  if (typeof residents !== 'object' || residents === null)
    throw invalid(`residents must be { count, bytes }, got ${residents}`, what)
  const { count = MAX_RESIDENTS, bytes = MAX_RESIDENT_BYTES } = residents
  for (const [name, value] of Object.entries({ count, bytes })) {
    if (!Number.isInteger(value) || value < 0)
      throw invalid(`residents.${name} must be a whole number, got ${value}`, what)
  }
  return { registry, turns, residents: { count, bytes }, concurrency, workQueues }
}

export function invalid(message: string, what = 'Curfew.open'): CurfewError {
  return new CurfewError('invalid_option', `${what}: ${message}`)
}

export function checkLogger(logger: Logger, what = 'Curfew.open'): Logger {
  for (const level of ['debug', 'info', 'warn', 'error'] as const) {
    if (typeof logger?.[level] === 'function') continue
    throw invalid('logger must have the methods debug, info, warn and error', what)
  }
  return guardedLogger(logger)
}

export function checkLabels(labels: unknown): Record<string, string> {
  if (labels === undefined) return {}
  if (typeof labels !== 'object' || labels === null || Array.isArray(labels)) throw wrongLabels()
  for (const value of Object.values(labels)) if (typeof value !== 'string') throw wrongLabels()
  return labels as Record<string, string>
}

function wrongLabels(): CurfewError {
  return new CurfewError('invalid_option', 'labels must be an object of texts: { zone: "a" }')
}
