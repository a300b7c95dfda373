/**
 * The texts of a map-reduce with values in them. Values never become code: a text for the shell is compiled to a
 * script that names variables of its environment, and a text for a program fills one element of its arguments.
 * `${…}` alone is filled in; `$${` stands for `${`.
 */
import { CurfewError } from '../core/errors.ts'
import {
  MAX_COMMAND_ARGUMENT_BYTES,
  MAX_COMMAND_VALUE_BYTES,
  MAX_COMMAND_VARIABLES_BYTES,
} from '../core/limits.ts'
import type { ExpressionFault } from './expression.ts'
import type { ShellQuotes } from './shell-scan.ts'
import { scanShell } from './shell-scan.ts'
import type { TemplatePath } from './template-path.ts'
import { formatPath, isTemplateFault, readReference, valueAtPath } from './template-path.ts'

/** By the first name of a path: `item`, `params`, `map`, what was captured, variables of the environment. */
export type TemplateValues = Readonly<Record<string, unknown>>

export interface CompiledShell {
  /** For `/bin/sh -c`. Holds no value. */
  script: string
  /** What its environment has to hold: see `shellVariables`. */
  variables: readonly { name: string; path: TemplatePath }[]
}

/** How a variable is written so that the shell gives its value whole, from within these quotes. */
const WRITTEN: Record<ShellQuotes, (name: string) => string> = {
  bare: (name) => `"\${${name}}"`,
  double: (name) => `\${${name}}`,
  single: (name) => `'"\${${name}}"'`,
  ansi: (name) => `'"\${${name}}"$'`,
}

/** `taken`: names of its environment that have to stay what they are. Throws where `validateMapreduce` finds a problem. */
export function compileShell(text: string, taken: Iterable<string> = []): CompiledShell {
  const { pieces, faults } = scanShell(text)
  if (faults[0]) throw invalid(text, faults[0])
  const names = new Map<string, string>()
  const used = new Set([...taken, ...(text.match(/\bV\d+\b/g) ?? [])])
  const variables: { name: string; path: TemplatePath }[] = []
  let count = 0
  const nameOf = (path: TemplatePath): string => {
    const key = formatPath(path)
    const known = names.get(key)
    if (known !== undefined) return known
    let name = `V${++count}`
    while (used.has(name)) name = `V${++count}`
    names.set(key, name)
    variables.push({ name, path })
    return name
  }
  const script = pieces.map((piece) =>
    typeof piece === 'string' ? piece : WRITTEN[piece.quotes](nameOf(piece.path)),
  )
  return { script: script.join(''), variables }
}

/** What the script of a compiled text needs in its environment. */
export function shellVariables(compiled: CompiledShell, values: TemplateValues): Record<string, string> {
  const environment: Record<string, string> = {}
  let bytes = 0
  for (const { name, path } of compiled.variables) {
    const text = valueText(path, values)
    bytes += Buffer.byteLength(text)
    if (bytes > MAX_COMMAND_VARIABLES_BYTES)
      throw tooBig(`the values of a command are more than ${MAX_COMMAND_VARIABLES_BYTES} bytes`, bytes)
    environment[name] = text
  }
  return environment
}

export type ArgumentPiece = string | { path: TemplatePath; offset: number }

/** Any text but one for the shell. */
export function parseArgument(text: string): { pieces: ArgumentPiece[]; faults: ExpressionFault[] } {
  const pieces: ArgumentPiece[] = []
  const faults: ExpressionFault[] = []
  let from = 0
  for (let at = text.indexOf('${'); at !== -1; at = text.indexOf('${', from)) {
    if (text[at - 1] === '$' && at - 1 >= from) {
      pieces.push(text.slice(from, at - 1), '${')
      from = at + 2
      continue
    }
    if (at > from) pieces.push(text.slice(from, at))
    const found = readReference(text, at)
    from = found.end
    if (isTemplateFault(found)) {
      const { end: _, ...fault } = found
      faults.push(fault)
    } else pieces.push({ path: found.path, offset: at })
  }
  if (from < text.length) pieces.push(text.slice(from))
  return { pieces, faults }
}

/** One element of the arguments of a program, a working folder, the value of a variable. */
export function renderArgument(text: string, values: TemplateValues): string {
  const { pieces, faults } = parseArgument(text)
  if (faults[0]) throw invalid(text, faults[0])
  const whole = pieces
    .map((piece) => (typeof piece === 'string' ? piece : valueText(piece.path, values)))
    .join('')
  const bytes = Buffer.byteLength(whole)
  if (bytes > MAX_COMMAND_ARGUMENT_BYTES)
    throw tooBig(
      `with its values, a text is ${bytes} bytes; a command takes ${MAX_COMMAND_ARGUMENT_BYTES}`,
      bytes,
    )
  return whole
}

/** A text as it is, anything else as JSON. */
function valueText(path: TemplatePath, values: TemplateValues): string {
  const written = formatPath(path)
  const value = valueAtPath(path, values)
  if (value === undefined) {
    throw new CurfewError('unknown_variable', `${written}: there is no such value`, {
      hint: missing(path, values),
      fields: { path },
    })
  }
  const text = typeof value === 'string' ? value : JSON.stringify(value)
  const bytes = Buffer.byteLength(text)
  if (bytes > MAX_COMMAND_VALUE_BYTES)
    throw tooBig(
      `${written} is ${bytes} bytes; a command takes values of up to ${MAX_COMMAND_VALUE_BYTES}`,
      bytes,
    )
  if (text.includes('\u0000') || !text.isWellFormed()) {
    const what = text.includes('\u0000') ? 'a NUL' : 'half a character'
    throw new CurfewError('invalid_value', `${written} holds ${what}, which no command can be given`, {
      hint: 'Let the command read it as JSON from the file ${item_file}.',
      fields: { path },
    })
  }
  return text
}

function missing(path: TemplatePath, values: TemplateValues): string {
  for (let length = path.length - 1; length > 0; length--) {
    const part = path.slice(0, length) as unknown as TemplatePath
    const value = valueAtPath(part, values)
    if (value === undefined) continue
    const has = typeof value === 'object' && value !== null ? Object.keys(value).slice(0, 10).join(', ') : ''
    return `${formatPath(part)} has ${has === '' ? 'no parts' : has}.`
  }
  // Those in capitals are the environment's.
  const names = Object.keys(values).filter((name) => /[a-z]/.test(name))
  return `There are ${names.slice(0, 20).join(', ')}.`
}

function tooBig(message: string, bytes: number): CurfewError {
  const hint = 'Let the command read the item from the file ${item_file}.'
  return new CurfewError('too_big', message, { hint, fields: { bytes } })
}

function invalid(text: string, { message, suggestion, offset }: ExpressionFault): CurfewError {
  return new CurfewError(
    'invalid_template',
    `${message}, at character ${offset + 1} of: ${text.slice(0, 200)}`,
    {
      ...(suggestion !== null && { hint: suggestion }),
      fields: { offset },
    },
  )
}
