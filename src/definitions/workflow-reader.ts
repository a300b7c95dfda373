/** Reads a workflow into its model, gathering every problem of form on the way. What the graph means is checked later. */
import { MAX_BRANCHES, MAX_ITERATIONS, MAX_NODES, MAX_TRANSITIONS } from '../core/limits.ts'
import type { UsedDefinitions } from './action-reader.ts'
import { readActions, readExecution } from './action-reader.ts'
import { parseContextPath } from './context-path.ts'
import type { Field, Fields } from './definition-field.ts'
import { MERGE_STRATEGIES } from './join-merge.ts'
import { readExpression, readMapping, readMappings } from './mapping-reader.ts'
import { Places } from './places.ts'
import { DEFAULT_WORKFLOW_TIMEOUT_MS } from './workflow-limits.ts'
import type {
  JoinStrategy,
  NodeModel,
  SynchronizationModel,
  TransitionModel,
  WorkflowModel,
} from './workflow-model.ts'
import { MODEL_FORMAT } from './workflow-model.ts'

export interface WorkflowDraft {
  model: WorkflowModel
  places: Places
  uses: UsedDefinitions
}

export function readWorkflow(field: Field): WorkflowDraft | null {
  const fields = field.object()
  if (!fields) return null
  const places = new Places(field)
  const uses: UsedDefinitions = { tasks: [], agents: [], workflows: [] }
  const name = fields.required('name')?.name() ?? ''
  const description = fields.get('description')?.text() ?? null
  const timeoutMs = fields.duration('timeout', { none: true })
  const onTimeout = fields.get('onTimeout')?.oneOf(['cancel_all', 'fail']) ?? 'cancel_all'
  const warnAt = fields.get('warnAt')?.between(0.01, 1) ?? null
  const inherit = fields.get('inherit')?.flag() ?? false
  const reserveMs = fields.duration('reserve', { zero: true }) ?? undefined
  const start = fields.get('start')?.name() ?? ''
  const outputField = fields.get('output')
  const output = outputField ? readMapping(outputField) : undefined
  // Of TypeScript alone: a schema, checked by `workflow()`.
  if (field.source.spelling === 'camel') fields.get('input')
  const actions = readActions(fields.get('actions'), places, uses)
  const nodes = readNodes(fields, places)
  const transitions = readTransitions(fields.get('transitions'), places)
  fields.end()
  for (const { actionId } of nodes) {
    if (actionId === null || Object.hasOwn(actions, actionId)) continue
    actions[actionId] = { kind: 'task', task: actionId, execution: {} }
  }
  const model: WorkflowModel = {
    format: MODEL_FORMAT,
    name,
    ...(description !== null && { description }),
    timeoutMs: timeoutMs === undefined ? DEFAULT_WORKFLOW_TIMEOUT_MS : timeoutMs,
    onTimeout,
    ...(warnAt !== null && { warnAt }),
    inherit,
    ...(reserveMs !== undefined && { reserveMs }),
    start,
    ...(output !== undefined && { output }),
    actions,
    nodes,
    transitions,
  }
  return { model, places, uses }
}

function readNodes(fields: Fields, places: Places): NodeModel[] {
  const list = fields.required('nodes')?.list(MAX_NODES) ?? []
  return list.flatMap((entry) => {
    const node = readNode(entry)
    if (node) places.set(node, entry)
    return node ?? []
  })
}

function readNode(field: Field): NodeModel | null {
  const fields = field.object()
  if (!fields) return null
  const id = fields.required('id')?.name() ?? null
  const actionId = fields.get('actionId')?.name() ?? null
  const inputField = fields.get('input')
  const outputField = fields.get('output')
  const node: NodeModel = { id: id ?? '', actionId, ...readExecution(fields) }
  const input = inputField ? readMapping(inputField) : undefined
  if (input !== undefined) node.input = input
  if (outputField) node.output = readMappings(outputField)
  const inherit = fields.get('inherit')?.flag() ?? null
  if (inherit !== null) node.inherit = inherit
  const reserveMs = fields.duration('reserve', { zero: true }) ?? undefined
  if (reserveMs !== undefined) node.reserveMs = reserveMs
  fields.end({
    condition: 'a transition: nodes do not branch',
    foreach: 'a transition',
    [field.source.spell('spawnCount')]: 'a transition',
    synchronization: 'a transition',
    kind: "an action; name it with 'action_id'",
  })
  return id === null ? null : node
}

function readTransitions(field: Field | null, places: Places): TransitionModel[] {
  const taken = new Set<string>()
  const list = field?.list(MAX_TRANSITIONS) ?? []
  for (const entry of list) {
    const id = (entry.value as { id?: unknown } | null)?.id
    if (typeof id === 'string') taken.add(id)
  }
  return list.flatMap((entry) => {
    const transition = readTransition(entry, taken)
    if (transition) places.set(transition, entry)
    return transition ?? []
  })
}

