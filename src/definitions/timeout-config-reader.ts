/** Reads the limits of an item: `agent_timeout_secs` and `timeout_config`, as in the seed. */
import { MAX_MAPPING_KEYS, MAX_RETRIES } from '../core/limits.ts'
import type { Field, Fields } from './definition-field.ts'
import { readJson } from './mapping-reader.ts'
import type { EscalationModel, MapModel } from './mapreduce-model.ts'
import {
  DEFAULT_CLEANUP_GRACE_MS,
  DEFAULT_MAX_ATTEMPTS,
  TIMEOUT_ACTIONS,
  TIMEOUT_POLICIES,
} from './mapreduce-model.ts'
import type { MapreduceValues } from './mapreduce-values.ts'
import { readChoice } from './mapreduce-values.ts'
import type { Problem } from './problem.ts'
import { didYouMean } from './problem.ts'

export type TimeoutModel = Pick<
  MapModel,
  | 'agentTimeoutMs'
  | 'policy'
  | 'commandTimeouts'
  | 'graceMs'
  | 'action'
  | 'monitoring'
  | 'idleTimeoutMs'
  | 'escalation'
  | 'adaptive'
>

/** `map`: the fields around. A limit that stands there as well wins. */
export function readTimeouts(map: Fields, values: MapreduceValues, types: readonly string[]): TimeoutModel {
  const inner = map.get('timeoutConfig')?.object() ?? null
  const policyField = inner?.get('timeoutPolicy')
  const actionField = inner?.get('timeoutAction')
  const timeouts = inner?.get('commandTimeouts')
  const escalation = inner?.get('escalation')
  const adaptive = inner?.get('adaptive')
  const model: TimeoutModel = {
    agentTimeoutMs: readOuter(map, inner, 'agentTimeout', values),
    policy: (policyField && readChoice(policyField, TIMEOUT_POLICIES)) ?? 'per_agent',
    commandTimeouts: timeouts ? readCommandTimeouts(timeouts, values, types) : {},
    graceMs:
      (inner && values.duration(inner, 'cleanupGracePeriod', { zero: true })) ?? DEFAULT_CLEANUP_GRACE_MS,
    action: (actionField && readChoice(actionField, TIMEOUT_ACTIONS)) ?? 'dlq',
    monitoring: inner?.get('enableMonitoring')?.flag() ?? true,
    idleTimeoutMs: readOuter(map, inner, 'idleTimeout', values),
    escalation: escalation ? readEscalation(escalation, values) : null,
    adaptive: adaptive ? readAdaptive(adaptive) : null,
  }
  inner?.end({
    [map.field.source.spell('maxParallel')]: "'map'",
    [map.field.source.spell('maxItems')]: "'map'",
    ...Object.fromEntries(types.map((type) => [type, "'command_timeouts'"])),
  })
  return model
}

function readOuter(map: Fields, inner: Fields | null, key: string, values: MapreduceValues): number | null {
  const outerMs = values.duration(map, key)
  const innerMs = inner ? values.duration(inner, key) : undefined
  if (outerMs === undefined) return innerMs ?? null
  if (inner && innerMs !== undefined && innerMs !== outerMs) {
    const name = map.field.source.spell(`${key}Secs`)
    inner.field.child(name).warning('no_effect', `has no effect: ${name} of 'map' is another, and wins`, {
      suggestion: 'Take one of them out.',
    })
  }
  return outerMs
}

function readCommandTimeouts(
  field: Field,
  values: MapreduceValues,
  types: readonly string[],
): Record<string, number | null> {
  const timeouts: Record<string, number | null> = {}
  for (const [key, entry] of field.object()?.entries(MAX_MAPPING_KEYS) ?? []) {
    const type = key.replace(/_\d+$/, '')
    if (!types.includes(type)) {
      const meant = didYouMean(type, types)
      entry.problem('unknown_key', `there is no type of command '${type}'`, {
        suggestion:
          meant ?? `There are ${types.join(', ')}, each alone or with the place of a command: ${types[0]}_0.`,
        atKey: true,
      })
    }
    const ms = values.seconds(entry)
    if (ms !== undefined) timeouts[key] = ms
  }
  return timeouts
}

function readEscalation(field: Field, values: MapreduceValues): EscalationModel | null {
  const fields = field.object()
  if (!fields) return null
  const multiplier = values.between(fields.get('multiplier'), 1, 100) ?? 2
  const maxMs = values.duration(fields, 'max') ?? null
  const maxAttempts = values.whole(fields.get('maxAttempts'), 1, MAX_RETRIES + 1) ?? DEFAULT_MAX_ATTEMPTS
  fields.end()
  return { multiplier, maxMs, maxAttempts }
}

function readAdaptive(field: Field): unknown {
  if (typeof field.value === 'boolean') return field.value
  return field.object() ? (readJson(field) ?? null) : null
}

const TIMEOUT_PATH = /^map\.(agent_timeout|idle_timeout|timeout_config)|(^|\.)timeout(_ms|_secs|_seconds)?$/

/** In the words of the seed. */
export function asTimeoutProblem(problem: Problem): Problem {
  if (problem.severity !== 'error' || !TIMEOUT_PATH.test(problem.path)) return problem
  return { ...problem, message: `Invalid timeout configuration: ${problem.message}` }
}
