/**
 * CEL expressions over plain JSON variables. Compiled once (syntax, functions and references are known before
 * anything runs), evaluated within a budget of steps. No outcome depends on a clock, and nothing is thrown.
 */
import type { CelResult } from '@bufbuild/cel'
import { isCelError, parse, plan } from '@bufbuild/cel'
import type { Failure } from '../core/failure.ts'
import { MAX_EXPRESSION_DEPTH, MAX_EXPRESSION_LENGTH, MAX_SHOWN_VALUE } from '../core/limits.ts'
import { APPEND, environment, FUNCTION_NAMES, RANGE, STEP, withBudget } from './expression-functions.ts'
import { fromJson, toJson } from './expression-values.ts'
import { didYouMean } from './problem.ts'

export const VARIABLES = ['input', 'state', 'output', 'result', 'branch', '_branch', 'join'] as const
export type VariableName = (typeof VARIABLES)[number]

/** A variable that is left out does not exist there. `_branch` is `branch`, the seed's spelling. */
export interface Variables {
  input?: unknown
  state?: unknown
  output?: unknown
  result?: unknown
  branch?: unknown
  join?: unknown
}

/** Of a map-reduce, by names of its own: `item`, `params`, what was captured. */
export type NamedValues = Readonly<Record<string, unknown>>

export type Refused = { ok: false; failure: Failure }
export type Evaluated = { ok: true; value: unknown } | Refused

/** A variable the expression names, with the fields that follow it: `state`, `pages`. */
export interface Reference {
  name: string
  path: readonly string[]
  offset: number
}

/** Why a text is no expression. */
export interface ExpressionFault {
  message: string
  suggestion: string | null
  offset: number
}

export interface Expression {
  readonly text: string
  readonly references: readonly Reference[]
  /** `place` stands in the message of a failure: `transitions[1].condition`. */
  evaluate(variables: Variables | NamedValues, place: string): Evaluated
  /** Its value is not what is needed there. */
  refuse(variables: Variables | NamedValues, place: string, message: string): Refused
}

type Expr = ReturnType<typeof parse>['expr']

const compiled = new Map<string, Expression | ExpressionFault>()
/** The expressions of a few large graphs; the others are compiled again. */
const MAX_COMPILED = 5_000
/** In the message of a failure. */
const MAX_SHOWN_VALUES = 10

export function isFault(expression: Expression | ExpressionFault): expression is ExpressionFault {
  return !('evaluate' in expression)
}

export function compileExpression(text: string): Expression | ExpressionFault {
  const known = compiled.get(text)
  if (known) return known
  const expression = compile(text)
  if (compiled.size >= MAX_COMPILED) compiled.clear()
  compiled.set(text, expression)
  return expression
}

function compile(text: string): Expression | ExpressionFault {
  if (text.trim() === '') return { message: 'an expression is missing', suggestion: null, offset: 0 }
  if (text.length > MAX_EXPRESSION_LENGTH) {
    const message = `the expression has ${text.length} characters; at most ${MAX_EXPRESSION_LENGTH} are allowed`
    return { message, suggestion: 'Do the work in a task.', offset: 0 }
  }
  try {
    const parsed = parse(text)
    const positions = parsed.sourceInfo?.positions ?? {}
    const walk = new Walk((id) => positions[String(id)] ?? 0)
    walk.visit(parsed.expr, new Set(), 0)
    if (walk.fault) return walk.fault
    const run = plan(environment, parsed) as (variables: Record<string, unknown>) => CelResult
    return new Compiled(text, walk.references, run)
  } catch (error) {
    return syntaxFault(error as Error)
  }
}

function syntaxFault(error: Error): ExpressionFault {
  if (error instanceof RangeError) {
    return { message: 'the expression is nested too deeply', suggestion: null, offset: 0 }
  }
  const { location } = error as Error & { location?: { start: { offset: number } } }
  const message = error.message.replace(/^<input>:\d+:\d+: /, '').replace(/ but expecting .{60,}$/s, '')
  return {
    message: `not a CEL expression: ${message}`,
    suggestion: null,
    offset: location?.start.offset ?? 0,
  }
}

