/**
 * A run of a graph: tokens move along transitions, fan-outs open scopes, joins close them. Pure: what happens comes
 * in one at a time, what has to be done goes out as commands, and nothing else is known. Timers, tasks and the store
 * belong to whoever drives it, so a run is rebuilt by telling it again what has happened.
 */
import type { Failure } from '../core/failure.ts'
import { MAX_BRANCHES, MAX_PASSED_NODES, MAX_SCOPE_DEPTH, MAX_TOKENS } from '../core/limits.ts'
import { evaluateCondition } from '../definitions/mapping.ts'
import { runOutput, writeMappings, writeOutput } from '../definitions/node-output.ts'
import { executionLimits } from '../definitions/workflow-limits.ts'
import type { NodeModel, TransitionModel } from '../definitions/workflow-model.ts'
import type { WorkflowPlan } from '../definitions/workflow-plan.ts'
import { requestWork } from './graph-action.ts'
import type { Join, JoinCounts, Membership, Token } from './graph-scope.ts'
import { Branch, joinCounts, Scope } from './graph-scope.ts'
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
import type { Origin } from './graph-values.ts'
import { GraphValues, TOO_MANY_TOKENS, tooDeep, tooManyBranches } from './graph-values.ts'
import { JoinTimers } from './join-timers.ts'

export class GraphRun {
  readonly plan: WorkflowPlan
  readonly tokens: Token[] = []
  readonly scopes: Scope[] = []
  readonly values: GraphValues
  end: GraphEnd | null = null
  /** Tokens that run or wait, and scopes that are open, outside every branch. */
  #live = 0
  readonly #timers: JoinTimers
  readonly #loops = new Map<TransitionModel, Map<Branch | null, number>>()
  #todo: (() => void)[] = []
  #commands: GraphCommand[] = []
  /** Nodes without work that were passed since something happened. */
  #passed = 0

  constructor(plan: WorkflowPlan, input: unknown) {
    this.plan = plan
    this.values = new GraphValues(input)
    this.#timers = new JoinTimers(plan, (command) => this.#commands.push(command))
  }

  start(): GraphCommand[] {
    this.#todo.push(() => this.#enter(this.plan.start, { scopes: [], result: undefined, join: null }))
    return this.#settle()
  }

  happen(happening: GraphHappening): GraphCommand[] {
    if (this.end) return []
    this.#passed = 0
    if (happening.type === 'time') this.#time(happening.timer)
    else if (happening.type === 'stopped') this.#stopped(happening.reason)
    else this.#workEnded(this.tokens[happening.token] as Token, happening.end)
    return this.#settle()
  }

  #settle(): GraphCommand[] {
    for (let i = 0; i < this.#todo.length && !this.end; i++) this.#todo[i]?.()
    this.#todo = []
    if (!this.end && this.#live === 0) this.#complete()
    return this.#commands.splice(0)
  }

  #complete(): void {
    const output = runOutput(this.plan.model.output, { ...this.values })
    if (output.ok) this.#finish({ status: 'completed', output: output.value })
    else this.#finish({ status: 'failed', failure: output.failure })
  }