function readTransition(field: Field, taken: Set<string>): TransitionModel | null {
  const fields = field.object()
  if (!fields) return null
  const idField = fields.get('id')
  const from = fields.required('from')?.name() ?? null
  const to = fields.required('to')?.name() ?? null
  const id = idField ? idField.name() : freeId(`${from}->${to}`, taken)
  const transition: TransitionModel = {
    id: id ?? '',
    from: from ?? '',
    to: to ?? '',
    priority: fields.get('priority')?.whole(-32_768, 32_767) ?? 0,
  }
  const conditionField = fields.get('condition')
  const condition = conditionField ? readExpression(conditionField) : null
  if (condition !== null) transition.condition = condition
  readFanOut(fields, transition)
  const loop = fields.get('loop')?.object()
  const maxIterations = loop?.required('maxIterations')?.whole(1, MAX_ITERATIONS) ?? null
  loop?.end()
  if (maxIterations !== null) transition.loop = { maxIterations }
  const synchronizationField = fields.get('synchronization')
  const synchronization = synchronizationField && readSynchronization(synchronizationField)
  if (synchronization) transition.synchronization = synchronization
  fields.end({
    merge: "'synchronization'",
    strategy: "'synchronization'",
    timeout: "'synchronization', or on a node",
    collection: "'foreach'",
    [field.source.spell('maxIterations')]: "'loop'",
  })
  return from === null || to === null || id === null ? null : transition
}

function freeId(wanted: string, taken: Set<string>): string {
  let id = wanted
  for (let i = 2; taken.has(id); i++) id = `${wanted}#${i}`
  taken.add(id)
  return id
}

function readFanOut(fields: Fields, transition: TransitionModel): void {
  const { source } = fields.field
  const foreachField = fields.get('foreach')
  const spawnField = fields.get('spawnCount')
  const parallelField = fields.get('maxParallel')
  const group = fields.get('siblingGroup')?.name() ?? null
  if (foreachField && spawnField) {
    const message = `${source.spell('spawnCount')} and foreach cannot both be set`
    spawnField.problem('invalid_value', message, {
      suggestion: 'foreach makes one token per element.',
      atKey: true,
    })
  }
  const foreach = foreachField?.object()
  if (foreach) {
    const collectionField = foreach.required('collection', 'An expression that gives a list: state.topics.')
    const collection = collectionField && readExpression(collectionField)
    const itemVar = readItemVariable(foreach.get('itemVar'))
    foreach.end({ [source.spell('maxParallel')]: 'the transition' })
    transition.foreach = { collection: collection ?? '[]', itemVar }
  }
  const spawnCount = spawnField?.whole(1, MAX_BRANCHES) ?? null
  if (spawnCount !== null && !foreachField) transition.spawnCount = spawnCount
  if (foreachField || spawnField || group !== null) transition.group = group ?? transition.id
  const maxParallel = parallelField?.whole(1, MAX_BRANCHES) ?? null
  if (maxParallel === null) return
  if (foreachField || spawnField) transition.maxParallel = maxParallel
  else {
    const message = `needs foreach or ${source.spell('spawnCount')}`
    parallelField!.problem('invalid_value', message, { atKey: true })
  }
}

/** What a branch already holds under its own name. */
const BRANCH_KEYS = ['index', 'output', 'parent']

function readItemVariable(field: Field | null): string {
  if (!field) return 'item'
  const name = field.name()
  if (name === null) return 'item'
  if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) field.expected('a name of letters, digits and _')
  else if (BRANCH_KEYS.includes(name))
    field.problem('invalid_name', `branch.${name} is something else already`)
  return name
}

function readSynchronization(field: Field): SynchronizationModel | null {
  const fields = field.object()
  if (!fields) return null
  const strategyField = fields.required('strategy', 'all, any or { m_of_n: 2 }.')
  const strategy = strategyField && readStrategy(strategyField)
  const group = fields.required('siblingGroup', 'The id of the transition that fans out.')?.name() ?? null
  const timeoutMs = fields.duration('timeout', { none: true })
  const onTimeout = fields.get('onTimeout')?.oneOf(['proceed_with_available', 'fail']) ?? 'fail'
  const onBranchFailure = fields.get('onBranchFailure')?.oneOf(['fail', 'settle'])
  const late = fields.get('late')?.oneOf(['finish', 'cancel']) ?? 'finish'
  const warnAt = fields.get('warnAt')?.between(0.01, 1) ?? null
  const mergeField = fields.get('merge')
  const merge = mergeField ? readMerge(mergeField) : undefined
  fields.end({ source: "'merge'", target: "'merge'" })
  if (!strategy || group === null) return null
  return {
    strategy,
    siblingGroup: group,
    ...(timeoutMs !== undefined && { timeoutMs }),
    onTimeout,
    onBranchFailure: onBranchFailure ?? (strategy === 'all' ? 'fail' : 'settle'),
    late,
    ...(warnAt !== null && { warnAt }),
    ...(merge && { merge }),
  }
}

function readStrategy(field: Field): JoinStrategy | null {
  if (typeof field.value !== 'object') return field.oneOf(['all', 'any'])
  const fields = field.object()
  const mOfN = fields?.required('mOfN')?.whole(1, MAX_BRANCHES) ?? null
  fields?.end()
  return mOfN === null ? null : { mOfN }
}

function readMerge(field: Field): SynchronizationModel['merge'] {
  const fields = field.object()
  if (!fields) return undefined
  const sourceField = fields.get('source')
  const source = sourceField ? readExpression(sourceField) : '_branch.output'
  const target = fields.required('target', "Where the outputs go: 'state.results'.")
  const path = target?.text() ?? null
  if (target && path !== null) {
    const parsed = parseContextPath(path)
    if ('message' in parsed) target.problem('invalid_path', parsed.message, { suggestion: parsed.suggestion })
  }
  const strategy = fields.get('strategy')?.oneOf(MERGE_STRATEGIES) ?? 'append'
  fields.end()
  return source === null || path === null ? undefined : { source, target: path, strategy }
}
