/** What a run of a graph or a job is started with: its definition whole, so that no file and no deployment changes it. */
import { encodeJson, refuseBytes } from '../core/json.ts'
import type { JobModel } from '../definitions/job-model.ts'
import type { WorkflowModel } from '../definitions/workflow-model.ts'
import { contentHash } from '../definitions/workflow-model.ts'
import type { WorkflowPlan } from '../definitions/workflow-plan.ts'
import { planWorkflow } from '../definitions/workflow-plan.ts'

/** Everything a run may begin, at any depth: whoever runs it need not know a definition itself. */
export interface RunDefinitions {
  workflows: Record<string, WorkflowModel>
  /** As stored with a task or agent: what differs from the defaults. */
  tasks: Record<string, string>
  agents: Record<string, string>
}

export interface WorkflowStart {
  hash: string
  model: WorkflowModel
  definitions: RunDefinitions
  input: unknown
  /** A workflow above it says that all below it inherits its deadline. */
  inherit?: boolean
  /** How many runs are above it. */
  depth?: number
}

export interface JobStart {
  hash: string
  model: JobModel
  definitions: RunDefinitions
}

const texts = new WeakMap<RunDefinitions, { model: object; text: string }>()

/** As it is stored. The definition is the same for many runs, so it is encoded once. */
export function encodeStart(start: WorkflowStart | JobStart, what: string): string {
  const { hash, model, definitions } = start
  let known = texts.get(definitions)
  if (known?.model !== model) {
    known = { model, text: encodeJson({ hash, model, definitions }, what) }
    texts.set(definitions, known)
  }
  if (!('input' in start)) return known.text
  const { input, inherit, depth } = start
  const more = JSON.stringify({ inherit, depth }).slice(1, -1)
  const text = `${known.text.slice(0, -1)}${more && `,${more}`},"input":${encodeJson(input, what)}}`
  refuseBytes(text, what)
  return text
}

type Child = Pick<WorkflowStart, 'hash' | 'definitions'>

const children = new WeakMap<WorkflowModel, Child>()

/** Those that a run of this graph may begin: what others of the same job need is not stored with each of them. */
export function childDefinitions(model: WorkflowModel, all: RunDefinitions): Child {
  let child = children.get(model)
  if (child) return child
  const part: RunDefinitions = { workflows: {}, tasks: {}, agents: {} }
  child = { hash: contentHash(model), definitions: part }
  children.set(model, child)
  const models = new Set([model])
  for (const { actions } of models) {
    for (const action of Object.values(actions)) {
      if (action.kind === 'task') copy(action.task, all.tasks, part.tasks)
      else if (action.kind === 'agent') copy(action.agent, all.agents, part.agents)
      else if (action.kind === 'workflow_call') {
        const called = copy(action.workflow, all.workflows, part.workflows)
        if (called) models.add(called)
      }
    }
  }
  return child
}

function copy<T>(name: string, from: Record<string, T>, into: Record<string, T>): T | undefined {
  const found = from[name]
  if (found !== undefined) into[name] = found
  return found
}

const plans = new Map<string, WorkflowPlan>()
/** Definitions in use are few; the others are planned again. */
const MOST_PLANS = 200

/** The same plan for the same model, so that what is kept beside its nodes is kept once. */
export function planOf(hash: string, model: WorkflowModel): WorkflowPlan {
  let plan = plans.get(hash)
  if (!plan) {
    plan = planWorkflow(model)
    if (plans.size >= MOST_PLANS) plans.clear()
    plans.set(hash, plan)
  }
  return plan
}
