/** The agents that run graphs and jobs: each drives its machine and carries out what it asks for. */
import { CurfewError } from '../core/errors.ts'
import { MAX_RUN_DEPTH } from '../core/limits.ts'
import { HTTP_REQUEST, JOB, SHELL, WORKFLOW } from '../core/own-work.ts'
import type { EndsAs } from '../core/states.ts'
import type { Stopped } from '../core/task-errors.ts'
import { RunEnded } from '../core/task-errors.ts'
import type { AgentDefinition, StepHandle, WorkHandle } from '../definitions/agent.ts'
import { AGENT_POLICY } from '../definitions/agent-policy.ts'
import { decodePolicy } from '../definitions/policy-text.ts'
import type { Origin, TaskPolicy } from '../definitions/task-policy.ts'
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import { childTimeout } from '../definitions/workflow-limits.ts'
import type { NodeModel, WorkflowModel } from '../definitions/workflow-model.ts'
import { GraphDriver } from '../graph/graph-driver.ts'
import { GraphRun } from '../graph/graph-run.ts'
import type { GraphCommand, WorkEnd } from '../graph/graph-types.ts'
import type { JobCommand, Member } from '../graph/job-run.ts'
import { CANCEL_MEMBER, JobRun } from '../graph/job-run.ts'
import { mapreduceStart } from '../graph/mapreduce-graph.ts'
import { workflowPolicy } from '../graph/run-policy.ts'
import type { JobStart, RunDefinitions, WorkflowStart } from '../graph/start-input.ts'
import { childDefinitions, planOf } from '../graph/start-input.ts'
import { stuckFailure } from '../graph/stuck-failure.ts'
import { badEnd, nodeEnd } from '../graph/work-end.ts'
import type { InnerContext } from './agent-context.ts'

type RunCommand = Extract<GraphCommand, { type: 'run' }>

/** Policies made for a node, kept with it: they are the same for every run. */
const nodePolicies = new WeakMap<NodeModel, { base: TaskPolicy; policy: TaskPolicy }>()

/** They know no definition of a user: what a run needs was stored with it. */
export const OWN_AGENTS: readonly AgentDefinition[] = [
  own(WORKFLOW, runWorkflow as unknown as AgentDefinition['run']),
  own(JOB, runJob as unknown as AgentDefinition['run']),
]

function own(name: string, run: AgentDefinition['run']): AgentDefinition {
  return { kind: 'agent', name, policy: AGENT_POLICY, schema: null, run }
}

function runWorkflow(start: WorkflowStart, context: InnerContext): Promise<unknown> {
  const done = Promise.withResolvers<unknown>()
  const handles = new Map<number, WorkHandle>()
  const timers = new Map<number, StepHandle>()
  const plan = planOf(start.hash, start.model)
  // The model of the plan, which runs share: that of the start is not kept.
  const { definitions, inherit = false, depth = 0 } = start
  const shared = { model: plan.model, definitions, inherit, depth }
  const graph = new GraphRun(plan, start.input, { forgets: true })
  const guarded = (work: () => void) => {
    try {
      work()
      if (graph.end) end()
    } catch (error) {
      done.reject(error)
    }
  }
  const driver = new GraphDriver(graph, {
    run: (command) => {
      const { token } = command
      const handle = beginNode(shared, command, context)
      handles.set(token, handle)
      handle.then(
        (output) => ended(token, handle, { status: 'completed', output }),
        (error: unknown) => ended(token, handle, nodeEnd(error)),
      )
    },
    timer: (timer, ms) => {
      const handle = context.sleep(ms)
      timers.set(timer, handle)
      handle.then(
        () => guarded(() => driver.happen({ type: 'time', timer })),
        () => undefined, // it was withdrawn
      )
    },
    clear: (timer) => context.cancel(timers.get(timer) as StepHandle),
    stop: (token) => context.cancel(handles.get(token) as StepHandle),
    record: (event) => context.record(event),
  })
  const ended = (token: number, handle: WorkHandle, workEnd: WorkEnd) => {
    if (handles.get(token) !== handle) return
    handles.delete(token)
    guarded(() => driver.happen({ type: 'ended', token, end: workEnd }))
  }
  const end = () => {
    const { end: outcome } = graph
    if (outcome?.status === 'completed') done.resolve(outcome.output)
    else if (outcome?.status === 'failed') {
      done.reject(new RunEnded(outcome.failure, { status: 'failed', timeoutKind: null }))
    } else done.reject(context.signal.reason)
  }
  context.signal.addEventListener('abort', () => {
    const { code, timeoutMs } = context.signal.reason as Stopped
    const reason = code === 'timed_out' ? 'timed_out' : 'cancelled'
    guarded(() => driver.happen({ type: 'stopped', reason, timeoutMs }))
  })
  guarded(() => driver.start())
  return done.promise
}

