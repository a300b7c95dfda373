/**
 * Text on a terminal. Names, messages and outputs come from anywhere: whatever a terminal would act on is shown and
 * not sent. Widths are counted in columns.
 */

/** Everything but line breaks and tabs that a terminal acts on becomes visible. */
export function printable(text: string): string {
  return text.replace(CONTROLS, (letter) => `\\x${letter.charCodeAt(0).toString(16).padStart(2, '0')}`)
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it is about
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g

export function oneLine(text: string): string {
  return printable(text.replace(/\s+/g, ' ').trim())
}

let segmenter: Intl.Segmenter | undefined
const WIDE =
  /^(?:\p{Emoji_Presentation}|\p{Script=Han}|\p{Script=Hiragana}|\p{Script=Katakana}|\p{Script=Hangul}|[\u2e80-\u303e\u3041-\u33ff\ua000-\ua4cf\uff01-\uff60\uffe0-\uffe6]|.\ufe0f)/u

/** Made when there is need of it: that takes longer than all of a short command. */
function* graphemes(text: string): Iterable<string> {
  segmenter ??= new Intl.Segmenter(undefined, { granularity: 'grapheme' })
  for (const { segment } of segmenter.segment(text)) yield segment
}

export function widthOf(text: string): number {
  // Most text is plain.
  if (/^[\x20-\x7e]*$/.test(text)) return text.length
  let width = 0
  for (const segment of graphemes(text)) width += WIDE.test(segment) ? 2 : 1
  return width
}

/** Cut to so many columns, with a sign that it was. */
export function cutTo(text: string, columns: number): string {
  if (widthOf(text) <= columns) return text
  if (columns < 1) return ''
  let cut = ''
  let width = 0
  for (const segment of graphemes(text)) {
    width += widthOf(segment)
    if (width > columns - 1) break
    cut += segment
  }
  return `${cut}…`
}

export function padTo(text: string, columns: number): string {
  return text + ' '.repeat(Math.max(0, columns - widthOf(text)))
}
