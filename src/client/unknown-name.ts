/** Names that a manager does not know. What they mean is known to those whose workers have announced them. */
import type { CurfewError } from '../core/errors.ts'
import { DefinitionError } from '../definitions/problem.ts'

const UNKNOWN = ['unknown_task', 'unknown_agent', 'unknown_workflow']

export function isUnknownName(fault: CurfewError): boolean {
  if (!(fault instanceof DefinitionError)) return UNKNOWN.includes(fault.code)
  return fault.problems.some(({ code }) => UNKNOWN.includes(code))
}

/** Of several refusals that of the manager which knows most: it says what may be meant. The first of equals. */
export function bestRefusal(refusals: readonly [CurfewError, ...CurfewError[]]): CurfewError {
  const knownTo = (fault: CurfewError) =>
    fault instanceof DefinitionError ? -fault.problems.length : Number(fault.fields.known ?? 0)
  return refusals.reduce((best, fault) => (knownTo(fault) > knownTo(best) ? fault : best))
}