/** The work of a token: a task of the user's or of ours, an agent, or a child run. */
function beginNode(
  {
    model: graph,
    definitions,
    inherit,
    depth: outer,
  }: Required<Pick<WorkflowStart, 'model' | 'definitions' | 'inherit' | 'depth'>>,
  { node, action, work, limits }: RunCommand,
  context: InnerContext,
): WorkHandle {
  const title = node.id
  const inheritAll = graph.inherit || inherit
  const inherits = node.inherit ?? inheritAll
  const inherited = inherits ? { reserveMs: node.reserveMs ?? graph.reserveMs ?? null } : {}
  if (work.kind === 'workflow') {
    const model = definitions.workflows[work.name]
    if (!model) throw unknown('workflow', work.name, node)
    const { ms, origin } = childTimeout(node, action, model)
    const own = workflowPolicy(model, ms, origin === 'workflow' ? 'definition' : origin)
    const policy = withWarning(own, node, action)
    const depth = outer + 1
    if (depth > MAX_RUN_DEPTH) throw tooDeep(work.name, node)
    const input = {
      ...childStart(model, definitions, work.input),
      depth,
      ...(inheritAll && { inherit: true }),
    }
    return context.begin({ kind: 'agent', name: WORKFLOW, input, policy, title, ...inherited })
  }
  if (work.kind === 'agent') {
    const base = policyIn(definitions.agents, 'agent', work.name, node)
    const { ms, origin } = limits.timeout
    const limited = withWarning(origin === 'default' ? base : withTimeout(base, ms, origin), node, action)
    const policy = inheritAll ? { ...limited, inherit: true } : limited
    return context.begin({ kind: 'agent', name: work.name, input: work.input, policy, title, ...inherited })
  }
  const name = work.kind === 'task' ? work.name : work.kind === 'shell' ? SHELL : HTTP_REQUEST
  const base = work.kind === 'task' ? policyIn(definitions.tasks, 'task', name, node) : DEFAULT_POLICY
  const policy = nodePolicy(base, node, action, limits)
  return context.begin({ kind: 'task', name, input: work.input, policy, title, ...inherited })
}

function childStart(model: WorkflowModel, definitions: RunDefinitions, input: unknown): WorkflowStart {
  const { hash, definitions: needed } = childDefinitions(model, definitions)
  return { hash, model, definitions: needed, input }
}

/** A workflow may call itself, but not for ever. */
function tooDeep(name: string, { id }: { id: string }): CurfewError {
  return new CurfewError('too_deep', `${id}: workflow '${name}' would be inside ${MAX_RUN_DEPTH} others`, {
    hint: 'Let a condition end it, or use a loop.',
  })
}

function withTimeout(policy: TaskPolicy, timeoutMs: number | null, origin: Origin): TaskPolicy {
  return { ...policy, timeoutMs, origins: { ...policy.origins, timeout: origin } }
}

function withWarning(policy: TaskPolicy, node: NodeModel, { execution }: RunCommand['action']): TaskPolicy {
  const warnAt = node.warnAt ?? execution.warnAt ?? policy.warnAt
  return warnAt === policy.warnAt ? policy : { ...policy, warnAt }
}

/** The limits of the node and its action over those of the task; a timeout comes back to the graph, not to the task. */
function nodePolicy(
  base: TaskPolicy,
  node: NodeModel,
  action: RunCommand['action'],
  limits: RunCommand['limits'],
): TaskPolicy {
  const cached = nodePolicies.get(node)
  if (cached?.base === base) return cached.policy
  const { execution } = action
  const policy: TaskPolicy = { ...base, origins: { ...base.origins } }
  if (limits.timeout.origin !== 'default') {
    policy.attemptTimeoutMs = limits.timeout.ms
    policy.origins.attemptTimeout = limits.timeout.origin
    policy.onTimeout = 'fail'
  }
  if (limits.queueTimeout.origin !== 'default') {
    policy.queueTimeoutMs = limits.queueTimeout.ms
    policy.origins.queueTimeout = limits.queueTimeout.origin
  }
  policy.retriedAbove = limits.retryLimit > 0
  policy.softStopMs = node.softStopMs ?? execution.softStopMs ?? base.softStopMs
  policy.graceMs = node.graceMs ?? execution.graceMs ?? base.graceMs
  policy.warnAt = node.warnAt ?? execution.warnAt ?? base.warnAt
  nodePolicies.set(node, { base, policy })
  return policy
}

