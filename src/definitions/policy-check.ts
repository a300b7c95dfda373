/** A whole policy that came from another process: every value is looked at before it is stored. */
import type { Backoff } from '../core/backoff.ts'
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
  for (const key of DURATIONS) checkNumber(at, key, policy[key], { min: 0, nullable: false })
  for (const key of LIMITS) checkNumber(at, key, policy[key], { min: 1, nullable: true })
  checkNumber(at, 'reserveMs', policy.reserveMs, { min: 0, nullable: true })
  checkNumber(at, 'retries', policy.retries, { min: 0, max: MAX_RETRIES, nullable: false })
  checkNumber(at, 'priority', policy.priority, { min: -32_768, max: 32_767, nullable: false })
  checkNumber(at, 'warnAt', policy.warnAt, { min: 0, max: 1, nullable: false })
  for (const key of FLAGS) if (typeof policy[key] !== 'boolean') throw wrong(at, key, 'must be true or false')
  // Agents are in none.
  if (policy.queue !== '') checkName(`${at}: queue`, policy.queue)
  if (policy.onTimeout !== 'retry' && policy.onTimeout !== 'fail')
    throw wrong(at, 'onTimeout', 'must be retry or fail')
  checkText(at, 'boundBy', policy.boundBy)
  checkText(at, 'label', policy.label)
  checkNumbers(at, 'backoff', policy.backoff, DEFAULT_POLICY.backoff)
  checkNumbers(at, 'extensions', policy.extensions, DEFAULT_POLICY.extensions)
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
const DURATIONS = ['graceMs', 'softStopMs', 'retentionMs', 'cleanupMs'] as const
const FLAGS = ['atMostOnce', 'inherit', 'failsOnTimeout', 'retriedAbove'] as const

function checkNumber(
  at: string,
  key: string,
  value: unknown,
  { min, max = Number.MAX_SAFE_INTEGER, nullable }: { min: number; max?: number; nullable: boolean },
): void {
  if (value === null && nullable) return
  if (typeof value === 'number' && value >= min && value <= max) return
  throw wrong(at, key, `must be a number from ${min} to ${max}${nullable ? ', or null' : ''}`)
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

/** The same fields, with the same kinds of values. */
function checkNumbers(at: string, key: string, value: unknown, like: Backoff | ExtensionRules): void {
  const given = checkObject(at, key, value)
  for (const [name, example] of Object.entries(like)) {
    const one = given[name]
    if (typeof one !== typeof example || (typeof one === 'number' && !Number.isFinite(one)))
      throw wrong(at, `${key}.${name}`, `must be a ${typeof example}`)
  }
  for (const name of Object.keys(given))
    if (!Object.hasOwn(like, name)) throw wrong(at, `${key}.${name}`, 'is not known')
}

function wrong(at: string, key: string, why: string): CurfewError {
  const place = key === '' ? 'policy' : `policy.${key}`
  return new CurfewError('invalid_policy', `${at}: ${place} ${why}`, { fields: { key } })
}
