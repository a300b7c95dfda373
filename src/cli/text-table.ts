/** Rows in columns that fit the terminal: what is too long is cut where the reader loses least. */
import type { Colours } from './colours.ts'
import { cutTo, oneLine, padTo, widthOf } from './plain-text.ts'

export interface Column<Row> {
  title: string
  text(row: Row): string
  colour?(text: string, row: Row): string
  /** May be cut, down to this width, when the table is too wide. */
  shrinksTo?: number
  /** Left out, the last first, when the table would still be too wide. */
  optional?: boolean
}

const GAP = 2

/** `width` null: as wide as it is. */
export function tableLines<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  { width, colours }: { width: number | null; colours: Colours },
): string[] {
  // A column that says nothing about any row is left out.
  const filled = columns
    .map((column) => measure(column, rows))
    .filter(({ cells }) => cells.some((cell) => cell !== ''))
  const shown = width === null ? filled : fitting(filled, width)
  const widths = shown.map((one) => one.width)
  if (width !== null) {
    const least = shown.map((one) => one.least)
    shrink(widths, least, width)
  }
  const line = (cells: readonly string[], colour: (cell: string, i: number) => string) =>
    cells
      .map((cell, i) => {
        const cut = cutTo(cell, widths[i]!)
        const padding = i === cells.length - 1 ? '' : padTo(cut, widths[i]! + GAP).slice(cut.length)
        return colour(cut, i) + padding
      })
      .join('')
      .trimEnd()
  return [
    line(
      shown.map(({ column }) => column.title),
      (cell) => colours.dim(cell),
    ),
    ...rows.map((row, r) =>
      line(
        shown.map(({ cells }) => cells[r]!),
        (cell, i) => shown[i]!.column.colour?.(cell, row) ?? cell,
      ),
    ),
  ]
}

interface Measured<Row> {
  column: Column<Row>
  cells: string[]
  width: number
  least: number
}

function measure<Row>(column: Column<Row>, rows: readonly Row[]): Measured<Row> {
  const cells = rows.map((row) => oneLine(column.text(row)))
  const width = cells.reduce((most, cell) => Math.max(most, widthOf(cell)), widthOf(column.title))
  return { column, cells, width, least: Math.min(column.shrinksTo ?? Infinity, width) }
}

function fitting<Row>(columns: readonly Measured<Row>[], width: number): readonly Measured<Row>[] {
  if (columns.reduce((sum, { least }) => sum + least + GAP, -GAP) <= width) return columns
  const last = columns.findLastIndex(({ column }) => column.optional)
  return last === -1 ? columns : fitting(columns.toSpliced(last, 1), width)
}

/** Takes from the widest that can give, a column at a time. */
function shrink(widths: number[], least: readonly number[], width: number): void {
  let over = widths.reduce((sum, one) => sum + one + GAP, -GAP) - width
  while (over > 0) {
    let widest = -1
    for (const [i, one] of widths.entries()) {
      if (one > least[i]! && (widest === -1 || one > widths[widest]!)) widest = i
    }
    if (widest === -1) return
    widths[widest]!--
    over--
  }
}
