/** What a run of a workflow or a job is stored with: every definition it may need, at any depth. */
import { CurfewError } from '../core/errors.ts'
import { SHELL } from '../core/own-work.ts'
import type { JobDefinition } from '../definitions/job.ts'
import { encodePolicy } from '../definitions/policy-text.ts'
import { DefinitionError } from '../definitions/problem.ts'
import type { TaskPolicy } from '../definitions/task-policy.ts'
import type { WorkflowDefinition } from '../definitions/workflow.ts'
import { validateNames } from '../definitions/workflow.ts'
import type { WorkflowModel } from '../definitions/workflow-model.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import { withUsed } from '../definitions/workflow-names.ts'
import type { JobStart, RunDefinitions, WorkflowStart } from '../graph/start-input.ts'

/** Checks the names it refers to against what is known here. */
export function workflowStart(
  definition: WorkflowDefinition,
  registry: Registry,
  input: unknown,
): WorkflowStart {
  const known = withUsed(registry, definition.uses)
  const problems = validateNames(definition, known)
  if (problems.length) throw new DefinitionError(`workflow ${definition.name}`, problems)
  const definitions: RunDefinitions = { workflows: {}, tasks: {}, agents: {} }
  collect(definition.model, known, definitions)
  return { hash: definition.hash, model: definition.model, definitions, input }
}

export function jobStart(definition: JobDefinition, registry: Registry): JobStart {
  const known = withUsed(registry, definition.uses)
  const definitions: RunDefinitions = { workflows: {}, tasks: {}, agents: {} }
  for (const { id, kind, name, definition: whole } of definition.model.workflows) {
    if (kind === 'task') definitions.tasks[name] = policyOf(known.tasks, id, kind, name)
    else if (kind === 'agent') definitions.agents[name] = policyOf(known.agents, id, kind, name)
    else {
      const workflow = kind === 'workflow' ? known.workflows?.get(name) : undefined
      const model = whole ?? workflow?.model
      if (!model) throw unknown(id, kind, name)
      definitions.workflows[name] ??= model
      collect(model, workflow ? withUsed(known, workflow.uses) : known, definitions)
    }
  }
  return { hash: definition.hash, model: definition.model, definitions }
}

function collect(model: WorkflowModel, known: Registry, into: RunDefinitions): void {
  const where = `workflow ${model.name}`
  for (const action of Object.values(model.actions)) {
    if (action.kind === 'task') into.tasks[action.task] ??= policyOf(known.tasks, where, 'task', action.task)
    if (action.kind === 'agent')
      into.agents[action.agent] ??= policyOf(known.agents, where, 'agent', action.agent)
    if (action.kind === 'shell' && !known.tasks?.has(SHELL)) throw noShell(where)
    if (action.kind !== 'workflow_call' || into.workflows[action.workflow]) continue
    const called = known.workflows?.get(action.workflow)
    if (!called) throw unknown(where, 'workflow', action.workflow)
    into.workflows[called.name] = called.model
    collect(called.model, withUsed(known, called.uses), into)
  }
}

function policyOf(
  known: ReadonlyMap<string, { policy: TaskPolicy }> | undefined,
  where: string,
  what: string,
  name: string,
): string {
  const definition = known?.get(name)
  if (!definition) throw unknown(where, what, name)
  return encodePolicy(definition.policy)
}

/** Commands need a process beside this one that ends what they leave. */
function noShell(where: string): CurfewError {
  return new CurfewError('unknown_task', `${where} has a shell action, which this process does not run`, {
    hint: 'Give the workflow to Curfew.open({ workflows }).',
  })
}

function unknown(where: string, what: string, name: string): CurfewError {
  return new CurfewError(`unknown_${what}`, `${where}: there is no ${what} '${name}'`, {
    hint: `Give it to Curfew.open, or check the name.`,
    fields: { name },
  })
}
