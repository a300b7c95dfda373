/** What a configuration file may hold. Its settings are those of settings.ts; a test keeps the two the same. */
import type { Duration } from '../core/duration.ts'
import type { LogLevel } from './settings.ts'

export interface CurfewConfig {
  /** A SQLite file, or `postgres://…`. */
  store?: string
  /** `host:port`, `unix:PATH`, or false. */
  listen?: string | false
  /** Lines `NAME=ROLE:sha256:HEX`, as `curfew token create` prints them. */
  tokens?: readonly string[]
  /** More of them, one a line. */
  tokensFile?: string
  /** Files, PEM: of the listener, and of those who call it. */
  tls?: {
    cert?: string
    key?: string
    clientCa?: string
    ca?: string
    clientCert?: string
    clientKey?: string
  }
  /** Names by which the listener may be called. */
  hosts?: readonly string[]
  /** URLs that workers and commands call. */
  managers?: readonly string[]
  /** What they show there. */
  token?: string
  /** Files that export tasks, agents and workflows. */
  modules?: readonly string[]
  /** The queues that are worked; all unless set. */
  queues?: readonly string[]
  /** Attempts at a time. */
  concurrency?: number
  /** Turns of agents, workflows and jobs at a time. */
  turns?: number
  /** What is told of a worker. */
  labels?: Readonly<Record<string, string>>
  /** Attempts at a time over all processes; `null` takes a limit away. */
  queueLimits?: Readonly<Record<string, number | null>>
  /** How long running work may go on after the first signal. */
  drain?: Duration
  log?: LogLevel
  http?: {
    /** Private addresses that `http_request` may call. */
    allowPrivate?: boolean | readonly string[]
  }
}

/** For the types only: `export default defineConfig({ … })`. */
export function defineConfig(config: CurfewConfig): CurfewConfig {
  return config
}
