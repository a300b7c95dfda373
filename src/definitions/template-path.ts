/** `${item.path.to}` in the texts of a map-reduce: how a reference is written, and what it finds. */
import type { ExpressionFault } from './expression.ts'

/** `${item.tags[0]}` is `['item', 'tags', 0]`. The first part is always a name. */
export type TemplatePath = readonly [root: string, ...(string | number)[]]

const REFERENCE = /\$\{\s*([A-Za-z_]\w*)((?:\.[\w-]+|\[(?:\d+|"[^"\\\n]*")\])*)\s*\}/y
const PART = /\.([\w-]+)|\[(\d+)\]|\["([^"]*)"\]/g
/** Of what was written, in a message. */
const SHOWN = 40

export interface FoundReference {
  path: TemplatePath
  /** Behind the closing brace. */
  end: number
}

export function isTemplateFault(found: FoundReference | TemplateFault): found is TemplateFault {
  return !('path' in found)
}

/** Why a text cannot be filled in, and where to go on reading. */
export type TemplateFault = ExpressionFault & { end: number }

/** The reference that opens at `at`, where the text has `${`. */
export function readReference(text: string, at: number): FoundReference | TemplateFault {
  REFERENCE.lastIndex = at
  const found = REFERENCE.exec(text)
  if (found) {
    const parts = Array.from(found[2]!.matchAll(PART), ([, name, index, quoted]) =>
      index === undefined ? (name ?? quoted)! : Number(index),
    )
    return { path: [found[1]!, ...parts], end: REFERENCE.lastIndex }
  }
  const close = text.indexOf('}', at)
  if (close === -1) return { message: "'${' is not closed", suggestion: null, offset: at, end: text.length }
  const written = text.slice(at, close + 1)
  const shown = written.length > SHOWN ? `${written.slice(0, SHOWN)}…` : written
  return {
    message: `'${shown}' is not a variable`,
    suggestion: `Write \${name} or \${name.part}; to leave it as it is, $${shown}.`,
    offset: at,
    end: close + 1,
  }
}

/** As it is written. */
export function formatPath(path: TemplatePath): string {
  const [root, ...parts] = path
  const rest = parts.map((part) =>
    typeof part === 'number' ? `[${part}]` : /^[\w-]+$/.test(part) ? `.${part}` : `["${part}"]`,
  )
  return `\${${root}${rest.join('')}}`
}

/** Undefined where there is nothing. Own keys alone; `.0` finds an element of a list too. */
export function valueAtPath(path: TemplatePath, values: Readonly<Record<string, unknown>>): unknown {
  let found: unknown = values
  for (const part of path) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, part)) return undefined
    if (Array.isArray(found) && !/^\d+$/.test(String(part))) return undefined
    found = (found as Record<string | number, unknown>)[part]
  }
  return found
}
