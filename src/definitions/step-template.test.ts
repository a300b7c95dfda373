import { spawnSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { CurfewError } from '../core/errors.ts'
import { MAX_COMMAND_VALUE_BYTES } from '../core/limits.ts'
import { hostileValues } from './fixtures/hostile-values.ts'
import { scanShell } from './shell-scan.ts'
import type { TemplateValues } from './step-template.ts'
import { compileShell, renderArgument, shellVariables } from './step-template.ts'

const BASH = ['/bin/bash', '/usr/bin/bash'].find((file) => existsSync(file))
const SHELLS = ['/bin/sh', ...(BASH ? [BASH] : [])]

/** Nothing may ever be written here. */
let folder: string
beforeAll(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'curfew-values-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

function run(shell: string, text: string, values: TemplateValues): string {
  const compiled = compileShell(text)
  const done = spawnSync(shell, ['-c', compiled.script], {
    cwd: folder,
    env: { PATH: process.env.PATH!, LC_ALL: 'C', ...shellVariables(compiled, values) },
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 20_000,
    maxBuffer: 64 * 1024 * 1024,
  })
  expect(done.error).toBeUndefined()
  return done.stdout.toString('utf8')
}

/** A place in a text for the shell, and what a command there receives. */
const PLACES: [text: string, received: (value: string) => string][] = [
  ["printf '%s\\0' ${item.v}", (v) => v],
  [`printf '%s\\0' "\${item.v}"`, (v) => v],
  ["printf '%s\\0' '${item.v}'", (v) => v],
  [`printf '%s\\0' a\${item.v}b"c\${item.v}d"'e\${item.v}f'`, (v) => `a${v}bc${v}de${v}f`],
  [`printf '%s\\0' "it's \${item.v}" 'a "\${item.v}"'`, (v) => `it's ${v}\0a "${v}"`],
  [`printf '%s\\0' "\\"\${item.v}\\"" \\"\${item.v}\\'`, (v) => `"${v}"\0"${v}'`],
  [`printf '%s\\0' "$(printf '%s.' \${item.v})"`, (v) => `${v}.`],
  [`printf '%s\\0' "$(printf '%s.' "\${item.v}")"`, (v) => `${v}.`],
  [`printf '%s\\0' "$(printf '%s.' '\${item.v}' "$(printf '%s.' "\${item.v}")")"`, (v) => `${v}.${v}..`],
  [`printf '%s\\0' "$(case x in x) printf '%s.' "\${item.v}" ;; esac)"`, (v) => `${v}.`],
  [`x=\${item.v}; printf '%s\\0' "$x"`, (v) => v],
  [`export y=a'\${item.v}'; printf '%s\\0' "$y"`, (v) => `a${v}`],
  [`y=\${item.v} sh -c 'printf "%s\\\\0" "$y"'`, (v) => v],
  [`sh -c 'printf "%s\\\\0" "$1"' sh \${item.v}`, (v) => v],
  [`case \${item.v} in "\${item.v}") printf 'same\\0' ;; *) printf 'other\\0' ;; esac`, () => 'same'],
  [`[ "\${item.v}" = '\${item.v}' ] && printf 'same\\0'`, () => 'same'],
  [`for i in \${item.v} '\${item.v}'; do printf '%s\\0' "$i"; done`, (v) => `${v}\0${v}`],
  [`f() { printf '%s\\0' "$1"; }; f \${item.v}`, (v) => v],
  [`(printf '%s\\0' \${item.v}) | cat`, (v) => v],
  [`{ printf '%s\\0' \${item.v}; } # it's \${item.v} "`, (v) => v],
  ["cat <<EOF\n[${item.v}] \"it's\"\nEOF\nprintf '\\0'", (v) => `[${v}] "it's"\n`],
  ["cat <<-EOF\n\t[${item.v}]\n\tEOF\nprintf '\\0'", (v) => `[${v}]\n`],
  [`cat <<EOF\n$(printf '%s.' '\${item.v}' "\${item.v}")\nEOF\nprintf '\\0'`, (v) => `${v}.${v}.\n`],
  [`printf '%s\\0' "$(cat <<EOF\n\${item.v}.\nEOF\n)"`, (v) => `${v}.`],
  [`printf '%s\\0' "\\\${item.v}" '$\${item.v}' $$\{#}`, () => `\${item.v}\0\${item.v}\0${0}`],
]

describe('values can never become code', () => {
  test('there are two hundred hostile ones', () => {
    expect(new Set(hostileValues).size).toBe(200)
  })

  test.each(SHELLS)('%s receives hostile values byte for byte, inside every kind of quotes', (shell) => {
    const text = PLACES.map(([place]) => place).join('\n')
    // All of them where commands run; of another shell some will do.
    for (const value of hostileValues.filter((_, i) => shell === '/bin/sh' || i % 5 === 0)) {
      const expected = PLACES.map(([, received]) => `${received(value)}\0`).join('')
      expect(run(shell, text, { item: { v: value } }), JSON.stringify(value.slice(0, 200))).toBe(expected)
    }
    expect(readdirSync(folder)).toEqual([])
  })

  test.runIf(BASH)("inside $'…' too, in a shell that knows it", () => {
    const text = `printf '%s\\0' $'a\\tb\${item.v}c' $'\${item.v}\\x41\\n' $'\${item.v}'`
    for (const value of hostileValues)
      expect(run(BASH!, text, { item: { v: value } })).toBe(`a\tb${value}c\0${value}A\n\0${value}\0`)
    expect(readdirSync(folder)).toEqual([])
  })

  test('a program receives every hostile value inside one argument', () => {
    const text = "/analyze '${item.v}' $x"
    const argv = hostileValues.map((v) => renderArgument(text, { item: { v } }))
    const print = 'process.stdout.write(process.argv.slice(1).join("\\0"))'
    const done = spawnSync(process.execPath, ['-e', print, '--', ...argv], { cwd: folder, maxBuffer: 1e8 })
    expect(done.stdout.toString().split('\0')).toEqual(hostileValues.map((v) => `/analyze '${v}' $x`))
  })

  test('an item as a whole is JSON', () => {
    for (const v of hostileValues) {
      const [json, after] = renderArgument('${item}\0$${item.v}', { item: { v } }).split('\0')
      expect(JSON.parse(json!)).toEqual({ v })
      expect(after).toBe('${item.v}')
    }
  })

  test('the script holds no value, and one variable for each path', () => {
    const { script, variables } = compileShell(`a \${item.id} "\${item.id} \${item["a b"][0]}" '\${item.id}'`)
    expect(script).toBe(`a "\${V1}" "\${V1} \${V2}" ''"\${V1}"''`)
    expect(variables).toEqual([
      { name: 'V1', path: ['item', 'id'] },
      { name: 'V2', path: ['item', 'a b', 0] },
    ])
  })

  test('a name that the script or its environment uses is left alone', () => {
    const { variables } = compileShell('V1=a; echo $V3 ${item.a} ${item.b}', ['V2'])
    expect(variables.map(({ name }) => name)).toEqual(['V4', 'V5'])
  })
})

/** A word of the shell with what it stands for, `\0` where the value is. */
interface Word {
  text: string
  means: string
}
const joined = (words: Word[]): Word => ({
  text: words.map(({ text }) => text).join(''),
  means: words.map(({ means }) => means).join(''),
})
const piece = (text: string, means = text): fc.Arbitrary<Word> => fc.constant({ text, means })
const value = piece('${item.v}', '\0')
const parts = (part: fc.Arbitrary<Word>) => fc.array(part, { maxLength: 4 }).map(joined)

const { word } = fc.letrec<{ word: Word; bare: Word; double: Word; single: Word; command: Word }>((tie) => ({
  word: parts(tie('bare')),
  bare: fc.oneof(
    { maxDepth: 3 },
    value,
    fc.constantFrom('a', 'b=', '{', '}', '!', '%', 'é', 'a#b').map((text) => ({ text, means: text })),
    fc
      .constantFrom('\\"', "\\'", '\\$', '\\`', '\\\\', '\\#', '\\ ')
      .map((text) => ({ text, means: text[1]! })),
    piece('\\\n', ''),
    tie('single').map(({ text, means }) => ({ text: `'${text}'`, means })),
    tie('double').map(({ text, means }) => ({ text: `"${text}"`, means })),
  ),
  single: parts(
    fc.oneof(
      value,
      fc
        .constantFrom('a', ' ', '"', '\\', '$x', '$(', '`', '#', '\n', ';', ')')
        .map((text) => ({ text, means: text })),
      piece('$${x}', '${x}'),
    ),
  ),
  double: parts(
    fc.oneof(
      { maxDepth: 3 },
      value,
      fc
        .constantFrom('a', ' ', "'", "it's", '#', '\n', ';', ')', '(', '<<EOF')
        .map((text) => ({ text, means: text })),
      fc.constantFrom('\\"', '\\$', '\\`', '\\\\').map((text) => ({ text, means: text[1]! })),
      tie('command').map(({ text, means }) => ({ text: `$(${text})`, means })),
    ),
  ),
  command: fc.oneof(
    { maxDepth: 3 },
    tie('word').map(({ text, means }) => ({ text: `printf %s. ${text || "''"}`, means: `${means}.` })),
    tie('word').map(({ text, means }) => ({
      text: ` case x in (y) a;; x|z) printf %s. ${text || "''"} # it's )\n;; esac`,
      means: `${means}.`,
    })),
    tie('word').map(({ text, means }) => ({ text: `x=${text}; (printf '%s.' "$x")`, means: `${means}.` })),
    tie('double').map(({ text, means }) => {
      // In a here-document these stay as they are.
      const isPlain = !/["\\]/.test(text)
      const end = `END${text.length}`
      return isPlain
        ? { text: `cat <<${end}\n${text}.\n${end}\n`, means: `${means}.` }
        : { text: `printf %s. "${text}"`, means: `${means}.` }
    }),
  ),
}))

describe('whatever the text', () => {
  const hostile = fc.constantFrom(...hostileValues.filter(({ length }) => length < 1_000))

  test('a value arrives whole, from within any nesting of quotes', () => {
    fc.assert(
      fc.property(fc.array(word, { minLength: 1, maxLength: 8 }), hostile, (words, v) => {
        const text = words.map((one) => `printf '%s\\0' ${one.text || "''"}`).join('\n')
        const expected = words.map(({ means }) => `${means.replaceAll('\0', () => v)}\0`).join('')
        for (const shell of SHELLS) expect(run(shell, text, { item: { v } })).toBe(expected)
      }),
      { numRuns: 150 },
    )
    expect(readdirSync(folder)).toEqual([])
  })

  const token = fc.constantFrom(
    ...[
      ' ',
      '\n',
      "'",
      '"',
      '\\',
      '$',
      '(',
      ')',
      '"$(',
      '"$(printf %s ',
      ')"',
      ';',
      ';;',
      '#',
      ' # ',
      '`',
      '\t',
    ],
    ...[
      '<<EOF\n',
      '\nEOF\n',
      "<<'EOF'\n",
      '<<-EOF\n\t',
      "$'",
      'a',
      '|cat',
      '&&',
      '||',
      '$((1+1))',
      '$((',
      '))',
    ],
    ...[
      '\\\n',
      '{ ',
      '; }',
      'x=',
      ' "$x"',
      'if a; then ',
      'fi',
      '$$',
      '\\$',
      '=',
      'cat ',
      '!',
      '[',
      ']',
      '$#',
      '<',
    ],
    ...['$"', 'for i in ', '; do ', '; done', 'f() ', 'case x in x) ', ' esac', '$${x}', "printf '<%s>' "],
    ...Array.from({ length: 12 }, () => '${item.v}'),
  )

  test('it is refused, or every value stands where any other would', () => {
    const values = [`'";>pwned;"'`, '$(>pwned)`>pwned`', `\\'"\\`, '#$x${V1}', ')>pwned;(']
    fc.assert(
      fc.property(
        fc.array(token, { minLength: 2, maxLength: 14 }),
        fc.constantFrom(...values),
        (tokens, v) => {
          const text = `printf '<%s>' ${tokens.join('')}`
          if (scanShell(text).faults.length > 0) return
          for (const shell of SHELLS) {
            // The id of the process may stand in it.
            const [harmless, hard] = ['Harmless', v].map((one) =>
              run(shell, text, { item: { v: one }, x: '' }),
            )
            expect(hard!.replaceAll(/\d+/g, '0')).toBe(
              harmless!.replaceAll('Harmless', () => v).replaceAll(/\d+/g, '0'),
            )
          }
        },
      ),
      { numRuns: 300 },
    )
    expect(readdirSync(folder)).toEqual([])
  })
})

describe('a value is given as it is, or refused', () => {
  const item = { id: 7, ok: true, none: null, name: 'a b', tags: ['x', { y: 1 }], 'a-b': { 'c d': 'deep' } }
  test.each([
    ['${item.id}', '7'],
    ['${item.ok} ${item.none}', 'true null'],
    ['${item.name}', 'a b'],
    ['${item.tags}', '["x",{"y":1}]'],
    ['${item.tags[1].y}${item.tags.0}', '1x'],
    ['${item.a-b["c d"]}', 'deep'],
    ['${ item.id }', '7'],
    ['$item {item} $ {x}', '$item {item} $ {x}'],
    ['$${item.id}$${', '${item.id}${'],
  ])('%s', (text, expected) => {
    expect(renderArgument(text, { item })).toBe(expected)
  })

  test.each([
    ['${item.nothing}', 'unknown_variable', '${item} has id, ok, none, name, tags, a-b'],
    ['${item.name.x}', 'unknown_variable', '${item.name} has no parts'],
    ['${item.tags.length}', 'unknown_variable', '${item.tags} has 0, 1'],
    ['${item.constructor}', 'unknown_variable', 'item'],
    ['${other}', 'unknown_variable', 'There are item'],
    ['${item', 'invalid_template', 'not closed'],
    ['${item:-x}', 'invalid_template', '$${item:-x}'],
  ])('%s is refused', (text, code, message) => {
    const error = thrown(() => renderArgument(text, { item }))
    expect(error.code).toBe(code)
    expect(error.message).toContain(message)
  })

  test('one above 96 KiB is an error that names the file', () => {
    const big = 'é'.repeat(MAX_COMMAND_VALUE_BYTES / 2)
    expect(renderArgument('${item}', { item: big })).toBe(big)
    const errors = [
      thrown(() => renderArgument('${item}', { item: `${big}e` })),
      thrown(() => renderArgument('${item} ${item}', { item: big })),
      thrown(() => shellVariables(compileShell('echo ${item}'), { item: `${big}e` })),
      thrown(() => {
        const many = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`v${i}`, big]))
        shellVariables(
          compileShell(
            Object.keys(many)
              .map((name) => `\${${name}}`)
              .join(' '),
          ),
          many,
        )
      }),
    ]
    for (const error of errors) {
      expect(error.code).toBe('too_big')
      expect(error.message).toContain('${item_file}')
    }
  })

  test.each(['a\0b', 'a\ud800b'])('%j cannot be given to a command', (item) => {
    const error = thrown(() => renderArgument('${item}', { item }))
    expect(error.code).toBe('invalid_value')
    expect(error.message).toContain('${item_file}')
    // As a part of JSON it is escaped.
    expect(renderArgument('${item}', { item: [item] })).toBe(JSON.stringify([item]))
  })
})

function thrown(call: () => unknown): CurfewError {
  try {
    call()
  } catch (error) {
    expect(error).toBeInstanceOf(CurfewError)
    return error as CurfewError
  }
  throw new Error('nothing was thrown')
}
