/** The limits that a map-reduce would run with, and where each was set: plain data, also what `--json` prints. */

import type { CommandLimit, Limit } from '../definitions/mapreduce-limits.ts'
import { effectiveLimits, limitOfAttempt, maxAttempts } from '../definitions/mapreduce-limits.ts'
import type { MapreduceModel, TimeoutAction, TimeoutPolicy } from '../definitions/mapreduce-model.ts'
import { formatProblem } from '../definitions/problem.ts'
import type { MapreduceFile } from './definition-file.ts'

/** Attempts behind the first whose limits are told. */
const ATTEMPTS_TOLD = 2

export interface CommandPlan {
  phase: CommandLimit['phase']
  index: number
  handler: CommandLimit['handler']
  type: string
  text: string
  /** Null: none. */
  limitMs: number | null
  source: Limit['source']
  /** What was looked up, and does not hold under the policy. */
  notApplied: { limitMs: number | null; source: Limit['source'] } | null
}

export interface AttemptPlan {
  attempt: number
  agentMs: number | null
  /** Of the commands of an item, in their order. */
  commandsMs: (number | null)[]
}

export interface LimitPlan {
  file: string
  name: string
  policy: TimeoutPolicy
  action: TimeoutAction
  agent: { limitMs: number | null; isApplied: boolean }
  idleMs: number | null
  graceMs: number
  jobMs: number | null
  phases: { setup: number | null; reduce: number | null; merge: number | null }
  commands: CommandPlan[]
  maxAttempts: number
  escalation: { multiplier: number; maxMs: number | null } | null
  /** Those that follow the first one. */
  attempts: AttemptPlan[]
  /** What is odd about the file, with its line. */
  warnings: string[]
}

export function planLimits({ file, definition }: MapreduceFile): LimitPlan {
  const { model, name, warnings } = definition
  const { map } = model
  const { policy, agent, idleMs, graceMs, jobMs, phases, commands } = effectiveLimits(model)
  return {
    file,
    name,
    policy,
    action: map.action,
    agent: { limitMs: agent.ms, isApplied: agent.isApplied },
    idleMs,
    graceMs,
    jobMs,
    phases,
    commands: commands.map(({ limit, notApplied, ...command }) => ({
      ...command,
      limitMs: limit.ms,
      source: limit.source,
      notApplied: notApplied && { limitMs: notApplied.ms, source: notApplied.source },
    })),
    maxAttempts: maxAttempts(map),
    escalation: map.escalation && { multiplier: map.escalation.multiplier, maxMs: map.escalation.maxMs },
    attempts: laterAttempts(model),
    warnings: warnings.map(formatProblem),
  }
}

function laterAttempts(model: MapreduceModel): AttemptPlan[] {
  const { map } = model
  const { agent, commands } = effectiveLimits(model)
  const own = commands.filter(({ phase, handler }) => phase === 'map' && handler === null)
  const count = Math.min(maxAttempts(map) - 1, ATTEMPTS_TOLD)
  return Array.from({ length: count }, (_, i) => {
    const attempt = i + 2
    const grow = (ms: number | null) => ms && limitOfAttempt(ms, attempt, map.escalation)
    const agentMs = agent.isApplied ? grow(agent.ms) : null
    return { attempt, agentMs, commandsMs: own.map(({ limit }) => grow(limit.ms)) }
  })
}
