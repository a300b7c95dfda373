/**
 * YAML and JSON text as plain values that remember where they stood. Owns what RULES 32 asks of text from outside:
 * core schema, and caps on bytes, tokens, depth and aliases. What breaks one is a problem, never an exception.
 */
import type { Alias, Document, ParsedNode } from 'yaml'
import { isAlias, isMap, isScalar, isSeq, Lexer, LineCounter, parseDocument } from 'yaml'
import { isOtherNumber } from '../core/json.ts'
import {
  MAX_ALIASES,
  MAX_DEFINITION_BYTES,
  MAX_DEFINITION_DEPTH,
  MAX_DEFINITION_TOKENS,
} from '../core/limits.ts'

/** A value with the places of everything in it, as offsets into the text. */
export interface Located {
  value: unknown
  offset: number
  keyOffset: number | null
  /** Where the letters of each line of a text begin, when they stand there as they are: no escapes, no folding. */
  lettersAt: readonly number[] | null
  children: ReadonlyMap<string | number, Located>
}

export interface TextProblem {
  code: string
  message: string
  offset: number
}

export interface ParsedText {
  root: Located | null
  problems: TextProblem[]
  place(offset: number): { line: number; column: number }
}

export const UNSAFE_KEYS: readonly string[] = ['__proto__', 'constructor', 'prototype']

const SECOND_DOCUMENT = 'a second document begins here (---); a file holds one'
const NO_CHILDREN: ReadonlyMap<string | number, Located> = new Map()

/** One text is read several times in a row: for what it is, and for what is in it. Nobody changes what comes of it. */
let last: { text: string; parsed: ParsedText } | null = null

export function parseText(text: string): ParsedText {
  if (last?.text !== text) last = { text, parsed: parse(text) }
  return last.parsed
}

function parse(text: string): ParsedText {
  const lines = new LineCounter()
  const place = (offset: number) => {
    const { line, col } = lines.linePos(offset)
    return { line: Math.max(1, line), column: Math.max(1, col) }
  }
  const refused = refuseSize(text)
  if (refused) {
    lines.addNewLine(0)
    for (let at = text.indexOf('\n'); at !== -1 && at < refused.offset; at = text.indexOf('\n', at + 1)) {
      lines.addNewLine(at + 1)
    }
    return { root: null, problems: [refused], place }
  }
  const document = parseDocument(text, {
    schema: 'core',
    version: '1.2',
    merge: false,
    // Its own check compares every key with every other; `Walk` does it with a set.
    uniqueKeys: false,
    prettyErrors: false,
    // 'silent' would also keep silent about a second document.
    logLevel: 'error',
    lineCounter: lines,
  })
  const problems: TextProblem[] = [...document.errors, ...document.warnings].map(
    ({ code, message, pos }) => ({
      code: 'invalid_text',
      // Its own is for whoever calls the parser.
      message: code === 'MULTIPLE_DOCS' ? SECOND_DOCUMENT : firstLine(message),
      offset: pos[0],
    }),
  )
  const walk = new Walk(text, document, problems)
  const root = document.errors.length > 0 || document.contents === null ? null : walk.read(document.contents)
  if (root === null && problems.length === 0) {
    problems.push({ code: 'invalid_text', message: 'there is nothing in it', offset: 0 })
  }
  return { root, problems, place }
}

/** Before it is parsed: parsing costs some microseconds a token, and goes as deep as the text. */
function refuseSize(text: string): TextProblem | null {
  const tooBig = (message: string, offset: number) => ({ code: 'too_big', message, offset })
  if (text.length > MAX_DEFINITION_BYTES || Buffer.byteLength(text) > MAX_DEFINITION_BYTES) {
    return tooBig(`it has more than ${MAX_DEFINITION_BYTES} bytes`, 0)
  }
  let tokens = 0
  let aliases = 0
  let depth = 0
  let offset = 0
  for (const token of new Lexer().lex(text)) {
    if (token === '[' || token === '{') depth++
    else if (token === ']' || token === '}') depth--
    else if (token.startsWith('*')) aliases++
    if (depth > MAX_DEFINITION_DEPTH) {
      return tooBig(`it is nested deeper than ${MAX_DEFINITION_DEPTH}`, offset)
    }
    if (aliases > MAX_ALIASES) return tooBig(`it has more than ${MAX_ALIASES} aliases`, offset)
    if (++tokens > MAX_DEFINITION_TOKENS) {
      return tooBig(`it has more than ${MAX_DEFINITION_TOKENS} tokens`, offset)
    }
    // The lexer marks documents and scalars with control characters that are not in the text.
    if (token !== '\u0002' && token !== '\u0018' && token !== '\u001f') offset += token.length
  }
  return null
}

class Walk {
  readonly #text: string
  readonly #document: Document.Parsed
  readonly #problems: TextProblem[]
  #values = 0

  constructor(text: string, document: Document.Parsed, problems: TextProblem[]) {
    this.#text = text
    this.#document = document
    this.#problems = problems
  }

