/**
 * Lines of a file, one for each item. They may be much together, so in memory is only where each stands, in lists by
 * the number of its item: there may be ten thousand.
 */
import { readSync } from 'node:fs'

const CHUNK_BYTES = 64 * 1024
const LINE_BREAK = 10

/** Items by number, in the order in which they became known: one map for all that is kept of each. */
export class ItemNumbers {
  readonly #numbers = new Map<string, number>()
  readonly #ids: string[] = []

  /** Of one that is not known: one that is nobody's. */
  of(id: string): number {
    return this.#numbers.get(id) ?? this.#ids.length
  }

  add(id: string): number {
    const number = this.of(id)
    if (number === this.#ids.length) this.#numbers.set(id, this.#ids.push(id) - 1)
    return number
  }

  id(number: number): string {
    return this.#ids[number] as string
  }
}

/** A list by number without gaps, which would make a map of it. */
export function setAt<T>(list: T[], number: number, value: T, none: T): void {
  while (list.length < number) list.push(none)
  list[number] = value
}

const NOWHERE = -1

export class ItemLines {
  readonly #numbers: ItemNumbers
  readonly #offsets: number[] = []
  readonly #lengths: number[] = []
  /** Numbers, as they were added first. */
  readonly #order: number[] = []

  constructor(numbers: ItemNumbers) {
    this.#numbers = numbers
  }

  get size(): number {
    return this.#order.length
  }

  *ids(): Iterable<string> {
    for (const number of this.#order) yield this.#numbers.id(number)
  }

  has(id: string): boolean {
    return (this.#offsets[this.#numbers.of(id)] ?? NOWHERE) !== NOWHERE
  }

  /** `length`: without its end. Of several the last counts. */
  set(id: string, offset: number, length: number): void {
    const number = this.#numbers.add(id)
    if (!this.has(id)) this.#order.push(number)
    setAt(this.#offsets, number, offset, NOWHERE)
    setAt(this.#lengths, number, length, NOWHERE)
  }

  /** Null where there is none. */
  read(id: string, opened: number): string | null {
    if (!this.has(id)) return null
    const number = this.#numbers.of(id)
    const bytes = Buffer.allocUnsafe(this.#lengths[number] as number)
    const got = readSync(opened, bytes, 0, bytes.length, this.#offsets[number] as number)
    return bytes.toString('utf8', 0, got)
  }
}

/** Of a file, as far as they are whole; in pieces, for it may be larger than what can be read at once. */
export function* linesOf(opened: number): Iterable<{ line: Buffer; offset: number }> {
  const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
  let begun: Buffer[] = []
  let offset = 0
  for (let got = readSync(opened, chunk); got > 0; got = readSync(opened, chunk)) {
    const read = chunk.subarray(0, got)
    let from = 0
    for (let next = read.indexOf(LINE_BREAK); next !== -1; next = read.indexOf(LINE_BREAK, from)) {
      const line = Buffer.concat([...begun, read.subarray(from, next)])
      yield { line, offset }
      begun = []
      from = next + 1
      offset += line.length + 1
    }
    begun.push(Buffer.from(read.subarray(from)))
  }
}
