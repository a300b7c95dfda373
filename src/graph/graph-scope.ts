/**
 * One fan-out instance, its branches and the joins that count them. Joins count branches, not tokens: a branch is one
 * vote, however many nodes it has.
 */
import type { Failure } from '../core/failure.ts'
import type { JsonObject } from '../definitions/context-path.ts'
import { quorum, synchronizationTimeout } from '../definitions/workflow-limits.ts'
import type { NodeModel, SynchronizationModel, TransitionModel } from '../definitions/workflow-model.ts'
import type { TimeoutLayer, TokenStatus } from './graph-types.ts'

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
  /** The layer of its last timeout; null once it was dispatched again. */
  timeoutType: TimeoutLayer | null
  /** Of the node before it, then its own. */
  result: unknown
  /** Of the last join before it. */
  join: JoinCounts | null
  /** Nodes without work right before it. */
  passed: number
  /** Its work was begun and has not ended. */
  works: boolean
  /** Joins it waits at. */
  waits: number
  /** What stays open for it; null: it is late, or gone. */
  holds: readonly Membership[] | null
  /** Its scope was closed: it ends its node and goes no further. */
  late: boolean
}

export function newToken(no: number, node: NodeModel, { scopes, result, join, passed }: Origin): Token {
  return {
    ...{ no, node, scopes, status: 'dispatched', retries: 0, timeoutType: null, result, join, passed },
    ...{ works: false, waits: 0, holds: scopes, late: false },
  }
}

/** What the nodes after a join can read. */
export interface JoinCounts {
  expected: number
  arrived: number
  missing: number
  timed_out: number
}

/** Where a token comes from. */
export interface Origin {
  readonly scopes: readonly Membership[]
  /** Of the node before it. */
  readonly result: unknown
  readonly join: JoinCounts | null
  readonly passed: number
}

/** A set that has none or one in it for most of its life, and of which there are many. */
export type Few<T extends object> = null | T | Set<T>

export function withOne<T extends object>(few: Few<T>, one: T): Few<T> {
  if (few === null || few === one) return one
  return few instanceof Set ? few.add(one) : new Set([few, one])
}

export function withoutOne<T extends object>(few: Few<T>, one: T): Few<T> {
  if (few instanceof Set) few.delete(one)
  return few === one ? null : few
}

/** As they are now, in the order in which they were added. */
export function allOf<T extends object>(few: Few<T>): T[] {
  if (few === null) return []
  return few instanceof Set ? [...few] : [few]
}

export class Branch {
  readonly index: number
  /** The transition it begins with. */
  readonly transition: TransitionModel
  context: JsonObject
  /** However deep. */
  members: Few<Token> = null
  /** Scopes that are open inside it, however deep. */
  inner: Few<Scope> = null
  /** Tokens in it that run, and scopes open in it. */
  live = 0
  /** Nothing of it runs any more. */
  settled = false
  failed = false
  /** Work was completed in it. */
  worked = false

  constructor(index: number, transition: TransitionModel, context: JsonObject) {
    this.index = index
    this.transition = transition
    this.context = context
  }
}

/** The branches that one transition opens. Each is made when it begins: until then it is a number. */
export interface BranchSource {
  readonly transition: TransitionModel
  readonly count: number
  context(index: number): JsonObject
}

/** Of a branch at a join, with its context when it arrived. */
export interface Arrival {
  token: Token
  transition: TransitionModel
  context: JsonObject
}

const NO_VALUES: JsonObject = {}

export class Join {
  readonly scope: Scope
  readonly transition: TransitionModel
  /** By branch. */
  readonly arrived = new Map<number, Arrival>()
  /** Of those that arrived, the ones in which something still runs. */
  unsettled = 0
  timeoutTimer: number | null = null
  warningTimer: number | null = null
  timeoutMs: number | null = null
  fired = false
  /** One that arrived says that nothing more is worth doing. */
  stop: Failure | null = null

  constructor(scope: Scope, transition: TransitionModel) {
    this.scope = scope
    this.transition = transition
  }

