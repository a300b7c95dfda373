/**
 * A run of a graph: tokens move along transitions, fan-outs open scopes, joins close them. Pure: what happens comes
 * in one at a time, what has to be done goes out as commands, and nothing else is known. Timers, tasks and the store
 * belong to whoever drives it, so a run is rebuilt by telling it again what has happened.
 */
import type { Failure } from '../core/failure.ts'
import { MAX_BRANCHES, MAX_PASSED_NODES, MAX_SCOPE_DEPTH, MAX_TOKENS } from '../core/limits.ts'
import { writeMappings, writeOutput } from '../definitions/node-output.ts'
import { executionLimits } from '../definitions/workflow-limits.ts'
import type { NodeModel, TransitionModel } from '../definitions/workflow-model.ts'
import type { WorkflowPlan } from '../definitions/workflow-plan.ts'
import { requestWork } from './graph-action.ts'
import {
  endless,
  synchronizationTimedOut,
  TOO_MANY_TOKENS,
  tooDeep,
  tooManyBranches,
  tooManySteps,
  unreachable,
} from './graph-failures.ts'
import { GraphRoutes } from './graph-routes.ts'
import type { Branch, BranchSource, Join, Membership, Origin, Token } from './graph-scope.ts'
import { allOf, isLive, isOver, joinCounts, newToken, Scope, withOne, withoutOne } from './graph-scope.ts'
import type {
  GraphCommand,
  GraphEnd,
  GraphEvent,
  GraphHappening,
  PolicyApplied,
  TimeoutLayer,
  TokenStatus,
  WorkEnd,
} from './graph-types.ts'
import { GraphValues } from './graph-values.ts'
import { JoinTimers } from './join-timers.ts'
import { StandIns } from './stand-ins.ts'
import { StepBudget } from './step-budget.ts'

export class GraphRun {
  readonly plan: WorkflowPlan
  readonly tokens: Token[] = []
  readonly scopes: Scope[] = []
  readonly values: GraphValues
  end: GraphEnd | null = null
  /** Tokens that run or wait, late ones aside, and scopes that are open. */
  #live = 0
  readonly #timers: JoinTimers
  readonly #routes: GraphRoutes
  #todo: (() => void)[] = []
  /** Joins that had their first arrival since something happened. */
  #begun: Join[] = []
  #commands: GraphCommand[] = []
  readonly #steps = new StepBudget()
  readonly #standIns: StandIns | null

  /** `forgets`: branches that only have to be counted. It asks for the same all the same. */
  constructor(plan: WorkflowPlan, input: unknown, { forgets = false } = {}) {
    this.plan = plan
    this.#standIns = forgets ? new StandIns() : null
    this.values = new GraphValues(input)
    this.#routes = new GraphRoutes(plan, this.values)
    this.#timers = new JoinTimers(plan, (command) => this.#commands.push(command))
  }

  start(): GraphCommand[] {
    this.#steps.renew()
    const origin: Origin = { scopes: [], result: undefined, join: null, passed: 0 }
    this.#todo.push(() => this.#enter(this.plan.start, origin))
    return this.#settle()
  }

  happen(happening: GraphHappening): GraphCommand[] {
    if (this.end) return []
    this.#steps.renew()
    if (happening.type === 'time') this.#time(happening.timer)
    else if (happening.type === 'stopped') this.#stopped(happening)
    else this.#workEnded(this.tokens[happening.token] as Token, happening.end)
    return this.#settle()
  }

  #settle(): GraphCommand[] {
    for (let i = 0; i < this.#todo.length && !this.end; i++) this.#todo[i]?.()
    this.#todo = []
    if (!this.end && this.#live === 0) this.#finish(this.values.outcome(this.plan.model))
    for (const join of this.#begun)
      if (!this.end && !join.fired && !join.scope.closed) this.#timers.start(join)
    this.#begun = []
    return this.#commands.splice(0)
  }

  /** What is still open is left to whoever drives it: it stops with the run. */
  #finish(end: GraphEnd): void {
    if (this.end) return
    this.end = end
    for (const token of this.tokens) if (isLive(token)) token.status = 'cancelled'
  }

  #stopped({ reason, timeoutMs }: Extract<GraphHappening, { type: 'stopped' }>): void {
    const { model } = this.plan
    if (reason === 'timed_out') {
      for (const [no, token] of [...this.tokens.entries()].filter(([, one]) => isLive(one))) {
        token.status = 'timed_out'
        const told = token.no === no ? token : { ...token, no } // one may stand for many
        this.#recordTimeout(told, 'workflow', timeoutMs ?? model.timeoutMs, model.onTimeout)
      }
    }
    this.#finish({ status: 'stopped', reason })
  }

