/**
 * The start of a run that came from another process. Plans are shared by the hash of their graph, so it has to be the
 * hash of that very graph; and what could not even be planned is refused where it enters.
 */
import { CurfewError } from '../core/errors.ts'
import { WORKFLOW } from '../core/own-work.ts'
import type { JobModel } from '../definitions/job-model.ts'
import { WORK_TYPES } from '../definitions/job-model.ts'
import { isRunId } from '../definitions/mapreduce-outline.ts'
import type { WorkflowModel } from '../definitions/workflow-model.ts'
import { contentHash } from '../definitions/workflow-model.ts'
import { planWorkflow } from '../definitions/workflow-plan.ts'
import { JobRun } from '../graph/job-run.ts'
import { mapreduceStart } from '../graph/mapreduce-graph.ts'
import { planOf } from '../graph/start-input.ts'

/** `text`: JSON, checked as such. `below`: an agent has begun it. */
export function checkRunStart(name: string, text: string, at: string, { below = false } = {}): void {
  const start = JSON.parse(text) as Record<string, unknown> | null
  const wrong = (why: string) => new CurfewError('invalid_request', `${at}: ${why}`)
  if (!isObject(start)) throw wrong('a run starts with its definition')
  const { hash, model, definitions } = start
  if (typeof hash !== 'string' || !isObject(model) || !isObject(definitions))
    throw wrong('a run starts with its hash, model and definitions')
  for (const part of ['workflows', 'tasks', 'agents'])
    if (!isObject(definitions[part])) throw wrong(`definitions.${part} must be an object`)
  if ('depth' in start && !below) throw wrong('a run that somebody starts is below nothing')
  try {
    for (const called of Object.values(definitions.workflows as Record<string, WorkflowModel>))
      planWorkflow(called)
    if (name !== WORKFLOW) return checkJob(model as unknown as JobModel)
    if (contentHash(model) !== hash) throw wrong('the hash is not that of the model')
    planOf(hash, model as unknown as WorkflowModel)
  } catch (error) {
    if (error instanceof CurfewError) throw error
    throw wrong(`its definition cannot be understood: ${String(error).slice(0, 200)}`)
  }
}

function checkJob(model: JobModel): void {
  for (const { id, kind, name, outline } of model.workflows) {
    if (typeof id !== 'string' || typeof name !== 'string' || !WORK_TYPES.includes(kind))
      throw new Error(`a workflow has an id, a kind of ${WORK_TYPES.join(', ')}, and a name`)
    if (outline && !isRunId(outline.runId)) throw new Error('the run of a map-reduce has an id')
    if (outline) planWorkflow(mapreduceStart(outline).model)
  }
  new JobRun(model)
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