  /** What is still open is left to whoever drives it: it stops with the run. */
  #finish(end: GraphEnd): void {
    this.end = end
    for (const token of this.tokens) if (isLive(token)) token.status = 'cancelled'
  }

  #stopped(reason: 'timed_out' | 'cancelled'): void {
    const { timeoutMs, onTimeout } = this.plan.model
    if (reason === 'timed_out') {
      for (const token of this.tokens) {
        if (!isLive(token)) continue
        token.status = 'timed_out'
        this.#recordTimeout(token, 'workflow', timeoutMs, onTimeout)
      }
    }
    this.#finish({ status: 'stopped', reason })
  }

  #enter(node: NodeModel, origin: Origin): void {
    const { scopes } = origin
    if (scopes.some(({ scope, branch }) => scope.closed || branch.failed)) return
    if (this.tokens.length >= MAX_TOKENS) return this.#finish({ status: 'failed', failure: TOO_MANY_TOKENS })
    const token: Token = {
      no: this.tokens.length,
      node,
      scopes,
      status: 'dispatched',
      retries: 0,
      timeoutType: null,
      result: origin.result,
      join: origin.join,
      waitsAt: null,
      late: false,
    }
    this.tokens.push(token)
    this.#hold(scopes)
    for (const { scope } of scopes) scope.members.add(token)
    this.#begin(token)
  }

  #begin(token: Token): void {
    const { node } = token
    const action = this.plan.action(node)
    if (action === null) return this.#pass(token, null)
    if (action.kind === 'update_context') {
      const contexts = this.values.allContexts(token.scopes)
      const place = `node ${node.id}: updates`
      const written = writeMappings(action.updates, this.values.variables(token), contexts, place)
      if (!written.ok) return this.#tokenFailed(token, 'failed', written.failure)
      this.values.keep(token.scopes, written.contexts)
      return this.#pass(token, null)
    }
    const requested = requestWork(node, action, this.values.variables(token))
    if (!requested.ok) return this.#tokenFailed(token, 'failed', requested.failure)
    token.status = requested.work.kind === 'workflow' ? 'waiting_for_subworkflow' : 'dispatched'
    const limits = executionLimits(node, action)
    this.#commands.push({ type: 'run', token: token.no, node, action, work: requested.work, limits })
  }

  /** A node without work. A circle of them would never give anybody else a turn. */
  #pass(token: Token, result: unknown): void {
    if (++this.#passed > MAX_PASSED_NODES) {
      const message = `${MAX_PASSED_NODES} nodes were passed without any work; node ${token.node.id} is one of them`
      return this.#tokenFailed(token, 'failed', { code: 'endless_loop', message, retryable: false })
    }
    this.#todo.push(() => this.#completed(token, result))
  }

  #workEnded(token: Token, end: WorkEnd): void {
    if (!isLive(token)) return
    if (end.status === 'completed') return this.#completed(token, end.output)
    if (token.late) return this.#leave(token, end.status)
    if (end.status === 'timed_out') {
      const limits = executionLimits(token.node, this.plan.action(token.node))
      // A limit of the whole task, or of its queue, is final.
      const retries = ['execution', 'workflow', 'agent', null].includes(end.timeoutKind)
        ? limits.retryLimit
        : 0
      const again = token.retries < retries
      const ms = end.timeoutKind === 'queue' ? limits.queueTimeout.ms : limits.timeout.ms
      this.#recordTimeout(token, 'execution', ms, again ? 'retry' : 'fail')
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
    const written = writeOutput(token.node, values.variables(token), values.contexts(token.scopes))
    if (!written.ok) return this.#tokenFailed(token, 'failed', written.failure)
    values.keep(token.scopes, written.contexts)
    if (token.scopes.length === 0) {
      values.result = result
      values.join = token.join ?? values.join
    }
    this.#route(token)
  }

  /** The first tier with a match fires all its matches. */
  #route(token: Token): void {
    const matches: TransitionModel[] = []
    for (const tier of this.plan.tiers(token.node.id)) {
      for (const transition of tier) {
        if (!this.#mayLoop(transition, token)) continue
        const place = `transition ${transition.id}: condition`
        const holds = evaluateCondition(transition.condition, this.values.variables(token), place)
        if (!holds.ok) return this.#tokenFailed(token, 'failed', holds.failure)
        if (holds.value) matches.push(transition)
      }
      if (matches.length) break
    }
    const opened = new Map<string, TransitionModel[]>()
    let waits = false
    for (const transition of matches) {
      this.#countLoop(transition, token)
      const innermost = token.scopes.at(-1)
      if (innermost && transition.synchronization?.siblingGroup === innermost.scope.group) {
        waits = this.#arrive(token, innermost, transition) || waits
      } else if (transition.group !== undefined) {
        const sharing = opened.get(transition.group)
        if (sharing) sharing.push(transition)
        else opened.set(transition.group, [transition])
      } else this.#enter(this.plan.nodes.get(transition.to) as NodeModel, token)
      if (this.end || !isLive(token)) return
    }
    for (const transitions of opened.values()) this.#open(transitions, token)
    if (!waits && isLive(token)) this.#leave(token, 'completed')
    const innermost = token.scopes.at(-1)
    if (waits && innermost && matches.length > 1) innermost.scope.forked = true
  }

  #mayLoop(transition: TransitionModel, token: Token): boolean {
    if (!transition.loop) return true
    const taken = this.#loops.get(transition)?.get(token.scopes.at(-1)?.branch ?? null) ?? 0
    return taken < transition.loop.maxIterations
  }

  #countLoop(transition: TransitionModel, token: Token): void {
    if (!transition.loop) return
    const counts = this.#loops.get(transition) ?? new Map<Branch | null, number>()
    const branch = token.scopes.at(-1)?.branch ?? null
    counts.set(branch, (counts.get(branch) ?? 0) + 1)
    this.#loops.set(transition, counts)
  }

  /** It ends where it is. */
  #leave(token: Token, status: TokenStatus): void {
    const { waitsAt, late } = token
    token.status = status
    token.waitsAt = null
    for (const { scope } of token.scopes) scope.members.delete(token)
    if (late) return
    // One that waits has already left its branch.
    this.#release(waitsAt ? token.scopes.slice(0, -1) : token.scopes)
  }

  #tokenFailed(token: Token, status: 'failed' | 'timed_out' | 'cancelled', failure: Failure): void {
    if (status === 'failed') {
      const { code, message } = failure
      this.#record({ type: 'token_failed', tokenId: token.no, nodeId: token.node.id, code, message })
    }
    // The scopes around it decide before it is gone: an empty branch would count as one that ended elsewhere.
    token.status = status
    this.#fail(token.scopes, failure)
    if (!this.end) this.#leave(token, status)
  }

  /** The innermost scope that tolerates it has one branch less; without one it is the end of the run. */
  #fail(scopes: readonly Membership[], failure: Failure): void {
    for (let depth = scopes.length - 1; depth >= 0; depth--) {
      const { scope, branch } = scopes[depth] as Membership
      if (scope.closed || branch.failed) return
      if (!scope.toleratesFailure) continue
      branch.failed = true
      scope.failures++
      for (const token of [...scope.members]) if (isIn(token.scopes, branch)) this.#setLate(token, false)
      for (const inner of [...scope.inner]) if (isIn(inner.outer, branch)) this.#close(inner, false)
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
    this.#startBranches(scope)
    this.#judge(scope)
  }

  /** After its join, if there was one. */
  #travel(transition: TransitionModel, origin: Origin): void {
    if (transition.group !== undefined) this.#open([transition], origin)
    else this.#enter(this.plan.nodes.get(transition.to) as NodeModel, origin)
  }

  #open(transitions: readonly TransitionModel[], origin: Origin): void {
    const group = transitions[0]?.group as string
    const joins = this.plan.joins(group)
    const branches: Branch[] = []
    for (const transition of transitions) {
      const contexts = this.values.branches(transition, origin)
      if (!Array.isArray(contexts)) return this.#fail(origin.scopes, contexts)
      for (const context of contexts) {
        const index = branches.length
        branches.push(new Branch(index, transition, { ...context, index }))
      }
    }
    if (branches.length > MAX_BRANCHES)
      return this.#fail(origin.scopes, tooManyBranches(group, branches.length))
    if (origin.scopes.length >= MAX_SCOPE_DEPTH) return this.#fail(origin.scopes, tooDeep(group))
    const maxParallel = Math.min(...transitions.map((transition) => transition.maxParallel ?? Infinity))
    const scope = new Scope({ group, outer: origin.scopes, branches, maxParallel, joins })
    this.scopes.push(scope)
    for (const outer of origin.scopes) outer.scope.inner.add(scope)
    this.#hold(scope.outer)
    if (branches.length > 0) return this.#startBranches(scope)
    const [join] = scope.joins
    if (join) this.#fire(join, 0)
    else this.#close(scope, false)
  }

  #startBranches(scope: Scope): void {
    while (!scope.closed && scope.next < scope.branches.length && scope.running < scope.maxParallel) {
      const branch = scope.branches[scope.next++] as Branch
      scope.running++
      const to = this.plan.nodes.get(branch.transition.to) as NodeModel
      this.#enter(to, { scopes: [...scope.outer, { scope, branch }], result: undefined, join: null })
      if (this.end) return
    }
  }

  /** Answers whether the token waits now. */
  #arrive(token: Token, { scope, branch }: Membership, transition: TransitionModel): boolean {
    const join = scope.joins.find((one) => one.transition === transition)
    if (!join || join.fired || join.arrived.has(branch.index)) return false
    join.arrived.set(branch.index, { token, context: branch.context })
    token.status = 'waiting_for_siblings'
    token.waitsAt = join
    branch.live--
    if (branch.live > 0) scope.forked = true
    else this.#todo.push(() => this.#branchSettled(scope, branch))
    if (join.arrived.size === 1) this.#timers.start(join)
    this.#todo.push(() => this.#judge(scope))
    return true
  }

  #judge(scope: Scope): void {
    for (const join of scope.joins) {
      if (scope.closed || this.end) return
      const verdict = join.fired ? 'wait' : join.verdict()
      if (verdict === 'fire') this.#fire(join, 0)
      else if (verdict === 'unreachable' && (scope.joins.length === 1 || join.arrived.size > 0)) {
        const { expected, arrived } = joinCounts(join, 0)
        const message = `the join at transition ${join.transition.id} can no longer be met: ${arrived} of ${expected} branches arrived, ${scope.failures} failed`
        this.#joinFailed(join, 'failed', { code: 'quorum_unreachable', message, retryable: false })
      }
    }
    if (!scope.closed && scope.unsettled === 0) this.#close(scope, false)
  }

  #fire(join: Join, timedOut: number): void {
    const { scope, transition, rules } = join
    join.fired = true
    const origin: Origin = { scopes: scope.outer, result: null, join: joinCounts(join, timedOut) }
    const merged = this.values.merge(join)
    if (!merged.ok) return this.#joinFailed(join, 'failed', merged.failure)
    origin.result = merged.value
    const { expected, arrived } = origin.join as JoinCounts
    const event = { type: 'join_fired', transition: transition.id, expected, arrived } as const
    this.#record({ ...event, timedOut: timedOut > 0 })
    for (const { token } of join.arrived.values()) this.#leave(token, 'completed')
    this.#travel(transition, origin)
    if (!this.end) this.#close(scope, rules.late === 'cancel')
  }

  /** As if the token that opened the scope had failed. */
  #joinFailed(join: Join, status: 'failed' | 'timed_out', failure: Failure): void {
    for (const { token } of join.arrived.values()) this.#leave(token, status)
    this.#fail(join.scope.outer, failure)
    if (!this.end) this.#close(join.scope, true)
  }

  /** What has not started never does; what runs ends its present node, or is stopped. */
  #close(scope: Scope, stop: boolean): void {
    if (scope.closed) return
    scope.closed = true
    for (const outer of scope.outer) outer.scope.inner.delete(scope)
    for (const inner of [...scope.inner]) this.#close(inner, stop)
    for (const token of [...scope.members]) this.#setLate(token, stop)
    for (const join of scope.joins) this.#timers.clear(join)
    this.#release(scope.outer)
  }

  #setLate(token: Token, stop: boolean): void {
    if (token.late || !isLive(token)) return
    if (token.waitsAt) return this.#leave(token, 'cancelled')
    this.#release(token.scopes)
    token.late = true
    if (stop) this.#commands.push({ type: 'stop', token: token.no })
  }

  #time(timer: number): void {
    const { join, use } = this.#timers.use(timer)
    if (join.fired || join.scope.closed) return
    const { transition, timeoutMs, rules, scope } = join
    const ms = timeoutMs ?? 0
    if (use === 'warning') {
      join.warningTimer = null
      const warnAt = this.#timers.warnAt(join)
      const remainingMs = ms - Math.ceil(ms * warnAt)
      const percent = Math.round(warnAt * 100)
      return this.#record({ type: 'join_warning', transition: transition.id, percent, remainingMs })
    }
    join.timeoutTimer = null
    const usable = [...join.arrived.values()].some(({ context }) => context.output !== undefined)
    const proceeds = rules.onTimeout === 'proceed_with_available' && usable
    const policy: PolicyApplied = rules.onTimeout
    for (const { token } of join.arrived.values()) this.#recordTimeout(token, 'synchronization', ms, policy)
    if (proceeds) return this.#fire(join, join.pending)
    const message =
      rules.onTimeout === 'fail'
        ? `Synchronization timeout exceeded: transition ${transition.id} waited ${ms} ms, ${join.arrived.size} of ${scope.branches.length} branches arrived`
        : `No siblings completed before timeout: transition ${transition.id}`
    this.#joinFailed(join, 'timed_out', { code: 'synchronization_timeout', message, retryable: false })
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
    const { no: tokenId, retries, node } = token
    const attempt = retries + 1
    token.timeoutType = timeoutType
    this.#record({
      ...{ type: 'token_timed_out', tokenId, nodeId: node.id, attempt, timeoutType },
      ...{ timeoutDurationMs, policyApplied },
    })
  }
}

export function isLive({ status }: Token): boolean {
  return status === 'dispatched' || status === 'waiting_for_siblings' || status === 'waiting_for_subworkflow'
}

function isIn(scopes: readonly Membership[], branch: Branch): boolean {
  return scopes.some((membership) => membership.branch === branch)
}
