/** The items of a run, in their order: a file of lines, of which one is read at a time. Together they may be much. */
import { closeSync, openSync, writeFileSync } from 'node:fs'
import type { ItemNumbers } from './item-lines.ts'
import { ItemLines, linesOf } from './item-lines.ts'
import type { RunItem } from './run-folder.ts'
import { parseStored } from './stored-json.ts'

/** Written at once. */
const PIECE_BYTES = 64 * 1024

export class ItemList {
  readonly #file: string
  readonly #lines: ItemLines
  #opened: number | null = null

  private constructor(file: string, numbers: ItemNumbers) {
    this.#file = file
    this.#lines = new ItemLines(numbers)
  }

  static write(opened: number, items: readonly RunItem[]): void {
    let piece = ''
    for (const item of items) {
      piece += `${JSON.stringify(item)}\n`
      if (piece.length < PIECE_BYTES) continue
      writeFileSync(opened, piece)
      piece = ''
    }
    writeFileSync(opened, piece)
  }

  /** Throws ENOENT where there is none. */
  static read(file: string, numbers: ItemNumbers): ItemList {
    const list = new ItemList(file, numbers)
    try {
      for (const { line, offset } of linesOf(list.#open())) {
        const { id } = parseStored<RunItem>(file, line.toString('utf8'))
        list.#lines.set(id, offset, line.length)
      }
      return list
    } catch (error) {
      list.close()
      throw error
    }
  }

  get size(): number {
    return this.#lines.size
  }

  ids(): Iterable<string> {
    return this.#lines.ids()
  }

  has(id: string): boolean {
    return this.#lines.has(id)
  }

  get(id: string): RunItem | null {
    const text = this.#lines.read(id, this.#open())
    return text === null ? null : parseStored<RunItem>(this.#file, text)
  }

  /** One at a time. */
  *values(): Iterable<RunItem> {
    for (const id of this.ids()) yield this.get(id) as RunItem
  }

  close(): void {
    if (this.#opened !== null) closeSync(this.#opened)
    this.#opened = null
  }

  #open(): number {
    this.#opened ??= openSync(this.#file, 'r')
    return this.#opened
  }
}
