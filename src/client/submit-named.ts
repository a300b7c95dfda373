/** Work that is started by its name or as text: understood by what the engine and its workers know. */
import { CurfewError } from '../core/errors.ts'
import { idOfRequest } from '../core/id.ts'
import { actionKind, idPrefix } from '../core/own-work.ts'
import type { AgentDefinition } from '../definitions/agent.ts'
import { definitionKind } from '../definitions/definition-kind.ts'
import { loadJob } from '../definitions/job.ts'
import { checkPolicy } from '../definitions/policy-check.ts'
import { didYouMean } from '../definitions/problem.ts'
import type { TaskDefinition } from '../definitions/task.ts'
import { checkName } from '../definitions/task-policy.ts'
import type { WorkflowDefinition } from '../definitions/workflow.ts'
import { loadWorkflow } from '../definitions/workflow.ts'
import type { WorkflowModel } from '../definitions/workflow-model.ts'
import { contentHash } from '../definitions/workflow-model.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import { planWorkflow } from '../definitions/workflow-plan.ts'
import type { SubmitRequest, Submitted, TaskService } from '../wire/task-service.ts'
import type { Client } from './client.ts'

export async function submitNamed(
  client: Client,
  registry: Registry,
  request: SubmitRequest,
  { awaitsWorkers = false } = {},
): Promise<Submitted> {
  const known = named(awaitsWorkers)
  const { what, input, key, timeout, delay, trace } = request
  const options = {
    ...(key !== null && { key }),
    ...(timeout !== null && { timeout: timeout as never }),
    ...(trace && { trace }),
  }
  if (delay !== null && !('task' in what)) throw unfit('delay', 'a task')
  if ('task' in what) {
    const definition = known(registry.tasks, 'task', what.task)
    const handle = await client.schedule(definition, input, {
      ...options,
      ...(delay !== null && { delay: delay as never }),
    })
    return { id: handle.id, kind: 'task', existing: handle.existing }
  }
  if ('agent' in what) {
    const handle = await client.start(known(registry.agents, 'agent', what.agent), input, options)
    return { id: handle.id, kind: 'agent', existing: handle.existing }
  }
  if ('definition' in what && definitionKind(what.definition) === 'job') {
    if (timeout !== null)
      throw unfit('timeout', 'a task, agent or workflow; that of a job stands in its definition')
    if (input !== null)
      throw unfit('input', 'a task, agent or workflow; those of a job stand in its definition')
    const handle = await client.submit(loadJob(what.definition), options)
    return { id: handle.id, kind: 'job', existing: handle.existing }
  }
  const definition =
    'definition' in what
      ? loadWorkflow(what.definition)
      : known(registry.workflows, 'workflow', what.workflow)
  const handle = await client.start(definition, input, options)
  return { id: handle.id, kind: 'workflow', existing: handle.existing }
}

/** `awaitsWorkers`: those that were attached to the manager before it was started again may not have come back yet. */
function named(awaitsWorkers: boolean) {
  return <T>(definitions: ReadonlyMap<string, T> | undefined, what: string, name: string): T => {
    // Those of nodes are ours, and take what a node gives them.
    const definition = actionKind(checkName(what, name)) === null ? definitions?.get(name) : undefined
    if (definition) return definition
    const names = [...(definitions?.keys() ?? [])].filter((one) => !one.startsWith('$'))
    const hints = [
      didYouMean(name, names) ??
        (names.length
          ? `Known are ${names.slice(0, 20).join(', ')}.`
          : 'No worker that knows any is attached.'),
      ...(awaitsWorkers ? ['This manager has just started: workers may be on their way back to it.'] : []),
    ]
    throw new CurfewError('unknown_task', `no ${what} '${name}' is known here`, {
      ...{ hint: hints.join(' '), fields: { name, known: names.length } },
    })
  }
}

function unfit(option: string, what: string): CurfewError {
  return new CurfewError('invalid_option', `submit: ${option} is for ${what}`)
}

/** Of anything but what is ours. */
export function knowsNothing(registry: Registry): boolean {
  const names = Object.values(registry).flatMap((known) => [...known.keys()])
  return names.every((name) => name.startsWith('$'))
}

/** What is scheduled over it has the id of its request: asked again, it is the same work. */
export function withFixedId(service: TaskService, requestId: string): TaskService {
  const schedule: TaskService['schedule'] = ({ tasks, ...rest }) => {
    const id = idOfRequest(idPrefix(rest), requestId)
    return service.schedule({ ...rest, tasks: tasks.map((task) => ({ ...task, id })) })
  }
  return new Proxy(service, {
    get: (target, name) => (name === 'schedule' ? schedule : Reflect.get(target, name)),
  })
}

/** A worker of another release may say what nobody here understands: others of that name may be. */
function isUnderstood(kind: string, name: string, body: Record<string, unknown>): boolean {
  try {
    if (kind === 'workflow') planWorkflow(body as unknown as WorkflowModel)
    else checkPolicy(`${kind} ${name}`, body)
    return true
  } catch {
    return false // whoever asks for it by name is told that it is not known
  }
}

/** What workers announce, as definitions without code. */
export function announcedDefinitions(
  announced: readonly { kind: string; name: string; body: Record<string, unknown> }[],
): Required<Registry> {
  const registry = {
    tasks: new Map<string, TaskDefinition>(),
    agents: new Map<string, AgentDefinition>(),
    workflows: new Map<string, WorkflowDefinition>(),
  }
  for (const { kind, name, body } of announced) {
    if (!isUnderstood(kind, name, body)) continue
    if (kind === 'workflow') {
      const model = body as unknown as WorkflowDefinition['model']
      registry.workflows.set(name, {
        ...{ kind, name, model, hash: contentHash(model), uses: { tasks: [], agents: [], workflows: [] } },
      } as unknown as WorkflowDefinition)
    } else {
      const policy = checkPolicy(`${kind} ${name}`, body)
      const definition = { kind, name, policy }
      if (kind === 'task') registry.tasks.set(name, definition as unknown as TaskDefinition)
      else registry.agents.set(name, definition as unknown as AgentDefinition)
    }
  }
  return registry
}
