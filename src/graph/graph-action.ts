/** The work of a node, every expression of it evaluated. */
import type { Failure } from '../core/failure.ts'
import type { Variables } from '../definitions/expression.ts'
import { evaluateExpression, evaluateMapping, evaluateTemplate } from '../definitions/mapping.ts'
import type { ActionModel, HttpAction, NodeModel, ShellAction } from '../definitions/workflow-model.ts'
import type { HttpRequest, ShellRequest, WorkRequest } from './graph-types.ts'

export type Requested = { ok: true; work: WorkRequest } | { ok: false; failure: Failure }

type WithWork = Exclude<ActionModel, { kind: 'update_context' }>

export function requestWork(node: NodeModel, action: WithWork, variables: Variables): Requested {
  try {
    return { ok: true, work: request(node, action, variables) }
  } catch (error) {
    if (error instanceof Unevaluated) return { ok: false, failure: error.failure }
    throw error
  }
}

class Unevaluated extends Error {
  readonly failure: Failure

  constructor(failure: Failure) {
    super(failure.message)
    this.failure = failure
  }
}

function need(evaluated: { ok: true; value: unknown } | { ok: false; failure: Failure }): unknown {
  if (evaluated.ok) return evaluated.value
  throw new Unevaluated(evaluated.failure)
}

function request(node: NodeModel, action: WithWork, variables: Variables): WorkRequest {
  if (action.kind === 'http_request')
    return { kind: 'http_request', input: httpRequest(node, action, variables) }
  if (action.kind === 'shell') return { kind: 'shell', input: shellRequest(node, action, variables) }
  const input =
    node.input === undefined
      ? variables.input
      : need(evaluateMapping(node.input, variables, `node ${node.id}: input`))
  if (action.kind === 'task') return { kind: 'task', name: action.task, input }
  if (action.kind === 'agent') return { kind: 'agent', name: action.agent, input }
  return { kind: 'workflow', name: action.workflow, input }
}

function httpRequest(node: NodeModel, action: HttpAction, variables: Variables): HttpRequest {
  const at = (key: string) => `node ${node.id}: ${key}`
  const url = text(evaluateExpression(action.url, variables, at('url')), at('url'))
  const headers: Record<string, string> = {}
  for (const [name, expression] of Object.entries(action.headers)) {
    headers[name] = asText(need(evaluateExpression(expression, variables, at(`headers.${name}`))))
  }
  const body = action.body === undefined ? null : need(evaluateMapping(action.body, variables, at('body')))
  return { method: action.method, url, headers, body, expectedStatus: action.expectedStatus ?? null }
}

function shellRequest(node: NodeModel, action: ShellAction, variables: Variables): ShellRequest {
  const at = (key: string) => `node ${node.id}: ${key}`
  const template = (value: string, key: string) => text(evaluateTemplate(value, variables, at(key)), at(key))
  const env: Record<string, string> = {}
  for (const [name, expression] of Object.entries(action.env)) {
    env[name] = asText(need(evaluateExpression(expression, variables, at(`env.${name}`))))
  }
  return {
    command: action.command ?? null,
    argv: action.argv?.map((argument, i) => template(argument, `argv[${i}]`)) ?? null,
    env,
    workingDir: action.workingDir === undefined ? null : template(action.workingDir, 'working_dir'),
  }
}

function text(evaluated: Parameters<typeof need>[0], place: string): string {
  const value = need(evaluated)
  if (typeof value === 'string') return value
  const message = `${place} must be a text, got ${asText(value).slice(0, 100)}`
  throw new Unevaluated({ code: 'expression_failed', message, retryable: false, details: { place } })
}

/** Texts as they are, anything else as JSON. */
function asText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}
