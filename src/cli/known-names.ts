/** The names a definition may refer to: those of modules, and of what their workflows use. */
import type { WorkflowDefinition } from '../definitions/workflow.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import type { Definitions } from './load-modules.ts'

export function registryOf({ tasks, agents, workflows }: Definitions): Required<Registry> {
  const registry = {
    tasks: new Map(tasks.map((one) => [one.name, one])),
    agents: new Map(agents.map((one) => [one.name, one])),
    workflows: new Map<string, WorkflowDefinition>(),
  }
  const add = (definition: WorkflowDefinition): void => {
    if (registry.workflows.has(definition.name)) return
    registry.workflows.set(definition.name, definition)
    for (const used of definition.uses.tasks) registry.tasks.set(used.name, used)
    for (const used of definition.uses.agents) registry.agents.set(used.name, used)
    for (const used of definition.uses.workflows) add(used)
  }
  for (const definition of workflows) add(definition)
  return registry
}
