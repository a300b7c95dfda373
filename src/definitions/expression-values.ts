/** Between JSON and the values of CEL. What is large is wrapped, not copied, and only where it is looked at. */
import type { CelInput, CelValue } from '@bufbuild/cel'
import { celList, celMap, isCelList, isCelMap, isCelUint } from '@bufbuild/cel'
import { MAX_DEPTH } from '../core/limits.ts'
import { UNSAFE_KEYS } from './definition-text.ts'
import { charge } from './expression-functions.ts'

/** What was wrapped: given back as it is when it comes out again. */
const originals = new WeakMap<object, unknown>()

export function fromJson(value: unknown): CelInput {
  if (typeof value !== 'object' || value === null) return (value ?? null) as CelInput
  const wrapped = Array.isArray(value)
    ? celList(new Proxy(value, lazyElements()) as CelInput[])
    : celMap(new JsonMap(value as Record<string, unknown>))
  originals.set(wrapped, value)
  return wrapped
}

/** The library copies an object whenever it is met. */
class JsonMap extends Map<string, CelInput> {
  readonly #object: Record<string, unknown>
  readonly #wrapped = new Map<string, CelInput>()
  #keys: string[] | null = null

  constructor(object: Record<string, unknown>) {
    super()
    this.#object = object
  }

  override get size(): number {
    return this.#names().length
  }

  override get(key: string): CelInput | undefined {
    if (typeof key !== 'string' || !Object.hasOwn(this.#object, key)) return undefined
    const value = this.#object[key]
    if (typeof value !== 'object' || value === null) return value as CelInput
    let wrapped = this.#wrapped.get(key)
    if (wrapped === undefined) {
      wrapped = fromJson(value)
      this.#wrapped.set(key, wrapped)
    }
    return wrapped
  }

  override has(key: string): boolean {
    return this.get(key) !== undefined
  }

  override keys(): MapIterator<string> {
    return this.#names().values() as MapIterator<string>
  }

  override *entries(): MapIterator<[string, CelInput]> {
    for (const key of this.#names()) yield [key, this.get(key)!]
  }

  override *values(): MapIterator<CelInput> {
    for (const key of this.#names()) yield this.get(key)!
  }

  override [Symbol.iterator](): MapIterator<[string, CelInput]> {
    return this.entries()
  }

  override forEach(callback: (value: CelInput, key: string, map: Map<string, CelInput>) => void): void {
    for (const [key, value] of this.entries()) callback(value, key, this)
  }

  #names(): string[] {
    this.#keys ??= Object.keys(this.#object).filter((key) => this.#object[key] !== undefined)
    return this.#keys
  }
}

function lazyElements(): ProxyHandler<unknown[]> {
  const wrapped = new Map<string, CelInput>()
  return {
    get(array, key, receiver) {
      const value = Reflect.get(array, key, receiver)
      if (typeof value !== 'object' || value === null || typeof key !== 'string') return value
      let element = wrapped.get(key)
      if (element === undefined) {
        element = fromJson(value)
        wrapped.set(key, element)
      }
      return element
    },
  }
}

/** Throws what cannot be JSON. Charged like any other walk over the value. */
export function toJson(value: CelValue, depth = 0): unknown {
  charge(1)
  if (depth > MAX_DEPTH) throw new Error(`its value is nested deeper than ${MAX_DEPTH}`)
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return value
    case 'number':
      if (!Number.isFinite(value)) throw new Error(`its value is ${value}, which is not JSON`)
      return value
    case 'bigint':
      return safeNumber(value)
  }
  if (value === null) return null
  const original = originals.get(value)
  if (original !== undefined) return original
  if (isCelUint(value)) return safeNumber(value.value)
  if (isCelList(value)) return Array.from(value, (item) => toJson(item, depth + 1))
  if (isCelMap(value)) {
    const object: Record<string, unknown> = {}
    for (const [key, item] of value.entries()) {
      const name = String(isCelUint(key) ? key.value : key)
      if (UNSAFE_KEYS.includes(name)) throw new Error(`the key '${name}' is not allowed`)
      object[name] = toJson(item as CelValue, depth + 1)
    }
    return object
  }
  throw new Error('its value is not JSON; make a text of it with string(…)')
}

function safeNumber(value: bigint): number {
  const number = Number(value)
  if (!Number.isSafeInteger(number)) throw new Error(`its value, ${value}, is too large for a JSON number`)
  return number
}
