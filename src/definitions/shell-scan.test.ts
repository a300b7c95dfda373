import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { scanShell } from './shell-scan.ts'
import { compileShell } from './step-template.ts'

/** What stands at the place of each fault, and its message. */
function faults(text: string): [there: string, message: string][] {
  return scanShell(text).faults.map(({ offset, message }) => [text.slice(offset, offset + 7), message])
}

describe('a value is written for the quotes it stands in', () => {
  test.each([
    ['echo ${item}', 'echo "${V1}"'],
    ['echo "a ${item} b"', 'echo "a ${V1} b"'],
    ["echo 'a ${item} b'", `echo 'a '"\${V1}"' b'`],
    [`echo "it's \${item}"`, `echo "it's \${V1}"`],
    [`echo 'say "\${item}"'`, `echo 'say "'"\${V1}"'"'`],
    ['echo \\"${item}\\"', 'echo \\""${V1}"\\"'],
    ['echo "\\"${item}"', 'echo "\\"${V1}"'],
    ['echo "$(cat ${item})"', 'echo "$(cat "${V1}")"'],
    [`echo "$(cat '\${item}' "\${item}")"`, `echo "$(cat ''"\${V1}"'' "\${V1}")"`],
    ['cat <<EOF\n"${item}"\nEOF\necho ${item}', 'cat <<EOF\n"${V1}"\nEOF\necho "${V1}"'],
    ["cat <<A <<B\n${item}\nA\n'${item}\nB\n", "cat <<A <<B\n${V1}\nA\n'${V1}\nB\n"],
    ["cat <<'EOF'\n$x `\nEOF\necho ${item}", 'cat <<\'EOF\'\n$x `\nEOF\necho "${V1}"'],
    ["# don't ${item}\necho ${item}", '# don\'t ${item}\necho "${V1}"'],
    ['echo a#${item} # "${item}', 'echo a#"${V1}" # "${item}'],
    ["echo $'a\\n${item}\\t'", `echo $'a\\n'"\${V1}"$'\\t'`],
    ["echo $'a\\n${item}'", `echo $'a\\n'"\${V1}"''`],
    ['echo \\${item} "\\${item}"', 'echo \\${item} "\\${item}"'],
    ["echo '\\${item}'", `echo '\\'"\${V1}"''`],
    ['echo $x $$ $# $(date) $((1 + 2)) `date` ${item}', 'echo $x $$ $# $(date) $((1 + 2)) `date` "${V1}"'],
    ['f=$${item%.*} "$${#x}" \'$${x}\'', 'f=${item%.*} "${#x}" \'${x}\''],
    ['echo $$${item}', 'echo $$"${V1}"'],
    ['x=$(case $1 in a) echo ")";; esac) y=${item}', 'x=$(case $1 in a) echo ")";; esac) y="${V1}"'],
    ['echo "`echo \\"it\'s\\"`" ${item}', 'echo "`echo \\"it\'s\\"`" "${V1}"'],
    ['a && b || c; d & e | f ${item} > ${item} 2>&1', 'a && b || c; d & e | f "${V1}" > "${V1}" 2>&1'],
    ['echo a \\\n  ${item}', 'echo a \\\n  "${V1}"'],
    ['sh -c \'echo "$1"\' sh ${item}', 'sh -c \'echo "$1"\' sh "${V1}"'],
    ['python3 tool.py -c ${item}', 'python3 tool.py -c "${V1}"'],
    ['export A=${item} B="x${item}"; read x < ${item}', 'export A="${V1}" B="x${V1}"; read x < "${V1}"'],
    ['echo eval ${item}; bash x.sh ${item}', 'echo eval "${V1}"; bash x.sh "${V1}"'],
    ['node - <<END ${item}\nx\nEND', 'node - <<END "${V1}"\nx\nEND'],
  ])('%s', (text, script) => {
    expect(compileShell(text).script).toBe(script)
  })
})

