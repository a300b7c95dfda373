// Every command of docs/api.md is run, against a manager and a worker that the page itself starts, and what is shown
// beneath it is what it prints.

import { execFileSync, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { expect, test } from 'vitest'
import { differences, freePort, runExamples, shellExamples } from './shell-examples.ts'

const root = path.join(import.meta.dirname, '..')
const page = readFileSync(path.join(root, 'docs/api.md'), 'utf8')

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

/** The page's file of tasks, and an `npx curfew` that runs this source. */
async function prepare(folder: string): Promise<Record<string, string>> {
  const [, tasks = ''] = /^```ts\n(.*?)^```$/ms.exec(page) ?? []
  const source = path.join(root, 'src/curfew.ts')
  await writeFile(path.join(folder, 'tasks.ts'), tasks.replace(`from 'curfew'`, `from '${source}'`))
  const bin = path.join(folder, 'bin')
  await mkdir(bin)
  const main = path.join(root, 'src/cli/main.ts')
  const npx = path.join(bin, 'npx')
  await writeFile(npx, `#!/bin/sh\nshift\nexec '${process.execPath}' '${main}' "$@"\n`)
  await chmod(npx, 0o755)
  return { PATH: `${bin}${path.delimiter}${process.env.PATH}` }
}

test.runIf(hasCurl)(
  'every curl example of docs/api.md prints what the page shows',
  async () => {
    // The ports of the page may be in use here.
    const ports = { 4242: await freePort(), 4243: await freePort() }
    const examples = shellExamples(
      page.replaceAll(
        /\b127\.0\.0\.1:(424[23])\b/g,
        (_, port: '4242' | '4243') => `127.0.0.1:${ports[port]}`,
      ),
    )
    expect(examples.length).toBeGreaterThan(30)
    const folder = await mkdtemp(path.join(tmpdir(), 'curfew-curl-'))
    try {
      const ran = await runExamples(examples, { folder, env: await prepare(folder), timeoutMs: 90_000 })
      const wrong = examples.flatMap((example, i) =>
        differences(example, ran.printed[i] ?? '').map((what) => `docs/api.md:${example.line}: ${what}`),
      )
      expect(wrong, ran.stderr).toEqual([])
      expect(ran.exitCode, ran.stderr).toBe(0)
    } finally {
      await rm(folder, { recursive: true, force: true })
    }
  },
  120_000,
)
