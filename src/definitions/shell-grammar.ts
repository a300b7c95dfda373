/** As much of the grammar of a shell as it takes to tell which `)` closes what, and where a command begins. */
import type { ShellWord } from './shell-command.ts'

/** An open `(`, or a `case` and how far it is: the `)` behind a pattern closes nothing. */
type Frame = 'parenthesis' | 'case' | 'case in' | 'pattern' | 'branch'

/** Behind them a command begins. */
const KEYWORDS = ['!', '{', '}', 'do', 'done', 'elif', 'else', 'fi', 'if', 'then', 'time', 'until', 'while']

/** What is open in a script, or in one `$(…)` of it. */
export class ShellGrammar {
  readonly #frames: Frame[] = []

  /** Between `case` and `in` lines may break. */
  get isBeforeIn(): boolean {
    return this.#frames.at(-1) === 'case in'
  }

  openParenthesis(): void {
    // In front of a pattern it is for show.
    if (this.#frames.at(-1) !== 'pattern') this.#frames.push('parenthesis')
  }

  /** False when it closes nothing in here. */
  closeParenthesis(): boolean {
    const frame = this.#frames.at(-1)
    if (frame === 'pattern') this.#become('branch')
    else if (frame === 'parenthesis') this.#frames.pop()
    return frame === 'pattern' || frame === 'parenthesis'
  }

  /** `;;` */
  endBranch(): void {
    if (this.#frames.at(-1) === 'branch') this.#become('pattern')
  }

  /** Whether a command begins behind the word. */
  endWord(word: ShellWord): boolean {
    const frame = this.#frames.at(-1)
    if (frame === 'case') {
      this.#become('case in')
      return false
    }
    if (frame === 'case in') {
      if (word.isPlain && word.text === 'in') this.#become('pattern')
      return true
    }
    if (!word.isPlain || !word.isFirst) return false
    if (word.text === 'esac' && (frame === 'pattern' || frame === 'branch')) {
      this.#frames.pop()
      return false
    }
    if (frame === 'pattern') return false
    if (word.text === 'case') this.#frames.push('case')
    return word.text === 'case' || KEYWORDS.includes(word.text)
  }

  #become(frame: Frame): void {
    this.#frames[this.#frames.length - 1] = frame
  }
}

export interface HereDocument {
  /** The line that ends it. */
  word: string
  isQuoted: boolean
  /** `<<-`: tabs in front of its lines do not count. */
  isIndented: boolean
}

/** The word behind `<<` or `<<-`; null where it cannot be read. */
export function readHereWord(
  text: string,
  at: number,
  isIndented: boolean,
): { document: HereDocument; end: number } | null {
  const found = /[ \t]*((?:'[^'\n]*'|"[^"\n\\]*"|\\[^\n]|[^\s;&|<>()'"\\])+)/y
  found.lastIndex = at
  const written = found.exec(text)?.[1]
  const end = found.lastIndex
  if (written === undefined || /[$`]/.test(written) || /['"\\]/.test(text[end] ?? '')) return null
  const word = written.replaceAll(/'([^']*)'|"([^"]*)"|\\(.)/g, '$1$2$3')
  return { document: { word, isQuoted: word !== written, isIndented }, end }
}

/** Behind the line that ends it. `isSure`: no backslash joins that line to the one before. */
export function endOfHereDocument(
  text: string,
  from: number,
  { word, isQuoted, isIndented }: HereDocument,
): { end: number; isSure: boolean } {
  let isJoined = false
  for (let at = from; at < text.length; ) {
    const newline = text.indexOf('\n', at)
    const end = newline === -1 ? text.length : newline
    const line = text.slice(at, end)
    if ((isIndented ? line.replace(/^\t+/, '') : line) === word)
      return { end: Math.min(end + 1, text.length), isSure: !isJoined }
    isJoined = !isQuoted && line.endsWith('\\')
    at = end + 1
  }
  return { end: text.length, isSure: true }
}
