/**
 * Which items a map-reduce works on, from what its input holds: `json_path`, then `filter`, `sort_by`, `offset` and
 * `max_items`, in this order. An item is known by its place in what `json_path` finds, so that it keeps its id
 * whatever the others are set to.
 */
import type { FilterFunction, JSONPathQuery, JSONValue } from 'json-p3'
import { FunctionExpressionType, JSONPathEnvironment } from 'json-p3'
import { CurfewError } from '../core/errors.ts'
import { checkJsonText, decodeExactly, encodeJson, withoutByteOrderMark } from '../core/json.ts'
import { MAX_BRANCHES, MAX_DEPTH, MAX_EXPRESSION_ITEMS, MAX_ITEMS_BYTES } from '../core/limits.ts'
import type { ExpressionFault } from './expression.ts'
import { compileExpression, isFault } from './expression.ts'
import { evaluateCondition } from './mapping.ts'
import type { MapModel, SortKey } from './mapreduce-model.ts'
import { valueAtPath } from './template-path.ts'

export interface SelectedItem {
  /** `item-17`: its place, from 0. Good for names of folders and branches. */
  id: string
  /** For people: what the item calls itself, else its id. */
  name: string
  item: unknown
}

export interface Selection {
  items: SelectedItem[]
  /** What `json_path` found. */
  found: number
  /** What of it passed the filter. */
  matched: number
  warnings: string[]
}

export type Selecting = Pick<MapModel, 'jsonPath' | 'filter' | 'sortBy' | 'offset' | 'maxItems'>

/** Throws a `CurfewError` where the input does not fit. */
export function selectItems(map: Selecting, input: unknown): Selection {
  const warnings: string[] = []
  const all = findItems(map.jsonPath, input, warnings).map((item, i) => ({ item, position: i }))
  const matched =
    map.filter === null ? all : all.filter(({ item, position }) => passes(map.filter!, item, position))
  if (matched.length === 0 && all.length > 0) warnings.push(`filter: none of ${all.length} items passes`)
  const sorted =
    map.sortBy.length === 0 ? matched : matched.toSorted((a, b) => compare(map.sortBy, a.item, b.item))
  const end = map.maxItems === null ? undefined : map.offset + map.maxItems
  const chosen = sorted.slice(map.offset, end)
  if (chosen.length === 0 && matched.length > 0)
    warnings.push(`offset: ${map.offset} passes over all of ${matched.length} items`)
  if (chosen.length > MAX_BRANCHES) {
    throw new CurfewError(
      'too_many',
      `there are ${chosen.length} items; at most ${MAX_BRANCHES} can be run`,
      {
        hint: 'Set max_items, and offset for the next run.',
      },
    )
  }
  const items = chosen.map(({ item, position }) => {
    const id = `item-${position}`
    encodeJson(item, `item ${position}`)
    return { id, name: nameOf(item) ?? id, item }
  })
  return { items, found: all.length, matched: matched.length, warnings }
}

/** A name with other letters in it would be that of another file. */
function decoded(bytes: Uint8Array, what: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch (error) {
    throw new CurfewError('invalid_items', `${what} is not UTF-8`, {
      ...{ hint: 'Write it as UTF-8, for example with iconv.', cause: error },
    })
  }
}

/** Of these, one line is one item too. */
const FILE_OF_LINES = /\.(jsonl|ndjson)$/i

