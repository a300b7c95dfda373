/** Which transitions a token takes from where it stands, and how often each was taken. */
import type { Failure } from '../core/failure.ts'
import { evaluateCondition } from '../definitions/mapping.ts'
import type { TransitionModel } from '../definitions/workflow-model.ts'
import type { WorkflowPlan } from '../definitions/workflow-plan.ts'
import type { Branch, Join, Membership, Token } from './graph-scope.ts'
import type { GraphValues } from './graph-values.ts'

interface Routes {
  ok: true
  /** Joins that count the branch it is in. */
  joining: TransitionModel[]
  /** To the next node. */
  plain: TransitionModel[]
  /** Fan-outs, those of one group together. */
  opening: TransitionModel[][]
}

export class GraphRoutes {
  readonly #plan: WorkflowPlan
  readonly #values: GraphValues
  readonly #taken = new Map<TransitionModel, Map<Branch | null, number>>()

  constructor(plan: WorkflowPlan, values: GraphValues) {
    this.#plan = plan
    this.#values = values
  }

  /** The first tier with a match fires all its matches. */
  of(token: Token): Routes | { ok: false; failure: Failure } {
    const variables = this.#values.variables(token)
    const matches: TransitionModel[] = []
    for (const tier of this.#plan.tiers(token.node.id)) {
      for (const transition of tier) {
        if (!this.mayTake(transition, token.scopes)) continue
        const place = `transition ${transition.id}: condition`
        const holds = evaluateCondition(transition.condition, variables, place)
        if (!holds.ok) return holds
        if (holds.value) matches.push(transition)
      }
      if (matches.length) break
    }
    return sorted(matches, token.scopes.at(-1)?.scope.group)
  }

  /** Each branch counts for itself, on top of what was taken before it: a fan-out may go round as well. */
  mayTake(transition: TransitionModel, scopes: readonly Membership[]): boolean {
    const taken = this.#taken.get(transition)
    if (!transition.loop || !taken) return true
    const outside = taken.get(null) ?? 0
    const times = scopes.reduce((sum, { branch }) => sum + (taken.get(branch) ?? 0), outside)
    return times < transition.loop.maxIterations
  }

  take(transition: TransitionModel, scopes: readonly Membership[]): void {
    if (!transition.loop) return
    const taken = this.#taken.get(transition) ?? new Map<Branch | null, number>()
    const branch = scopes.at(-1)?.branch ?? null
    taken.set(branch, (taken.get(branch) ?? 0) + 1)
    this.#taken.set(transition, taken)
  }

  /** Once, outside its branches, over each transition that led to it. */
  takeJoin({ arrived, transition, scope }: Join): void {
    const taken = new Set([...arrived.values()].map((arrival) => arrival.transition))
    for (const one of taken.size > 0 ? taken : [transition]) this.take(one, scope.outer)
  }
}

function sorted(matches: readonly TransitionModel[], innermost: string | undefined): Routes {
  const routes: Routes = { ok: true, joining: [], plain: [], opening: [] }
  for (const transition of matches) {
    const { synchronization, group } = transition
    if (innermost !== undefined && synchronization?.siblingGroup === innermost) {
      routes.joining.push(transition)
    } else if (group === undefined) routes.plain.push(transition)
    else {
      const sharing = routes.opening.find(([first]) => first?.group === group)
      if (sharing) sharing.push(transition)
      else routes.opening.push([transition])
    }
  }
  return routes
}
