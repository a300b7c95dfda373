/** Where output mappings, updates and merges write: `state.pages`, `branch.score`. Nothing is changed in place. */
import { CurfewError } from '../core/errors.ts'
import { UNSAFE_KEYS } from './definition-text.ts'
import { nearest } from './problem.ts'

export type JsonObject = Record<string, unknown>
export type ContextRoot = 'state' | 'output' | 'branch'

export interface ContextPath {
  root: ContextRoot
  keys: readonly string[]
}

const ROOTS: Record<string, ContextRoot> = {
  state: 'state',
  output: 'output',
  branch: 'branch',
  _branch: 'branch',
}
const MAX_KEYS = 16

/** The path, or why it is none. */
export function parseContextPath(text: string): ContextPath | { message: string; suggestion: string | null } {
  const [first = '', ...keys] = text.split('.')
  const root = Object.hasOwn(ROOTS, first) ? ROOTS[first] : undefined
  const example = "Write a path like 'state.pages'."
  if (!root) {
    const meant = nearest(first, Object.keys(ROOTS))
    const suggestion = meant ? `Did you mean '${[meant, ...keys].join('.')}'?` : example
    return { message: `'${text}' begins with neither state, output nor branch`, suggestion }
  }
  if (keys.length === 0) return { message: `'${text}' names no key to write`, suggestion: example }
  if (keys.length > MAX_KEYS)
    return { message: `'${text}' is deeper than ${MAX_KEYS} keys`, suggestion: null }
  for (const key of keys) {
    if (!/^[\p{L}_$][\p{L}\p{N}_$-]*$/u.test(key)) {
      return { message: `'${key}' in '${text}' is not a key that can be written`, suggestion: example }
    }
    if (UNSAFE_KEYS.includes(key)) return { message: `the key '${key}' is not allowed`, suggestion: null }
  }
  return { root, keys }
}

/** `object` with the value at the end of the keys; objects on the way are made. Throws `invalid_path`. */
export function writeAt(object: JsonObject, keys: readonly string[], value: unknown): JsonObject {
  const [key, ...rest] = keys
  if (key === undefined || UNSAFE_KEYS.includes(key)) {
    throw new CurfewError('invalid_path', `cannot write to '${keys.join('.')}'`)
  }
  if (rest.length === 0) return { ...object, [key]: value }
  const inner = Object.hasOwn(object, key) ? object[key] : undefined
  if (inner !== undefined && inner !== null && (typeof inner !== 'object' || Array.isArray(inner))) {
    const what = Array.isArray(inner) ? 'a list' : `a ${typeof inner}`
    throw new CurfewError('invalid_path', `cannot write '${rest.join('.')}' into '${key}': it is ${what}`)
  }
  return { ...object, [key]: writeAt((inner as JsonObject | undefined | null) ?? {}, rest, value) }
}

export type Contexts = Partial<Record<ContextRoot, JsonObject>>

/** The contexts after one write; a root that is not there cannot be written. Throws `invalid_path`. */
export function writeContext(contexts: Contexts, path: string, value: unknown): Contexts {
  const parsed = parseContextPath(path)
  if ('message' in parsed) throw new CurfewError('invalid_path', parsed.message)
  const object = contexts[parsed.root]
  if (!object)
    throw new CurfewError('invalid_path', `'${path}' cannot be written here: there is no ${parsed.root}`)
  return { ...contexts, [parsed.root]: writeAt(object, parsed.keys, value) }
}
