/** What a run of a workflow or a job is stored with: every definition it may need, at any depth. */
import { CurfewError } from '../core/errors.ts'
import { encodeJson } from '../core/json.ts'
import { MAX_DEFINITIONS_BYTES, MAX_PAYLOAD_BYTES } from '../core/limits.ts'
import { SHELL } from '../core/own-work.ts'
import type { JobDefinition } from '../definitions/job.ts'
import { validateJobNames } from '../definitions/job.ts'
import type { JobModel } from '../definitions/job-model.ts'
import { encodePolicy } from '../definitions/policy-text.ts'
import { byPlace, DefinitionError } from '../definitions/problem.ts'
import type { TaskPolicy } from '../definitions/task-policy.ts'
import type { WorkflowDefinition } from '../definitions/workflow.ts'
import type { WorkflowModel } from '../definitions/workflow-model.ts'
import { contentHash } from '../definitions/workflow-model.ts'
import type { Registry } from '../definitions/workflow-names.ts'
import { checkNames, withUsed } from '../definitions/workflow-names.ts'
import type { JobStart, RunDefinitions, WorkflowStart } from './start-input.ts'

/** What is known in a process does not change: its definitions are checked and collected once. */
const collected = new WeakMap<WorkflowDefinition, { registry: Registry; definitions: RunDefinitions }>()

/** Checks the names it refers to, at any depth, against what is known here. */
export function workflowStart(
  definition: WorkflowDefinition,
  registry: Registry,
  input: unknown,
): WorkflowStart {
  const { hash, model } = definition
  let known = collected.get(definition)
  if (known?.registry !== registry) {
    known = { registry, definitions: collectAll(definition, registry) }
    collected.set(definition, known)
  }
  return { hash, model, definitions: known.definitions, input }
}

function collectAll(definition: WorkflowDefinition, registry: Registry): RunDefinitions {
  const { model, uses } = definition
  const definitions = noDefinitions()
  // It may call itself, and is then what was started, whatever else has its name.
  const known = withUsed(registry, { ...uses, workflows: [...uses.workflows, definition] })
  collect(model, known, definitions)
  refuseSize(`workflow ${model.name}`, definitions)
  return definitions
}

export function jobStart(definition: JobDefinition, registry: Registry): JobStart {
  const known = withUsed(registry, definition.uses)
  const { hash, model } = definition
  const problems = validateJobNames(model, known)
  if (problems.length) throw new DefinitionError(`job ${model.name ?? ''}`.trimEnd(), problems)
  const definitions = noDefinitions()
  for (const { id, kind, name, definition: whole, outline } of model.workflows) {
    if (kind === 'mapreduce') {
      if (!outline) throw notHere(id, name)
    } else if (kind === 'task') addPolicy(definitions.tasks, kind, name, known.tasks)
    else if (kind === 'agent') addPolicy(definitions.agents, kind, name, known.agents)
    else if (whole) {
      definitions.workflows[name] ??= whole
      const made = definition.uses.workflows.find((used) => used.model === whole)
      collect(whole, made ? withUsed(known, made.uses) : known, definitions)
    } else addWorkflow(name, known, definitions)
  }
  const stored = withoutCopies(model, definitions)
  refuseSize('the job', definitions)
  for (const { id, kind, input } of stored.workflows)
    if (kind === 'workflow') encodeJson(input, `${id}: input`, MAX_PAYLOAD_BYTES - MAX_DEFINITIONS_BYTES)
  return { hash, model: stored, definitions }
}

/** Each child run is stored with all of them, and with its own once more. */
function refuseSize(what: string, definitions: RunDefinitions): void {
  const models = Object.values(definitions.workflows)
  if (models.length === 0) return
  const size = (value: unknown) => Buffer.byteLength(JSON.stringify(value))
  const bytes = size(definitions) + Math.max(...models.map(size)) + 1_000
  if (bytes <= MAX_DEFINITIONS_BYTES) return
  const message = `the workflows that ${what} calls have ${bytes} bytes; at most ${MAX_DEFINITIONS_BYTES} can be kept with every run`
  throw new CurfewError('too_big', message, { fields: { bytes } })
}

/** A graph that many workflows of a job run is stored once. */
function withoutCopies(model: JobModel, { workflows: stored }: RunDefinitions): JobModel {
  const workflows = model.workflows.map((one) => {
    const { definition, ...rest } = one
    if (!definition) return one
    stored[one.name] ??= definition
    return stored[one.name] === definition ? rest : one
  })
  return { ...model, workflows }
}

/** Without a prototype: any name may be a key. */
function noDefinitions(): RunDefinitions {
  return { workflows: Object.create(null), tasks: Object.create(null), agents: Object.create(null) }
}

function collect(model: WorkflowModel, known: Registry, into: RunDefinitions): void {
  const where = `workflow ${model.name}`
  const problems = checkNames(model, known)
  if (problems.length) throw new DefinitionError(where, byPlace(problems))
  for (const action of Object.values(model.actions)) {
    if (action.kind === 'task') addPolicy(into.tasks, 'task', action.task, known.tasks)
    else if (action.kind === 'agent') addPolicy(into.agents, 'agent', action.agent, known.agents)
    else if (action.kind === 'workflow_call') addWorkflow(action.workflow, known, into)
    else if (action.kind === 'shell' && !known.tasks?.has(SHELL)) throw noShell(where)
  }
}

/** The names are known: they were checked. */
function addWorkflow(name: string, known: Registry, into: RunDefinitions): void {
  const called = known.workflows?.get(name)
  if (!called) return
  const other = into.workflows[name]
  if (other && other !== called.model && contentHash(other) !== called.hash) throw twice('workflow', name)
  if (other) return
  into.workflows[name] = called.model
  collect(called.model, withUsed(known, called.uses), into)
}

function addPolicy(
  into: Record<string, string>,
  what: 'task' | 'agent',
  name: string,
  known: ReadonlyMap<string, { policy: TaskPolicy }> | undefined,
): void {
  const definition = known?.get(name)
  if (!definition) return
  const policy = encodePolicy(definition.policy)
  if ((into[name] ?? policy) !== policy) throw twice(what, name)
  into[name] = policy
}

function twice(what: string, name: string): CurfewError {
  return new CurfewError(
    'invalid_definition',
    `there are two different ${what}s named '${name}' in one run`,
    {
      hint: 'A run calls them by name: give one of them another.',
      fields: { name },
    },
  )
}

/** Commands need a process beside this one that ends what they leave. */
function noShell(where: string): CurfewError {
  return new CurfewError('unknown_task', `${where} has a shell action, which this process does not run`, {
    hint: 'Give the workflow to Curfew.open({ workflows }), or open it with witness: true.',
  })
}

/** Its commands run where they were asked for. */
function notHere(id: string, file: string): CurfewError {
  return new CurfewError(
    'unknown_mapreduce',
    `${id}: nobody here runs the commands of the map-reduce ${file}`,
    {
      hint: 'curfew run JOB runs the job, with its commands on that machine; so does submit() of an engine that a program opened with mapreduce: true.',
      fields: { id, file },
    },
  )
}
