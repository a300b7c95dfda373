/**
 * What became of the items of a run, one line each, in one file that only grows: a file for each item would cost more
 * than a short command. Of several lines about one item the last counts; a line that a crash cut off counts for nothing.
 */
import { closeSync, existsSync, openSync, readFileSync, readSync, truncateSync, writeSync } from 'node:fs'
import type { ItemResult } from './run-folder.ts'

interface Place {
  offset: number
  length: number
}

export class ResultLog {
  readonly #file: string
  /** Where each one's last line is: what they hold may be much. */
  readonly #places = new Map<string, Place>()
  #end = 0
  #opened: number | null = null

  constructor(file: string) {
    this.#file = file
    if (existsSync(file)) this.#read()
  }

  ids(): Iterable<string> {
    return this.#places.keys()
  }

  get(id: string): ItemResult | null {
    const place = this.#places.get(id)
    if (!place) return null
    const bytes = Buffer.alloc(place.length)
    readSync(this.#open(), bytes, 0, place.length, place.offset)
    return JSON.parse(bytes.toString('utf8')) as ItemResult
  }

  add(result: ItemResult): void {
    const line = Buffer.from(`${JSON.stringify(result)}\n`)
    for (let at = 0; at < line.length; ) at += writeSync(this.#open(), line, at)
    this.#places.set(result.id, { offset: this.#end, length: line.length - 1 })
    this.#end += line.length
  }

  close(): void {
    if (this.#opened !== null) closeSync(this.#opened)
    this.#opened = null
  }

  #open(): number {
    this.#opened ??= openSync(this.#file, 'a+', 0o600)
    return this.#opened
  }

  #read(): void {
    const bytes = readFileSync(this.#file)
    for (let next = bytes.indexOf(10); next !== -1; next = bytes.indexOf(10, this.#end)) {
      const id = idIn(bytes.toString('utf8', this.#end, next))
      if (id !== null) this.#places.set(id, { offset: this.#end, length: next - this.#end })
      this.#end = next + 1
    }
    if (this.#end < bytes.length) truncateSync(this.#file, this.#end)
  }
}

/** Null where it is no result. */
function idIn(line: string): string | null {
  try {
    const { id } = JSON.parse(line) as { id?: unknown }
    return typeof id === 'string' ? id : null
  } catch {
    return null // somebody else wrote into it
  }
}
