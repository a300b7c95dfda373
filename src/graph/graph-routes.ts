/** Which transitions a token takes from where it stands, and how often each was taken. */
import type { Failure } from '../core/failure.ts'
import { evaluateCondition } from '../definitions/mapping.ts'
import type { TransitionModel } from '../definitions/workflow-model.ts'
import type { WorkflowPlan } from '../definitions/workflow-plan.ts'
import type { Branch, Membership, Scope, Token } from './graph-scope.ts'
import type { GraphValues } from './graph-values.ts'

export type Routes = { ok: true; transitions: TransitionModel[] } | { ok: false; failure: Failure }

export class GraphRoutes {
  readonly #plan: WorkflowPlan
  readonly #values: GraphValues
  readonly #taken = new Map<TransitionModel, Map<Branch | null, number>>()

  constructor(plan: WorkflowPlan, values: GraphValues) {
    this.#plan = plan
    this.#values = values
  }

  /** The first tier with a match fires all its matches. */
  of(token: Token): Routes {
    const variables = this.#values.variables(token)
    const transitions: TransitionModel[] = []
    for (const tier of this.#plan.tiers(token.node.id)) {
      for (const transition of tier) {
        if (transition.loop && this.#times(transition, token.scopes) >= transition.loop.maxIterations)
          continue
        const holds = evaluateCondition(
          transition.condition,
          variables,
          `transition ${transition.id}: condition`,
        )
        if (!holds.ok) return holds
        if (holds.value) transitions.push(transition)
      }
      if (transitions.length) break
    }
    return { ok: true, transitions }
  }

  /** A join is taken outside its branches. */
  take(transition: TransitionModel, scopes: readonly Membership[]): void {
    if (!transition.loop) return
    const taken = this.#taken.get(transition) ?? new Map<Branch | null, number>()
    const branch = scopes.at(-1)?.branch ?? null
    taken.set(branch, (taken.get(branch) ?? 0) + 1)
    this.#taken.set(transition, taken)
  }

  /** Each branch counts for itself, on top of what was taken before it: a fan-out may go round as well. */
  #times(transition: TransitionModel, scopes: readonly Membership[]): number {
    const taken = this.#taken.get(transition)
    if (!taken) return 0
    return scopes.reduce((times, { branch }) => times + (taken.get(branch) ?? 0), taken.get(null) ?? 0)
  }
}

/** Whether the transition is a join that counts the branches of the scope. */
export function joins(transition: TransitionModel, scope: Scope | undefined): boolean {
  return scope !== undefined && transition.synchronization?.siblingGroup === scope.group
}
