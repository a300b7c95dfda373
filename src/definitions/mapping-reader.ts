/** Reads expressions and mappings: their shape. What they refer to is checked once the graph is known. */
import { MAX_DEFINITION_DEPTH, MAX_EXPRESSION_LENGTH, MAX_MAPPING_KEYS } from '../core/limits.ts'
import { parseContextPath } from './context-path.ts'
import type { Field } from './definition-field.ts'
import type { Mapping } from './mapping.ts'

export function readExpression(field: Field): string | null {
  const { value } = field
  if (typeof value !== 'string' || value.trim() === '') {
    const literal = typeof value === 'number' || typeof value === 'boolean' ? `Write "${value}".` : null
    return field.expected('an expression, as a text', literal)
  }
  if (value.length <= MAX_EXPRESSION_LENGTH) return value
  field.problem('too_big', `has ${value.length} characters; at most ${MAX_EXPRESSION_LENGTH} are allowed`)
  return null
}

export function readExpressions(field: Field): Record<string, string> {
  const expressions: Record<string, string> = {}
  for (const [name, entry] of field.object()?.entries(MAX_MAPPING_KEYS) ?? []) {
    const text = readExpression(entry)
    if (text !== null) expressions[name] = text
  }
  return expressions
}

/** Undefined when it is not JSON. */
export function readMapping(field: Field, depth = 0): Mapping | undefined {
  const { value } = field
  if (depth > MAX_DEFINITION_DEPTH) {
    field.problem('too_big', `is nested deeper than ${MAX_DEFINITION_DEPTH}`)
    return undefined
  }
  if (typeof value === 'string') return readExpression(field) ?? undefined
  if (typeof value === 'boolean' || value === null) return value
  if (typeof value === 'number') return Number.isFinite(value) ? value : notJson(field)
  if (typeof value !== 'object') return notJson(field)
  if (Array.isArray(value)) {
    return (field.list(MAX_MAPPING_KEYS) ?? []).map((item) => readMapping(item, depth + 1) ?? null)
  }
  const mapping: Record<string, Mapping> = {}
  for (const [name, entry] of field.object()?.entries(MAX_MAPPING_KEYS) ?? []) {
    if (entry.value !== undefined) mapping[name] = readMapping(entry, depth + 1) ?? null
  }
  return mapping
}

/** Where to write, and what. */
export function readMappings(field: Field): Record<string, Mapping> {
  const mappings: Record<string, Mapping> = {}
  for (const [path, entry] of field.object()?.entries(MAX_MAPPING_KEYS) ?? []) {
    const parsed = parseContextPath(path)
    if ('message' in parsed) {
      entry.problem('invalid_path', parsed.message, { suggestion: parsed.suggestion, atKey: true })
      continue
    }
    const mapping = readMapping(entry)
    if (mapping !== undefined) mappings[path] = mapping
  }
  return mappings
}

/** Plain data, as a job gives it to a workflow. Undefined when it is not JSON. */
export function readJson(field: Field, depth = 0): unknown {
  const { value } = field
  if (depth > MAX_DEFINITION_DEPTH) {
    field.problem('too_big', `is nested deeper than ${MAX_DEFINITION_DEPTH}`)
    return undefined
  }
  if (typeof value === 'string' || typeof value === 'boolean' || value === null) return value
  if (typeof value === 'number') return Number.isFinite(value) ? value : notJson(field)
  if (typeof value !== 'object') return notJson(field)
  const { toJSON } = value as { toJSON?: unknown }
  if (typeof toJSON === 'function') return readJson(field.with(toJSON.call(value)), depth + 1) // such as a Date
  if (Array.isArray(value)) return value.map((_, i) => readJson(field.child(i), depth + 1) ?? null)
  const object: Record<string, unknown> = {}
  for (const [name, entry] of field.object()?.entries(Infinity) ?? []) {
    if (entry.value !== undefined) object[name] = readJson(entry, depth + 1)
  }
  return object
}

function notJson(field: Field): undefined {
  field.expected('JSON')
}
