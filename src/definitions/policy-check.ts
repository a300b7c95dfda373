/** A whole policy that came from another process: every value is looked at before it is stored. */
import type { Backoff } from '../core/backoff.ts'
import { LONGEST_DURATION_MS } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import type { ExtensionRules } from '../core/extension.ts'
import { MAX_NAME_LENGTH, MAX_RETRIES } from '../core/limits.ts'
import { checkTrace } from '../core/trace-context.ts'
import type { TaskPolicy } from './task-policy.ts'
import { checkName, DEFAULT_POLICY } from './task-policy.ts'

/** Fields that differ from the default alone may be given. */
export function checkPolicy(at: string, value: unknown): TaskPolicy {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw wrong(at, '', 'must be an object')
  const given = value as Record<string, unknown>
  for (const key of Object.keys(given)) {
    if (!Object.hasOwn(DEFAULT_POLICY, key)) throw wrong(at, key, 'is not known')
  }
  const policy = { ...DEFAULT_POLICY, ...given } as TaskPolicy
  for (const key of DURATIONS) checkNumber(at, key, policy[key], MS)
  for (const key of LIMITS) if (policy[key] !== null) checkNumber(at, key, policy[key], { ...MS, min: 1 })
  for (const key of RESERVES) if (policy[key] !== null) checkNumber(at, key, policy[key], MS)
  checkNumber(at, 'retries', policy.retries, { min: 0, max: MAX_RETRIES })
  checkNumber(at, 'priority', policy.priority, { min: -32_768, max: 32_767 })
  checkNumber(at, 'warnAt', policy.warnAt, { min: 0.01, max: 1, whole: false })
  for (const key of FLAGS) if (typeof policy[key] !== 'boolean') throw wrong(at, key, 'must be true or false')
  // Agents are in none.
  if (policy.queue !== '') checkName(`${at}: queue`, policy.queue)
  if (policy.onTimeout !== 'retry' && policy.onTimeout !== 'fail')
    throw wrong(at, 'onTimeout', 'must be retry or fail')
  if (policy.boundBy !== null && !BOUND_BY.includes(policy.boundBy))
    throw wrong(at, 'boundBy', `must be one of ${BOUND_BY.join(', ')}, or null`)
  checkText(at, 'label', policy.label)
  checkNumbers(at, 'backoff', policy.backoff, BACKOFF)
  checkNumbers(at, 'extensions', policy.extensions, EXTENSIONS)
  for (const [key, origin] of Object.entries(checkObject(at, 'origins', policy.origins)))
    checkText(at, `origins.${key}`, origin)
  return { ...policy, trace: policy.trace === null ? null : checkTrace(at, policy.trace) }
}

const LIMITS = [
  'timeoutMs',
  'attemptTimeoutMs',
  'queueTimeoutMs',
  'heartbeatTimeoutMs',
  'stuckAfterMs',
] as const
const RESERVES = ['reserveMs', 'keptBackMs', 'ownTimeoutMs'] as const
const DURATIONS = ['graceMs', 'softStopMs', 'retentionMs', 'cleanupMs'] as const
const FLAGS = ['atMostOnce', 'inherit', 'failsOnTimeout', 'retriedAbove'] as const

const BOUND_BY = ['job', 'workflow', 'agent', 'total']

interface Range {
  min: number
  max: number
  /** Unless it is false. */
  whole?: boolean
}

/** As `durationMs` gives them. */
const MS: Range = { min: 0, max: LONGEST_DURATION_MS }
const COUNT: Range = { min: 0, max: 1_000 }

const BACKOFF: Record<keyof Backoff, Range> = {
  initialMs: MS,
  maxMs: MS,
  factor: { min: 1, max: 100, whole: false },
  jitter: { min: 0, max: 1, whole: false },
}
const EXTENSIONS: Record<keyof ExtensionRules, Range> = {
  baseMs: { ...MS, min: 1 },
  minMs: { ...MS, min: 1 },
  maxGrants: COUNT,
  warnAtRemaining: COUNT,
  exhaustedGraceMs: MS,
  maxDenials: { ...COUNT, min: 1 },
}

function checkNumber(at: string, key: string, value: unknown, { min, max, whole = true }: Range): void {
  const fits = typeof value === 'number' && value >= min && value <= max
  if (fits && (!whole || Number.isInteger(value))) return
  throw wrong(at, key, `must be a ${whole ? 'whole ' : ''}number from ${min} to ${max}`)
}

function checkText(at: string, key: string, value: unknown): void {
  if (value === null || (typeof value === 'string' && value.length <= MAX_NAME_LENGTH)) return
  throw wrong(at, key, `must be a text of at most ${MAX_NAME_LENGTH} characters`)
}

function checkObject(at: string, key: string, value: unknown): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw wrong(at, key, 'must be an object')
  return value as Record<string, unknown>
}

/** All of these fields, and no other. */
function checkNumbers(at: string, key: string, value: unknown, ranges: Record<string, Range>): void {
  const given = checkObject(at, key, value)
  for (const [name, range] of Object.entries(ranges)) checkNumber(at, `${key}.${name}`, given[name], range)
  for (const name of Object.keys(given))
    if (!Object.hasOwn(ranges, name)) throw wrong(at, `${key}.${name}`, 'is not known')
}

function wrong(at: string, key: string, why: string): CurfewError {
  const place = key === '' ? 'policy' : `policy.${key}`
  return new CurfewError('invalid_policy', `${at}: ${place} ${why}`, { fields: { key } })
}
