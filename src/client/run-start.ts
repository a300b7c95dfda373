/** What a run of a workflow or a job is stored with: every definition it may need, at any depth. */
import { CurfewError } from '../core/errors.ts'
import type { JobDefinition } from '../definitions/job.ts'
import { DefinitionError } from '../definitions/problem.ts'
import type { WorkflowDefinition } from '../definitions/workflow.ts'
import { validateNames } from '../definitions/workflow.ts'
import type { WorkflowModel } from '../definitions/workflow-model.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import { withUsed } from '../definitions/workflow-names.ts'
import type { JobStart, WorkflowStart } from '../graph/start-input.ts'

/** Checks the names it refers to against what is known here. */
export function workflowStart(
  definition: WorkflowDefinition,
  registry: Registry,
  input: unknown,
): WorkflowStart {
  const known = withUsed(registry, definition.uses)
  const problems = validateNames(definition, known)
  if (problems.length) throw new DefinitionError(`workflow ${definition.name}`, problems)
  const workflows: Record<string, WorkflowModel> = {}
  collect(definition, known, workflows)
  return { hash: definition.hash, model: definition.model, workflows, input }
}

export function jobStart(definition: JobDefinition, registry: Registry): JobStart {
  const known = withUsed(registry, definition.uses)
  const workflows: Record<string, WorkflowModel> = {}
  for (const { id, kind, name, definition: whole } of definition.model.workflows) {
    if (kind === 'mapreduce') throw unknown(id, kind, name)
    if (kind !== 'workflow') {
      const kinds = kind === 'task' ? known.tasks : known.agents
      if (kinds && !kinds.has(name)) throw unknown(id, kind, name)
      continue
    }
    const workflow = known.workflows?.get(name)
    if (workflow) collect(workflow, known, workflows)
    if (workflow) workflows[name] = workflow.model
    else if (!whole) throw unknown(id, kind, name)
  }
  return { hash: definition.hash, model: definition.model, workflows }
}

function collect(
  definition: WorkflowDefinition,
  registry: Registry,
  into: Record<string, WorkflowModel>,
): void {
  const known = withUsed(registry, definition.uses)
  for (const action of Object.values(definition.model.actions)) {
    if (action.kind !== 'workflow_call' || into[action.workflow]) continue
    const called = known.workflows?.get(action.workflow)
    if (!called) throw unknown(definition.name, 'workflow', action.workflow)
    into[called.name] = called.model
    collect(called, known, into)
  }
}

function unknown(where: string, what: string, name: string): CurfewError {
  return new CurfewError(`unknown_${what}`, `${where}: there is no ${what} '${name}'`, {
    hint: `Give it to Curfew.open, or check the name.`,
    fields: { name },
  })
}
