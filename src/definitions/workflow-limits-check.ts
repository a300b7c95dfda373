/** Advice on limits: what waits for the world outside should have one, and what is set should fit. Warnings alone. */
import { formatDuration } from '../core/duration.ts'
import type { Field } from './definition-field.ts'
import type { Places } from './places.ts'
import { attemptsMs } from './task-policy.ts'
import { executionLimits } from './workflow-limits.ts'
import type { ActionModel, NodeModel, TransitionModel, WorkflowModel } from './workflow-model.ts'
import type { Registry } from './workflow-names.ts'
import type { WorkflowShape } from './workflow-shape.ts'

/** Recommended execution timeouts, by what is done. */
const RECOMMENDED: Record<string, string> = {
  llm: '2 to 5 minutes',
  workflow_call: '30 to 60 minutes',
  mcp_tool: '30 seconds to 2 minutes',
  http_request: '30 seconds to 2 minutes',
  shell: '1 to 10 minutes',
  update_context: '5 to 30 seconds',
}

/** What has a timeout, and its own clean-up. */
const AGENT_LIKE: Partial<Record<ActionModel['kind'], string>> = {
  agent: 'an agent',
  workflow_call: 'a child workflow',
}
const OF_TASKS = [
  ['queueTimeoutMs', 'queueTimeout'],
  ['softStopMs', 'softStop'],
  ['graceMs', 'grace'],
] as const

export function checkLimits(
  model: WorkflowModel,
  shape: WorkflowShape,
  places: Places,
  known: Registry,
): void {
  for (const node of model.nodes) {
    const action = node.actionId === null ? null : (model.actions[node.actionId] ?? null)
    checkNode(node, action, model, shape, places, known)
    if (node.reserveMs !== undefined && !(node.inherit ?? model.inherit)) {
      places.of(node).at('reserve').warning('no_effect', 'a reserve has no effect without inherit')
    }
  }
  for (const transition of model.transitions) {
    const timeoutMs = transition.synchronization?.timeoutMs
    if (timeoutMs === undefined || timeoutMs === null || model.timeoutMs === null) continue
    if (timeoutMs >= model.timeoutMs) {
      const message = `a join that waits ${formatDuration(timeoutMs)} never times out: the workflow has ${formatDuration(model.timeoutMs)}`
      places.of(transition).at('synchronization').warning('cannot_fit', message)
    }
  }
}

/** The kind of work behind an action, for advice. */
function workOf(action: ActionModel): string {
  return action.kind === 'task' ? (action.work ?? 'task') : action.kind
}

function checkNode(
  node: NodeModel,
  action: ActionModel | null,
  model: WorkflowModel,
  shape: WorkflowShape,
  places: Places,
  known: Registry,
): void {
  const field = places.of(node)
  const limits = executionLimits(node, action)
  const own = action && ownLimit(action, known)
  const { ms } = limits.timeout
  // An update is ours, and takes no time.
  const recommended = action && action.kind !== 'update_context' && RECOMMENDED[workOf(action)]
  if (recommended && ms === null && !own) adviseTimeout(node, action, recommended, field)
  const execution = action?.execution
  const retryLimit = node.retryLimit ?? execution?.retryLimit
  if (retryLimit !== undefined && limits.onTimeout !== 'retry') {
    const { source } = field
    const message = `${source.spell('retryLimit')} has no effect: ${source.spell('onTimeout')} is 'fail'`
    field.warning('no_effect', message, { suggestion: `Set ${source.spell('onTimeout')}: retry.` })
  }
  const agentLike = action && AGENT_LIKE[action.kind]
  for (const [key, name] of agentLike ? OF_TASKS : []) {
    if ((node[key] ?? execution?.[key]) === undefined) continue
    field.warning('no_effect', `${field.source.spell(name)} has no effect on ${agentLike}`)
  }
  const aboveMs = ms ?? model.timeoutMs
  if (own && aboveMs !== null && own.ms > aboveMs && !(action?.kind === 'workflow_call' && ms !== null)) {
    const above = ms === null ? 'the workflow' : 'the node'
    const message = `${own.what} may take ${formatDuration(own.ms)}; ${above} has ${formatDuration(aboveMs)}`
    field.warning('cannot_fit', message, { suggestion: `Give ${above} more, or it less.` })
  }
  if (ms === null) {
    if (limits.onTimeout === 'retry') field.warning('no_effect', 'there is no timeout to retry after')
    return
  }
  if (limits.softStopMs >= ms) {
    const message = `a soft stop ${formatDuration(limits.softStopMs)} before a timeout of ${formatDuration(ms)} comes at the start`
    field.warning('cannot_fit', message)
  }
  if (model.timeoutMs === null) return
  const waves = wavesAt(node, shape)
  const attempts = limits.retryLimit + 1
  const neededMs = waves * attempts * (ms + limits.graceMs) - limits.graceMs
  if (neededMs <= model.timeoutMs) return
  const tries = attempts === 1 ? '' : `${attempts} attempts of `
  const times = waves === 1 ? '' : `${waves} after each other of `
  const message =
    `${times}${tries}${formatDuration(ms)}${attempts * waves === 1 ? '' : ' with grace'} may take ` +
    `${formatDuration(neededMs)}; the workflow has ${formatDuration(model.timeoutMs)}`
  field.warning('cannot_fit', message, { suggestion: 'Give the workflow more, or the node less.' })
}

/** The limit that a task or workflow brings with it, where its definition is at hand. */
function ownLimit(action: ActionModel, known: Registry): { what: string; ms: number } | null {
  if (action.kind === 'workflow_call') {
    const ms = action.execution.timeoutMs ?? known.workflows?.get(action.workflow)?.model.timeoutMs ?? null
    return ms === null ? null : { what: `workflow '${action.workflow}'`, ms }
  }
  const policy = action.kind === 'task' ? known.tasks?.get(action.task)?.policy : undefined
  if (!policy || action.kind !== 'task') return null
  const ms = policy.timeoutMs ?? attemptsMs(policy)
  return ms === null ? null : { what: `task '${action.task}'`, ms }
}

/** How often after each other the branches of a fan-out run it; 1 where a list decides. */
function wavesAt(node: NodeModel, shape: WorkflowShape): number {
  const fanOuts = (shape.incoming.get(node.id) ?? []).filter(
    (transition): transition is TransitionModel & { spawnCount: number; maxParallel: number } =>
      transition.spawnCount !== undefined && transition.maxParallel !== undefined,
  )
  return Math.max(1, ...fanOuts.map(({ spawnCount, maxParallel }) => Math.ceil(spawnCount / maxParallel)))
}

function adviseTimeout(node: NodeModel, action: ActionModel, recommended: string, field: Field): void {
  const { source } = field
  const key = source.spelling === 'snake' ? 'timeout_ms' : 'timeout'
  const without =
    action.kind === 'workflow_call'
      ? "the child's own holds, one hour unless set"
      : "it can hang until the workflow's ends it"
  const message = `node '${node.id}' (${workOf(action)}) has no timeout: ${without}`
  field.warning('no_timeout', message, {
    suggestion: `Set ${key} on the node, or execution.${key} on its action; recommended are ${recommended}.`,
  })
}
