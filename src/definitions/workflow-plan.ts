/** A model made ready to run: looked up by id, transitions in tiers, branches known. Derived, never stored. */
import { executionLimits } from './workflow-limits.ts'
import type { ActionModel, NodeModel, TransitionModel, WorkflowModel } from './workflow-model.ts'
import { nodesOfGroup, workflowShape } from './workflow-shape.ts'

export interface WorkflowPlan {
  readonly model: WorkflowModel
  readonly start: NodeModel
  readonly nodes: ReadonlyMap<string, NodeModel>
  readonly transitions: ReadonlyMap<string, TransitionModel>
  action(node: NodeModel): ActionModel | null
  /** Transitions out of a node: tiers in the order in which they are tried. */
  tiers(nodeId: string): readonly (readonly TransitionModel[])[]
  /** Transitions that open the scope. */
  opening(group: string): readonly TransitionModel[]
  /** Joins of the group that its branches can reach, one for each node they lead to. Empty: it is never joined. */
  joins(group: string): readonly TransitionModel[]
  /** The longest execution timeout on the branches of a group; null: none has one. */
  largestMs(group: string): number | null
}

/** Throws on a model that was not checked. */
export function planWorkflow(model: WorkflowModel): WorkflowPlan {
  const shape = workflowShape(model)
  const start = shape.nodes.get(model.start)
  if (!start) throw new Error(`curfew: workflow ${model.name} has no node '${model.start}'`)
  const transitions = new Map(model.transitions.map((transition) => [transition.id, transition]))
  const action = (node: NodeModel) => (node.actionId === null ? null : (model.actions[node.actionId] ?? null))
  const tiers = new Map<string, TransitionModel[][]>()
  for (const [nodeId, outgoing] of shape.outgoing) {
    const byPriority = Map.groupBy(outgoing, ({ priority }) => priority)
    tiers.set(
      nodeId,
      [...byPriority].toSorted(([a], [b]) => a - b).map(([, tier]) => tier),
    )
  }
  const joins = new Map<string, TransitionModel[]>()
  for (const transition of model.transitions.filter((one) => shape.joins.has(one))) {
    const group = transition.synchronization!.siblingGroup
    const known = joins.get(group) ?? []
    // Branches with different nodes come to one join over transitions of their own.
    if (!known.some(({ to }) => to === transition.to)) joins.set(group, [...known, transition])
  }
  const largest = new Map<string, number | null>()
  for (const group of shape.groups.keys()) {
    const timeouts = nodesOfGroup(shape, group).flatMap(
      (node) => executionLimits(node, action(node)).timeout.ms ?? [],
    )
    largest.set(group, timeouts.length === 0 ? null : Math.max(...timeouts))
  }
  return {
    model,
    start,
    nodes: shape.nodes,
    transitions,
    action,
    tiers: (nodeId) => tiers.get(nodeId) ?? [],
    opening: (group) => shape.groups.get(group) ?? [],
    joins: (group) => joins.get(group) ?? [],
    largestMs: (group) => largest.get(group) ?? null,
  }
}