describe('where no value can be put it is refused, with the place', () => {
  test.each([
    ['a quoted here-document', "cat <<'EOF'\n${item}\nEOF", 'in a here-document with a quoted word'],
    ['an escaped one', 'cat <<\\EOF\n${item}\nEOF', 'in a here-document with a quoted word'],
    ['backticks', 'echo `cat ${item}`', 'in backticks'],
    ['backticks in quotes', 'echo "`cat ${item}`"', 'in backticks'],
    ['a sum', 'echo $((1 + ${item}))', 'in a sum'],
    ['an expansion of the shell', 'echo $${x:-${item}}', 'in an expansion of the shell'],
    ['eval', "eval 'a ${item}'", "'eval' runs it"],
    ['eval behind a command', 'a; x=1 command eval "${item}"', "'eval' runs it"],
    ['eval of what a command prints', 'eval "$(a ${item})"', "'eval' runs it"],
    ['eval in a case', 'case x in a) if eval "${item}"; then b; fi;; esac', "'eval' runs it"],
    ['trap', "trap 'rm ${item}' EXIT", "'trap' runs it"],
    ['let', 'let x=${item}', "'let' runs it"],
    ['a name to assign to', 'export ${item}', 'takes it for a name'],
    ['a name to unset', 'unset "x${item}"', 'takes it for a name'],
    ['the code of a shell', 'bash -euc "a ${item}"', "'bash -euc' runs it"],
    ['the code of a shell behind another program', "sudo -u x /bin/sh -c 'a ${item}'", "'sh -c' runs it"],
    ['the code of a shell with options', 'bash -o pipefail -c "${item}"', "'bash -c' runs it"],
    ['what su runs', 'su user -c "${item}"', "'su -c' runs it"],
    ['the code of python', 'python3.12 -c "print(\'${item}\')"', "'python -c' runs it"],
    ['the code of python, in one word', `python3 -c"print('\${item}')"`, "'python -c' runs it"],
    ['the code of perl', "perl -pe 's/a/${item}/'", "'perl -pe' runs it"],
    ['the code of node', 'node --eval "${item}"', "'node --eval' runs it"],
    ['what a shell reads', 'bash <<EOF\necho ${item}\nEOF', "'bash' runs it"],
    ['what a shell reads behind -s', 'bash -s x <<EOF\necho ${item}\nEOF', "'bash' runs it"],
    ['what another machine reads', 'ssh host <<EOF\necho ${item}\nEOF', "'ssh' hands it"],
    ['[[', 'if [[ -f x ]]; then a ${item}; fi', "behind '[['"],
    ['((', '((x = 1)); a ${item}', "behind '(('"],
    ['$[', 'a $[1] ${item}', "behind '$['"],
    ["\\' in $'…'", "a $'it\\'s' ${item}", "behind a \\' in $'…'"],
    ['a here-document of no word', 'cat <<$x\n${item}\n', 'a here-document whose end cannot be read'],
    ['an end behind a backslash', 'cat <<EOF\na\\\nEOF\nb ${item}\nEOF', 'whose end follows a backslash'],
    ['an operator over two lines', 'a $\\\n(b) ${item}', 'behind an operator over two lines'],
    ['a ) too many', 'a ) ${item}', "behind a ')' that closes nothing"],
  ])('%s', (_, text, message) => {
    const found = faults(text)
    expect(found).toHaveLength(1)
    expect(found[0]![0]).toBe('${item}')
    expect(found[0]![1]).toContain(message)
    expect(() => compileShell(text)).toThrow(message)
    // Without a value all of it is fine, and left as it is.
    const plain = text.replaceAll('${item}', 'x')
    if (!plain.includes('$${')) expect(scanShell(plain)).toMatchObject({ faults: [], pieces: [plain] })
  })

  test.each([
    ["echo 'a ${item}", "'a ${it", "' is not closed"],
    ['echo "a', '"a', '" is not closed'],
    ['echo `a', '`a', '` is not closed'],
    ['echo $(a', '$(a', '$( is not closed'],
    ['echo $((1', '$((1', '$(( is not closed'],
    ['echo ${a', '${a', "'${' is not closed"],
    ['echo ${x%.*}', '${x%.*}', "'${x%.*}' is not a variable"],
    ['echo ${1}', '${1}', "'${1}' is not a variable"],
  ])('%s', (text, there, message) => {
    expect(faults(text)).toEqual([[there.slice(0, 7), message]])
  })

  test('all of them are told', () => {
    expect(faults('eval ${a}; echo `b ${b}` ${c:-d}').map(([there]) => there.slice(0, 4))).toEqual([
      '${a}',
      '${b}',
      '${c:',
    ])
  })

  test("the shell's own is told how to be written", () => {
    expect(scanShell('echo ${x%.*}').faults[0]!.suggestion).toContain('$${x%.*}')
  })
})

describe('any text', () => {
  const letters = fc.string({
    unit: fc.constantFrom(...'$(){}\'"`\\#<-EOF;|& \n\tax1[]='.split('')),
    maxLength: 60,
  })

  test('without a value in it stays as it is', () => {
    fc.assert(
      fc.property(letters, (text) => {
        fc.pre(!text.includes('${'))
        const { pieces } = scanShell(text)
        expect(pieces.join('')).toBe(text)
      }),
      { numRuns: 3_000 },
    )
  })

  test.each([
    '$(',
    '"$(',
    '`',
    '$${',
    '<<a ',
    '$((',
    "'",
    '(',
    'case x in ',
    '\\\n$',
    "$'$",
    '${a',
    'a ${a}',
  ])(
    'is read to its end in a time that fits its length: %j many times',
    (part) => {
      const text = part.repeat(Math.floor(60_000 / part.length))
      const { pieces, faults } = scanShell(text)
      expect(pieces.length + faults.length).toBeGreaterThan(0)
    },
    1_500,
  )
})
