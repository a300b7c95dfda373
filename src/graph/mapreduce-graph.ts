/**
 * A map-reduce as a graph: setup, the list of items, one branch for each, a join, what they came to, reduce, merge. What its nodes do is
 * done by tasks of Curfew's own, which find the rest in the folder of the run. No limit but the job's holds for it as a
 * whole: those of agents and commands are counted by whoever runs them.
 */
import type { MapreduceModel } from '../definitions/mapreduce-model.ts'
import type { NodeModel, TaskAction, TransitionModel, WorkflowModel } from '../definitions/workflow-model.ts'
import { MODEL_FORMAT } from '../definitions/workflow-model.ts'

export const PHASE_TASK = '$phase'
export const ITEMS_TASK = '$items'
export const ITEM_TASK = '$item'
export const TALLY_TASK = '$tally'

export const MAPREDUCE_TASKS = [PHASE_TASK, ITEMS_TASK, ITEM_TASK, TALLY_TASK] as const

const ITEMS_GROUP = 'items'
/** A run may be resumed so often with items to be worked on once more. */
const MOST_ROUNDS = 1_000

export function mapreduceGraph(model: MapreduceModel): WorkflowModel {
  const task = (name: string): TaskAction => ({ kind: 'task', task: name, execution: {} })
  const phase = (id: string): NodeModel => ({ id, actionId: PHASE_TASK, input: { phase: `'${id}'` } })
  const nodes: NodeModel[] = [
    ...(model.setup.steps.length > 0 ? [phase('setup')] : []),
    { id: 'items', actionId: ITEMS_TASK, input: {} },
    { id: 'item', actionId: ITEM_TASK, input: { id: 'branch.item' } },
    { id: 'tally', actionId: TALLY_TASK, input: {} },
    ...(model.reduce.steps.length > 0 ? [phase('reduce')] : []),
    ...(model.merge.steps.length > 0 ? [phase('merge')] : []),
  ]
  const { maxParallel } = model.map
  const each = { foreach: { collection: 'result.ids', itemVar: 'item' }, group: ITEMS_GROUP, maxParallel }
  const transitions = nodes.slice(1).map((node, i): TransitionModel => {
    const from = nodes[i]?.id as string
    const plain = { id: `${from}-${node.id}`, from, to: node.id, priority: 1 }
    if (node.id === 'item') return { ...plain, ...each }
    if (from !== 'item') return plain
    return {
      ...plain,
      synchronization: {
        strategy: 'all',
        siblingGroup: ITEMS_GROUP,
        timeoutMs: null,
        onTimeout: 'fail',
        onBranchFailure: 'settle',
        late: 'cancel',
        failWith: 'result.stop',
        firesEmpty: true,
        collects: false,
      },
    }
  })
  // Some are to be worked on once more.
  transitions.push({
    ...{ id: 'tally-item', from: 'tally', to: 'item', priority: 0, condition: 'size(result.ids) > 0' },
    ...{ ...each, loop: { maxIterations: MOST_ROUNDS } },
  })
  return {
    format: MODEL_FORMAT,
    name: model.name,
    timeoutMs: model.timeoutMs,
    onTimeout: 'cancel_all',
    inherit: false,
    start: nodes[0]?.id as string,
    actions: Object.fromEntries(MAPREDUCE_TASKS.map((name) => [name, task(name)])),
    nodes,
    transitions,
  }
}
