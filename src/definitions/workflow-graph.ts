/** A workflow as Mermaid text: nodes and joins with the limits that hold for them. */
import { formatDuration } from '../core/duration.ts'
import type { WorkflowDefinition } from './workflow.ts'
import { executionLimits, synchronizationTimeout } from './workflow-limits.ts'
import type {
  ActionModel,
  JoinStrategy,
  NodeModel,
  TransitionModel,
  WorkflowModel,
} from './workflow-model.ts'
import type { WorkflowPlan } from './workflow-plan.ts'
import { planWorkflow } from './workflow-plan.ts'
import { branchCount } from './workflow-shape.ts'

export function graph(definition: WorkflowDefinition | { model: WorkflowModel }): string {
  const plan = planWorkflow(definition.model)
  const { model } = plan
  // Ids of users may hold anything; those of the drawing are numbers.
  const ids = new Map(model.nodes.map(({ id }, i) => [id, `n${i}`]))
  const limit = model.timeoutMs === null ? 'no limit' : `≤ ${formatDuration(model.timeoutMs)}`
  const lines = [
    '---',
    `title: ${JSON.stringify(`${model.name} (${limit}, ${model.onTimeout})`)}`,
    '---',
    'flowchart TD',
    `  start(( )) --> ${ids.get(model.start)}`,
  ]
  for (const node of model.nodes)
    lines.push(`  ${ids.get(node.id)}[${label(nodeLines(node, plan.action(node)))}]`)
  for (const [i, transition] of model.transitions.entries()) {
    const from = ids.get(transition.from)
    const to = ids.get(transition.to)
    const edge = edgeLines(transition)
    const arrow = edge.length === 0 ? '-->' : `-- ${label(edge)} -->`
    if (!transition.synchronization) lines.push(`  ${from} ${arrow} ${to}`)
    else {
      lines.push(`  j${i}{{${label(joinLines(transition, plan))}}}`)
      lines.push(`  ${from} ${arrow} j${i}`, `  j${i} --> ${to}`)
    }
  }
  return `${lines.join('\n')}\n`
}

function nodeLines(node: NodeModel, action: ActionModel | null): string[] {
  const { timeout, onTimeout, retryLimit } = executionLimits(node, action)
  const what = action && describeAction(action)
  const retry = onTimeout === 'retry' ? `, retry × ${retryLimit}` : ''
  const lines = [node.id]
  if (what !== null && what !== node.id) lines.push(what)
  if (timeout.ms !== null) lines.push(`≤ ${formatDuration(timeout.ms)}${retry}`)
  return lines
}

function describeAction(action: ActionModel): string {
  switch (action.kind) {
    case 'task':
      return action.task
    case 'agent':
      return `agent ${action.agent}`
    case 'workflow_call':
      return `workflow ${action.workflow}`
    case 'http_request':
      return `${action.method} ${action.url}`
    case 'shell':
      return action.command ?? action.argv?.join(' ') ?? 'shell'
    case 'update_context':
      return `writes ${Object.keys(action.updates).join(', ')}`
  }
}

function edgeLines(transition: TransitionModel): string[] {
  const { condition, foreach, spawnCount, maxParallel, loop, group, priority } = transition
  const lines: string[] = []
  if (priority !== 0) lines.push(`priority ${priority}`)
  if (condition !== undefined) lines.push(condition)
  const atATime = maxParallel === undefined ? '' : `, ${maxParallel} at a time`
  if (foreach) lines.push(`for each ${foreach.itemVar} of ${foreach.collection}${atATime}`)
  else if (spawnCount !== undefined) lines.push(`× ${spawnCount}${atATime}`)
  if (group !== undefined && group !== transition.id) lines.push(`group ${group}`)
  if (loop) lines.push(`at most ${loop.maxIterations} times`)
  return lines
}

function joinLines(transition: TransitionModel, plan: WorkflowPlan): string[] {
  const { strategy, siblingGroup, onTimeout, merge } = transition.synchronization!
  const opening = plan.opening(siblingGroup)
  const branches = branchCount(opening)
  const maxParallel = opening[0]?.maxParallel ?? null
  const scope = { branches: branches ?? 1, largestMs: plan.largestMs(siblingGroup), maxParallel }
  const { ms, origin } = synchronizationTimeout(transition, scope)
  // Without a count, the default cannot be told before the list is there.
  const known = origin === 'transition' || branches !== null
  const lines = [`${strategyText(strategy, branches)} of ${siblingGroup}`]
  lines.push(
    ms === null && known ? 'no limit' : `≤ ${known ? formatDuration(ms!) : 'by branches'}, then ${onTimeout}`,
  )
  if (merge) lines.push(`${merge.strategy} into ${merge.target}`)
  return lines
}

function strategyText(strategy: JoinStrategy, branches: number | null): string {
  if (typeof strategy === 'string') return strategy
  return `${strategy.mOfN}${branches === null ? '' : ` of ${branches}`}`
}

const MAX_LABEL = 80

/** Quoted, and every letter that could end the quote or begin markup as its code. */
export function label(lines: readonly string[]): string {
  const escaped = lines.map((line) => {
    const oneLine = line.replace(/\s+/g, ' ').trim()
    const cut = oneLine.length > MAX_LABEL ? `${oneLine.slice(0, MAX_LABEL).toWellFormed()}…` : oneLine
    return cut.replace(/["#&<>\\`|[\]{}();]/g, (letter) => `#${letter.charCodeAt(0)};`)
  })
  return `"${escaped.join('<br/>')}"`
}
