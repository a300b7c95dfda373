/**
 * The options of a task, checked and made whole: durations in milliseconds, defaults filled in, and for every
 * limit where it was set. Stored with each task, so that changing a definition does not change work in flight.
 */
import type { Backoff } from '../core/backoff.ts'
import { backoffMs, DEFAULT_BACKOFF } from '../core/backoff.ts'
import type { Duration } from '../core/duration.ts'
import { durationMs, formatDuration, isZero } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import type { ExtensionRules } from '../core/extension.ts'
import { DEFAULT_EXTENSION_RULES } from '../core/extension.ts'
import { MAX_NAME_LENGTH, MAX_RETRIES } from '../core/limits.ts'
import type { TraceContext } from '../core/trace-context.ts'
import { checkTrace } from '../core/trace-context.ts'
import type { TaskOptions } from './task.ts'

export type LimitKey = 'timeout' | 'attemptTimeout' | 'queueTimeout' | 'heartbeatTimeout' | 'stuckAfter'
export type Origin =
  | 'definition'
  | 'call'
  | 'node'
  | 'action'
  | 'workflow'
  | 'transition'
  | 'default'
  | 'inherited'
/** What a task does, as far as advice on limits goes. */
export const WORK_KINDS = [
  'llm',
  'mcp_tool',
  'http_request',
  'shell',
  'workflow_call',
  'update_context',
] as const
export type WorkKind = (typeof WORK_KINDS)[number]

export interface TaskPolicy {
  timeoutMs: number | null
  attemptTimeoutMs: number | null
  queueTimeoutMs: number | null
  heartbeatTimeoutMs: number | null
  stuckAfterMs: number | null
  onTimeout: 'retry' | 'fail'
  retries: number
  backoff: Backoff
  graceMs: number
  softStopMs: number
  warnAt: number
  queue: string
  priority: number
  atMostOnce: boolean
  retentionMs: number
  /** Of agents: the budget of their clean-up. */
  cleanupMs: number
  /** Of agents: what they schedule inherits their deadline, at any depth. */
  inherit: boolean
  /** What is kept back of it; null: the grace of what inherits, and a second. */
  reserveMs: number | null
  /** The timeout was inherited: from whose. */
  boundBy: 'job' | 'workflow' | 'agent' | 'total' | null
  /** Then: what was kept back of the deadline above it, and its own timeout. */
  keptBackMs: number | null
  ownTimeoutMs: number | null
  /** Of workflows and jobs: the name of their definition. */
  label: string | null
  /** Of workflows: they end as failed when their timeout fires. */
  failsOnTimeout: boolean
  /** What is above it tries it again after a timeout: it is told only when no attempt can still be running. */
  retriedAbove: boolean
  extensions: ExtensionRules
  /** Of a single call, not of a definition; what is below it has it too. */
  trace: TraceContext | null
  /** Where each limit was set; one that is missing was not set at all. */
  origins: Partial<Record<LimitKey | 'ownTimeout', Origin>>
}

export const DEFAULT_POLICY: TaskPolicy = {
  timeoutMs: null,
  attemptTimeoutMs: null,
  queueTimeoutMs: null,
  heartbeatTimeoutMs: null,
  stuckAfterMs: null,
  onTimeout: 'retry',
  retries: 0,
  backoff: DEFAULT_BACKOFF,
  graceMs: 5_000,
  softStopMs: 0,
  warnAt: 0.8,
  queue: 'default',
  priority: 0,
  atMostOnce: false,
  retentionMs: 7 * 86_400_000,
  cleanupMs: 30_000,
  inherit: false,
  reserveMs: null,
  boundBy: null,
  keptBackMs: null,
  ownTimeoutMs: null,
  label: null,
  failsOnTimeout: false,
  retriedAbove: false,
  extensions: DEFAULT_EXTENSION_RULES,
  trace: null,
  origins: {},
}

const LIMIT_FIELDS = {
  timeout: 'timeoutMs',
  attemptTimeout: 'attemptTimeoutMs',
  queueTimeout: 'queueTimeoutMs',
  heartbeatTimeout: 'heartbeatTimeoutMs',
  stuckAfter: 'stuckAfterMs',
} as const satisfies Record<LimitKey, keyof TaskPolicy>

const OPTION_KEYS: readonly (keyof TaskOptions)[] = [
  ...(Object.keys(LIMIT_FIELDS) as LimitKey[]),
  'onTimeout',
  'retries',
  'backoff',
  'grace',
  'softStop',
  'warnAt',
  'queue',
  'priority',
  'atMostOnce',
  'retention',
  'extensions',
]

