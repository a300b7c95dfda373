/** The journal of a run, read again and again: every time only what has come since. */
import { closeSync, existsSync, fstatSync, openSync, readSync } from 'node:fs'
import type { Fact } from '../journal.ts'

export class JournalFollower {
  readonly #file: string
  #offset = 0
  #facts: Fact[] = []

  constructor(file: string) {
    this.#file = file
  }

  /** All of it so far, in the order of their times. */
  read(): readonly Fact[] {
    const lines = this.#readNew().split('\n')
    // The last one is still being written.
    const whole = lines.slice(0, -1)
    this.#offset += Buffer.byteLength(whole.map((line) => `${line}\n`).join(''))
    if (whole.length === 0) return this.#facts
    const facts = [...this.#facts, ...whole.map((line) => JSON.parse(line) as Fact)]
    this.#facts = facts.sort((a, b) => a.mono - b.mono)
    return this.#facts
  }

  #readNew(): string {
    if (!existsSync(this.#file)) return ''
    const file = openSync(this.#file, 'r')
    try {
      const bytes = Buffer.alloc(fstatSync(file).size - this.#offset)
      const count = readSync(file, bytes, 0, bytes.length, this.#offset)
      return bytes.toString('utf8', 0, count)
    } finally {
      closeSync(file)
    }
  }
}
