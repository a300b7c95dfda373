/**
 * Reads a text for `/bin/sh` far enough to know in which quotes each `${…}` stands. Where shells disagree about a
 * place, or it cannot be read, every `${…}` from there on is refused: a value that is put into the wrong quotes is
 * split or changed. It is never code in any case: what is written there is the name of a variable.
 */
import { MAX_DEPTH, MAX_MAPPING_KEYS } from '../core/limits.ts'
import type { ExpressionFault } from './expression.ts'
import { ShellCommand } from './shell-command.ts'
import type { HereDocument } from './shell-grammar.ts'
import { endOfHereDocument, readHereWord, ShellGrammar } from './shell-grammar.ts'
import type { TemplatePath } from './template-path.ts'
import { isTemplateFault, readReference } from './template-path.ts'

/** `ansi` is `$'…'`. A here-document is read like double quotes. */
export type ShellQuotes = 'bare' | 'double' | 'single' | 'ansi'

export interface ShellReference {
  path: TemplatePath
  quotes: ShellQuotes
  offset: number
}

export interface ScannedShell {
  /** Texts stand as they are. */
  pieces: readonly (string | ShellReference)[]
  faults: readonly ExpressionFault[]
}

export function scanShell(text: string): ScannedShell {
  const scanner = new ShellScanner(text)
  scanner.scan()
  return scanner
}

/** With the command that reads it. */
type OpenDocument = HereDocument & { command: ShellCommand }

class ShellScanner implements ScannedShell {
  readonly pieces: (string | ShellReference)[] = []
  readonly faults: ExpressionFault[] = []
  readonly #text: string
  #at = 0
  #literal = ''
  /** Why nothing can be put in from here on. */
  #unreadable: string | null = null
  #command = new ShellCommand()
  /** Of the command around a `$(…)`. */
  #outerHazard: string | null = null
  #references = 0
  #depth = 0

  constructor(text: string) {
    this.#text = text
  }

  scan(): void {
    this.#commands(null)
    this.#flush()
  }

