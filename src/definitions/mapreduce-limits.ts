/**
 * Which limits hold in a map-reduce, and where each was set. In an item a command's limit is the one written on the
 * step, else that of `command_timeouts` for its type and place, else for its type, else the default of its type; the
 * policy says whether it holds. One that is written on a step holds under every policy. Outside `map` only written
 * limits hold.
 */
import { backoffMs } from '../core/backoff.ts'
import { LONGEST_DURATION_MS } from '../core/duration.ts'
import type {
  EscalationModel,
  MapModel,
  MapreduceModel,
  Phase,
  StepModel,
  TimeoutPolicy,
} from './mapreduce-model.ts'
import { DEFAULT_MAX_ATTEMPTS, PHASES } from './mapreduce-model.ts'

const DEFAULT_LIMITS_MS: Readonly<Record<string, number>> = { claude: 300_000, shell: 60_000 }
const OTHER_LIMIT_MS = 120_000

/** `step`, `command_timeouts["claude_0"]`, `command_timeouts["shell"]`, `default`; `none`: nothing sets one. */
export type LimitSource = 'step' | `command_timeouts["${string}"]` | 'default' | 'none'

export interface Limit {
  /** Null: none. */
  ms: number | null
  source: LimitSource
}

export interface CommandLimit {
  phase: Phase
  /** Its place in the template or phase. Of a handler, that of the command it follows. */
  index: number
  handler: 'on_failure' | 'on_success' | null
  type: string
  text: string
  /** What holds. */
  limit: Limit
  /** What was looked up and does not hold, because of the policy. */
  notApplied: Limit | null
}

export interface EffectiveLimits {
  policy: TimeoutPolicy
  /** `isApplied`: it is set, and the policy takes it. */
  agent: { ms: number | null; isApplied: boolean }
  idleMs: number | null
  graceMs: number
  jobMs: number | null
  /** Of whole phases; that of `map` is the job's. */
  phases: Record<Exclude<Phase, 'map'>, number | null>
  commands: CommandLimit[]
}

export function effectiveLimits(model: MapreduceModel): EffectiveLimits {
  const { map } = model
  return {
    policy: map.policy,
    agent: { ms: map.agentTimeoutMs, isApplied: map.agentTimeoutMs !== null && map.policy !== 'per_command' },
    idleMs: map.idleTimeoutMs,
    graceMs: map.graceMs,
    jobMs: model.timeoutMs,
    phases: {
      setup: model.setup.timeoutMs,
      reduce: model.reduce.timeoutMs,
      merge: model.merge.timeoutMs,
    },
    commands: PHASES.flatMap((phase) =>
      stepsOf(model, phase).flatMap((step, index) => [
        commandLimit(map, phase, step, index, null),
        ...step.onFailure.map((handler) => commandLimit(map, phase, handler, index, 'on_failure')),
        ...step.onSuccess.map((handler) => commandLimit(map, phase, handler, index, 'on_success')),
      ]),
    ),
  }
}

export function stepsOf(model: MapreduceModel, phase: Phase): StepModel[] {
  return phase === 'map' ? model.map.template : model[phase].steps
}

/** Of one command. A handler has no place of its own, so its type alone is looked up. */
export function commandLimit(
  map: MapModel,
  phase: Phase,
  step: StepModel,
  index: number,
  handler: CommandLimit['handler'],
): CommandLimit {
  const found = phase === 'map' ? lookUp(map, step, handler === null ? index : null) : written(step)
  const isApplied = phase !== 'map' || found.source === 'step' || map.policy !== 'per_agent'
  const { type, text } = step
  return {
    phase,
    index,
    handler,
    type,
    text,
    limit: isApplied ? found : { ms: null, source: 'none' },
    notApplied: isApplied ? null : found,
  }
}

function written(step: StepModel): Limit {
  return step.timeoutMs === undefined ? { ms: null, source: 'none' } : { ms: step.timeoutMs, source: 'step' }
}

function lookUp({ commandTimeouts }: MapModel, step: StepModel, index: number | null): Limit {
  if (step.timeoutMs !== undefined) return written(step)
  const keys = index === null ? [step.type] : [`${step.type}_${index}`, step.type]
  const key = keys.find((candidate) => Object.hasOwn(commandTimeouts, candidate))
  if (key !== undefined) return { ms: commandTimeouts[key]!, source: `command_timeouts["${key}"]` }
  const ms = Object.hasOwn(DEFAULT_LIMITS_MS, step.type) ? DEFAULT_LIMITS_MS[step.type]! : OTHER_LIMIT_MS
  return { ms, source: 'default' }
}

