/** The names a workflow or job refers to, against those that are registered. */
import type { UsedDefinitions } from './action-reader.ts'
import type { AgentDefinition } from './agent.ts'
import type { Field } from './definition-field.ts'
import { placesOf } from './places.ts'
import type { Problem } from './problem.ts'
import { didYouMean } from './problem.ts'
import type { TaskDefinition } from './task.ts'
import type { WorkflowDefinition } from './workflow.ts'
import type { WorkflowModel } from './workflow-model.ts'

/** Only the kinds that are given are checked: a process may know its workflows and not the tasks of others. */
export interface Registry {
  tasks?: ReadonlyMap<string, TaskDefinition>
  agents?: ReadonlyMap<string, AgentDefinition>
  workflows?: ReadonlyMap<string, WorkflowDefinition>
}

/** What is registered, and what the definition was given itself. */
export function withUsed(registry: Registry, uses: UsedDefinitions): Registry {
  const byName = <T extends { name: string }>(
    known: ReadonlyMap<string, T> | undefined,
    used: readonly T[],
  ) => new Map([...(known ?? []), ...used.map((definition) => [definition.name, definition] as const)])
  return {
    tasks: byName(registry.tasks, uses.tasks),
    agents: byName(registry.agents, uses.agents),
    workflows: byName(registry.workflows, uses.workflows),
  }
}

/** New problems alone: those of the definition itself are not told again. */
export function checkNames(model: WorkflowModel, registry: Registry): Problem[] {
  const { problems } = placesOf(model).root.source
  const before = problems.length
  checkModelNames(model, registry)
  return problems.splice(before)
}

/** Adds to the problems of the source. */
export function checkModelNames(model: WorkflowModel, registry: Registry): void {
  const places = placesOf(model)
  for (const [id, action] of Object.entries(model.actions)) {
    const declared = places.of(action)
    const user = model.nodes.find(({ actionId }) => actionId === id)
    const field = declared !== places.root ? declared : user ? places.of(user).at('actionId') : declared
    if (action.kind === 'task') checkName(field, 'task', action.task, registry.tasks, registry.agents)
    else if (action.kind === 'agent') checkName(field, 'agent', action.agent, registry.agents)
    else if (action.kind === 'workflow_call')
      checkName(field, 'workflow', action.workflow, registry.workflows)
  }
}

export function checkName(
  field: Field,
  what: 'task' | 'agent' | 'workflow',
  name: string,
  known: ReadonlyMap<string, unknown> | undefined,
  others?: ReadonlyMap<string, unknown>,
): void {
  if (!known || known.has(name)) return
  const suggestion = others?.has(name)
    ? `There is an agent of that name: declare an action { kind: agent, agent: ${name} }.`
    : (didYouMean(name, known.keys()) ?? `Register it, or check the name.`)
  field.problem(`unknown_${what}`, `there is no ${what} '${name}'`, { suggestion })
}