  #enter(node: NodeModel, origin: Origin): void {
    const { scopes } = origin
    if (this.end || isOver(scopes)) return
    if (this.tokens.length >= MAX_TOKENS) return this.#finish({ status: 'failed', failure: TOO_MANY_TOKENS })
    const token = newToken(this.tokens.length, node, origin)
    this.tokens.push(token)
    this.#hold(scopes)
    for (const { branch } of scopes) branch.members = withOne(branch.members, token)
    this.#begin(token)
  }

  #begin(token: Token): void {
    const { node } = token
    const action = this.plan.action(node)
    if (this.#steps.isUsedUp) return this.#tokenFailed(token, 'failed', tooManySteps(node.id))
    if (action === null) return this.#pass(token)
    if (action.kind === 'update_context') {
      const contexts = this.values.allContexts(token.scopes)
      const place = `node ${node.id}: updates`
      const written = writeMappings(action.updates, this.values.variables(token), contexts, place)
      if (!written.ok) return this.#tokenFailed(token, 'failed', written.failure)
      this.values.keep(token.scopes, written.contexts)
      return this.#pass(token)
    }
    const requested = requestWork(node, action, this.values.variables(token))
    if (!requested.ok) return this.#tokenFailed(token, 'failed', requested.failure)
    token.status = requested.work.kind === 'workflow' ? 'waiting_for_subworkflow' : 'dispatched'
    token.works = true
    const limits = executionLimits(node, action)
    this.#commands.push({ type: 'run', token: token.no, node, action, work: requested.work, limits })
  }

  /** A node without work. A circle of them would never give anybody else a turn. */
  #pass(token: Token): void {
    if (++token.passed > MAX_PASSED_NODES) return this.#tokenFailed(token, 'failed', endless(token.node.id))
    this.#todo.push(() => this.#completed(token, token.result ?? null))
  }

  #workEnded(token: Token, end: WorkEnd): void {
    if (!isLive(token) || !token.works) return
    token.works = false
    if (end.status === 'completed') {
      token.passed = 0
      for (const { branch } of token.scopes) branch.worked = true
      return this.#completed(token, end.output)
    }
    if (end.status === 'timed_out') {
      const limits = executionLimits(token.node, this.plan.action(token.node))
      // A limit of the whole task, or of its queue, is final.
      const retries = ['execution', 'workflow', 'agent', null].includes(end.timeoutKind)
        ? limits.retryLimit
        : 0
      const again = token.retries < retries && !end.final && !token.late
      this.#recordTimeout(token, 'execution', end.timeoutMs ?? null, again ? 'retry' : 'fail')
      if (again) {
        token.retries++
        token.timeoutType = null
        return this.#begin(token)
      }
    }
    this.#tokenFailed(token, end.status, end.failure)
  }

  #completed(token: Token, result: unknown): void {
    if (!isLive(token)) return
    token.result = result
    if (token.late) return this.#leave(token, 'completed')
    const { values } = this
    const contexts = values.contexts(token.scopes)
    const written = writeOutput(token.node, values.variables(token), contexts, token.passed > 0)
    if (!written.ok) return this.#tokenFailed(token, 'failed', written.failure)
    values.keep(token.scopes, written.contexts)
    values.completed(token)
    this.#route(token)
  }

  /** It arrives first: what the same branch does besides cannot take its vote away. */
  #route(token: Token): void {
    const routes = this.#routes.of(token)
    if (!routes.ok) return this.#tokenFailed(token, 'failed', routes.failure)
    const innermost = token.scopes.at(-1)
    // Before anything is done: a token that fails has arrived nowhere.
    const opened: Scope[] = []
    for (const transitions of routes.opening) {
      const scope = this.#scope(transitions, token)
      if (!(scope instanceof Scope)) return this.#tokenFailed(token, 'failed', scope)
      opened.push(scope)
    }
    for (const transition of routes.joining) this.#arrive(token, innermost as Membership, transition)
    for (const transition of [...routes.plain, ...routes.opening.flat()]) {
      this.#routes.take(transition, token.scopes)
    }
    for (const transition of routes.plain) this.#enter(this.#nodeAfter(transition), token)
    for (const scope of opened) this.#open(scope)
    if (this.end && token.waits === 0) token.status = 'completed' // what came after it ended the run
    if (token.waits > 0) this.#judge((innermost as Membership).scope)
    else if (isLive(token)) this.#leave(token, 'completed')
  }

  /** It ends where it is. */
  #leave(token: Token, status: TokenStatus): void {
    token.status = status
    token.waits = 0
    for (const { branch } of token.scopes) branch.members = withoutOne(branch.members, token)
    this.#letGo(token)
  }

  #letGo(token: Token): void {
    const { holds } = token
    token.holds = null
    if (holds) this.#release(holds)
  }

  #tokenFailed(token: Token, status: 'failed' | 'timed_out' | 'cancelled', failure: Failure): void {
    if (status === 'failed') {
      const { code, message } = failure
      this.#record({ type: 'token_failed', tokenId: token.no, nodeId: token.node.id, code, message })
    }
    // The scopes around it decide before it is gone: an empty branch would count as one that ended elsewhere.
    token.status = status
    this.#fail(token.scopes, failure, status)
    if (!this.end) this.#leave(token, status)
  }

  /** The innermost scope that tolerates it has one branch less; without one it is the end of the run. */
  #fail(scopes: readonly Membership[], failure: Failure, status: TokenStatus): void {
    for (const { scope, branch } of scopes.toReversed()) {
      if (scope.closed || branch.failed) return
      if (!scope.toleratesFailure) continue
      branch.failed = true
      scope.failures++
      if (status === 'timed_out') scope.timeouts++
      for (const inner of allOf(branch.inner)) this.#close(inner, false)
      // One that has arrived keeps its vote.
      for (const token of allOf(branch.members)) if (token.waits === 0) this.#setLate(token, false)
      return
    }
    this.#finish({ status: 'failed', failure })
  }

  /** Whoever is inside holds all that is around it. */
  #hold(scopes: readonly Membership[]): void {
    for (const { branch } of scopes) branch.live++
    this.#live++
  }

  #release(scopes: readonly Membership[]): void {
    for (const { scope, branch } of scopes.toReversed()) {
      branch.live--
      if (branch.live === 0) this.#todo.push(() => this.#branchSettled(scope, branch))
    }
    this.#live--
  }

  #branchSettled(scope: Scope, branch: Branch): void {
    if (branch.live > 0 || branch.settled || scope.closed) return
    branch.settled = true
    scope.unsettled--
    scope.running--
    for (const join of scope.joins) join.settle(branch)
    const replaced = this.#standIns?.replace(branch, scope, this.tokens)
    if (replaced) this.#letGo(replaced)
    this.#judge(scope)
    this.#startBranches(scope)
  }

  #nodeAfter(transition: TransitionModel): NodeModel {
    return this.plan.nodes.get(transition.to) as NodeModel
  }

  /** To be opened; or why it cannot be. */
  #scope(transitions: readonly TransitionModel[], origin: Origin): Scope | Failure {
    const group = transitions[0]?.group as string
    const sources: BranchSource[] = []
    for (const transition of transitions) {
      const source = this.values.branches(transition, origin)
      if (!('count' in source)) return source
      sources.push(source)
    }
    const total = sources.reduce((sum, { count }) => sum + count, 0)
    if (total > MAX_BRANCHES) return tooManyBranches(group, total)
    if (origin.scopes.length >= MAX_SCOPE_DEPTH) return tooDeep(group)
    if (origin.passed >= MAX_PASSED_NODES) return endless(transitions[0]?.to as string)
    const maxParallel = Math.min(...transitions.map((transition) => transition.maxParallel ?? Infinity))
    return new Scope({ group, origin, sources, total, maxParallel, joins: this.plan.joins(group) })
  }

  #open(scope: Scope): void {
    if (this.end || isOver(scope.outer)) return
    this.scopes.push(scope)
    for (const { branch } of scope.outer) branch.inner = withOne(branch.inner, scope)
    this.#hold(scope.outer)
    if (scope.total > 0) this.#startBranches(scope)
    else this.#todo.push(() => this.#openedEmpty(scope))
  }

  #openedEmpty(scope: Scope): void {
    if (scope.closed) return
    const join = scope.joins.find(({ transition }) => this.#routes.mayTake(transition, scope.outer))
    if (join) this.#fire(join, 0)
    this.#close(scope, false)
  }

  #startBranches(scope: Scope): void {
    while (!scope.closed && scope.running < scope.maxParallel) {
      const branch = scope.begin()
      if (branch === null) return
      scope.running++
      // As long as it is, and no longer: there may be ten thousand.
      const scopes = scope.outer.concat({ scope, branch })
      const { result, join, passed } = scope.origin
      this.#enter(this.#nodeAfter(branch.transition), { scopes, result, join, passed })
      if (this.end) return
    }
  }

  #arrive(token: Token, { scope, branch }: Membership, transition: TransitionModel): void {
    const join = scope.joins.find((one) => one.transition.to === transition.to)
    if (!join || join.fired || join.arrived.has(branch.index)) return
    join.arrived.set(branch.index, { token, transition, context: branch.context })
    join.unsettled++
    join.stop ??= this.values.stop(join, token)
    if (join.arrived.size === 1) this.#begun.push(join)
    if (token.waits++ > 0) return
    token.status = 'waiting_for_siblings'
    // Its branch may be over; what is around it is not.
    token.holds = scope.outer
    branch.live--
    if (branch.live === 0) this.#todo.push(() => this.#branchSettled(scope, branch))
  }

  #judge(scope: Scope): void {
    for (const join of scope.joins) {
      if (scope.closed || this.end) return
      const verdict = join.fired ? 'wait' : join.verdict()
      if (verdict === 'fire') this.#fire(join, 0)
      else if (verdict === 'stop') this.#joinFailed(join, 'failed', join.stop as Failure)
      // Of several joins, one that nobody comes to is just not taken.
      else if (verdict === 'unreachable' && (scope.joins.length === 1 || join.arrived.size > 0)) {
        this.#joinFailed(join, 'failed', unreachable(join))
      }
    }
    if (scope.closed || this.end || scope.unsettled > 0) return
    const [first] = scope.joins
    const isFutile = scope.failures > 0 && !scope.joins.some(({ fired }) => fired)
    if (first && isFutile) this.#joinFailed(first, 'failed', unreachable(first))
    else this.#close(scope, false)
  }

  /** `waitedFor`: branches that did not come in time. */
  #fire(join: Join, waitedFor: number): void {
    const { scope, transition, rules } = join
    const counts = joinCounts(join, waitedFor)
    const merged = this.values.merge(join)
    if (!merged.ok) return this.#joinFailed(join, 'failed', merged.failure)
    join.fired = true
    this.#timers.clear(join)
    const { expected, arrived } = counts
    const event = { type: 'join_fired', transition: transition.id, expected, arrived } as const
    this.#record({ ...event, timedOut: waitedFor > 0 })
    this.#routes.takeJoin(join)
    let passed = scope.origin.passed + 1
    for (const { token } of join.arrived.values()) {
      passed = Math.min(passed, token.passed)
      if (isLive(token) && --token.waits === 0) this.#leave(token, 'completed')
    }
    const origin = { scopes: scope.outer, result: merged.value, join: counts, passed }
    if (transition.group === undefined) this.#enter(this.#nodeAfter(transition), origin)
    else {
      const next = this.#scope([transition], origin)
      if (!(next instanceof Scope)) return this.#joinFailed(join, 'failed', next)
      this.#open(next)
    }
    if (!this.end && scope.joins.every(({ fired }) => fired)) this.#close(scope, rules.late === 'cancel')
  }

  /** As if the token that opened the scope had failed. */
  #joinFailed(join: Join, status: 'failed' | 'timed_out', failure: Failure): void {
    const { scope, transition } = join
    const { code, message } = failure
    this.#record({ type: 'join_failed', transition: transition.id, code, message })
    for (const { token } of join.arrived.values()) if (isLive(token)) this.#leave(token, status)
    this.#close(scope, true)
    this.#fail(scope.outer, failure, status)
  }

  /** What has not started never does; what runs ends its present node, or is stopped. */
  #close(scope: Scope, stop: boolean): void {
    if (scope.closed) return
    scope.closed = true
    for (const { branch } of scope.outer) branch.inner = withoutOne(branch.inner, scope)
    for (const join of scope.joins) this.#timers.clear(join)
    for (const { inner, members } of scope.branches) {
      for (const one of allOf(inner)) this.#close(one, stop)
      for (const token of allOf(members)) this.#setLate(token, stop)
    }
    this.#release(scope.outer)
  }

  #setLate(token: Token, stop: boolean): void {
    if (token.late || !isLive(token)) return
    if (token.waits > 0) return this.#leave(token, 'cancelled')
    token.late = true
    this.#letGo(token)
    if (stop && token.works) this.#commands.push({ type: 'stop', token: token.no })
  }

  #time(timer: number): void {
    const { join, use } = this.#timers.use(timer)
    if (join.fired || join.scope.closed) return
    if (use === 'warning') return this.#record(this.#timers.warning(join))
    const { timeoutMs, rules, scope } = join
    join.timeoutTimer = null
    const usable = [...join.arrived.keys()].some((index) => scope.branches[index]?.worked)
    for (const { token } of join.arrived.values()) {
      this.#recordTimeout(token, 'synchronization', timeoutMs, rules.onTimeout)
    }
    if (usable && rules.onTimeout === 'proceed_with_available') return this.#fire(join, join.pending)
    this.#joinFailed(join, 'timed_out', synchronizationTimedOut(join))
  }

  #record(event: GraphEvent): void {
    this.#commands.push({ type: 'record', event })
  }

  #recordTimeout(
    token: Token,
    timeoutType: TimeoutLayer,
    timeoutDurationMs: number | null,
    policyApplied: PolicyApplied,
  ): void {
    const { no: tokenId, node, timeoutType: before } = token
    token.timeoutType = timeoutType
    // One that waits at several joins is told of once.
    if (before !== null) return
    const about = { tokenId, nodeId: node.id, attempt: token.retries + 1, timeoutType }
    this.#record({ type: 'token_timed_out', ...about, timeoutDurationMs, policyApplied })
  }
}
