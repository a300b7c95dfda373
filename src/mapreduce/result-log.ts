/**
 * What became of the items of a run, one line each, in one file that only grows: a file for each item would cost more
 * than a short command. Of several lines about one item the last counts; a line that a crash cut off counts for nothing.
 */
import { closeSync, existsSync, fstatSync, ftruncateSync, openSync, writeFileSync } from 'node:fs'
import { ItemLines, ItemNumbers, linesOf } from './item-lines.ts'
import type { ItemResult } from './run-folder.ts'

export class ResultLog {
  readonly #file: string
  /** Where each one's last line is. */
  readonly #lines: ItemLines
  #end = 0
  #opened: number | null = null

  constructor(file: string, numbers = new ItemNumbers()) {
    this.#file = file
    this.#lines = new ItemLines(numbers)
    if (existsSync(file)) this.#read()
  }

  ids(): Iterable<string> {
    return this.#lines.ids()
  }

  get(id: string): ItemResult | null {
    if (!this.#lines.has(id)) return null
    const text = this.#lines.read(id, this.#open())
    return text === null ? null : (JSON.parse(text) as ItemResult)
  }

  add(result: ItemResult): void {
    const line = Buffer.from(`${JSON.stringify(result)}\n`)
    const opened = this.#open()
    // A part of a line: its process died, or the disk had no space for all of it.
    if (fstatSync(opened).size > this.#end) ftruncateSync(opened, this.#end)
    writeFileSync(opened, line)
    this.#lines.set(result.id, this.#end, line.length - 1)
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
    const opened = openSync(this.#file, 'r')
    try {
      for (const { line, offset } of linesOf(opened)) {
        const id = idIn(line)
        if (id !== null) this.#lines.set(id, offset, line.length)
        this.#end = offset + line.length + 1
      }
    } finally {
      closeSync(opened)
    }
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
