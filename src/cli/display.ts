/** Progress: a tree that is redrawn in place on a terminal, else one line for each change. */
import { Colours } from './colours.ts'
import type { Io, Output } from './io.ts'
import { Changes, drawTree } from './tree-view.ts'
import type { Snapshot } from './work-tree.ts'

export interface Display {
  /** Whether time alone changes what is shown. */
  readonly ticks: boolean
  show(snapshot: Snapshot): void
  /** A line that stays. */
  note(text: string): void
}

export function openDisplay(io: Io, output: Output): Display {
  const live = output.isTerminal && io.env.TERM !== 'dumb'
  return live ? new LiveDisplay(io, output) : new PlainDisplay(io, output)
}

const UP = (lines: number) => (lines > 0 ? `\x1b[${lines}A\r` : '')
const ERASE_LINE = '\x1b[K'
const ERASE_BELOW = '\x1b[J'

class LiveDisplay implements Display {
  readonly ticks = true
  readonly #io: Io
  readonly #output: Output
  readonly #colours: Colours
  #drawn: readonly string[] = []

  constructor(io: Io, output: Output) {
    this.#io = io
    this.#output = output
    this.#colours = new Colours(io, output)
  }

  show({ root, aheadMs }: Snapshot): void {
    const { columns, rows, clock } = this.#io
    // One column and one row are kept free: a full line, or a full screen, would scroll.
    const size = { columns: Math.max(20, columns - 1), rows: Math.max(3, rows - 2) }
    const lines = drawTree(root, { now: clock.wall() + aheadMs, ...size, colours: this.#colours })
    if (lines.length === this.#drawn.length && lines.every((line, i) => line === this.#drawn[i])) return
    const text = lines.map((line) => `${line}${ERASE_LINE}\n`).join('')
    this.#output.write(`${UP(this.#drawn.length)}${text}${ERASE_BELOW}`)
    this.#drawn = lines
  }

  note(text: string): void {
    this.#output.write(`${UP(this.#drawn.length)}${ERASE_BELOW}${text}\n`)
    this.#drawn = []
  }
}

class PlainDisplay implements Display {
  readonly ticks = false
  readonly #io: Io
  readonly #output: Output
  readonly #changes = new Changes()
  readonly #colours: Colours

  constructor(io: Io, output: Output) {
    this.#io = io
    this.#output = output
    this.#colours = new Colours(io, output)
  }

  show({ root, aheadMs }: Snapshot): void {
    const now = this.#io.clock.wall() + aheadMs
    for (const line of this.#changes.lines(root, now, this.#colours)) this.#output.write(`${line}\n`)
  }

  note(text: string): void {
    this.#output.write(`${text}\n`)
  }
}
