/** Lines made of pieces in colours, cut to so many columns: what is cut is counted before it is coloured. */
import type { Colours } from './colours.ts'
import { cutTo, oneLine, widthOf } from './plain-text.ts'

export type Style = Parameters<Colours['style']>[0]

/** Any text; what a terminal would act on is shown and not sent. */
export type Piece = string | readonly [style: Style | null, text: string]

function pieceText(piece: Piece): string {
  return typeof piece === 'string' ? piece : piece[1]
}

/** `width` null: as wide as it is. */
export function styledLine(pieces: readonly Piece[], width: number | null, colours: Colours): string {
  let line = ''
  let left = width ?? Infinity
  for (const [i, piece] of pieces.entries()) {
    // A text that fills the line many times over is not looked at whole each time.
    const text = safe(pieceText(piece).slice(0, width === null ? undefined : 1_000 + 10 * width))
    const rest = pieces.slice(i + 1).some((one) => pieceText(one) !== '')
    // With nothing behind it, it may fill the line; else the sign that it was cut has to fit too.
    const cut = widthOf(text) < left || !rest ? cutTo(text, left) : cutTo(`${text}…`, left)
    const style = typeof piece === 'string' ? null : piece[0]
    line += style === null || cut === '' ? cut : colours.style(style, cut)
    if (cut !== text) break
    left -= widthOf(text)
  }
  return line
}

/** As `oneLine`, with the spaces around it, which keep pieces apart. */
function safe(text: string): string {
  const line = oneLine(text)
  const before = text.length - text.trimStart().length
  const after = line === '' ? 0 : text.length - text.trimEnd().length
  return ' '.repeat(before) + line + ' '.repeat(after)
}

/** Pieces that stay whole, over as many lines as they need. */
export function wrappedLines(pieces: readonly Piece[], width: number, colours: Colours): string[] {
  const lines: Piece[][] = []
  let left = 0
  for (const piece of pieces) {
    const needed = widthOf(pieceText(piece))
    if (lines.length === 0 || (needed + 1 > left && lines.at(-1)!.length > 0)) {
      lines.push([])
      left = width + 1
    }
    lines.at(-1)!.push(...(lines.at(-1)!.length > 0 ? [' ', piece] : [piece]))
    left -= needed + 1
  }
  return lines.map((line) => styledLine(line, width, colours))
}
