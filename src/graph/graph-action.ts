/** The work of a node, every expression of it evaluated. */
import { CurfewError } from '../core/errors.ts'
import type { Failure } from '../core/failure.ts'
import { encodeJson, isLongerThan } from '../core/json.ts'
import { MAX_DEFINITIONS_BYTES, MAX_PAYLOAD_BYTES } from '../core/limits.ts'
import type { Variables } from '../definitions/expression.ts'
import {
  evaluateExpression,
  evaluateMapping,
  evaluateTemplate,
  evaluateText,
} from '../definitions/mapping.ts'
import { tooBig } from '../definitions/node-output.ts'
import type { ActionModel, HttpAction, NodeModel, ShellAction } from '../definitions/workflow-model.ts'
import type { HttpRequest, ShellRequest, WorkRequest } from './graph-types.ts'

export type Requested = { ok: true; work: WorkRequest } | { ok: false; failure: Failure }

type WithWork = Exclude<ActionModel, { kind: 'update_context' }>

export function requestWork(node: NodeModel, action: WithWork, variables: Variables): Requested {
  try {
    const work = request(node, action, variables)
    refuseUnstorable(node, work, variables)
    return { ok: true, work }
  } catch (error) {
    if (error instanceof Unevaluated) return { ok: false, failure: error.failure }
    if (!(error instanceof CurfewError)) throw error
    return { ok: false, failure: { code: error.code, message: error.message, retryable: false } }
  }
}

function refuseUnstorable({ id }: NodeModel, { kind, input }: WorkRequest, variables: Variables): void {
  // A child run is stored with its definitions beside its input.
  const maxBytes = kind === 'workflow' ? MAX_PAYLOAD_BYTES - MAX_DEFINITIONS_BYTES : MAX_PAYLOAD_BYTES
  // What was given to this run could be stored with it.
  if (kind !== 'workflow' && input === variables.input) return
  const place = `node ${id}: input`
  // Far longer is seen without writing it down.
  if (isLongerThan(input, 4 * maxBytes)) throw new Unevaluated(tooBig(place))
  encodeJson(input, place, maxBytes)
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
  const url = need(evaluateText(action.url, variables, at('url'))) as string
  const headers: Record<string, string> = {}
  for (const [name, expression] of Object.entries(action.headers)) {
    headers[name] = asText(need(evaluateExpression(expression, variables, at(`headers.${name}`))))
  }
  const body = action.body === undefined ? null : need(evaluateMapping(action.body, variables, at('body')))
  return { method: action.method, url, headers, body, expectedStatus: action.expectedStatus ?? null }
}

function shellRequest(node: NodeModel, action: ShellAction, variables: Variables): ShellRequest {
  const at = (key: string) => `node ${node.id}: ${key}`
  const template = (value: string, key: string) => need(evaluateTemplate(value, variables, at(key))) as string
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

/** Texts as they are, anything else as JSON. */
function asText(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value)
}
