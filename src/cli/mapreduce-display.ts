/**
 * Progress of a map-reduce: lines that are redrawn in place on a terminal, else a line for each change. Whoever
 * prints elsewhere to the same terminal calls `clear` first, or has the text printed by `note`.
 */
import type { Timer } from '../core/clock.ts'
import { Colours } from './colours.ts'
import type { Io, Output } from './io.ts'
import { MapreduceChanges } from './mapreduce-changes.ts'
import type { MapreduceSnapshot } from './mapreduce-snapshot.ts'
import { renderMapreduce } from './mapreduce-view.ts'

/** Between two repaints. */
const REPAINT_MS = 100
/** Between two repaints because of the time alone. */
const TICK_MS = 500
/** Between two lines that count, where nothing is redrawn. */
const COUNT_MS = 30_000

export interface MapreduceDisplay {
  /**
   * Cheap: it may be told of every change. Without a terminal it has to be: what changed there and back between two
   * calls is not told.
   */
  show(snapshot: MapreduceSnapshot): void
  /** A line that stays. */
  note(text: string): void
  /** Takes away what is drawn; it comes back by itself. */
  clear(): void
  /** Nothing is drawn any more, and what was is taken away. */
  close(): void
}

export function openMapreduceDisplay(io: Io, output: Output): MapreduceDisplay {
  const live = output.isTerminal && io.env.TERM !== 'dumb'
  return live ? new LiveMapreduceDisplay(io, output) : new PlainMapreduceDisplay(io, output)
}

const UP = (lines: number) => (lines > 0 ? `\x1b[${lines}A\r` : '')
const ERASE_LINE = '\x1b[K'
const ERASE_BELOW = '\x1b[J'
/** A line that is wider than it was counted, as some scripts are, is cut by the terminal and takes no second row. */
const NO_WRAP = '\x1b[?7l'
const WRAP = '\x1b[?7h'

class LiveMapreduceDisplay implements MapreduceDisplay {
  readonly #io: Io
  readonly #output: Output
  readonly #colours: Colours
  #latest: MapreduceSnapshot | null = null
  #drawn: readonly string[] = []
  #paintedAt = -Infinity
  #timer: { timer: Timer; at: number } | null = null
  #closed = false

  constructor(io: Io, output: Output) {
    this.#io = io
    this.#output = output
    this.#colours = new Colours(io, output)
  }

  show(snapshot: MapreduceSnapshot): void {
    if (this.#closed) return
    this.#latest = snapshot
    this.#paintAt(this.#paintedAt + REPAINT_MS)
  }

  note(text: string): void {
    this.#output.write(`${UP(this.#drawn.length)}${ERASE_BELOW}${text}\n`)
    this.#drawn = []
    if (this.#latest && !this.#closed) this.#paintAt(this.#paintedAt + REPAINT_MS)
  }

  clear(): void {
    if (this.#drawn.length > 0) this.#output.write(`${UP(this.#drawn.length)}${ERASE_BELOW}`)
    this.#drawn = []
  }

  close(): void {
    this.#closed = true
    this.#timer?.timer.cancel()
    this.#timer = null
    this.clear()
  }

  /** At once when that time has come; the earliest of what was asked for counts. */
  #paintAt(at: number): void {
    const { clock } = this.#io
    const now = clock.monotonic()
    if (at <= now) return this.#paint()
    if (this.#timer && this.#timer.at <= at) return
    this.#timer?.timer.cancel()
    this.#timer = { timer: clock.setTimer(at - now, () => this.#paint(), { background: true }), at }
  }

  #paint(): void {
    this.#timer?.timer.cancel()
    this.#timer = null
    if (this.#closed || !this.#latest) return
    const { columns, rows, clock } = this.#io
    this.#paintedAt = clock.monotonic()
    // One column and one row are kept free: a full line, or a full screen, would scroll.
    const size = { width: Math.max(1, columns - 1), height: Math.max(1, rows - 2) }
    const lines = renderMapreduce(this.#latest, { ...size, now: clock.wall(), colours: this.#colours })
    if (lines.length !== this.#drawn.length || lines.some((line, i) => line !== this.#drawn[i])) {
      const text = lines.map((line) => `${line}${ERASE_LINE}\n`).join('')
      this.#output.write(`${UP(this.#drawn.length)}${NO_WRAP}${text}${WRAP}${ERASE_BELOW}`)
      this.#drawn = lines
    }
    this.#paintAt(this.#paintedAt + TICK_MS)
  }
}

class PlainMapreduceDisplay implements MapreduceDisplay {
  readonly #io: Io
  readonly #output: Output
  readonly #changes: MapreduceChanges
  #timer: Timer | null = null
  #closed = false

  constructor(io: Io, output: Output) {
    this.#io = io
    this.#output = output
    this.#changes = new MapreduceChanges(new Colours(io, output))
  }

  show(snapshot: MapreduceSnapshot): void {
    if (this.#closed) return
    for (const line of this.#changes.lines(snapshot, this.#io.clock.wall())) this.#output.write(`${line}\n`)
    this.#timer ??= this.#countLater()
  }

  note(text: string): void {
    this.#output.write(`${text}\n`)
  }

  clear(): void {
    // Nothing that was printed is ever taken away.
  }

  close(): void {
    this.#closed = true
    this.#timer?.cancel()
  }

  #countLater(): Timer {
    const count = () => {
      this.#output.write(`${this.#changes.countLine(this.#io.clock.wall())}\n`)
      this.#timer = this.#countLater()
    }
    return this.#io.clock.setTimer(COUNT_MS, count, { background: true })
  }
}
