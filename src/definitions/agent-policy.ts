/** The options of an agent, checked and made whole. Stored with each run. */
import type { AgentOptions } from './agent.ts'
import type { Origin, TaskPolicy } from './task-policy.ts'
import { applyOptions, checkName, DEFAULT_POLICY, invalid, isSchema, zeroOrMore } from './task-policy.ts'

const OPTION_KEYS: readonly (keyof AgentOptions)[] = [
  'timeout',
  'cleanup',
  'warnAt',
  'retention',
  'inherit',
  'reserve',
]

/** Its turns take no grace: what is stopped by force is the work below it. */
export const AGENT_POLICY: TaskPolicy = { ...DEFAULT_POLICY, queue: '', graceMs: 0 }

export function checkAgentOptions(
  name: string,
  options: AgentOptions,
  shape: { input: unknown; run: unknown },
): TaskPolicy {
  checkName('agent name', name)
  const at = `agent ${name}`
  if (typeof shape.run !== 'function') throw invalid(at, 'run', 'must be a function')
  if (shape.input !== undefined && !isSchema(shape.input)) {
    throw invalid(at, 'input', 'must be a Standard Schema (zod, valibot, arktype, …)')
  }
  return applyAgentOptions(at, AGENT_POLICY, options, 'definition')
}

export function applyAgentOptions(
  at: string,
  policy: TaskPolicy,
  options: AgentOptions,
  origin: Origin,
): TaskPolicy {
  for (const key of Object.keys(options)) {
    if (!OPTION_KEYS.includes(key as keyof AgentOptions)) {
      throw invalid(at, key, `is not an option; there are ${OPTION_KEYS.join(', ')}`)
    }
  }
  const { cleanup, inherit, reserve, ...shared } = options
  const next = applyOptions(at, policy, shared, origin)
  if (cleanup !== undefined) next.cleanupMs = zeroOrMore(at, 'cleanup', cleanup)
  if (inherit !== undefined) {
    if (typeof inherit !== 'boolean') throw invalid(at, 'inherit', 'must be true or false')
    next.inherit = inherit
  }
  if (reserve !== undefined) next.reserveMs = zeroOrMore(at, 'reserve', reserve)
  return next
}