  /** Nothing of the branch runs any more. */
  settle(branch: Branch): void {
    const arrival = this.arrived.get(branch.index)
    if (!arrival) return
    this.unsettled--
    if (this.rules.collects ?? true) return
    // Nobody will ask for them.
    arrival.token.result = null
    arrival.context = NO_VALUES
    branch.context = NO_VALUES
  }

  get rules(): SynchronizationModel {
    return this.transition.synchronization as SynchronizationModel
  }

  /** How long it waits from now on, its first arrival. */
  limitFor(largestMs: number | null): number | null {
    const { total, maxParallel } = this.scope
    const limit = synchronizationTimeout(this.transition, {
      branches: total,
      largestMs,
      maxParallel: maxParallel === Infinity ? null : maxParallel,
    })
    this.timeoutMs = limit.ms
    return limit.ms
  }

  /** Branches that may still arrive. */
  get pending(): number {
    return this.scope.unsettled - this.unsettled
  }

  /** What has to happen now, if anything: every branch that could change it has been heard of. */
  verdict(): 'wait' | 'fire' | 'unreachable' | 'empty' | 'stop' {
    if (this.stop) return 'stop'
    const { strategy } = this.rules
    const arrived = this.arrived.size
    const { pending } = this
    if (strategy !== 'all' && arrived >= quorum(strategy, this.scope.total)) return 'fire'
    if (strategy === 'all' && pending > 0) return 'wait'
    if (strategy === 'all' && arrived > 0) return 'fire'
    if (strategy !== 'all' && arrived + pending >= quorum(strategy, this.scope.total)) return 'wait'
    if (this.rules.firesEmpty && pending === 0) return 'fire'
    return arrived > 0 || this.scope.failures > 0 ? 'unreachable' : pending > 0 ? 'wait' : 'empty'
  }
}

export class Scope {
  readonly group: string
  readonly origin: Origin
  /** Those that have begun. */
  readonly branches: Branch[] = []
  readonly total: number
  readonly maxParallel: number
  readonly joins: readonly Join[]
  /** Branches that are held back or run. */
  unsettled: number
  running = 0
  failures = 0
  /** Of the failures. */
  timeouts = 0
  closed = false
  readonly #sources: readonly BranchSource[]

  constructor(parts: {
    group: string
    origin: Origin
    sources: readonly BranchSource[]
    total: number
    maxParallel: number
    joins: readonly TransitionModel[]
  }) {
    this.group = parts.group
    this.origin = parts.origin
    this.#sources = parts.sources
    this.total = parts.total
    this.maxParallel = parts.maxParallel
    this.unsettled = this.total
    this.joins = parts.joins.map((transition) => new Join(this, transition))
  }

  /** The next one, or null: all have begun. */
  begin(): Branch | null {
    const index = this.branches.length
    let before = 0
    for (const { transition, count, context } of this.#sources) {
      if (index < before + count) {
        const branch = new Branch(index, transition, { ...context(index - before), index })
        this.branches.push(branch)
        return branch
      }
      before += count
    }
    return null
  }

  get outer(): readonly Membership[] {
    return this.origin.scopes
  }

  /** A branch that ends badly is one vote less, not the end of what is around it. */
  get toleratesFailure(): boolean {
    return this.joins.length > 0 && this.joins.every(({ rules }) => rules.onBranchFailure === 'settle')
  }
}

/** `waitedFor`: branches that did not come in time. */
export function joinCounts(join: Join, waitedFor: number): JoinCounts {
  const { total: expected, timeouts } = join.scope
  const arrived = join.arrived.size
  return { expected, arrived, missing: expected - arrived, timed_out: timeouts + waitedFor }
}

/** What is inside goes no further. */
export function isOver(scopes: readonly Membership[]): boolean {
  return scopes.some(({ scope, branch }) => scope.closed || branch.failed)
}

export function isLive({ status }: Token): boolean {
  return status === 'dispatched' || status === 'waiting_for_siblings' || status === 'waiting_for_subworkflow'
}
