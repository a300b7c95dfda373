/**
 * The functions of expressions: CEL's own and its strings extension, each charged before it is called, so that the
 * steps of an evaluation, and with them its time and memory, are bounded by what is written and not by a clock:
 * the same expression over the same values always has the same outcome. Numbers of JSON are doubles; here they
 * mix with whole numbers. One evaluation at a time: it is synchronous.
 */
import type { CelEnv, CelFunc, CelList, CelMap, CelType, CelValue } from '@bufbuild/cel'
import {
  CelScalar,
  celEnv,
  celFunc,
  celList,
  celMethod,
  isCelError,
  isCelList,
  isCelMap,
  listType,
} from '@bufbuild/cel'
import { strings } from '@bufbuild/cel/ext'
import { MAX_EXPRESSION_ITEMS, MAX_EXPRESSION_STEPS, MAX_EXPRESSION_TEXT } from '../core/limits.ts'

const { BOOL, DOUBLE, DYN, INT, STRING } = CelScalar
const LIST = listType(DYN)

/** Names that no user can write; `expression.ts` puts them around loops. */
export const STEP = '@step'
export const RANGE = '@range'
export const APPEND = '@append'

let stepsLeft = 0
let taken = 0
/** Lists that a loop is building: only its accumulator sees them, so they are written in place. */
let growing = new WeakMap<CelList, CelValue[]>()

/** An evaluation costs something, however short. */
const STEPS_TO_BEGIN = 10

/** Of all evaluations so far; the difference is what some of them took. */
export function stepsTaken(): number {
  return taken
}

/** Runs one evaluation with a whole budget. */
export function withBudget<T>(evaluate: () => T): T {
  stepsLeft = MAX_EXPRESSION_STEPS
  taken += STEPS_TO_BEGIN
  growing = new WeakMap()
  return evaluate()
}

/** Throws once the budget is used up; from then on always, so that every loop ends at its next step. */
export function charge(steps: number): void {
  stepsLeft -= steps
  taken += steps
  if (stepsLeft < 0) throw new Error('it takes too many steps')
}

/** Walking a list or map costs as much as what is in it. */
function chargeDeep(value: CelValue): void {
  charge(1)
  if (typeof value === 'string') charge(value.length >>> 4)
  else if (isCelList(value)) for (const item of value) chargeDeep(item)
  else if (isCelMap(value)) for (const item of value.values()) chargeDeep(item as CelValue)
}

const DEEP = ['@in', 'join', 'format']
const EQUALITY = ['_==_', '_!=_']
/** Their text is short; parsing a long one is not linear. */
const CASTS = ['int', 'uint', 'double', 'timestamp', 'duration']
const MAX_CAST_LENGTH = 100

function chargeCall(name: string, args: readonly CelValue[]): void {
  charge(1)
  if (name === 'matches') return chargeMatch(args)
  if (EQUALITY.includes(name)) {
    const [a, b] = args
    if ((isCelList(a) || isCelMap(a)) && (isCelList(b) || isCelMap(b)) && a.size !== b.size) return
    return args.forEach(chargeDeep)
  }
  if (DEEP.includes(name)) return args.forEach(chargeDeep)
  for (const arg of args) {
    if (typeof arg !== 'string' && !(arg instanceof Uint8Array)) continue
    if (CASTS.includes(name) && arg.length > MAX_CAST_LENGTH)
      throw new Error(`the text is too long for ${name}`)
    charge(arg.length >>> 4)
  }
}

/** The matcher takes every state of the pattern over every character. */
function chargeMatch(args: readonly CelValue[]): void {
  const [text, pattern] = args as [string, string]
  const repeats = [...pattern.matchAll(/\{(\d+)(?:,(\d*))?\}/g)]
  const states = repeats.reduce((sum, [, from, to]) => sum + Number(to || from), pattern.length)
  charge(((text.length + 100) * states) >>> 3)
}

function checkSize<T extends CelValue>(value: T): T {
  if (typeof value === 'string' && value.length > MAX_EXPRESSION_TEXT)
    throw new Error('the text becomes too long')
  if (isCelList(value) && value.size > MAX_EXPRESSION_ITEMS) throw new Error('the list becomes too long')
  return value
}

function charged(func: CelFunc): CelFunc {
  const call = (target: CelValue | undefined, args: CelValue[]) => {
    chargeCall(func.name, target === undefined ? args : [target, ...args])
    const result = func.call(0, target, args)
    if (isCelError(result)) throw result
    return checkSize(result as CelValue)
  }
  if (func.target === undefined) {
    return celFunc(
      func.name,
      func.arguments,
      func.result,
      (...args: CelValue[]) => call(undefined, args) as never,
    )
  }
  return celMethod(
    func.name,
    func.target,
    func.arguments,
    func.result,
    function (this: CelValue, ...args: CelValue[]) {
      return call(this, args) as never
    },
  )
}