  read(node: ParsedNode | null, keyOffset: number | null = null, depth = 0): Located {
    const offset = node?.range?.[0] ?? keyOffset ?? 0
    const located = (value: unknown, children = NO_CHILDREN, lettersAt: readonly number[] | null = null) => ({
      value,
      offset,
      keyOffset,
      lettersAt,
      children,
    })
    if (depth > MAX_DEFINITION_DEPTH) {
      return this.#refuse(located(null), 'too_big', `it is nested deeper than ${MAX_DEFINITION_DEPTH}`)
    }
    if (++this.#values > MAX_DEFINITION_TOKENS) {
      if (this.#values > MAX_DEFINITION_TOKENS + 1) return located(null)
      return this.#refuse(located(null), 'too_big', `it grows to more than ${MAX_DEFINITION_TOKENS} values`)
    }
    if (isAlias(node)) {
      const target = (node as Alias).resolve(this.#document) as ParsedNode | undefined
      if (!target) return this.#refuse(located(null), 'invalid_text', `there is no anchor &${node.source}`)
      return { ...this.read(target, keyOffset, depth + 1), offset, keyOffset }
    }
    if (isMap(node)) return this.#readMap(node as Extract<ParsedNode, { items: unknown }>, located, depth)
    if (isSeq(node)) {
      const children = new Map<string | number, Located>()
      for (const [i, item] of node.items.entries()) {
        children.set(i, this.read(item as ParsedNode | null, null, depth + 1))
      }
      return located(
        Array.from(children.values(), ({ value }) => value),
        children,
      )
    }
    if (!isScalar(node)) return located(null)
    const { value } = node
    if (typeof value === 'number' && !Number.isFinite(value)) {
      return this.#refuse(located(null), 'invalid_value', `${value} is not a number that can be kept`)
    }
    if (isOtherNumber(value, node.source ?? ''))
      return this.#refuse(located(null), 'invalid_value', otherNumber(value, node.source))
    const isBlock = node.type === 'BLOCK_LITERAL'
    const lettersAt = typeof value === 'string' ? this.#lettersAt(offset, value, isBlock) : null
    return located(value, NO_CHILDREN, lettersAt)
  }

  #readMap(
    node: Extract<ParsedNode, { items: unknown }>,
    located: (value: unknown, children: ReadonlyMap<string | number, Located>) => Located,
    depth: number,
  ): Located {
    const children = new Map<string | number, Located>()
    const value: Record<string, unknown> = {}
    for (const pair of node.items as { key: ParsedNode | null; value: ParsedNode | null }[]) {
      const keyOffset = pair.key?.range?.[0] ?? 0
      const at = { value: null, offset: keyOffset, keyOffset, lettersAt: null, children: NO_CHILDREN }
      if (!isScalar(pair.key) || typeof pair.key.value === 'object') {
        this.#refuse(at, 'invalid_text', 'a key must be a text')
        continue
      }
      if (isOtherNumber(pair.key.value, pair.key.source ?? '')) {
        this.#refuse(at, 'invalid_value', otherNumber(pair.key.value, pair.key.source))
        continue
      }
      const key = String(pair.key.value)
      if (UNSAFE_KEYS.includes(key)) {
        this.#refuse(at, 'unsafe_key', `the key '${key}' is not allowed`)
        continue
      }
      if (children.has(key)) {
        this.#refuse(at, 'duplicate_key', `the key '${key}' stands here twice`)
        continue
      }
      const child = this.read(pair.value, keyOffset, depth + 1)
      children.set(key, child)
      value[key] = child.value
    }
    return located(value, children)
  }

  #lettersAt(offset: number, value: string, isBlock: boolean): number[] | null {
    if (isBlock) return this.#blockLettersAt(offset, value)
    if (value.includes('\n')) return null
    if (this.#text.startsWith(value, offset)) return [offset]
    return this.#text.startsWith(value, offset + 1) ? [offset + 1] : null
  }

  /** The lines behind a `|`, each behind its indentation. */
  #blockLettersAt(offset: number, value: string): number[] | null {
    const starts: number[] = []
    let end = this.#text.indexOf('\n', offset)
    for (const line of value.replace(/\n+$/, '').split('\n')) {
      if (end === -1) return null
      const next = this.#text.indexOf('\n', end + 1)
      const lineEnd = next === -1 ? this.#text.length : next
      const start = lineEnd - line.length - (this.#text[lineEnd - 1] === '\r' ? 1 : 0)
      if (start <= end || !this.#text.startsWith(line, start)) return null
      starts.push(start)
      end = next
    }
    return starts
  }

  #refuse(located: Located, code: string, message: string): Located {
    this.#problems.push({ code, message, offset: located.offset })
    return located
  }
}

function otherNumber(value: number, source: string | undefined): string {
  return `${source} would become ${value}: write it as a text, "${source}"`
}

function firstLine(message: string): string {
  return (message.split('\n', 1)[0] ?? message).replace(/ at line \d+, column \d+:?$/, '')
}
