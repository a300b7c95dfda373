/** The values of a graph run: its input, state and output, and what expressions at a token can see of them. */
import { CurfewError } from '../core/errors.ts'
import type { Failure } from '../core/failure.ts'
import { isLongerThan } from '../core/json.ts'
import { MAX_BRANCHES, MAX_MERGED_BYTES, MAX_PAYLOAD_BYTES } from '../core/limits.ts'
import type { Contexts, JsonObject } from '../definitions/context-path.ts'
import { writeContext } from '../definitions/context-path.ts'
import type { Variables } from '../definitions/expression.ts'
import { mergeOutputs } from '../definitions/join-merge.ts'
import { evaluateExpression } from '../definitions/mapping.ts'
import { runOutput, tooBig } from '../definitions/node-output.ts'
import type { TransitionModel, WorkflowModel } from '../definitions/workflow-model.ts'
import { tooManyBranches } from './graph-failures.ts'
import type { BranchSource, Join, JoinCounts, Membership, Origin, Token } from './graph-scope.ts'
import type { GraphEnd } from './graph-types.ts'

export class GraphValues {
  readonly input: unknown
  state: JsonObject = {}
  output: JsonObject = {}
  /** The last result outside branches, and the last join before it. */
  result: unknown = null
  join: JoinCounts | undefined

  constructor(input: unknown) {
    this.input = input
  }

  /** What a node may write. */
  contexts(scopes: readonly Membership[]): Contexts {
    const branch = scopes.at(-1)?.branch.context
    return branch ? { branch } : { state: this.state, output: this.output }
  }

  /** What `update_context` and merges may write. */
  allContexts(scopes: readonly Membership[]): Contexts {
    return { ...this.contexts(scopes), state: this.state, output: this.output }
  }

  keep(scopes: readonly Membership[], { state, output, branch }: Contexts): void {
    if (state) this.state = state
    if (output) this.output = output
    const innermost = scopes.at(-1)
    if (branch && innermost) innermost.branch.context = branch
  }

  completed({ scopes, result, join }: Token): void {
    if (scopes.length > 0) return
    this.result = result
    if (join) this.join = join
  }

  variables({ scopes, result, join }: Pick<Origin, 'scopes' | 'result' | 'join'>): Variables {
    const branch = scopes.at(-1)?.branch.context
    return {
      input: this.input,
      state: this.state,
      output: this.output,
      ...(result !== undefined && { result }),
      ...(branch && { branch }),
      ...(join && { join }),
    }
  }

  /** How a run ends in which nothing is left to do. */
  outcome(model: WorkflowModel): GraphEnd {
    const output = runOutput(model.output, { ...this })
    if (!output.ok) return { status: 'failed', failure: output.failure }
    // What could never be stored is seen without writing it down.
    const isTooBig = isLongerThan(output.value, 4 * MAX_PAYLOAD_BYTES)
    if (isTooBig) return { status: 'failed', failure: tooBig('output of the workflow') }
    return { status: 'completed', output: output.value }
  }

  /** The outputs of the branches that arrived, in their order, written where the join says. */
  merge({
    rules,
    transition,
    scope,
    arrived,
  }: Join): { ok: true; value: unknown } | { ok: false; failure: Failure } {
    const { merge, collects = true } = rules
    if (!collects) return { ok: true, value: null }
    const place = `transition ${transition.id}: merge`
    const values: { branch: number; value: unknown }[] = []
    for (const [branch, { token, context }] of arrived) {
      const variables = { ...this.variables(token), branch: context }
      const evaluated = evaluateExpression(merge?.source ?? 'branch.output', variables, `${place}.source`)
      if (!evaluated.ok) return evaluated
      values.push({ branch, value: evaluated.value })
    }
    try {
      const value = mergeOutputs(merge?.strategy ?? 'collect', values)
      if (isLongerThan(value, MAX_MERGED_BYTES)) return { ok: false, failure: tooBig(place) }
      if (merge) this.keep(scope.outer, writeContext(this.allContexts(scope.outer), merge.target, value))
      return { ok: true, value }
    } catch (error) {
      if (!(error instanceof CurfewError)) throw error
      const message = `${place}: ${error.message}`
      return { ok: false, failure: { code: error.code, message, retryable: false } }
    }
  }

  /** What arrives may say that nothing more is worth doing. */
  stop({ rules, transition }: Join, token: Token): Failure | null {
    if (rules.failWith === undefined) return null
    const place = `transition ${transition.id}: failWith`
    const said = evaluateExpression(rules.failWith, this.variables(token), place)
    if (!said.ok) return said.failure
    return typeof said.value === 'string' ? { code: 'stopped', message: said.value, retryable: false } : null
  }

  /** What each branch of a fan-out begins with. */
  branches(transition: TransitionModel, origin: Origin): BranchSource | Failure {
    const { foreach, spawnCount = 1 } = transition
    const outer = origin.scopes.at(-1)?.branch.context
    const base = (index: number): JsonObject => ({ index, ...(outer && { parent: outer }) })
    if (!foreach) return { transition, count: spawnCount, context: base }
    const place = `transition ${transition.id}: foreach.collection`
    const evaluated = evaluateExpression(foreach.collection, this.variables(origin), place)
    if (!evaluated.ok) return evaluated.failure
    const { value } = evaluated
    if (!Array.isArray(value)) {
      const got = JSON.stringify(value)?.slice(0, 100)
      const message = `${place} must be a list, got ${got}\n  ${foreach.collection}`
      return { code: 'not_a_list', message, retryable: false, details: { expression: foreach.collection } }
    }
    if (value.length > MAX_BRANCHES) return tooManyBranches(transition.id, value.length)
    const context = (i: number): JsonObject => ({ ...base(i), item: value[i], [foreach.itemVar]: value[i] })
    return { transition, count: value.length, context }
  }
}
