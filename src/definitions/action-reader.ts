/** Reads the actions of a workflow. Their keys stand on the action or, as in the seed, under `implementation`. */
import { MAX_ACTIONS, MAX_EXPRESSION_LENGTH, MAX_MAPPING_KEYS, MAX_RETRIES } from '../core/limits.ts'
import { MARKS } from '../core/own-work.ts'
import type { AgentDefinition } from './agent.ts'
import type { Field, Fields } from './definition-field.ts'
import { readExpression, readExpressions, readMapping, readMappings } from './mapping-reader.ts'
import type { Places } from './places.ts'
import type { TaskDefinition } from './task.ts'
import type { WorkKind } from './task-policy.ts'
import { WORK_KINDS } from './task-policy.ts'
import type { WorkflowDefinition } from './workflow.ts'
import type { ActionModel, ExecutionModel, HttpAction, ShellAction } from './workflow-model.ts'
import { HTTP_METHODS } from './workflow-model.ts'

/** The definitions a workflow in TypeScript names itself, so that they need not be registered by hand. */
export interface UsedDefinitions {
  tasks: TaskDefinition[]
  agents: AgentDefinition[]
  workflows: WorkflowDefinition[]
}

const ACTION_KINDS = [
  'task',
  'agent',
  'workflow_call',
  'http_request',
  'shell',
  'update_context',
  'llm',
  'mcp_tool',
] as const

export function readActions(
  field: Field | null,
  places: Places,
  uses: UsedDefinitions,
): Record<string, ActionModel> {
  const actions: Record<string, ActionModel> = {}
  const fields = field?.object()
  if (!fields) return actions
  for (const [id, entry] of fields.entries(MAX_ACTIONS)) {
    const action = readDefinition(entry, uses) ?? readAction(id, entry)
    if (!action) continue
    actions[id] = action
    places.set(action, entry)
  }
  return actions
}

/** `actions: { fetchPage }`: a task, agent or workflow made in TypeScript. */
function readDefinition(field: Field, uses: UsedDefinitions): ActionModel | null {
  if (field.source.spelling === 'snake' || typeof field.value !== 'object' || field.value === null)
    return null
  const value = field.value as { kind?: unknown; name?: unknown; run?: unknown; model?: unknown }
  if (typeof value.name !== 'string') return null
  const isDefinition = typeof value.run === 'function' || (value.kind === 'workflow' && 'model' in value)
  if (!isDefinition) return null
  if (value.kind === 'task') {
    const task = value as TaskDefinition
    uses.tasks.push(task)
    return { kind: 'task', task: task.name, ...(task.work && { work: task.work }), execution: {} }
  }
  if (value.kind === 'agent') {
    uses.agents.push(value as AgentDefinition)
    return { kind: 'agent', agent: value.name, execution: {} }
  }
  uses.workflows.push(value as WorkflowDefinition)
  return { kind: 'workflow_call', workflow: value.name, execution: {} }
}

class ActionFields {
  readonly outer: Fields
  readonly #inner: Fields | null

  constructor(outer: Fields) {
    this.outer = outer
    this.#inner = outer.get('implementation')?.object() ?? null
  }

  get(key: string): Field | null {
    const outer = this.outer.get(key)
    const inner = this.#inner?.get(key) ?? null
    if (outer && inner)
      inner.problem('duplicate_key', `${inner.source.spell(key)} stands on the action as well`)
    return outer ?? inner
  }

  required(key: string, suggestion: string | null = null): Field | null {
    const field = this.get(key)
    if (!field) {
      const name = this.outer.field.source.spell(key)
      this.outer.field.problem('missing_key', `${name} is missing`, { suggestion })
    }
    return field
  }

  end(): void {
    const { source } = this.outer.field
    const execution = Object.fromEntries(
      ['timeout', 'onTimeout', 'retryLimit', 'queueTimeout', 'softStop', 'grace', 'warnAt'].map((key) => [
        source.spell(key),
        `'execution'`,
      ]),
    )
    this.#inner?.end(execution)
    this.outer.end(execution)
  }
}