/** Attempts count from 1. A cap below the limit itself does not lower it. */
export function limitOfAttempt(ms: number, attempt: number, escalation: EscalationModel | null): number {
  if (!escalation || attempt <= 1) return ms
  const grown = Math.ceil(ms * escalation.multiplier ** (attempt - 1))
  const cap = Math.min(escalation.maxMs ?? LONGEST_DURATION_MS, LONGEST_DURATION_MS)
  return Math.max(ms, Math.min(grown, cap))
}

/** How often an item that times out is tried. */
export function maxAttempts({ action, escalation }: MapModel): number {
  return action === 'retry' ? (escalation?.maxAttempts ?? DEFAULT_MAX_ATTEMPTS) : 1
}

/** How long a run can take at most. Null where something in it has no limit. */
export interface WorstCase {
  setupMs: number | null
  /** One item, with all its attempts. */
  itemMs: number | null
  /** So many times as many items one after the other as run at once. */
  mapMs: number | null
  reduceMs: number | null
  mergeMs: number | null
  /** All of them, or the job's own limit. */
  totalMs: number | null
}

/** Worktrees, merging them back and waiting for a machine that is busy come on top. */
export function worstCase(model: MapreduceModel, items: number): WorstCase {
  const { map } = model
  const setupMs = phaseMs(model, 'setup')
  const inputMs = map.input.kind === 'command' ? withGrace(map.input.timeoutMs, map.graceMs) : 0
  const itemMs = itemWorstCase(map)
  const rounds = Math.ceil(items / map.maxParallel)
  const mapMs = sum([inputMs, items === 0 ? 0 : itemMs && rounds * itemMs])
  const reduceMs = phaseMs(model, 'reduce')
  const mergeMs = phaseMs(model, 'merge')
  const wholeMs = sum([setupMs, mapMs, reduceMs, mergeMs])
  const totalMs = least(wholeMs, withGrace(model.timeoutMs, map.graceMs))
  return { setupMs, itemMs, mapMs, reduceMs, mergeMs, totalMs }
}

function itemWorstCase(map: MapModel): number | null {
  const attempts = Array.from({ length: maxAttempts(map) }, (_, i) => {
    const grow = (ms: number | null) => ms && limitOfAttempt(ms, i + 1, map.escalation)
    const agentMs = map.policy === 'per_command' ? null : grow(map.agentTimeoutMs)
    return withGrace(least(stepsMs(map, 'map', map.template, grow), agentMs), map.graceMs)
  })
  return sum(attempts)
}

function phaseMs(model: MapreduceModel, phase: Exclude<Phase, 'map'>): number | null {
  const { steps, timeoutMs } = model[phase]
  if (steps.length === 0) return 0
  const { map } = model
  return withGrace(least(stepsMs(map, phase, steps), timeoutMs), map.graceMs)
}

/** One after the other, until the last of them is told to stop. Null where one has no limit. */
export function stepsMs(
  map: MapModel,
  phase: Phase,
  steps: readonly StepModel[],
  grow: (ms: number | null) => number | null = (ms) => ms,
): number | null {
  let totalMs = 0
  let longestMs = 0
  for (const [index, step] of steps.entries()) {
    const ms = stepMs(map, phase, step, index, grow)
    if (ms === null) return null
    totalMs += ms
    // Its handlers wait until it is stopped, and nothing comes after them then.
    longestMs = Math.max(longestMs, totalMs + (step.onFailure.length > 0 ? map.graceMs : 0))
  }
  return longestMs
}

/** All its tries, the waits between them, and the handlers that may take longer. */
function stepMs(
  map: MapModel,
  phase: Phase,
  step: StepModel,
  index: number,
  grow: (ms: number | null) => number | null,
): number | null {
  const triesMs = (one: StepModel, handler: CommandLimit['handler']) => {
    const ownMs = grow(commandLimit(map, phase, one, index, handler).limit.ms)
    let waitsMs = 0
    for (let tries = 0; tries < one.retries; tries++) waitsMs += backoffMs(one.backoff, tries, 1)
    return ownMs && ownMs * (one.retries + 1) + waitsMs
  }
  const handlersMs = (handlers: StepModel[], handler: 'on_failure' | 'on_success') =>
    sum(handlers.map((one) => triesMs(one, handler)))
  const failureMs = handlersMs(step.onFailure, 'on_failure')
  const successMs = handlersMs(step.onSuccess, 'on_success')
  const longerMs = failureMs === null || successMs === null ? null : Math.max(failureMs, successMs)
  return sum([triesMs(step, null), longerMs])
}

function sum(parts: readonly (number | null)[]): number | null {
  let total = 0
  for (const part of parts) {
    if (part === null) return null
    total += part
  }
  return total
}

function least(a: number | null, b: number | null): number | null {
  if (a === null || b === null) return a ?? b
  return Math.min(a, b)
}

function withGrace(ms: number | null, graceMs: number): number | null {
  return ms === null ? null : ms + graceMs
}