/** Types can be named: `type(state.n) == int`. */
const TYPE_NAMES = ['bool', 'bytes', 'double', 'int', 'list', 'map', 'null_type', 'string', 'type', 'uint']
const OPERATORS = ['_[_]', '_?_:_', '_&&_', '_||_', '@not_strictly_false', '__not_strictly_false__']

/** Finds what an expression refers to, and puts the budget around its loops. */
class Walk {
  readonly references: Reference[] = []
  fault: ExpressionFault | null = null
  readonly #offsetOf: (id: bigint) => number

  constructor(offsetOf: (id: bigint) => number) {
    this.#offsetOf = offsetOf
  }

  visit(expr: Expr, local: ReadonlySet<string>, depth: number): void {
    if (this.fault) return
    if (depth > MAX_EXPRESSION_DEPTH) {
      this.fault = { message: 'the expression is nested too deeply', suggestion: null, offset: 0 }
      return
    }
    const { exprKind } = expr
    switch (exprKind.case) {
      case 'identExpr':
      case 'selectExpr':
        return this.#visitPath(expr, local, depth)
      case 'callExpr':
        return this.#visitCall(expr, exprKind.value, local, depth)
      case 'listExpr':
        for (const element of exprKind.value.elements) this.visit(element, local, depth + 1)
        return
      case 'structExpr':
        if (exprKind.value.messageName !== '')
          this.#refuse(expr, `there is no type '${exprKind.value.messageName}'`)
        for (const { keyKind, value } of exprKind.value.entries) {
          if (keyKind.case === 'mapKey') this.visit(keyKind.value, local, depth + 1)
          if (value) this.visit(value, local, depth + 1)
        }
        return
      case 'comprehensionExpr':
        return this.#visitLoop(exprKind.value, local, depth)
      default:
        return
    }
  }

  #visitPath(expr: Expr, local: ReadonlySet<string>, depth: number): void {
    const path: string[] = []
    let root = expr
    while (root.exprKind.case === 'selectExpr' && root.exprKind.value.operand) {
      path.unshift(root.exprKind.value.field)
      root = root.exprKind.value.operand
    }
    if (root.exprKind.case !== 'identExpr') return this.visit(root, local, depth + 1)
    const name = root.exprKind.value.name.replace(/^\./, '')
    if (local.has(name) || (TYPE_NAMES.includes(name) && path.length === 0)) return
    this.references.push({ name, path, offset: this.#offsetOf(root.id) })
  }

  #visitCall(
    expr: Expr,
    call: Extract<Expr['exprKind'], { case: 'callExpr' }>['value'],
    local: ReadonlySet<string>,
    depth: number,
  ): void {
    const { function: name, target, args } = call
    const qualified = target?.exprKind.case === 'identExpr' ? `${target.exprKind.value.name}.${name}` : name
    if (FUNCTION_NAMES.includes(qualified) && qualified !== name) {
      for (const arg of args) this.visit(arg, local, depth + 1)
      return
    }
    if (!OPERATORS.includes(name) && !environment.funcs.find(name)) {
      this.#refuse(expr, `there is no function '${name}'`, didYouMean(name, FUNCTION_NAMES))
    }
    if (target) this.visit(target, local, depth + 1)
    for (const arg of args) this.visit(arg, local, depth + 1)
  }

  #visitLoop(
    loop: Extract<Expr['exprKind'], { case: 'comprehensionExpr' }>['value'],
    local: ReadonlySet<string>,
    depth: number,
  ): void {
    const inside = new Set([...local, loop.iterVar, loop.iterVar2, loop.accuVar])
    if (loop.iterRange) this.visit(loop.iterRange, local, depth + 1)
    if (loop.accuInit) this.visit(loop.accuInit, local, depth + 1)
    for (const part of [loop.loopCondition, loop.loopStep, loop.result]) {
      if (part) this.visit(part, inside, depth + 1)
    }
    if (loop.iterRange) loop.iterRange = callOf(RANGE, loop.iterRange)
    if (loop.loopCondition) loop.loopCondition = callOf(STEP, loop.loopCondition)
    if (loop.loopStep) appendInPlace(loop.loopStep, loop.accuVar)
  }

  #refuse(expr: Expr, message: string, suggestion: string | null = null): void {
    this.fault ??= { message, suggestion, offset: this.#offsetOf(expr.id) }
  }
}