function readAction(id: string, field: Field): ActionModel | null {
  const outer = field.object()
  if (!outer) return null
  const fields = new ActionFields(outer)
  const kindField = fields.required('kind', `There are ${ACTION_KINDS.join(', ')}.`)
  const executionFields = outer.get('execution')?.object()
  const execution = executionFields ? readExecution(executionFields) : {}
  executionFields?.end()
  if (!kindField) return null
  const kind = kindField.oneOf(ACTION_KINDS)
  if (kind === null) return null
  const action = readKind(kind, id, fields, execution)
  fields.end()
  return action
}

function readKind(
  kind: (typeof ACTION_KINDS)[number],
  id: string,
  fields: ActionFields,
  execution: ExecutionModel,
): ActionModel | null {
  switch (kind) {
    case 'task': {
      const work: WorkKind | null = fields.get('work')?.oneOf(WORK_KINDS) ?? null
      const task = readName(fields.get('task'), id)
      return task === null ? null : { kind, task, ...(work && { work }), execution }
    }
    case 'llm':
    case 'mcp_tool': {
      const task = readName(fields.get('task'), id)
      return task === null ? null : { kind: 'task', task, work: kind, execution }
    }
    case 'agent': {
      const agent = readName(fields.get('agent'), id)
      return agent === null ? null : { kind, agent, execution }
    }
    case 'workflow_call': {
      const workflow = readWorkflowName(fields)
      return workflow === null ? null : { kind, workflow, execution }
    }
    case 'http_request':
      return readHttp(fields, execution)
    case 'shell':
      return readShell(fields, execution)
    case 'update_context': {
      const updates = fields.required('updates', 'For example { "state.count": "state.count + 1" }.')
      return updates && { kind, updates: readMappings(updates), execution }
    }
  }
}

/** The name of a registered task or agent; the action's own unless set. */
function readName(field: Field | null, id: string): string | null {
  return field ? field.name() : id
}

function readWorkflowName(fields: ActionFields): string | null {
  const seed = fields.get('workflowDefId')
  if (seed) {
    if (fields.get('workflow')) seed.problem('duplicate_key', 'workflow says the same thing')
    return seed.name()
  }
  const field = fields.required('workflow', 'The name of the workflow to run.')
  return field?.name() ?? null
}

function readHttp(fields: ActionFields, execution: ExecutionModel): HttpAction | null {
  const url = fields.required('url', 'An expression: "\'https://example.com/\' + input.id".')
  const text = url && readExpression(url)
  const method = fields.get('method')?.oneOf(HTTP_METHODS) ?? 'GET'
  const headers = fields.get('headers')
  const body = fields.get('body')
  const expected = fields.get('expectedStatus')
  const action: HttpAction = {
    kind: 'http_request',
    method,
    url: text ?? '',
    headers: headers ? readHeaders(headers) : {},
    execution,
  }
  if (body) {
    const mapping = readMapping(body)
    if (mapping !== undefined) action.body = mapping
    if (method === 'GET' || method === 'HEAD')
      body.problem('invalid_value', `a ${method} request has no body`)
  }
  if (expected) {
    const list = Array.isArray(expected.value) ? expected.list(MAX_MAPPING_KEYS) : [expected]
    action.expectedStatus = (list ?? []).map((status) => status.whole(100, 599) ?? 200)
  }
  return text === null ? null : action
}

/** They say where a body ends and a connection goes: the request sets them itself. */
const FRAMING = [
  'connection',
  'content-length',
  'expect',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]

function readHeaders(field: Field): Record<string, string> {
  const headers = readExpressions(field)
  const seen = new Set<string>()
  for (const name of Object.keys(headers)) {
    const lower = name.toLowerCase()
    const problem = (message: string) => field.child(name).problem('invalid_name', message, { atKey: true })
    if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(name)) problem('is not the name of a header')
    else if (FRAMING.includes(lower)) problem('is a header that the request sets itself')
    else if (seen.has(lower)) problem('stands here twice')
    seen.add(lower)
  }
  return headers
}

