/**
 * Every setting: its key in the configuration file, its flag and its environment variable, what it may be, what it
 * is unless set, and who uses it. The loader, `--help`, `curfew config` and docs/configuration.md all follow it.
 */
import { DEFAULT_TURNS, MAX_CONCURRENCY } from '../core/limits.ts'
import type { Kind } from './setting-kind.ts'
import * as kinds from './setting-kind.ts'

/** Commands that ask a manager, or open the store when there is none, are `client`. */
export const USERS = ['manager', 'worker', 'dev', 'run', 'client'] as const
export type User = (typeof USERS)[number]

export interface Setting<T> {
  /** In the file; what stands after a dot is one level down. */
  key: string
  /** As commander takes it. `modules` are arguments of `worker` and `dev`. */
  flag: string
  env: string
  kind: Kind<NonNullable<T>>
  default: T
  usedBy: readonly User[]
  requiredBy?: readonly User[]
  help: string
}

export const LOG_LEVELS = ['silent', 'error', 'warn', 'info', 'debug'] as const
export type LogLevel = (typeof LOG_LEVELS)[number]

const DEFAULT_CONCURRENCY = 10
const DEFAULT_DRAIN_MS = 30_000
const NONE: readonly never[] = []

/** A kind's values are wider than its default. */
function setting<T>(definition: Setting<T>): Setting<T> {
  return definition
}