function callOf(name: string, argument: Expr): Expr {
  const call = { $typeName: 'cel.expr.Expr.Call', function: name, args: [argument] } as const
  return { ...argument, exprKind: { case: 'callExpr', value: call as never } }
}

/** `@result + [x]`, also behind the condition of a filter. */
function appendInPlace(step: Expr, accumulator: string): void {
  if (step.exprKind.case !== 'callExpr') return
  const call = step.exprKind.value
  if (call.function === '_?_:_') {
    for (const arg of call.args) appendInPlace(arg, accumulator)
    return
  }
  const [first, second] = call.args
  const isAccumulator = first?.exprKind.case === 'identExpr' && first.exprKind.value.name === accumulator
  if (call.function === '_+_' && isAccumulator && second?.exprKind.case === 'listExpr') call.function = APPEND
}

class Compiled implements Expression {
  readonly text: string
  readonly references: readonly Reference[]
  readonly #run: (variables: Record<string, unknown>) => CelResult

  constructor(
    text: string,
    references: readonly Reference[],
    run: (variables: Record<string, unknown>) => CelResult,
  ) {
    this.text = text
    this.references = references
    this.#run = run
  }

  evaluate(variables: Variables | NamedValues, place: string): Evaluated {
    const all = withAlias(variables)
    for (const { name } of this.references) {
      if (all[name] === undefined) return this.#failed(`'${name}' does not exist here`, all, place)
    }
    try {
      const done = withBudget(() => {
        const bound: Record<string, unknown> = {}
        for (const { name } of this.references) bound[name] = fromJson(all[name])
        const result = this.#run(bound)
        // `||` may have swallowed the error of the budget; reading the result is charged, and finds it out.
        return isCelError(result) ? { error: result.message } : { value: toJson(result) }
      })
      if ('error' in done) return this.#failed(String(done.error), all, place)
      return { ok: true, value: done.value }
    } catch (error) {
      const message = error instanceof RangeError ? 'it is nested too deeply' : (error as Error).message
      return this.#failed(message, all, place)
    }
  }

  refuse(variables: Variables | NamedValues, place: string, message: string): Refused {
    return this.#failed(message, withAlias(variables), place)
  }

  #failed(message: string, variables: Record<string, unknown>, place: string): Refused {
    const values: Record<string, string> = {}
    for (const { name, path } of this.references.slice(0, MAX_SHOWN_VALUES)) {
      const { value, depth } = valueAt(variables[name], path)
      values[[name, ...path].join('.')] = depth === path.length ? shown(value) : 'nothing'
      // What is there instead tells a typing error from a value that never came.
      if (depth < path.length && variables[name] !== undefined)
        values[[name, ...path.slice(0, depth)].join('.')] = outline(value)
    }
    const lines = Object.entries(values).map(([name, value]) => `\n  ${name} = ${value}`)
    const text = `expression at ${place} failed: ${message}\n  ${this.text}${lines.join('')}`
    const details = { expression: this.text, place, values }
    return { ok: false, failure: { code: 'expression_failed', message: text, retryable: false, details } }
  }
}

function withAlias(variables: Variables | NamedValues): Record<string, unknown> {
  return variables.branch === undefined ? { ...variables } : { ...variables, _branch: variables.branch }
}

/** As far as the path goes. */
function valueAt(value: unknown, path: readonly string[]): { value: unknown; depth: number } {
  let found = value
  for (const [depth, key] of path.entries()) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, key))
      return { value: found, depth }
    found = (found as Record<string, unknown>)[key]
  }
  return { value: found, depth: path.length }
}

/** Short, however much is in it. */
function outline(value: unknown): string {
  if (Array.isArray(value)) return `a list of ${value.length}`
  if (typeof value !== 'object' || value === null) return shown(value)
  const keys = Object.keys(value)
  const names = keys.slice(0, MAX_SHOWN_VALUES).map((key) => key.slice(0, 50))
  return `{ ${[...names, ...(keys.length > names.length ? ['…'] : [])].join(', ')} }`
}

function shown(value: unknown): string {
  if (value === undefined) return 'nothing'
  const text = JSON.stringify(value) ?? String(value)
  return text.length <= MAX_SHOWN_VALUE
    ? text
    : `${text.slice(0, MAX_SHOWN_VALUE)}… (${text.length} characters)`
}
