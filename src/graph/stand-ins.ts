/**
 * Branches that have arrived where nothing is asked of them but to be counted: one stands for all of a scope, and one
 * token for all that are alike. There may be ten thousand, and each would stay in memory until the last has arrived.
 * What a run asks for is the same with them as without.
 */
import type { Arrival, Scope, Token } from './graph-scope.ts'
import { allOf, Branch, newToken, withOne, withoutOne } from './graph-scope.ts'

interface OfScope {
  branch: Branch
  arrivals: Arrival[]
}

const NOBODY = -1

export class StandIns {
  readonly #known = new WeakMap<Scope, OfScope>()

  /** Answers the token that is replaced with its branch, which is settled; null where both have to stay. */
  replace(branch: Branch, scope: Scope, tokens: Token[]): Token | null {
    const [join, second] = scope.joins
    // When its time is up, a join tells of each token.
    if (!join || second || (join.rules.collects ?? true) || join.rules.timeoutMs !== null) return null
    const arrival = join.arrived.get(branch.index)
    const [token, other] = allOf(branch.members)
    if (!arrival || arrival.token !== token || other || branch.failed || token.timeoutType) return null
    const known = this.#ofScope(scope, branch)
    const one = arrivalOf(known, scope, arrival)
    tokens[token.no] = one.token
    scope.branches[branch.index] = known.branch
    join.arrived.set(branch.index, one)
    for (const around of token.scopes) around.branch.members = withoutOne(around.branch.members, token)
    return token
  }

  #ofScope(scope: Scope, { transition, context }: Branch): OfScope {
    const known = this.#known.get(scope)
    if (known) return known
    const branch = new Branch(NOBODY, transition, context)
    branch.settled = true
    const made = { branch, arrivals: [] }
    this.#known.set(scope, made)
    return made
  }
}

/** Alike are those of which the same is told when the run is stopped, and from which the join goes on in the same way. */
function arrivalOf(
  { branch, arrivals }: OfScope,
  scope: Scope,
  { token, transition, context }: Arrival,
): Arrival {
  const { node, retries, passed } = token
  const alike = arrivals.find(
    (one) =>
      one.transition === transition &&
      one.token.node === node &&
      one.token.retries === retries &&
      one.token.passed === passed,
  )
  if (alike) return alike
  const scopes = scope.outer.concat({ scope, branch })
  const one = newToken(NOBODY, node, { scopes, result: null, join: null, passed })
  Object.assign(one, { status: 'waiting_for_siblings', retries, waits: 1, holds: null })
  branch.members = withOne(branch.members, one)
  const made = { token: one, transition, context }
  arrivals.push(made)
  return made
}
