/**
 * The words of one simple command of a shell text, as far as they are written out. Owns the question whether a value
 * may stand where the text now is: not where the command would read its argument as code, or as a name to assign to.
 * What any other program makes of its arguments is its own affair.
 */

/** They run their arguments, or do sums with them, which in some shells runs what stands in brackets. */
const EVALUATING = ['eval', 'trap', 'alias', 'let']
/** A name with a subscript is evaluated. */
const NAMING = [
  'declare',
  'export',
  'getopts',
  'local',
  'mapfile',
  'read',
  'readarray',
  'readonly',
  'typeset',
  'unset',
]
const SHELLS = ['ash', 'bash', 'dash', 'fish', 'ksh', 'mksh', 'sh', 'su', 'zsh']
/** Programs with the option behind which code stands. */
const CODE_OPTIONS: Record<string, RegExp> = {
  ...Object.fromEntries(SHELLS.map((shell) => [shell, /^(-[A-Za-z]*c[A-Za-z]*|--command)$/])),
  bun: /^(-[a-z]*[ep]|--eval|--print)$/,
  deno: /^eval$/,
  node: /^(-[a-z]*[ep]|--eval|--print)$/,
  perl: /^-[A-Za-z]*[eE]$/,
  php: /^(-r|--run)$/,
  pypy: /^-[A-Za-z]*c$/,
  python: /^-[A-Za-z]*c$/,
  ruby: /^-[A-Za-z]*e$/,
}
/** Where code may stand in the same word as its option: `-c'…'`, `--eval=…`. */
const JOINED = /^(-[A-Za-z]*?[ceEpr]|--(eval|print|run|command)=)/
/** The word behind them belongs to them. */
const TAKES_ARGUMENT = /^([-+][IMOWXdor]|--(import|require))$/
const ASSIGNMENT = /^[A-Za-z_]\w*\+?=/

export interface ShellWord {
  text: string
  /** Written without quotes, escapes and expansions: it may be a word of the grammar. */
  isPlain: boolean
  isFirst: boolean
}

export class ShellCommand {
  readonly #words: string[] = []
  #word: ShellWord | null = null
  #isTarget = false

  /** A word is open. */
  get isInWord(): boolean {
    return this.#word !== null
  }

  add(text: string, isPlain: boolean): void {
    this.#word ??= { text: '', isPlain: true, isFirst: this.#words.length === 0 && !this.#isTarget }
    this.#word.text += text
    if (!isPlain) this.#word.isPlain = false
  }

  endWord(): ShellWord | null {
    const word = this.#word
    this.#word = null
    if (!word) return null
    if (this.#isTarget) this.#isTarget = false
    else this.#words.push(word.text)
    return word
  }

  /** The next word says where to; digits right in front of it which descriptor. */
  redirect(): void {
    if (this.#word?.isPlain && /^\d+$/.test(this.#word.text)) this.#word = null
    this.endWord()
    this.#isTarget = true
  }

  /** Why no value may stand in the word that is open or comes next. */
  hazard(): string | null {
    if (this.#isTarget) return null
    const name = this.#name()
    const written = this.#word?.text ?? ''
    const last = this.#words.at(-1) ?? ''
    if (EVALUATING.includes(name)) return `'${name}' runs it as code`
    if (NAMING.includes(name) && !ASSIGNMENT.test(written)) return `'${name}' takes it for a name`
    if (['[', 'printf', 'test'].includes(name) && last === '-v') return `'${name} -v' takes it for a name`
    const interpreter = this.#interpreter()
    if (!interpreter) return null
    const { program, options } = interpreter
    const option = options.findLast((word) => word !== '--')
    if (option !== undefined && CODE_OPTIONS[program]!.test(option))
      return `'${program} ${option}' runs it as code`
    const joined = JOINED.exec(written)?.[0]
    return joined && !SHELLS.includes(program) ? `'${program} ${joined}' runs it as code` : null
  }

  /** Why no value may stand in what it reads. */
  inputHazard(): string | null {
    if (this.#words.some((word) => programOf(word) === 'ssh')) return `'ssh' hands it to a shell as code`
    const interpreter = this.#interpreter() ?? this.#shellOfInput()
    return interpreter && `'${interpreter.program}' runs it as code`
  }

  #name(): string {
    const skipped = ['builtin', 'command', 'exec']
    return this.#words.find((word) => !ASSIGNMENT.test(word) && !skipped.includes(word)) ?? ''
  }

  /** `bash -s name`: what follows are arguments. */
  #shellOfInput(): { program: string } | null {
    const at = this.#words.findIndex((word) => SHELLS.includes(programOf(word)))
    return at !== -1 && /^-[A-Za-z]*s/.test(this.#words[at + 1] ?? '') ? { program: this.#words[at]! } : null
  }

  /** A program that has options so far, and no file to run. */
  #interpreter(): { program: string; options: string[] } | null {
    for (const [i, word] of this.#words.entries()) {
      const program = programOf(word)
      if (!Object.hasOwn(CODE_OPTIONS, program)) continue
      const options = this.#words.slice(i + 1)
      const isOption = (option: string, at: number) =>
        /^[-+]/.test(option) ||
        TAKES_ARGUMENT.test(options[at - 1] ?? '') ||
        CODE_OPTIONS[program]!.test(option)
      if (program === 'su' || options.every(isOption)) return { program, options }
    }
    return null
  }
}

/** `/usr/bin/python3.12` is python. */
function programOf(word: string): string {
  return word.slice(word.lastIndexOf('/') + 1).replace(/[\d.]+$/, '')
}
