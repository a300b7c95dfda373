/**
 * One fan-out instance, its branches and the joins that count them. Joins count branches, not tokens: a branch is one
 * vote, however many nodes it has.
 */
import type { JsonObject } from '../definitions/context-path.ts'
import { quorum, synchronizationTimeout } from '../definitions/workflow-limits.ts'
import type { NodeModel, SynchronizationModel, TransitionModel } from '../definitions/workflow-model.ts'
import type { TokenStatus } from './graph-types.ts'

/** Where a token stands below a fan-out. */
export interface Membership {
  scope: Scope
  branch: Branch
}

export interface Token {
  readonly no: number
  readonly node: NodeModel
  readonly scopes: readonly Membership[]
  status: TokenStatus
  /** Dispatches after the first. */
  retries: number
  /** Of the node before it, then its own. */
  result: unknown
  /** Of the last join before it. */
  join: JoinCounts | null
  /** The join it waits at. */
  waitsAt: Join | null
  /** Its scope was closed: it ends its node and goes no further. */
  late: boolean
}

/** What the nodes after a join can read. */
export interface JoinCounts {
  expected: number
  arrived: number
  missing: number
  timed_out: number
}

export class Branch {
  readonly index: number
  /** The transition it begins with. */
  readonly transition: TransitionModel
  context: JsonObject
  /** Tokens in it that run, and scopes open in it. */
  live = 0
  /** Nothing of it runs any more. */
  settled = false
  failed = false

  constructor(index: number, transition: TransitionModel, context: JsonObject) {
    this.index = index
    this.transition = transition
    this.context = context
  }
}

export class Join {
  readonly scope: Scope
  readonly transition: TransitionModel
  readonly arrived = new Map<number, { token: Token; context: JsonObject }>()
  timeoutTimer: number | null = null
  warningTimer: number | null = null
  timeoutMs: number | null = null
  fired = false

  constructor(scope: Scope, transition: TransitionModel) {
    this.scope = scope
    this.transition = transition
  }

  get rules(): SynchronizationModel {
    return this.transition.synchronization as SynchronizationModel
  }

  /** How long it waits from now on, its first arrival. */
  limitFor(largestMs: number | null): number | null {
    const { branches, maxParallel } = this.scope
    const limit = synchronizationTimeout(this.transition, {
      branches: branches.length,
      largestMs,
      maxParallel: maxParallel === Infinity ? null : maxParallel,
    })
    this.timeoutMs = limit.ms
    return limit.ms
  }

  /** Branches that may still arrive. */
  get pending(): number {
    let arrivedAndLive = 0
    if (this.scope.forked) {
      for (const index of this.arrived.keys()) if (!this.scope.branches[index]?.settled) arrivedAndLive++
    }
    return this.scope.unsettled - arrivedAndLive
  }

  /** What has to happen now, if anything: every branch that could change it has been heard of. */
  verdict(): 'wait' | 'fire' | 'unreachable' | 'empty' {
    const { strategy } = this.rules
    const arrived = this.arrived.size
    const { pending } = this
    if (strategy !== 'all' && arrived >= quorum(strategy, this.scope.branches.length)) return 'fire'
    if (strategy === 'all' && pending > 0) return 'wait'
    if (strategy === 'all' && arrived > 0) return 'fire'
    if (strategy !== 'all' && arrived + pending >= quorum(strategy, this.scope.branches.length)) return 'wait'
    return arrived > 0 || this.scope.failures > 0 ? 'unreachable' : pending > 0 ? 'wait' : 'empty'
  }
}

export class Scope {
  readonly group: string
  readonly outer: readonly Membership[]
  readonly branches: readonly Branch[]
  readonly maxParallel: number
  readonly joins: readonly Join[]
  readonly members = new Set<Token>()
  /** Scopes opened inside its branches. */
  readonly inner = new Set<Scope>()
  /** Branches that are held back or run. */
  unsettled: number
  running = 0
  next = 0
  failures = 0
  /** A branch has arrived and goes on elsewhere too. */
  forked = false
  closed = false

  constructor(parts: {
    group: string
    outer: readonly Membership[]
    branches: readonly Branch[]
    maxParallel: number
    joins: readonly TransitionModel[]
  }) {
    this.group = parts.group
    this.outer = parts.outer
    this.branches = parts.branches
    this.maxParallel = parts.maxParallel
    this.unsettled = parts.branches.length
    this.joins = parts.joins.map((transition) => new Join(this, transition))
  }

  /** A branch that ends badly is one vote less, not the end of what is around it. */
  get toleratesFailure(): boolean {
    return this.joins.length > 0 && this.joins.every(({ rules }) => rules.onBranchFailure === 'settle')
  }
}

export function joinCounts(join: Join, timedOut: number): JoinCounts {
  const expected = join.scope.branches.length
  const arrived = join.arrived.size
  return { expected, arrived, missing: expected - arrived, timed_out: timedOut }
}