  /** Up to the end of the text, or behind the `)` of the `$(` that opened at `open`. */
  #commands(open: number | null): void {
    const text = this.#text
    const grammar = new ShellGrammar()
    const documents: OpenDocument[] = []
    this.#command = new ShellCommand()
    while (this.#at < text.length) {
      const letter = text[this.#at]!
      if (!/[\n \t#();&|<>]/.test(letter) || (letter === '#' && this.#command.isInWord)) {
        const from = this.#at
        this.#wordPart(letter)
        if (documents.length > 0 && text.slice(from, this.#at).includes('\n'))
          this.#refuseRest('a here-document that begins behind a line break in quotes')
        continue
      }
      if (letter === '#') {
        const end = text.indexOf('\n', this.#at)
        this.#copy((end === -1 ? text.length : end) - this.#at)
        continue
      }
      if (letter === '<' || letter === '>') {
        this.#redirection(documents)
        continue
      }
      this.#endWord(grammar)
      if (letter === '\n') {
        if (grammar.isBeforeIn) this.#copy(1)
        else this.#separate(1)
        for (const document of documents.splice(0)) this.#hereDocument(document)
      } else if (letter === '(') {
        if (text[this.#at + 1] === '(') this.#refuseRest("'((', which not every shell reads the same way")
        grammar.openParenthesis()
        this.#separate(1)
      } else if (letter === ')') {
        const isInside = grammar.closeParenthesis()
        if (!isInside && open !== null) {
          if (documents.length > 0) this.#refuseRest('a here-document that does not begin inside its $(…)')
          return this.#copy(1)
        }
        if (!isInside) this.#refuseRest("a ')' that closes nothing")
        this.#separate(1)
      } else if (letter === ' ' || letter === '\t') this.#copy(1)
      else {
        const length = text.startsWith(';;', this.#at) ? 2 : 1
        if (length === 2 || text.startsWith(';&', this.#at)) grammar.endBranch()
        this.#separate(length)
      }
    }
    this.#endWord(grammar)
    if (open !== null) this.#notClosed('$(', open)
  }

  #separate(length: number): void {
    this.#copy(length)
    this.#command = new ShellCommand()
  }

  /** A word may be one of the grammar. */
  #endWord(grammar: ShellGrammar): void {
    const word = this.#command.endWord()
    if (!word) return
    if (word.isPlain && word.isFirst && word.text === '[[')
      this.#refuseRest("'[[', which is not of every shell: write [ … ]")
    if (grammar.endWord(word)) this.#command = new ShellCommand()
  }

  /** What may stand inside a word: quotes, escapes, expansions, letters. */
  #wordPart(letter: string): void {
    if (letter === "'") this.#single()
    else if (letter === '"') this.#double()
    else if (letter === '`') this.#backticks()
    else if (letter === '$') this.#dollar('bare')
    else if (letter === '\\') this.#escape()
    else {
      this.#command.add(letter, true)
      this.#copy(1)
    }
  }

  #escape(): void {
    const next = this.#text[this.#at + 1]
    if (next === '\n') this.#refuseSplitOperator()
    else this.#command.add(next ?? '\\', false)
    this.#copy(next === undefined ? 1 : 2)
  }

  /** What a line break behind a backslash joins may open something. */
  #refuseSplitOperator(): void {
    if (!/[$<(]/.test(this.#text[this.#at - 1] ?? '')) return
    let backslashes = 0
    while (this.#text[this.#at - 2 - backslashes] === '\\') backslashes++
    if (backslashes % 2 === 0) this.#refuseRest('an operator over two lines')
  }

  #single(): void {
    const open = this.#at
    this.#command.add('', false)
    this.#copy(1)
    while (this.#at < this.#text.length) {
      const letter = this.#text[this.#at]!
      if (letter === "'") return this.#copy(1)
      if (!this.#quotedReference('single')) {
        this.#command.add(letter, false)
        this.#copy(1)
      }
    }
    this.#notClosed("'", open)
  }

  /** Where `$` means nothing to the shell. */
  #quotedReference(quotes: 'single' | 'ansi'): boolean {
    if (this.#text.startsWith('$${', this.#at)) {
      this.#unescape()
      return true
    }
    if (!this.#text.startsWith('${', this.#at)) return false
    this.#reference(quotes)
    return true
  }

  /** Shells that do not know it read `$` and single quotes. They agree but for `\'`. */
  #ansi(): void {
    const open = this.#at
    this.#command.add('', false)
    this.#copy(2)
    while (this.#at < this.#text.length) {
      const letter = this.#text[this.#at]!
      if (letter === "'") return this.#copy(1)
      if (letter === '\\') {
        const next = this.#text[this.#at + 1]
        if (next === "'") return this.#refuseRest("a \\' in $'…', which not every shell reads the same way")
        // The quote that closes for a value would be escaped.
        if (next === '$') this.#refuseRest("a \\$ in $'…', which not every shell reads the same way")
        this.#copy(2)
      } else if (letter !== '$' || !this.#quotedReference(this.#ansiQuotes())) this.#copy(1)
    }
    this.#notClosed("$'", open)
  }

  /** Without a backslash to come the rest may be plain: shells that do not know `$'…'` would add a `$`. */
  #ansiQuotes(): 'single' | 'ansi' {
    const close = this.#text.indexOf("'", this.#at)
    return this.#text.slice(this.#at, close).includes('\\') ? 'ansi' : 'single'
  }

  #double(): void {
    const open = this.#at
    this.#command.add('', false)
    this.#copy(1)
    while (this.#at < this.#text.length) {
      if (this.#text[this.#at] === '"') return this.#copy(1)
      this.#expanded()
    }
    this.#notClosed('"', open)
  }

  /** Inside double quotes, and in a here-document. */
  #expanded(): void {
    const letter = this.#text[this.#at]!
    if (letter === '$') this.#dollar('double')
    else if (letter === '`') this.#backticks()
    else {
      const length = letter === '\\' && this.#at + 1 < this.#text.length ? 2 : 1
      if (this.#text.startsWith('\\\n', this.#at)) this.#refuseSplitOperator()
      this.#command.add(this.#text.slice(this.#at + length - 1, this.#at + length), false)
      this.#copy(length)
    }
  }

  #dollar(quotes: 'bare' | 'double'): void {
    const text = this.#text
    const at = this.#at
    // The value of an expansion is not known.
    this.#command.add('', false)
    if (text.startsWith('$${', at)) this.#shellExpansion()
    else if (text.startsWith('$$', at)) this.#copy(2)
    else if (text.startsWith('${', at)) this.#reference(quotes)
    else if (text.startsWith('$((', at)) this.#arithmetic()
    else if (text.startsWith('$(', at)) this.#substitution()
    else if (text.startsWith("$'", at) && quotes === 'bare') this.#ansi()
    else {
      if (text.startsWith('$[', at)) this.#refuseRest("'$[', which not every shell reads the same way")
      this.#copy(1)
    }
  }

  #substitution(): void {
    const open = this.#at
    const [command, outerHazard] = [this.#command, this.#outerHazard]
    this.#outerHazard ??= command.hazard()
    this.#copy(2)
    if (++this.#depth > MAX_DEPTH) {
      this.#fault(open, `$(…) is nested deeper than ${MAX_DEPTH}`, null)
      this.#copy(this.#text.length)
      this.#refuseRest('it')
    } else this.#commands(open)
    this.#depth--
    this.#command = command
    this.#outerHazard = outerHazard
  }

  /** `$${name%.*}` is the shell's own `${name%.*}`. */
  #shellExpansion(): void {
    const open = this.#at
    this.#at++
    let depth = 0
    while (this.#at < this.#text.length) {
      const letter = this.#text[this.#at]!
      if (this.#text.startsWith('$${', this.#at)) this.#at++
      else if (this.#text.startsWith('${', this.#at) && depth > 0) {
        this.#refuse('in an expansion of the shell', 'Give it a name first: name=${…}.')
        continue
      }
      if (letter === '{') depth++
      else if (letter === '}' && --depth === 0) return this.#copy(1)
      else if (/['"`\\(]/.test(letter)) this.#refuseRest('quotes in an expansion of the shell')
      this.#copy(1)
    }
    this.#notClosed('$${', open)
  }

  #arithmetic(): void {
    const open = this.#at
    this.#copy(3)
    let depth = 2
    while (this.#at < this.#text.length) {
      const letter = this.#text[this.#at]!
      if (this.#text.startsWith('$${', this.#at)) this.#shellExpansion()
      else if (this.#text.startsWith('${', this.#at))
        this.#refuse('in a sum, where some shells run it as code', 'Write expr ${…} + 1.')
      else {
        if (letter === '(') depth++
        else if (letter === ')' && --depth === 0) return this.#copy(1)
        else if (letter === ')' && depth === 1 && this.#text[this.#at + 1] !== ')')
          this.#refuseRest("'$((', which may be a sum or two parentheses")
        else if (/['"`\\]/.test(letter)) this.#refuseRest('quotes in a sum')
        this.#copy(1)
      }
    }
    this.#notClosed('$((', open)
  }

  #backticks(): void {
    const open = this.#at
    this.#command.add('', false)
    this.#copy(1)
    while (this.#at < this.#text.length) {
      const letter = this.#text[this.#at]!
      if (letter === '`') return this.#copy(1)
      if (this.#text.startsWith('$${', this.#at)) this.#unescape()
      else if (this.#text.startsWith('${', this.#at)) this.#refuse('in backticks', 'Write $(…) instead.')
      else this.#copy(letter === '\\' ? 2 : 1)
    }
    this.#notClosed('`', open)
  }

  #redirection(documents: OpenDocument[]): void {
    const operator = /<<<|<<-?|<&|<>|<|>>|>&|>\||>/y
    operator.lastIndex = this.#at
    const [found] = operator.exec(this.#text)!
    this.#command.redirect()
    this.#copy(found.length)
    if (found !== '<<' && found !== '<<-') return
    const word = readHereWord(this.#text, this.#at, found === '<<-')
    if (!word) return this.#refuseRest('a here-document whose end cannot be read')
    this.#command.add(word.document.word, false)
    this.#copy(word.end - this.#at)
    documents.push({ ...word.document, command: this.#command })
  }

  #hereDocument(document: OpenDocument): void {
    const { end, isSure } = endOfHereDocument(this.#text, this.#at, document)
    if (!isSure) this.#refuseRest('a here-document whose end follows a backslash')
    const [outer, outerHazard] = [this.#command, this.#outerHazard]
    this.#command = new ShellCommand()
    this.#outerHazard ??= document.command.inputHazard()
    while (this.#at < end) {
      if (!document.isQuoted) this.#expanded()
      else if (this.#text.startsWith('$${', this.#at)) this.#unescape()
      else if (this.#text.startsWith('${', this.#at))
        this.#refuse('in a here-document with a quoted word', 'Take the quotes off the word behind <<.')
      else this.#copy(1)
    }
    if (this.#at > end) this.#refuseRest('an expansion that goes on behind its here-document')
    this.#command = outer
    this.#outerHazard = outerHazard
  }

  #reference(quotes: ShellQuotes): void {
    const offset = this.#at
    const found = readReference(this.#text, offset)
    this.#at = found.end
    this.#command.add('', false)
    if (isTemplateFault(found)) {
      const { end: _, ...fault } = found
      this.faults.push(fault)
      return
    }
    if (++this.#references > MAX_MAPPING_KEYS) {
      if (this.#references === MAX_MAPPING_KEYS + 1)
        this.#fault(offset, `there are more than ${MAX_MAPPING_KEYS} values in it`, null)
      return
    }
    const hazard = this.#outerHazard ?? this.#command.hazard()
    if (this.#unreadable !== null) {
      const suggestion = 'Put it in front, or into a step of its own.'
      this.#fault(offset, `no value can stand behind ${this.#unreadable}`, suggestion)
    } else if (hazard !== null) {
      const suggestion = `Pass it as an argument of its own: sh -c 'echo "$1"' sh \${…}.`
      this.#fault(offset, `no value can stand here: ${hazard}`, suggestion)
    } else {
      this.#flush()
      this.pieces.push({ path: found.path, quotes, offset })
    }
  }

  /** A reference where none can stand. */
  #refuse(where: string, suggestion: string): void {
    this.#fault(this.#at, `no value can stand ${where}`, suggestion)
    this.#at = readReference(this.#text, this.#at).end
  }

  #refuseRest(reason: string): void {
    this.#unreadable ??= reason
  }

  #notClosed(what: string, offset: number): void {
    if (this.#unreadable === null) this.#fault(offset, `${what} is not closed`, null)
    this.#refuseRest(`a ${what} that is not closed`)
  }

  #fault(offset: number, message: string, suggestion: string | null): void {
    this.faults.push({ message, suggestion, offset })
  }

  /** `$${` is `${`. */
  #unescape(): void {
    this.#at++
    this.#copy(2)
  }

  #copy(length: number): void {
    this.#literal += this.#text.slice(this.#at, this.#at + length)
    this.#at += length
  }

  #flush(): void {
    if (this.#literal !== '') this.pieces.push(this.#literal)
    this.#literal = ''
  }
}
