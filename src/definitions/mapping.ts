/**
 * Mappings: JSON in which every text is an expression. `{ pages: state.pages, limit: 10 }`. Templates, for the
 * arguments of commands: text in which `${…}` holds an expression.
 */
import type { Evaluated, ExpressionFault, NamedValues, Refused, Variables } from './expression.ts'
import { compileExpression, isFault } from './expression.ts'

export type Mapping =
  | string
  | number
  | boolean
  | null
  | readonly Mapping[]
  | { readonly [key: string]: Mapping }

/** Each text of a mapping with its path, in order. */
export function* expressionsOf(
  mapping: Mapping,
  path: readonly (string | number)[] = [],
): Generator<{
  text: string
  path: readonly (string | number)[]
}> {
  if (typeof mapping === 'string') yield { text: mapping, path }
  else if (Array.isArray(mapping)) {
    for (const [i, item] of mapping.entries()) yield* expressionsOf(item, [...path, i])
  } else if (typeof mapping === 'object' && mapping !== null) {
    for (const [key, item] of Object.entries(mapping)) yield* expressionsOf(item as Mapping, [...path, key])
  }
}

export function evaluateExpression(text: string, variables: Variables, place: string): Evaluated {
  const expression = compileExpression(text)
  return isFault(expression) ? failed(text, expression, place) : expression.evaluate(variables, place)
}

/** The first expression that fails decides. */
export function evaluateMapping(mapping: Mapping, variables: Variables, place: string): Evaluated {
  if (typeof mapping === 'string') return evaluateExpression(mapping, variables, place)
  if (typeof mapping !== 'object' || mapping === null) return { ok: true, value: mapping }
  if (Array.isArray(mapping)) {
    const items: unknown[] = []
    for (const [i, item] of mapping.entries()) {
      const evaluated = evaluateMapping(item, variables, `${place}[${i}]`)
      if (!evaluated.ok) return evaluated
      items.push(evaluated.value)
    }
    return { ok: true, value: items }
  }
  const object: Record<string, unknown> = {}
  for (const [key, item] of Object.entries(mapping)) {
    const evaluated = evaluateMapping(item as Mapping, variables, `${place}.${key}`)
    if (!evaluated.ok) return evaluated
    object[key] = evaluated.value
  }
  return { ok: true, value: object }
}

/** A condition is true or false; anything else fails. No condition holds. */
export function evaluateCondition(
  text: string | null | undefined,
  variables: Variables | NamedValues,
  place: string,
): { ok: true; value: boolean } | Refused {
  if (text === null || text === undefined) return { ok: true, value: true }
  return evaluateAs(text, variables, place, 'a condition must be true or false', isBoolean)
}

/** An expression that has to give a text. */
export function evaluateText(
  text: string,
  variables: Variables,
  place: string,
): { ok: true; value: string } | Refused {
  return evaluateAs(text, variables, place, 'it must be a text', isText)
}

const isBoolean = (value: unknown): value is boolean => typeof value === 'boolean'
const isText = (value: unknown): value is string => typeof value === 'string'

function evaluateAs<T>(
  text: string,
  variables: Variables | NamedValues,
  place: string,
  needed: string,
  fits: (value: unknown) => value is T,
): { ok: true; value: T } | Refused {
  const expression = compileExpression(text)
  if (isFault(expression)) return failed(text, expression, place)
  const evaluated = expression.evaluate(variables, place)
  if (!evaluated.ok) return evaluated
  const { value } = evaluated
  if (fits(value)) return { ok: true, value }
  return expression.refuse(variables, place, `${needed}, got ${JSON.stringify(value).slice(0, 100)}`)
}

export type TemplatePart = { literal: string } | { expression: string; offset: number }

/** `${` opens an expression, the `}` that closes it is not one inside a text or a map of CEL. */
export function parseTemplate(text: string): TemplatePart[] | ExpressionFault {
  const parts: TemplatePart[] = []
  let from = 0
  for (let open = text.indexOf('${'); open !== -1; open = text.indexOf('${', from)) {
    const close = closingBrace(text, open + 2)
    if (close === -1) return { message: "'${' is not closed", suggestion: null, offset: open }
    if (open > from) parts.push({ literal: text.slice(from, open) })
    parts.push({ expression: text.slice(open + 2, close), offset: open + 2 })
    from = close + 1
  }
  if (from < text.length || parts.length === 0) parts.push({ literal: text.slice(from) })
  return parts
}

function closingBrace(text: string, from: number): number {
  let depth = 0
  let quote: string | null = null
  for (let i = from; i < text.length; i++) {
    const letter = text[i]!
    if (quote !== null) {
      if (letter === '\\') i++
      else if (letter === quote) quote = null
    } else if (letter === '"' || letter === "'") quote = letter
    else if (letter === '{') depth++
    else if (letter === '}' && depth-- === 0) return i
  }
  return -1
}

/** Texts stand as they are, anything else as JSON. */
export function evaluateTemplate(text: string, variables: Variables, place: string): Evaluated {
  const parts = parseTemplate(text)
  if (!Array.isArray(parts)) return failed(text, parts, place)
  let whole = ''
  for (const part of parts) {
    if ('literal' in part) whole += part.literal
    else {
      const evaluated = evaluateExpression(part.expression, variables, place)
      if (!evaluated.ok) return evaluated
      whole += typeof evaluated.value === 'string' ? evaluated.value : JSON.stringify(evaluated.value)
    }
  }
  return { ok: true, value: whole }
}

function failed(text: string, fault: ExpressionFault, place: string): Refused {
  const message = `expression at ${place} failed: ${fault.message}\n  ${text}`
  const details = { expression: text, place }
  return { ok: false, failure: { code: 'expression_failed', message, retryable: false, details } }
}
