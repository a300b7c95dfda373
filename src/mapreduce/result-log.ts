/**
 * What became of the items of a run, one line each, in one file that only grows: a file for each item would cost more
 * than a short command. Of several lines about one item the last counts; a line that a crash cut off counts for nothing.
 */
import { closeSync, existsSync, fstatSync, ftruncateSync, openSync, readSync, writeFileSync } from 'node:fs'
import type { ItemResult } from './run-folder.ts'

interface Place {
  offset: number
  length: number
}

const CHUNK_BYTES = 1024 * 1024
const LINE_BREAK = 10

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
    const opened = this.#open()
    // A part of a line: its process died, or the disk had no space for all of it.
    if (fstatSync(opened).size > this.#end) ftruncateSync(opened, this.#end)
    writeFileSync(opened, line)
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

  /** In pieces: the file may be larger than what can be read at once. */
  #read(): void {
    const opened = openSync(this.#file, 'r')
    try {
      const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
      let begun: Buffer[] = []
      for (let got = readSync(opened, chunk); got > 0; got = readSync(opened, chunk)) {
        const read = chunk.subarray(0, got)
        let from = 0
        for (let next = read.indexOf(LINE_BREAK); next !== -1; next = read.indexOf(LINE_BREAK, from)) {
          this.#found(Buffer.concat([...begun, read.subarray(from, next)]))
          begun = []
          from = next + 1
        }
        begun.push(Buffer.from(read.subarray(from)))
      }
    } finally {
      closeSync(opened)
    }
  }

  #found(line: Buffer): void {
    const id = idIn(line)
    if (id !== null) this.#places.set(id, { offset: this.#end, length: line.length })
    this.#end += line.length + 1
  }
}

/** Null where it is no result. */
function idIn(line: Buffer): string | null {
  try {
    const { id } = JSON.parse(line.toString('utf8')) as { id?: unknown }
    return typeof id === 'string' ? id : null
  } catch {
    return null // somebody else wrote into it
  }
}
