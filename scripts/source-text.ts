// TypeScript source split into what is code and what is not, by one pass over its characters: enough for
// checks by pattern, without a compiler. Both views have the length and the line breaks of the source, so an
// offset in one is the same place in the other.

export interface SourceText {
  /** The source without its comments. */
  code: string
  /** The source without its comments and without the insides of strings, templates and regular expressions. */
  bare: string
  /** The comments alone. */
  comments: string
}

type Kind = 'code' | 'inside' | 'comment'

export function splitSource(source: string): SourceText {
  const kinds: Kind[] = new Array(source.length).fill('code')
  const mark = (from: number, to: number, kind: Kind) => kinds.fill(kind, from, to)

  // One entry per open `${`: how many braces are open inside of it.
  const templates: number[] = []
  let at = 0
  while (at < source.length) {
    const char = source[at]!
    const pair = source.slice(at, at + 2)
    if (pair === '//' || (pair === '#!' && at === 0)) {
      at = marked(at, endOf(source, '\n', at), 'comment')
    } else if (pair === '/*') {
      at = marked(at, endOf(source, '*/', at + 2) + 2, 'comment')
    } else if (char === "'" || char === '"') {
      at = marked(at + 1, endOfString(source, char, at + 1), 'inside') + 1
    } else if (char === '`') {
      at = template(at + 1)
    } else if (char === '/' && startsRegExp(source, kinds, at)) {
      at = marked(at + 1, endOfRegExp(source, at + 1), 'inside') + 1
    } else if (char === '}' && templates.at(-1) === 0) {
      templates.pop()
      at = template(at + 1)
    } else {
      if (templates.length > 0 && char === '{') templates[templates.length - 1]!++
      if (templates.length > 0 && char === '}') templates[templates.length - 1]!--
      at++
    }
  }
  return {
    code: keep(source, (index) => kinds[index] !== 'comment'),
    bare: keep(source, (index) => kinds[index] === 'code'),
    comments: keep(source, (index) => kinds[index] === 'comment'),
  }

  function marked(from: number, to: number, kind: Kind): number {
    mark(from, to, kind)
    return to
  }

  /** From inside a template to after its closing backtick, or to after the next `${`. */
  function template(from: number): number {
    let end = from
    while (end < source.length && source[end] !== '`') {
      if (source.startsWith('${', end)) {
        mark(from, end, 'inside')
        templates.push(0)
        return end + 2
      }
      end += source[end] === '\\' ? 2 : 1
    }
    mark(from, end, 'inside')
    return end + 1
  }
}

function keep(source: string, wanted: (index: number) => boolean): string {
  let text = ''
  for (let index = 0; index < source.length; index++) {
    text += source[index] === '\n' || wanted(index) ? source[index] : ' '
  }
  return text
}

function endOf(source: string, what: string, from: number): number {
  const found = source.indexOf(what, from)
  return found === -1 ? source.length : found
}

function endOfString(source: string, quote: string, from: number): number {
  let at = from
  while (at < source.length && source[at] !== quote && source[at] !== '\n') at += source[at] === '\\' ? 2 : 1
  return at
}

function endOfRegExp(source: string, from: number): number {
  let at = from
  let inClass = false
  while (at < source.length && source[at] !== '\n' && (inClass || source[at] !== '/')) {
    if (source[at] === '[') inClass = true
    if (source[at] === ']') inClass = false
    at += source[at] === '\\' ? 2 : 1
  }
  return at
}

/** A slash divides after a value, and begins a regular expression after anything else. */
function startsRegExp(source: string, kinds: Kind[], at: number): boolean {
  let before = at - 1
  while (before >= 0 && (kinds[before] === 'comment' || /\s/.test(source[before]!))) before--
  if (before < 0) return true
  if (/[)\]}'"`]/.test(source[before]!)) return false
  const word = /[\w$]+$/.exec(source.slice(Math.max(0, before - 20), before + 1))?.[0]
  return word === undefined || /^(return|typeof|case|in|of|do|else|void|await|yield|throw)$/.test(word)
}