/** The policy of a definition; throws one error that names the task and the key. */
export function checkTaskOptions(
  name: string,
  options: TaskOptions,
  shape: { input: unknown; run: unknown; kind: unknown; isolation: unknown; file: unknown },
): TaskPolicy {
  checkName('task name', name)
  const at = `task ${name}`
  if (typeof shape.run !== 'function') throw invalid(at, 'run', 'must be a function')
  if (shape.input !== undefined && !isSchema(shape.input)) {
    throw invalid(at, 'input', 'must be a Standard Schema (zod, valibot, arktype, …)')
  }
  if (shape.kind !== undefined) oneOf(at, 'kind', shape.kind, WORK_KINDS)
  if (shape.isolation !== undefined && shape.isolation !== 'inline' && shape.isolation !== 'process') {
    throw invalid(at, 'isolation', `'${String(shape.isolation)}' is neither 'inline' nor 'process'`)
  }
  if (shape.isolation === 'process' && typeof shape.file !== 'string') {
    throw invalid(at, 'file', "is missing: isolation: 'process' needs file: import.meta.url")
  }
  return applyOptions(at, DEFAULT_POLICY, options, 'definition')
}

/** `policy` with `options` over it. */
export function applyOptions(
  at: string,
  policy: TaskPolicy,
  options: TaskOptions,
  origin: Origin,
): TaskPolicy {
  for (const key of Object.keys(options)) {
    if (!OPTION_KEYS.includes(key as keyof TaskOptions)) {
      throw invalid(at, key, `is not an option; there are ${OPTION_KEYS.join(', ')}`)
    }
  }
  const next: TaskPolicy = { ...policy, origins: { ...policy.origins } }
  for (const [key, field] of Object.entries(LIMIT_FIELDS) as [LimitKey, (typeof LIMIT_FIELDS)[LimitKey]][]) {
    const value = options[key]
    if (value === undefined) continue
    next[field] = value === null ? null : durationMs(value, `${at}: ${key}`)
    next.origins[key] = origin
  }
  if (options.onTimeout !== undefined)
    next.onTimeout = oneOf(at, 'onTimeout', options.onTimeout, ['retry', 'fail'])
  if (options.retries !== undefined) next.retries = whole(at, 'retries', options.retries, 0, MAX_RETRIES)
  if (options.backoff !== undefined) next.backoff = checkBackoff(at, policy.backoff, options.backoff)
  if (options.grace !== undefined) next.graceMs = zeroOrMore(at, 'grace', options.grace)
  if (options.softStop !== undefined) next.softStopMs = zeroOrMore(at, 'softStop', options.softStop)
  if (options.warnAt !== undefined) next.warnAt = between(at, 'warnAt', options.warnAt, 0.01, 1)
  if (options.queue !== undefined) next.queue = checkName(`${at}: queue`, options.queue)
  if (options.priority !== undefined) next.priority = whole(at, 'priority', options.priority, -32_768, 32_767)
  if (options.atMostOnce !== undefined) next.atMostOnce = flag(at, 'atMostOnce', options.atMostOnce)
  if (options.retention !== undefined) next.retentionMs = zeroOrMore(at, 'retention', options.retention)
  if (options.extensions !== undefined)
    next.extensions = checkExtensions(at, policy.extensions, options.extensions)
  return next
}

/** `policy` with the trace of a single call, if that has one. */
export function withTrace(at: string, policy: TaskPolicy, trace: TraceContext | undefined): TaskPolicy {
  return trace === undefined ? policy : { ...policy, trace: checkTrace(at, trace) }
}

/** How long all attempts may take when each runs into its limit; null without one. */
export function attemptsMs(policy: TaskPolicy): number | null {
  const { attemptTimeoutMs, retries, backoff, graceMs } = policy
  if (attemptTimeoutMs === null) return null
  let neededMs = (retries + 1) * (attemptTimeoutMs + graceMs)
  for (let tries = 0; tries < retries; tries++) neededMs += backoffMs(backoff, tries, 1)
  return neededMs
}

/** Limits that cannot hold together: what is allowed below does not fit into what is allowed above. */
export function policyWarnings(policy: TaskPolicy): string[] {
  const { timeoutMs, attemptTimeoutMs, retries } = policy
  const warnings: string[] = []
  const neededMs = attemptsMs(policy)
  if (timeoutMs !== null && attemptTimeoutMs !== null && neededMs !== null && neededMs > timeoutMs) {
    warnings.push(
      `${retries + 1} attempts of ${formatDuration(attemptTimeoutMs)} with grace and backoff may take ` +
        `${formatDuration(neededMs)}; timeout allows ${formatDuration(timeoutMs)}`,
    )
  }
  for (const [key, ms] of [
    ['heartbeatTimeout', policy.heartbeatTimeoutMs],
    ['stuckAfter', policy.stuckAfterMs],
  ] as const) {
    if (ms !== null && attemptTimeoutMs !== null && ms >= attemptTimeoutMs) {
      warnings.push(
        `${key} of ${formatDuration(ms)} never fires: attemptTimeout is ${formatDuration(attemptTimeoutMs)}`,
      )
    }
  }
  return warnings
}

