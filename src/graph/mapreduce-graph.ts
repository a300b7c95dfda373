/**
 * A map-reduce as a graph: setup, the list of items, one branch for each, a join, what they came to, reduce, merge. What its nodes do is
 * done by tasks of Curfew's own, which find the rest in the folder of the run. No limit but the job's holds for it as a
 * whole: those of agents and commands are counted by whoever runs them.
 */
import { mapreduceQueue } from '../core/own-work.ts'
import type { Phase } from '../definitions/mapreduce-model.ts'
import type { MapreduceOutline, MapreduceShape } from '../definitions/mapreduce-outline.ts'
import { encodePolicy } from '../definitions/policy-text.ts'
import type { TaskPolicy } from '../definitions/task-policy.ts'
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import type { NodeModel, TaskAction, TransitionModel, WorkflowModel } from '../definitions/workflow-model.ts'
import { contentHash, MODEL_FORMAT } from '../definitions/workflow-model.ts'
import type { WorkflowStart } from './start-input.ts'

export const PHASE_TASK = '$phase'
export const ITEMS_TASK = '$items'
export const ITEM_TASK = '$item'
export const TALLY_TASK = '$tally'

export const MAPREDUCE_TASKS = [PHASE_TASK, ITEMS_TASK, ITEM_TASK, TALLY_TASK] as const

const ITEMS_GROUP = 'items'
/** A run may be resumed so often with items to be worked on once more. */
const MOST_ROUNDS = 1_000

export function mapreduceGraph({ name, timeoutMs, phases, maxParallel }: MapreduceShape): WorkflowModel {
  const task = (name: string): TaskAction => ({ kind: 'task', task: name, execution: {} })
  const phase = (id: Phase): NodeModel[] =>
    phases.includes(id) ? [{ id, actionId: PHASE_TASK, input: { phase: `'${id}'` } }] : []
  const nodes: NodeModel[] = [
    ...phase('setup'),
    { id: 'items', actionId: ITEMS_TASK, input: {} },
    { id: 'item', actionId: ITEM_TASK, input: { id: 'branch.item' } },
    { id: 'tally', actionId: TALLY_TASK, input: {} },
    ...phase('reduce'),
    ...phase('merge'),
  ]
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
    name,
    timeoutMs,
    onTimeout: 'cancel_all',
    inherit: false,
    start: nodes[0]?.id as string,
    actions: Object.fromEntries(MAPREDUCE_TASKS.map((one) => [one, task(one)])),
    nodes,
    transitions,
  }
}

/** The options of its tasks, which only the process that runs it takes. */
export function mapreducePolicies({
  runId,
  graceMs,
  attempts,
}: MapreduceOutline): Record<(typeof MAPREDUCE_TASKS)[number], TaskPolicy> {
  const backoff = { initialMs: 0, factor: 1, maxMs: 0, jitter: 0 }
  const once: TaskPolicy = {
    ...{ ...DEFAULT_POLICY, queue: mapreduceQueue(runId), graceMs, onTimeout: 'fail', backoff },
  }
  return {
    [ITEMS_TASK]: once,
    [TALLY_TASK]: once,
    // After one that the store had to stop, the next tells of it.
    [PHASE_TASK]: { ...once, retries: 1, onTimeout: 'retry' },
    [ITEM_TASK]: { ...once, retries: attempts, onTimeout: 'retry' },
  }
}

/** What a run of it below a job is stored with. */
export function mapreduceStart(outline: MapreduceOutline): WorkflowStart {
  const model = mapreduceGraph(outline)
  const policies = Object.entries(mapreducePolicies(outline))
  const tasks = Object.fromEntries(policies.map(([name, policy]) => [name, encodePolicy(policy)]))
  const { folder, file } = outline
  return {
    ...{ hash: contentHash(model), model, definitions: { workflows: {}, tasks, agents: {} } },
    input: { folder, file },
  }
}
