/** Rows in columns that fit the terminal: what is too long is cut where the reader loses least. */
import type { Colours } from './colours.ts'
import { cutTo, oneLine, padTo, widthOf } from './plain-text.ts'

export interface Column<Row> {
  title: string
  text(row: Row): string
  colour?(text: string, row: Row): string
  /** May be cut, down to this width, when the table is too wide. */
  shrinksTo?: number
}

const GAP = 2

/** `width` null: as wide as it is. */
export function tableLines<Row>(
  rows: readonly Row[],
  columns: readonly Column<Row>[],
  { width, colours }: { width: number | null; colours: Colours },
): string[] {
  // A column that says nothing about any row is left out.
  const shown = columns
    .map((column) => ({ column, cells: rows.map((row) => oneLine(column.text(row))) }))
    .filter(({ cells }) => cells.some((cell) => cell !== ''))
  const widths = shown.map(({ column, cells }) =>
    cells.reduce((most, cell) => Math.max(most, widthOf(cell)), widthOf(column.title)),
  )
  if (width !== null) {
    const least = shown.map(({ column }, i) => Math.min(column.shrinksTo ?? Infinity, widths[i]!))
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