const ARITHMETIC: Record<string, (a: number, b: number) => number> = {
  '_+_': (a, b) => a + b,
  '_-_': (a, b) => a - b,
  '_*_': (a, b) => a * b,
  '_/_': (a, b) => a / b,
  '_%_': (a, b) => {
    if (b === 0) throw new Error('modulus by zero')
    return a % b
  },
}

const mixedArithmetic: CelFunc[] = Object.entries(ARITHMETIC).flatMap(([name, apply]) => [
  celFunc(name, [INT, DOUBLE], DOUBLE, (a, b) => apply(Number(a), b)),
  celFunc(name, [DOUBLE, INT], DOUBLE, (a, b) => apply(a, Number(b))),
])
mixedArithmetic.push(celFunc('_%_', [DOUBLE, DOUBLE], DOUBLE, (a, b) => ARITHMETIC['_%_']!(a, b)))

/** `text.substring(input.start)`: a position from JSON is a double. */
function withDoublePositions(func: CelFunc): CelFunc[] {
  const positions = func.arguments.flatMap((type, i) => (type === INT ? [i] : []))
  if (func.target === undefined || positions.length === 0) return []
  const combinations = Array.from({ length: 2 ** positions.length - 1 }, (_, mask) =>
    positions.filter((_, bit) => (mask + 1) & (1 << bit)),
  )
  return combinations.map((doubles) => {
    const types = func.arguments.map((type, i) => (doubles.includes(i) ? DOUBLE : type))
    return celMethod(
      func.name,
      func.target as CelType,
      types,
      func.result,
      function (this: CelValue, ...args: CelValue[]) {
        const whole = args.map((arg, i) => (doubles.includes(i) ? wholeNumber(arg as number) : arg))
        const result = func.call(0, this, whole)
        if (isCelError(result)) throw result
        return result as never
      },
    )
  })
}

function wholeNumber(value: number): bigint {
  if (!Number.isSafeInteger(value)) throw new Error(`${value} is not a whole number`)
  return BigInt(value)
}

/** The library's own copies the text once for every occurrence. */
function replaceText(text: string, what: string, by: string, count: number): string {
  const parts: string[] = []
  let from = 0
  let length = text.length
  for (let at = text.indexOf(what); at !== -1 && parts.length < count; at = text.indexOf(what, from)) {
    charge(1)
    if (what === '' && parts.length > 0) at = from + 1
    if (at > text.length) break
    length += by.length - what.length
    if (length > MAX_EXPRESSION_TEXT) throw new Error('the text becomes too long')
    parts.push(text.slice(from, at))
    from = at + what.length
  }
  return [...parts, text.slice(from)].join(by)
}

function replacements(count: bigint): number {
  return count < 0n ? Infinity : Number(count)
}

const ownFunctions: CelFunc[] = [
  // The library chains lists, and is out of stack after some thousand.
  celFunc('_+_', [LIST, LIST], LIST, (a, b) => {
    charge((a.size + b.size) >>> 3)
    if (a.size + b.size > MAX_EXPRESSION_ITEMS) throw new Error('the list becomes too long')
    return celList([...a, ...b])
  }),
  celMethod('replace', STRING, [STRING, STRING], STRING, function (what, by) {
    return replaceText(this, what, by, Infinity)
  }),
  celMethod('replace', STRING, [STRING, STRING, INT], STRING, function (what, by, count) {
    return replaceText(this, what, by, replacements(count))
  }),
  celMethod('replace', STRING, [STRING, STRING, DOUBLE], STRING, function (what, by, count) {
    return replaceText(this, what, by, replacements(wholeNumber(count)))
  }),
]

const loopFunctions: CelFunc[] = [
  celFunc(STEP, [BOOL], BOOL, (goOn) => {
    charge(1)
    return goOn
  }),
  celFunc(RANGE, [DYN], DYN, (range) => {
    charge(isCelList(range) || isCelMap(range) ? 1 + ((range as CelList | CelMap).size >>> 2) : 1)
    return range as never
  }),
  celFunc(APPEND, [LIST, LIST], LIST, (list, items) => {
    charge(1)
    let target = list
    let array = growing.get(list)
    if (!array) {
      array = [...list]
      target = celList(array)
      growing.set(target, array)
    }
    for (const item of items) array.push(item)
    if (array.length > MAX_EXPRESSION_ITEMS) throw new Error('the list becomes too long')
    return target
  }),
]

const standard = [...celEnv({ funcs: [...strings] }).funcs]

export const environment: CelEnv = celEnv({
  funcs: [
    ...[...standard, ...standard.flatMap(withDoublePositions), ...mixedArithmetic].map(charged),
    ...ownFunctions.map(charged),
    ...loopFunctions,
  ],
})

/** What users may call; the operators and the macros of the parser are no functions to them. */
export const FUNCTION_NAMES: readonly string[] = [
  ...new Set(standard.map(({ name }) => name).filter((name) => /^[a-z]/i.test(name))),
]