function policyIn(
  policies: Record<string, string>,
  what: 'task' | 'agent',
  name: string,
  place: { id: string },
): TaskPolicy {
  const text = policies[name]
  if (text === undefined) throw unknown(what, name, place)
  return decodePolicy(text)
}

/** What a run needs was collected when it was started. */
function unknown(what: string, name: string, { id }: { id: string }): CurfewError {
  return new CurfewError(`unknown_${what}`, `${id}: ${what} '${name}' was not stored with the run`)
}

/** A job does not look at what its workflows bring. */
const COMPLETED: WorkEnd = { status: 'completed', output: null }

function runJob(start: JobStart, context: InnerContext): Promise<unknown> {
  const done = Promise.withResolvers<unknown>()
  const job = new JobRun(start.model)
  const handles = new Map<string, WorkHandle>()
  const perform = (commands: readonly JobCommand[]) => {
    for (const command of commands) {
      if (command.type === 'stop') {
        context.cancel(handles.get(command.id) as StepHandle)
        continue
      }
      const { id } = command.member.model
      const handle = beginMember(start, command.member, context)
      handles.set(id, handle)
      handle.then(
        () => guarded(() => perform(job.happen({ type: 'ended', id, end: COMPLETED }))),
        (error: unknown) => guarded(() => perform(job.happen({ type: 'ended', id, end: badEnd(error) }))),
      )
    }
  }
  const guarded = (work: () => void) => {
    try {
      if (context.signal.aborted) return
      work()
      const { end } = job
      // What came out stands with each workflow: together it might be more than a record holds.
      if (end?.status === 'completed') done.resolve(null)
      else if (end) {
        const endsAs: EndsAs = { status: end.status, timeoutKind: end.timeoutKind }
        done.reject(new RunEnded(end.failure, endsAs))
      }
    } catch (error) {
      done.reject(error)
    }
  }
  const listen = () => {
    context.waitForSignal<{ id: string; dependents: boolean }>(CANCEL_MEMBER).then(
      ({ id, dependents }) => {
        guarded(() => perform(job.happen({ type: 'cancel', id, dependents })))
        if (!job.end) listen()
      },
      () => undefined, // the job stops
    )
  }
  context.signal.addEventListener('abort', () => done.reject(context.signal.reason))
  guarded(() => perform(job.start()))
  const { stuckAfterMs } = start.model
  if (stuckAfterMs !== null && !job.end) {
    context.stuck(stuckAfterMs).then(
      (activity) =>
        done.reject(
          new RunEnded(stuckFailure(activity, stuckAfterMs), { status: 'timed_out', timeoutKind: 'stuck' }),
        ),
      () => undefined, // the job stops
    )
  }
  if (!job.end) listen()
  return done.promise
}

function beginMember(start: JobStart, { model }: Member, context: InnerContext): WorkHandle {
  const { id: title, kind, name, input = null, definition, outline } = model
  const { definitions } = start
  if (kind === 'task') {
    const policy = policyIn(definitions.tasks, kind, name, model)
    return context.begin({ kind, name, input, policy, title })
  }
  if (kind === 'agent') {
    const policy = policyIn(definitions.agents, kind, name, model)
    return context.begin({ kind, name, input, policy, title })
  }
  if (outline) {
    const run = mapreduceStart(outline)
    const policy = workflowPolicy(run.model, run.model.timeoutMs)
    return context.begin({ kind: 'agent', name: WORKFLOW, input: run, policy, title, id: outline.runId })
  }
  const workflow = definition ?? definitions.workflows[name]
  if (!workflow) throw unknown(kind, name, model)
  const policy = workflowPolicy(workflow, workflow.timeoutMs)
  return context.begin({
    kind: 'agent',
    name: WORKFLOW,
    input: childStart(workflow, definitions, input),
    policy,
    title,
  })
}
