import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'
import type { ShellExample } from './shell-examples.ts'
import { differences, runExamples, sectionOf, shellExamples } from './shell-examples.ts'

const fence = '```'

test('commands have the answer that stands beneath them, and no other', () => {
  const page = `# x\n${fence}sh\na\n${fence}\nprints\n${fence}json\n{}\n${fence}\n${fence}sh\nb\n${fence}\n## y\n${fence}text\nc\n${fence}\n`
  expect(shellExamples(page)).toEqual([
    { line: 2, script: 'a\n', answer: { language: 'json', text: '{}\n' } },
    { line: 9, script: 'b\n', answer: null },
  ])
})

test('a section ends where the next one begins', () => {
  expect(sectionOf('# a\n1\n## b\n2\n### c\n3\n## d\n4\n', 'b')).toBe('\n2\n### c\n3\n')
  expect(() => sectionOf('# a\n', 'z')).toThrow("there is no heading 'z'")
})

const shows = (text: string, language: 'json' | 'text' = 'json'): ShellExample => ({
  ...{ line: 1, script: '', answer: { language, text } },
})

test.each([
  ['{ "id": "t_01m7fx0q11axxwawjnqev3ty1a", "at": 1 }', '{"id":"t_01m7fx0q11axxwawjnqev3ty1b","at":2}'],
  ['{ "a": "runs since 255ms", "…": "…" }', '{"a":"runs since 1.5s","b":1}'],
  ['{ "a": ["x", "…"], "b": "…" }', '{"a":["x","y"],"b":"any"}'],
])('%s is the shape of %s', (shown, printed) => {
  expect(differences(shows(shown), printed)).toEqual([])
})

test.each([
  ['{ "a": 1 }', '{"a":"1"}'],
  ['{ "a": 1 }', '{"a":1,"b":1}'],
  ['{ "a": 1, "b": 1 }', '{"a":1}'],
  ['{ "a": true }', '{"a":false}'],
  ['{ "status": "completed" }', '{"status":"failed"}'],
  ['{ "a": [1] }', '{"a":[1,2]}'],
  ['{ "a": [1, 2, "…"] }', '{"a":[1]}'],
  ['{ "a": null }', '{"a":{}}'],
  ['{}', 'curl: (7) failed'],
])('%s is not the shape of %s', (shown, printed) => {
  expect(differences(shows(shown), printed)).toHaveLength(1)
})

test('text is compared by lines, and what is not shown may not be printed', () => {
  expect(differences(shows('a 1\n', 'text'), 'a 22\n')).toEqual([])
  expect(differences(shows('a 1\n', 'text'), 'b 1\n')).toHaveLength(1)
  expect(differences({ ...shows(''), answer: null }, '')).toEqual([])
  expect(differences({ ...shows(''), answer: null }, 'x')).toHaveLength(1)
})

test('they run in one shell, which stops at the first failure and takes what it started with it', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'curfew-shell-'))
  const example = (script: string): ShellExample => ({ line: 1, script, answer: null })
  try {
    const scripts = ['sleep 60 &\npid=$!\n', 'echo $pid; echo wrong >&2\n', 'false\n', 'echo never\n']
    const ran = await runExamples(scripts.map(example), { folder, env: {}, timeoutMs: 20_000 })
    expect(ran).toMatchObject({ exitCode: 1, stderr: 'wrong\n' })
    expect(ran.printed.map((text) => text.trim())).toEqual(['', expect.stringMatching(/^\d+$/), '', ''])
    expect(isRunning(Number(ran.printed[1]))).toBe(false)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})

/** One that has ended and that nobody has asked about still has its number. */
function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ESRCH' || code === 'ENOENT') return false
    throw error
  }
}
