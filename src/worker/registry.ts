/** What one process knows: its tasks, agents and workflows, those they were given, and the actions of our own. */
import { CurfewError } from '../core/errors.ts'
import { HTTP_REQUEST, JOB, SHELL, WORKFLOW } from '../core/own-work.ts'
import type { AgentDefinition } from '../definitions/agent.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import type { WorkflowDefinition } from '../definitions/workflow.ts'
import type { HttpOptions } from './http-task.ts'
import { hostName, httpTask } from './http-task.ts'
import { shellTask } from './shell-task.ts'

export interface ProcessRegistry {
  tasks: Map<string, TaskDefinition>
  agents: Map<string, AgentDefinition>
  workflows: Map<string, WorkflowDefinition>
}

interface Given {
  tasks?: readonly TaskDefinition[]
  agents?: readonly AgentDefinition[]
  workflows?: readonly WorkflowDefinition[]
  http?: HttpOptions
  witness?: boolean
}

const OWN_NAMES: readonly string[] = [WORKFLOW, JOB, HTTP_REQUEST, SHELL]

/** Throws where two have one name, in the name of `what` was called. */
export function register(given: Given, what = 'Curfew.open'): ProcessRegistry {
  try {
    return registryOf(given)
  } catch (error) {
    if (error instanceof Unfit) throw new CurfewError('invalid_option', `${what}: ${error.message}`)
    throw error
  }
}

function registryOf(given: Given): ProcessRegistry {
  checkHttp(given.http)
  for (const key of ['tasks', 'agents', 'workflows'] as const)
    if (given[key] !== undefined && !Array.isArray(given[key])) throw new Unfit(`${key} must be a list`)
  const registry: ProcessRegistry = { tasks: new Map(), agents: new Map(), workflows: new Map() }
  for (const [i, definition] of (given.tasks ?? []).entries()) {
    if (definition?.kind !== 'task') throw new Unfit(`tasks[${i}] is not a task made with task({ … })`)
    if (registry.tasks.has(definition.name))
      throw new Unfit(`tasks: there are two tasks named '${definition.name}'`)
    registry.tasks.set(definition.name, definition)
  }
  for (const [i, definition] of (given.agents ?? []).entries()) {
    if (definition?.kind !== 'agent') throw new Unfit(`agents[${i}] is not an agent made with agent({ … })`)
    if (registry.tasks.has(definition.name) || registry.agents.has(definition.name))
      throw new Unfit(`agents: the name '${definition.name}' is taken already`)
    registry.agents.set(definition.name, definition)
  }
  for (const [i, definition] of (given.workflows ?? []).entries()) {
    if (definition?.kind !== 'workflow')
      throw new Unfit(`workflows[${i}] is not a workflow made with workflow({ … }) or loadWorkflow`)
    addWorkflow(registry, definition)
  }
  for (const name of OWN_NAMES) {
    if (registry.tasks.has(name) || registry.agents.has(name))
      throw new Unfit(`the name '${name}' is Curfew's own; give the task or agent another`)
  }
  const actions = [...registry.workflows.values()].flatMap(({ model }) => Object.values(model.actions))
  // It needs a supervisor, which is a process of its own: where there is one anyway, any workflow may have commands.
  const isolated = [...registry.tasks.values()].some(({ isolation }) => isolation === 'process')
  if (given.witness || isolated || actions.some(({ kind }) => kind === 'shell'))
    registry.tasks.set(SHELL, shellTask)
  registry.tasks.set(HTTP_REQUEST, httpTask(given.http ?? {}))
  return registry
}

function addWorkflow(registry: ProcessRegistry, definition: WorkflowDefinition): void {
  const known = registry.workflows.get(definition.name)
  if (known === definition) return
  if (known) throw new Unfit(`workflows: there are two workflows named '${definition.name}'`)
  registry.workflows.set(definition.name, definition)
  const { tasks, agents, workflows } = definition.uses
  for (const used of tasks) addUsed(registry.tasks, used, definition, registry.agents)
  for (const used of agents) addUsed(registry.agents, used, definition, registry.tasks)
  for (const used of workflows) addWorkflow(registry, used)
}

function addUsed<T extends { name: string }>(
  known: Map<string, T>,
  used: T,
  { name }: WorkflowDefinition,
  others: ReadonlyMap<string, unknown>,
): void {
  const other = known.get(used.name)
  if ((other && other !== used) || others.has(used.name))
    throw new Unfit(`workflow ${name} was given another '${used.name}' than the one that is known`)
  known.set(used.name, used)
}

function checkHttp(http: unknown): void {
  if (http === undefined) return
  if (typeof http !== 'object' || http === null) throw new Unfit('http must be an object: { allowPrivate }')
  for (const key of Object.keys(http)) {
    if (key !== 'allowPrivate') throw new Unfit(`http: '${key}' is not an option; there is allowPrivate`)
  }
  const { allowPrivate } = http as { allowPrivate?: unknown }
  if (allowPrivate === undefined || typeof allowPrivate === 'boolean') return
  if (!Array.isArray(allowPrivate))
    throw new Unfit('http.allowPrivate must be true, false or a list of host names')
  for (const name of allowPrivate as unknown[]) {
    if (typeof name !== 'string' || hostName(name) === null)
      throw new Unfit(`http.allowPrivate: ${JSON.stringify(name)} is not a host name, such as 'db.internal'`)
  }
}

class Unfit extends Error {}