export function checkBackoff(
  at: string,
  base: Backoff,
  options: NonNullable<TaskOptions['backoff']>,
): Backoff {
  const { initial, factor, max, jitter, ...unknown } = object(at, 'backoff', options)
  refuseUnknown(`${at}: backoff`, unknown)
  const initialMs = initial === undefined ? base.initialMs : zeroOrMore(at, 'backoff.initial', initial)
  const maxMs = max === undefined ? Math.max(base.maxMs, initialMs) : zeroOrMore(at, 'backoff.max', max)
  if (initial !== undefined && maxMs < initialMs)
    throw invalid(at, 'backoff.max', 'is shorter than backoff.initial')
  return {
    initialMs,
    maxMs,
    factor: factor === undefined ? base.factor : between(at, 'backoff.factor', factor, 1, 100),
    jitter: jitter === undefined ? base.jitter : between(at, 'backoff.jitter', jitter, 0, 1),
  }
}

function checkExtensions(
  at: string,
  rules: ExtensionRules,
  options: NonNullable<TaskOptions['extensions']>,
): ExtensionRules {
  const { base, min, max, warnAtRemaining, ...unknown } = object(at, 'extensions', options)
  refuseUnknown(`${at}: extensions`, unknown)
  return {
    ...rules,
    ...(base !== undefined && { baseMs: durationMs(base, `${at}: extensions.base`) }),
    ...(min !== undefined && { minMs: durationMs(min, `${at}: extensions.min`) }),
    ...(max !== undefined && { maxGrants: whole(at, 'extensions.max', max, 0, 1_000) }),
    ...(warnAtRemaining !== undefined && {
      warnAtRemaining: whole(at, 'extensions.warnAtRemaining', warnAtRemaining, 0, 1_000),
    }),
  }
}

function object<T extends object>(at: string, key: string, value: T): T {
  if (typeof value !== 'object' || value === null)
    throw invalid(at, key, `must be an object, got ${String(value)}`)
  return value
}

function refuseUnknown(at: string, unknown: object): void {
  const [key] = Object.keys(unknown)
  if (key !== undefined) throw invalid(at, key, 'is not an option')
}

export function isSchema(value: unknown): boolean {
  return (typeof value === 'object' || typeof value === 'function') && value !== null && '~standard' in value
}

/** Names, queues and keys stand in indexes and in SQL text columns: short, and no NUL or half character. */
export function checkName(what: string, name: unknown, maxLength = MAX_NAME_LENGTH): string {
  if (typeof name !== 'string' || name === '') {
    throw new CurfewError(
      'invalid_name',
      `${what} must be a text that is not empty, got ${name === '' ? "''" : String(name)}`,
    )
  }
  if (name.length > maxLength) {
    throw new CurfewError(
      'invalid_name',
      `${what} has ${name.length} characters; at most ${maxLength} are allowed`,
    )
  }
  if (name.includes('\u0000') || !name.isWellFormed()) {
    throw new CurfewError('invalid_name', `${what} ${JSON.stringify(name)} holds a NUL or half a character`)
  }
  return name
}

export function zeroOrMore(at: string, key: string, duration: Duration): number {
  return isZero(duration) ? 0 : durationMs(duration, `${at}: ${key}`)
}

function whole(at: string, key: string, value: unknown, min: number, max: number): number {
  if (!Number.isInteger(value)) throw invalid(at, key, `must be a whole number, got ${String(value)}`)
  return between(at, key, value, min, max)
}

function between(at: string, key: string, value: unknown, min: number, max: number): number {
  if (typeof value !== 'number' || !(value >= min && value <= max)) {
    throw invalid(at, key, `must be between ${min} and ${max}, got ${String(value)}`)
  }
  return value
}

function flag(at: string, key: string, value: unknown): boolean {
  if (typeof value !== 'boolean') throw invalid(at, key, `must be true or false, got ${String(value)}`)
  return value
}

function oneOf<const T extends string>(at: string, key: string, value: unknown, allowed: readonly T[]): T {
  if (!allowed.includes(value as T)) throw invalid(at, key, `must be one of ${allowed.join(', ')}`)
  return value as T
}

export function invalid(at: string, key: string, why: string): CurfewError {
  return new CurfewError('invalid_option', `${at}: ${key} ${why}`, { fields: { key } })
}
