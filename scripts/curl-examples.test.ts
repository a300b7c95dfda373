// Every command that docs/api.md, docs/cluster.md and the README show for managers and workers is run, against
// processes that the page itself starts, and what is shown beneath it is what it prints.

import { execFileSync, spawnSync } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'
import { firstExample } from './readme-example.ts'
import type { ShellExample } from './shell-examples.ts'
import { differences, freePort, runExamples, sectionOf, shellExamples } from './shell-examples.ts'

const root = path.join(import.meta.dirname, '..')
const limitMs = 90_000

const hasCurl = findCurl()
if (!hasCurl) console.warn('NOT TESTED: docs/api.md. There is no curl, and it could not be installed.')

/** Where it is missing and this is root on a Debian, it is installed. */
function findCurl(): boolean {
  const works = () => spawnSync('curl', ['--version']).status === 0
  if (works()) return true
  if (process.getuid?.() !== 0 || spawnSync('apt-get', ['--version']).status !== 0) return false
  try {
    execFileSync('apt-get', ['install', '--yes', '--no-install-recommends', 'curl'], { timeout: 120_000 })
  } catch (error) {
    console.warn(`apt-get install curl: ${(error as Error).message}`)
  }
  return works()
}

/** The ports of a page may be in use here. */
async function readPage(file: string): Promise<string> {
  const ports: Record<string, number> = { 4242: await freePort(), 4243: await freePort() }
  const page = readFileSync(path.join(root, file), 'utf8')
  return page.replaceAll(/(?<=\b(?:127\.0\.0\.1|0\.0\.0\.0):)424[23]\b/g, (port) => `${ports[port]}`)
}

/** Below the heading of a page, `tasks` in a file beside them, and an `npx curfew` that runs this source. */
async function check(file: string, examples: ShellExample[], tasks: string): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'curfew-curl-'))
  try {
    const source = tasks.replaceAll(`from 'curfew'`, `from '${path.join(root, 'src/curfew.ts')}'`)
    await writeFile(path.join(folder, 'tasks.ts'), source)
    const npx = path.join(folder, 'bin/npx')
    await mkdir(path.dirname(npx))
    const main = path.join(root, 'src/cli/main.ts')
    await writeFile(npx, `#!/bin/sh\nshift\nexec '${process.execPath}' '${main}' "$@"\n`)
    await chmod(npx, 0o755)
    const env = { PATH: `${path.dirname(npx)}${path.delimiter}${process.env.PATH}` }
    const ran = await runExamples(examples, { folder, env, timeoutMs: limitMs })
    const wrong = examples.flatMap((example, i) =>
      differences(example, ran.printed[i] ?? '').map((what) => `${file}:${example.line}: ${what}`),
    )
    const logs = globSync('*.log', { cwd: folder }).map((log) => readFileSync(path.join(folder, log), 'utf8'))
    const told = [ran.stderr, ...logs].join('\n')
    expect(wrong, told).toEqual([])
    expect(ran.exitCode, told).toBe(0)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

test.runIf(hasCurl)(
  'docs/api.md: every curl example prints what the page shows',
  async () => {
    const page = await readPage('docs/api.md')
    const examples = shellExamples(page)
    expect(examples.length).toBeGreaterThan(30)
    await check('docs/api.md', examples, firstExample(page).source)
  },
  limitMs + 30_000,
)

test('docs/cluster.md: every command prints what the page shows', { timeout: limitMs + 30_000 }, async () => {
  const page = await readPage('docs/cluster.md')
  const examples = shellExamples(page)
  expect(examples.length).toBeGreaterThan(3)
  await check('docs/cluster.md', examples, firstExample(page).source)
})

test('README.md: its manager and worker run its tasks', { timeout: limitMs + 30_000 }, async () => {
  const page = await readPage('README.md')
  const [definitions = ''] = firstExample(page).source.split('const curfew')
  const tasks = definitions.replaceAll(/^const (?=\w+ = task)/gm, 'export const ')
  const examples = shellExamples(sectionOf(page, 'Manager and workers')).map(({ script, ...example }) => ({
    ...example,
    script: script.replaceAll(/^npx curfew (manager|worker) .*$/gm, inBackground),
  }))
  expect(examples).toHaveLength(1)
  await check('README.md', examples, tasks)
})

/** Commands that stay have a terminal each; the next one is typed when they are ready. */
function inBackground(command: string, role: string): string {
  return `${command} > ${role}.log 2>&1 &\nuntil grep -q 'is ready' ${role}.log; do sleep 0.2; done`
}
