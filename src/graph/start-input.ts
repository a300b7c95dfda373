/** What a run of a graph or a job is started with: its definition whole, so that no file and no deployment changes it. */
import type { JobModel } from '../definitions/job-model.ts'
import type { WorkflowModel } from '../definitions/workflow-model.ts'
import type { WorkflowPlan } from '../definitions/workflow-plan.ts'
import { planWorkflow } from '../definitions/workflow-plan.ts'

export interface WorkflowStart {
  hash: string
  model: WorkflowModel
  /** Those it may call, at any depth. */
  workflows: Record<string, WorkflowModel>
  input: unknown
  /** A workflow above it says that all below it inherits its deadline. */
  inherit?: boolean
}

export interface JobStart {
  hash: string
  model: JobModel
  workflows: Record<string, WorkflowModel>
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
