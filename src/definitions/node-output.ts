/**
 * What the contexts are after a node completed. With an `output` mapping, exactly what it says. Without one, outside
 * branches the keys of a result that is an object go into `state`. Inside a branch `branch.output` is always the
 * result of its last node with work, unless the mapping writes it.
 */
import { CurfewError } from '../core/errors.ts'
import type { Failure } from '../core/failure.ts'
import { isLongerThan } from '../core/json.ts'
import { MAX_PAYLOAD_BYTES } from '../core/limits.ts'
import type { Contexts, JsonObject } from './context-path.ts'
import { writeContext } from './context-path.ts'
import { UNSAFE_KEYS } from './definition-text.ts'
import type { Variables } from './expression.ts'
import type { Mapping } from './mapping.ts'
import { evaluateMapping } from './mapping.ts'
import type { NodeModel } from './workflow-model.ts'

export type Written = { ok: true; contexts: Contexts } | { ok: false; failure: Failure }

/**
 * `variables.result` is the node's, or, where `passesOn`, of the one before it: that was written already.
 * `contexts.branch` is there exactly inside a branch.
 */
export function writeOutput(
  node: NodeModel,
  variables: Variables,
  contexts: Contexts,
  passesOn = false,
): Written {
  const { result } = variables
  const { branch } = contexts
  const output = (passesOn ? branch?.output : result) ?? null
  const followed = branch ? { ...contexts, branch: { ...branch, output } } : contexts
  if (node.output) return writeMappings(node.output, variables, followed, `node ${node.id}: output`)
  const { state } = contexts
  if (branch || passesOn || !state || !isObject(result)) return { ok: true, contexts: followed }
  const kept = Object.entries(result).filter(([key]) => !UNSAFE_KEYS.includes(key))
  return { ok: true, contexts: { ...contexts, state: { ...state, ...Object.fromEntries(kept) } } }
}

export function tooBig(place: string): Failure {
  const message = `${place}: the value is too big to be kept; keep large data elsewhere and pass a reference to it`
  return { code: 'too_big', message, retryable: false }
}

/** All values are taken before the first is written: the order of keys means nothing. */
export function writeMappings(
  mappings: Readonly<Record<string, Mapping>>,
  variables: Variables,
  contexts: Contexts,
  place: string,
): Written {
  const values: [path: string, value: unknown][] = []
  for (const [path, mapping] of Object.entries(mappings)) {
    const evaluated = evaluateMapping(mapping, variables, `${place} ${path}`)
    if (!evaluated.ok) return evaluated
    if (isLongerThan(evaluated.value, MAX_PAYLOAD_BYTES))
      return { ok: false, failure: tooBig(`${place} ${path}`) }
    values.push([path, evaluated.value])
  }
  try {
    return {
      ok: true,
      contexts: values.reduce((written, [path, value]) => writeContext(written, path, value), contexts),
    }
  } catch (error) {
    if (!(error instanceof CurfewError)) throw error
    return {
      ok: false,
      failure: { code: error.code, message: `${place}: ${error.message}`, retryable: false },
    }
  }
}

/**
 * What a run gives back: its `output` mapping; else what was written to `output`; else the result of the node
 * that ended last outside branches.
 */
export function runOutput(
  output: Mapping | undefined,
  variables: Variables,
): { ok: true; value: unknown } | { ok: false; failure: Failure } {
  if (output !== undefined) return evaluateMapping(output, variables, 'output of the workflow')
  const written = variables.output
  if (isObject(written) && Object.keys(written).length > 0) return { ok: true, value: written }
  return { ok: true, value: variables.result ?? null }
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
