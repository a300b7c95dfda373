/** Reads a job and checks what its workflows depend on. All problems at once. */
import { MAX_JOB_WORKFLOWS } from '../core/limits.ts'
import type { UsedDefinitions } from './action-reader.ts'
import type { AgentDefinition } from './agent.ts'
import type { Field, Fields } from './definition-field.ts'
import type { JobModel, JobWorkflowModel, WorkType } from './job-model.ts'
import { DEFAULT_STUCK_AFTER_MS, RUN_IF, WORK_TYPES } from './job-model.ts'
import { readJson } from './mapping-reader.ts'
import { readMapreduceInput, readOutline } from './mapreduce-outline.ts'
import { keepPlaces, Places } from './places.ts'
import { didYouMean } from './problem.ts'
import type { TaskDefinition } from './task.ts'
import type { WorkflowDefinition } from './workflow.ts'
import { checkWorkflow } from './workflow-check.ts'
import type { WorkflowModel } from './workflow-model.ts'
import { MODEL_FORMAT } from './workflow-model.ts'
import type { Registry } from './workflow-names.ts'
import { checkModelNames, checkName, withUsed } from './workflow-names.ts'
import { readWorkflow } from './workflow-reader.ts'

export interface JobDraft {
  model: JobModel
  uses: UsedDefinitions
}

export function readJob(field: Field, registry: Registry): JobDraft | null {
  const fields = field.object()
  if (!fields) return null
  const places = new Places(field)
  const uses: UsedDefinitions = { tasks: [], agents: [], workflows: [] }
  const name = fields.get('name')?.name() ?? null
  const timeoutMs = fields.duration('timeout', { none: true }) ?? null
  const stuckAfterMs = fields.duration('stuckAfter', { none: true })
  const failFast = fields.get('failFast')?.flag() ?? false
  const warnAt = fields.get('warnAt')?.between(0.01, 1) ?? null
  const listField = fields.required('workflows')
  const entries = listField?.list(MAX_JOB_WORKFLOWS) ?? []
  if (listField && Array.isArray(listField.value) && listField.value.length === 0) {
    listField.problem('no_workflows', 'a job needs at least one workflow')
  }
  const workflows = entries.flatMap((entry) => {
    const workflow = readJobWorkflow(entry, uses, registry)
    if (workflow) places.set(workflow, entry)
    return workflow ?? []
  })
  fields.end()
  checkIds(workflows, places)
  checkDependencies(workflows, places)
  const model: JobModel = {
    format: MODEL_FORMAT,
    ...(name !== null && { name }),
    timeoutMs,
    stuckAfterMs: stuckAfterMs === undefined ? DEFAULT_STUCK_AFTER_MS : stuckAfterMs,
    failFast,
    ...(warnAt !== null && { warnAt }),
    workflows,
  }
  keepPlaces(model, places)
  return { model, uses }
}

function readJobWorkflow(field: Field, uses: UsedDefinitions, registry: Registry): JobWorkflowModel | null {
  const fields = field.object()
  if (!fields) return null
  const id = fields.required('id')?.name() ?? null
  const work = readWork(fields, uses, registry)
  const inputField = fields.get('input')
  const input = inputField ? readJson(inputField) : undefined
  if (inputField && inputField.value !== null && work?.kind === 'mapreduce') readMapreduceInput(inputField)
  const dependsOn = readDependencies(fields.get('dependsOn'))
  const runIfField = fields.get('runIf')
  const runIf = runIfField?.oneOf(RUN_IF) ?? 'completed'
  if (runIfField && runIf !== 'completed' && dependsOn.length === 0) {
    runIfField.warning('no_effect', `has no effect without ${field.source.spell('dependsOn')}`)
  }
  fields.end({ [field.source.spell('stuckAfter')]: 'the job', [field.source.spell('failFast')]: 'the job' })
  if (id === null) return null
  // One whose work cannot be read is there all the same, for those that depend on it.
  return {
    id,
    ...(work ?? { kind: 'task', name: '' }),
    ...(input !== undefined && { input }),
    dependsOn,
    runIf,
  }
}

function readDependencies(field: Field | null): string[] {
  if (!field) return []
  // One name needs no list.
  const list = typeof field.value === 'string' ? [field] : (field.list(MAX_JOB_WORKFLOWS) ?? [])
  const names: string[] = []
  for (const entry of list) {
    const name = entry.name()
    if (name === null) continue
    if (names.includes(name)) entry.problem('duplicate_dependency', `'${name}' stands here twice`)
    else names.push(name)
  }
  return names
}

type Work = Pick<JobWorkflowModel, 'kind' | 'name' | 'definition' | 'outline'>