export const SETTINGS = {
  store: setting<string>({
    key: 'store',
    flag: '--store <url>',
    env: 'CURFEW_STORE',
    kind: kinds.store,
    default: './curfew.db',
    usedBy: ['manager', 'dev', 'run', 'client'],
    requiredBy: ['manager'],
    help: 'a SQLite file, or postgres://user:password@host/database',
  }),
  listen: setting<string | false>({
    key: 'listen',
    flag: '--listen <address>',
    env: 'CURFEW_LISTEN',
    kind: kinds.address,
    default: '127.0.0.1:4242',
    usedBy: ['manager', 'dev'],
    help: 'host:port or unix:PATH; anything but loopback needs tokens or client certificates',
  }),
  tokens: setting<readonly string[]>({
    key: 'tokens',
    flag: '--tokens <lines>',
    env: 'CURFEW_TOKENS',
    kind: kinds.list(kinds.tokenLine),
    default: NONE,
    usedBy: ['manager', 'dev'],
    help: 'who may call: NAME=ROLE:sha256:HEX,…, as curfew token create prints them',
  }),
  tokensFile: setting<string | null>({
    key: 'tokensFile',
    flag: '--tokens-file <file>',
    env: 'CURFEW_TOKENS_FILE',
    kind: kinds.file,
    default: null,
    usedBy: ['manager', 'dev'],
    help: 'more of them, one a line; # begins a comment',
  }),
  tlsCert: setting<string | null>({
    key: 'tls.cert',
    flag: '--tls-cert <file>',
    env: 'CURFEW_TLS_CERT',
    kind: kinds.file,
    default: null,
    usedBy: ['manager', 'dev'],
    help: 'certificate chain of the listener, PEM',
  }),
  tlsKey: setting<string | null>({
    key: 'tls.key',
    flag: '--tls-key <file>',
    env: 'CURFEW_TLS_KEY',
    kind: kinds.file,
    default: null,
    usedBy: ['manager', 'dev'],
    help: 'its private key, PEM',
  }),
  tlsClientCa: setting<string | null>({
    key: 'tls.clientCa',
    flag: '--tls-client-ca <file>',
    env: 'CURFEW_TLS_CLIENT_CA',
    kind: kinds.file,
    default: null,
    usedBy: ['manager', 'dev'],
    help: 'callers must show a certificate of this authority, PEM',
  }),
  hosts: setting<readonly string[]>({
    key: 'hosts',
    flag: '--hosts <names>',
    env: 'CURFEW_HOSTS',
    kind: kinds.list(kinds.text('host')),
    default: NONE,
    usedBy: ['manager', 'dev'],
    help: 'names by which it may be called, besides the address it listens on',
  }),
  managers: setting<readonly string[]>({
    key: 'managers',
    flag: '--manager <url>',
    env: 'CURFEW_MANAGERS',
    kind: kinds.list(kinds.url),
    default: NONE,
    usedBy: ['worker', 'run', 'client'],
    requiredBy: ['worker'],
    help: 'where a manager listens: http(s)://host:port or unix:PATH; may be given several times',
  }),
  token: setting<string | null>({
    key: 'token',
    flag: '--token <token>',
    env: 'CURFEW_TOKEN',
    kind: kinds.secret,
    default: null,
    usedBy: ['worker', 'run', 'client'],
    help: 'what to show to the managers; better as CURFEW_TOKEN, since others can see flags',
  }),
  tlsCa: setting<string | null>({
    key: 'tls.ca',
    flag: '--tls-ca <file>',
    env: 'CURFEW_TLS_CA',
    kind: kinds.file,
    default: null,
    usedBy: ['worker', 'run', 'client'],
    help: "authority of the managers' certificates, PEM; those the system trusts unless set",
  }),
  tlsClientCert: setting<string | null>({
    key: 'tls.clientCert',
    flag: '--tls-client-cert <file>',
    env: 'CURFEW_TLS_CLIENT_CERT',
    kind: kinds.file,
    default: null,
    usedBy: ['worker', 'run', 'client'],
    help: 'certificate to show to the managers, PEM',
  }),
  tlsClientKey: setting<string | null>({
    key: 'tls.clientKey',
    flag: '--tls-client-key <file>',
    env: 'CURFEW_TLS_CLIENT_KEY',
    kind: kinds.file,
    default: null,
    usedBy: ['worker', 'run', 'client'],
    help: 'its private key, PEM',
  }),
  modules: setting<readonly string[]>({
    key: 'modules',
    flag: '--module <file>',
    env: 'CURFEW_MODULES',
    kind: kinds.list(kinds.file),
    default: NONE,
    usedBy: ['worker', 'dev', 'run'],
    requiredBy: ['worker'],
    help: 'a file that exports tasks, agents and workflows; may be given several times',
  }),
  queues: setting<readonly string[] | null>({
    key: 'queues',
    flag: '--queues <names>',
    env: 'CURFEW_QUEUES',
    kind: kinds.list(kinds.queueName),
    default: null,
    usedBy: ['worker', 'dev'],
    help: 'the queues it works, as mail,bank; all unless set',
  }),
  concurrency: setting<number>({
    key: 'concurrency',
    flag: '--concurrency <number>',
    env: 'CURFEW_CONCURRENCY',
    kind: kinds.whole(0, MAX_CONCURRENCY),
    default: DEFAULT_CONCURRENCY,
    usedBy: ['worker', 'dev', 'run'],
    help: 'attempts at a time',
  }),
  turns: setting<number>({
    key: 'turns',
    flag: '--turns <number>',
    env: 'CURFEW_TURNS',
    kind: kinds.whole(1, MAX_CONCURRENCY),
    default: DEFAULT_TURNS,
    usedBy: ['manager', 'worker', 'dev', 'run'],
    help: 'turns of agents, workflows and jobs at a time',
  }),
  labels: setting<Readonly<Record<string, string>>>({
    key: 'labels',
    flag: '--labels <pairs>',
    env: 'CURFEW_LABELS',
    kind: kinds.labels,
    default: {},
    usedBy: ['worker'],
    help: 'what curfew workers shows of it: zone=eu,disk=fast',
  }),
  queueLimits: setting<Readonly<Record<string, number | null>>>({
    key: 'queueLimits',
    flag: '--queue-limits <pairs>',
    env: 'CURFEW_QUEUE_LIMITS',
    kind: kinds.queueLimits,
    default: {},
    usedBy: ['manager', 'dev', 'run'],
    help: 'attempts at a time over all processes: bank=2,mail=none',
  }),
  drain: setting<number>({
    key: 'drain',
    flag: '--drain <duration>',
    env: 'CURFEW_DRAIN',
    kind: kinds.duration,
    default: DEFAULT_DRAIN_MS,
    usedBy: ['manager', 'worker', 'dev'],
    help: 'how long running work may go on after the first signal',
  }),
  log: setting<LogLevel>({
    key: 'log',
    flag: '--log <level>',
    env: 'CURFEW_LOG',
    kind: kinds.oneOf(LOG_LEVELS),
    default: 'warn',
    usedBy: USERS,
    help: `what is written to stderr: ${LOG_LEVELS.join(', ')}`,
  }),
  allowPrivate: setting<boolean | readonly string[]>({
    key: 'http.allowPrivate',
    flag: '--allow-private <hosts>',
    env: 'CURFEW_HTTP_ALLOW_PRIVATE',
    kind: kinds.hosts,
    default: false,
    usedBy: ['worker', 'dev', 'run'],
    help: 'private addresses that http_request may call: true, false, or host names',
  }),
}

export type SettingName = keyof typeof SETTINGS
export type Settings = {
  [Name in SettingName]: (typeof SETTINGS)[Name] extends Setting<infer T> ? T : never
}

export const SETTING_NAMES = Object.keys(SETTINGS) as SettingName[]

/** Variables with our prefix that are not settings: the marks of processes, and the file itself. */
export const CONFIG_VARIABLE = 'CURFEW_CONFIG'