/** What a file or a command gave: JSON, one JSON value a line, or, of a command, lines of text. */
export function parseItems(given: string | Uint8Array, kind: 'file' | 'command', what: string): unknown {
  const text = typeof given === 'string' ? given : decoded(given, what)
  const whole = withoutByteOrderMark(text)
  if (kind === 'command' && !/^\s*[[{]/.test(whole)) return linesOf(whole)
  try {
    checkJsonText(whole, what, MAX_ITEMS_BYTES)
  } catch (error) {
    const isJson = !(error instanceof CurfewError) || error.code !== 'invalid_json'
    const lines = isJson ? null : jsonLines(whole, what)
    if (lines) return lines
    throw error
  }
  const value = decodeExactly(whole, what)
  const isLine = kind === 'file' && FILE_OF_LINES.test(what) && linesOf(whole.trim()).length === 1
  return isLine && !Array.isArray(value) ? [value] : value
}

function linesOf(text: string): string[] {
  return text.split(/\r?\n/).filter((line) => line !== '')
}

function jsonLines(text: string, what: string): unknown[] | null {
  const items: unknown[] = []
  for (const line of linesOf(text)) {
    try {
      checkJsonText(line, 'a line', MAX_ITEMS_BYTES)
    } catch (error) {
      if (error instanceof CurfewError) return null
      throw error
    }
    items.push(decodeExactly(line, what))
  }
  return items
}

function findItems(jsonPath: string | null, input: unknown, warnings: string[]): unknown[] {
  if (jsonPath === null) {
    if (Array.isArray(input)) return input
    const keys = typeof input === 'object' && input !== null ? Object.keys(input) : []
    const list = keys.find((key) => Array.isArray((input as Record<string, unknown>)[key]))
    throw new CurfewError('invalid_items', 'the input is no list of items', {
      hint: `Set json_path: ${list === undefined ? "'$.items[*]'" : `'$.${list}[*]'`}.`,
    })
  }
  const query = compileJsonPath(jsonPath)
  if ('message' in query) {
    throw new CurfewError('invalid_items', `json_path: ${query.message}`, { fields: { jsonPath } })
  }
  const items: unknown[] = []
  for (const { value } of query.lazyQuery(input as JSONValue)) {
    if (items.length === MAX_EXPRESSION_ITEMS) {
      const message = `json_path: '${jsonPath}' finds more than ${MAX_EXPRESSION_ITEMS} items`
      throw new CurfewError('too_many', message)
    }
    items.push(value)
  }
  if (items.length === 0) warnings.push(`json_path: '${jsonPath}' finds nothing`)
  if (items.length === 1 && Array.isArray(items[0]))
    warnings.push(
      `json_path: '${jsonPath}' finds one list, which is one item; '${jsonPath}[*]' finds its elements`,
    )
  return items
}

/** Patterns are matched like those of expressions: without backtracking, within a budget. */
class PatternFunction implements FilterFunction {
  readonly argTypes = [FunctionExpressionType.ValueType, FunctionExpressionType.ValueType]
  readonly returnType = FunctionExpressionType.LogicalType
  readonly #isWhole: boolean

  constructor(isWhole: boolean) {
    this.#isWhole = isWhole
  }

  call(text: unknown, pattern: unknown): boolean {
    if (typeof text !== 'string' || typeof pattern !== 'string') return false
    const expression = compileExpression('input.text.matches(input.pattern)')
    if (isFault(expression)) return false
    const input = { text, pattern: this.#isWhole ? `^(?:${pattern})$` : pattern }
    const found = expression.evaluate({ input }, 'json_path')
    return found.ok && found.value === true
  }
}

class ItemPaths extends JSONPathEnvironment {
  protected override setupFilterFunctions(): void {
    super.setupFilterFunctions()
    this.functionRegister.set('match', new PatternFunction(true))
    this.functionRegister.set('search', new PatternFunction(false))
  }
}

const paths = new ItemPaths({ maxRecursionDepth: MAX_DEPTH + 1 })

export function compileJsonPath(text: string): JSONPathQuery | ExpressionFault {
  try {
    return paths.compile(text)
  } catch (error) {
    const { message, token } = error as Error & { token?: { index: number } }
    const suggestion = text.startsWith('$') ? null : `It begins with $: '$.${text.replace(/^\./, '')}'.`
    const why = message.replace(/ \('.*':\d+\)$/s, '')
    return { message: `not a JSONPath: ${why}`, suggestion, offset: token?.index ?? 0 }
  }
}

function passes(filter: string, item: unknown, position: number): boolean {
  const evaluated = evaluateCondition(filter, { item }, `filter, item ${position}`)
  if (evaluated.ok) return evaluated.value
  throw new CurfewError('invalid_items', evaluated.failure.message, {
    hint: 'Ask for a key that not every item has with has(item.key) && ….',
    fields: { position },
  })
}

/** Flags, numbers, texts, then what cannot be compared, which stays in its order. Nothing and null come last. */
function compare(keys: readonly SortKey[], a: unknown, b: unknown): number {
  for (const { path, isDescending } of keys) {
    const [x, y] = [sortValue(path, a), sortValue(path, b)]
    if (x === null || y === null) {
      if (x !== y) return x === null ? 1 : -1
      continue
    }
    const difference = compareValues(x, y)
    if (difference !== 0) return isDescending ? -difference : difference
  }
  return 0
}

function sortValue(path: SortKey['path'], item: unknown): unknown {
  return valueAtPath(['item', ...path], { item }) ?? null
}

const RANKS: Partial<Record<string, number>> = { boolean: 0, number: 1, string: 2 }

function compareValues(x: unknown, y: unknown): number {
  const [rankX, rankY] = [RANKS[typeof x] ?? 3, RANKS[typeof y] ?? 3]
  if (rankX !== rankY || rankX === 3) return rankX - rankY
  const [a, b] = [x as string, y as string]
  return a < b ? -1 : a > b ? 1 : 0
}

const NAME_KEYS = ['name', 'id', 'title', 'path', 'file', 'url', 'key']
const MAX_ITEM_NAME = 60

/** One line, short. */
function nameOf(item: unknown): string | null {
  const found =
    typeof item === 'object' && item !== null
      ? NAME_KEYS.map((key) => valueAtPath(['item', key], { item })).find(isNameable)
      : isNameable(item)
        ? item
        : undefined
  if (found === undefined) return null
  const line = String(found)
    .replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\s]+/gu, ' ')
    .trim()
    .toWellFormed()
  const letters = Array.from(line)
  return letters.length <= MAX_ITEM_NAME ? line || null : `${letters.slice(0, MAX_ITEM_NAME - 1).join('')}…`
}

function isNameable(value: unknown): value is string | number {
  return (typeof value === 'string' && value.trim() !== '') || typeof value === 'number'
}