function readShell(fields: ActionFields, execution: ExecutionModel): ShellAction | null {
  const command = fields.get('command')
  const argv = fields.get('argv')
  const env = fields.get('env')
  const workingDir = fields.get('workingDir')
  const { field } = fields.outer
  if (!command === !argv) {
    field.problem('invalid_value', command ? 'has both command and argv' : 'has neither command nor argv', {
      suggestion: 'argv: [program, argument, …], or command: a line for the shell.',
    })
    return null
  }
  const action: ShellAction = { kind: 'shell', env: env ? readEnvironment(env) : {}, execution }
  if (command) {
    const line = readLine(command)
    if (line !== null) action.command = line
    refuseTemplate(command, line ?? '')
  }
  if (argv) {
    const parts = (argv.list(MAX_MAPPING_KEYS) ?? []).map((part) => readLine(part, true) ?? '')
    if (Array.isArray(argv.value) && parts.length === 0) argv.expected('a program and its arguments')
    if (argv.child(0).value === '') argv.child(0).expected('the name of a program')
    action.argv = parts
  }
  if (workingDir) {
    const dir = readLine(workingDir)
    if (dir !== null) action.workingDir = dir
  }
  return action
}

/** `${input.name}` means nothing to a shell, and must not: a value in its text would be code. */
function refuseTemplate(field: Field, line: string): void {
  const unquoted = line.replaceAll(/'[^']*'/g, (quoted) => ' '.repeat(quoted.length))
  const found = /\$\{\s*((?:input|state|output|result|_?branch|join)\.[^}]*)\}/.exec(unquoted)
  if (!found) return
  field.problem('invalid_value', 'a line for the shell holds no expressions', {
    suggestion: `Write env: { VALUE: '${found[1]?.trim()}' }, and "$VALUE" in the line.`,
    offset: found.index,
  })
}

function readEnvironment(field: Field): Record<string, string> {
  const env = readExpressions(field)
  for (const name of Object.keys(env)) {
    const problem = (message: string) => field.child(name).problem('invalid_name', message, { atKey: true })
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) problem('is not the name of an environment variable')
    else if (Object.values<string>(MARKS).includes(name)) problem("is a variable of Curfew's own")
  }
  return env
}

const MAX_LINE = 16 * MAX_EXPRESSION_LENGTH

function readLine(field: Field, mayBeEmpty = false): string | null {
  const text = field.text()
  if (text === null) return null
  if ((text === '' && !mayBeEmpty) || text.includes('\u0000'))
    return field.expected('a text that is not empty')
  if (text.length <= MAX_LINE) return text
  field.problem('too_big', `has ${text.length} characters; at most ${MAX_LINE} are allowed`)
  return null
}

/** The limits of an action or of a node, those that are set. */
export function readExecution(fields: Fields): ExecutionModel {
  const execution: ExecutionModel = {}
  const timeoutMs = fields.duration('timeout', { none: true })
  if (timeoutMs !== undefined) execution.timeoutMs = timeoutMs
  const onTimeout = fields.get('onTimeout')?.oneOf(['fail', 'retry'])
  if (onTimeout) execution.onTimeout = onTimeout
  const retryLimit = fields.get('retryLimit')?.whole(0, MAX_RETRIES) ?? null
  if (retryLimit !== null) execution.retryLimit = retryLimit
  const queueTimeoutMs = fields.duration('queueTimeout', { none: true })
  if (queueTimeoutMs !== undefined) execution.queueTimeoutMs = queueTimeoutMs
  const softStopMs = fields.duration('softStop', { zero: true }) ?? undefined
  if (softStopMs !== undefined) execution.softStopMs = softStopMs
  const graceMs = fields.duration('grace', { zero: true }) ?? undefined
  if (graceMs !== undefined) execution.graceMs = graceMs
  const warnAt = fields.get('warnAt')?.between(0.01, 1) ?? null
  if (warnAt !== null) execution.warnAt = warnAt
  return execution
}