function readWork(fields: Fields, uses: UsedDefinitions, registry: Registry): Work | null {
  const given = WORK_TYPES.flatMap((kind) => {
    const field = fields.get(kind)
    return field ? [{ kind, field }] : []
  })
  const [first, second] = given
  if (!first || second) {
    const got = first ? given.map(({ kind }) => kind).join(' and ') : 'none'
    const message = `needs exactly one of ${WORK_TYPES.join(', ')}, got ${got}`
    fields.field.problem('invalid_value', message)
    return null
  }
  const { kind, field } = first
  if (typeof field.value === 'object' && field.value !== null) return readWhole(kind, field, uses, registry)
  const name = kind === 'mapreduce' ? readFileName(field) : field.name()
  if (name === null) return null
  if (kind === 'workflow') checkName(field, kind, name, registry.workflows)
  else if (kind === 'agent') checkName(field, kind, name, registry.agents)
  else if (kind === 'task') checkName(field, kind, name, registry.tasks)
  return { kind, name }
}

/** As long as a path may be: it stands in no index. */
function readFileName(field: Field): string | null {
  const { value } = field
  const isName =
    typeof value === 'string' && value !== '' && !value.includes('\u0000') && value.isWellFormed()
  return isName ? value : field.expected('the name of a file')
}

/** A definition made in TypeScript, or a graph written into the job. */
function readWhole(kind: WorkType, field: Field, uses: UsedDefinitions, registry: Registry): Work | null {
  if (kind === 'mapreduce') {
    const outline = readOutline(field)
    return outline && { kind, name: outline.file ?? outline.name, outline }
  }
  const value = field.value as { kind?: unknown; name?: unknown }
  const isMade =
    field.source.spelling === 'camel' && 'kind' in value && 'name' in value && !('nodes' in value)
  if (isMade) {
    if (value.kind !== kind || typeof value.name !== 'string') {
      field.expected(`a ${kind}`, typeof value.kind === 'string' ? `It is a ${value.kind}.` : null)
      return null
    }
    if (kind === 'task') uses.tasks.push(value as TaskDefinition)
    else if (kind === 'agent') uses.agents.push(value as AgentDefinition)
    else {
      const made = value as WorkflowDefinition
      uses.workflows.push(made)
      return { kind, name: made.name, definition: made.model }
    }
    return { kind, name: value.name }
  }
  if (kind !== 'workflow') {
    field.expected('a name')
    return null
  }
  const definition = readInline(field, uses, registry)
  return definition && { kind, name: definition.name, definition }
}

function readInline(field: Field, uses: UsedDefinitions, registry: Registry): WorkflowModel | null {
  const draft = readWorkflow(field)
  if (!draft) return null
  checkWorkflow(draft.model, draft.places, withUsed(registry, draft.uses))
  keepPlaces(draft.model, draft.places)
  checkModelNames(draft.model, registry)
  uses.tasks.push(...draft.uses.tasks)
  uses.agents.push(...draft.uses.agents)
  uses.workflows.push(...draft.uses.workflows)
  return draft.model
}

function checkIds(workflows: readonly JobWorkflowModel[], places: Places): void {
  const seen = new Map<string, Field>()
  for (const workflow of workflows) {
    const field = places.of(workflow)
    const first = seen.get(workflow.id)
    if (first) {
      field.at('id').problem('duplicate_id', `there is another workflow '${workflow.id}', at ${first.path}`)
    } else seen.set(workflow.id, field)
  }
}

function checkDependencies(workflows: readonly JobWorkflowModel[], places: Places): void {
  const byId = new Map(workflows.map((workflow) => [workflow.id, workflow]))
  for (const workflow of workflows) {
    for (const [i, id] of workflow.dependsOn.entries()) {
      if (byId.has(id)) continue
      const list = places.of(workflow).at('dependsOn')
      const field = Array.isArray(list.value) ? list.child(i) : list
      field.problem('unknown_workflow', `there is no workflow '${id}' in this job`, {
        suggestion: didYouMean(id, byId.keys()),
      })
    }
  }
  const cycle = dependencyCycle(byId)
  if (!cycle) return
  const field = places.of(byId.get(cycle[0]!)!).at('dependsOn')
  const message =
    cycle.length === 1
      ? `workflow '${cycle[0]}' depends on itself`
      : `workflows depend on each other: ${[...cycle, cycle[0]].join(' → ')}`
  field.problem('dependency_cycle', message, { suggestion: 'Take one of them out.' })
}

/** Ids in the order in which each depends on the next; what depends on nothing left open is taken away first. */
function dependencyCycle(byId: ReadonlyMap<string, JobWorkflowModel>): string[] | null {
  const waiting = new Map<string, number>()
  const dependents = new Map<string, string[]>()
  for (const { id, dependsOn } of byId.values()) {
    const known = dependsOn.filter((other) => byId.has(other))
    waiting.set(id, known.length)
    for (const other of known) dependents.set(other, [...(dependents.get(other) ?? []), id])
  }
  const free = [...byId.keys()].filter((id) => waiting.get(id) === 0)
  for (const id of free) {
    waiting.delete(id)
    for (const dependent of dependents.get(id) ?? []) {
      const left = waiting.get(dependent)! - 1
      waiting.set(dependent, left)
      if (left === 0) free.push(dependent)
    }
  }
  const [first] = waiting.keys()
  if (first === undefined) return null
  const path: string[] = []
  let at = first
  while (!path.includes(at)) {
    path.push(at)
    at = byId.get(at)!.dependsOn.find((other) => waiting.has(other))!
  }
  return path.slice(path.indexOf(at))
}
