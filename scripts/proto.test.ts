// The generated code is what the protocol files say, and the protocol files keep the rules of their linter.

import { execFile } from 'node:child_process'
import { globSync, readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { promisify } from 'node:util'
import { expect, test } from 'vitest'

const root = path.join(import.meta.dirname, '..')
const generated = 'src/wire/gen'

/** Nothing it needs comes from elsewhere: a proxy that is not there refuses whatever it would fetch. */
async function buf(args: string[], cache: string): Promise<void> {
  const bin = path.join(root, 'node_modules/.bin')
  const nobody = 'http://127.0.0.1:9'
  const env = {
    ...process.env,
    PATH: `${bin}${path.delimiter}${process.env.PATH}`,
    ...{ HTTP_PROXY: nobody, HTTPS_PROXY: nobody, NO_PROXY: '', BUF_CACHE_DIR: cache },
  }
  await promisify(execFile)(path.join(bin, 'buf'), args, { cwd: root, env })
}

function filesOf(folder: string): Record<string, string> {
  const files = globSync('**/*.ts', { cwd: folder }).toSorted()
  return Object.fromEntries(files.map((file) => [file, readFileSync(path.join(folder, file), 'utf8')]))
}

test('the generated code is that of the protocol files', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'curfew-proto-'))
  try {
    await buf(['generate', '--output', folder], path.join(folder, 'cache'))
    const fresh = filesOf(path.join(folder, generated))
    const kept = filesOf(path.join(root, generated))
    expect(Object.keys(fresh).length, 'buf generated nothing').toBeGreaterThan(0)
    const names = [...new Set([...Object.keys(fresh), ...Object.keys(kept)])]
    const other = names.filter((name) => fresh[name] !== kept[name])
    expect(other, `${generated} is not what proto/ says: run npm run proto`).toEqual([])
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})

test('the protocol files keep the rules of their linter', async () => {
  const cache = await mkdtemp(path.join(tmpdir(), 'curfew-proto-'))
  try {
    await buf(['lint'], cache)
  } finally {
    await rm(cache, { recursive: true, force: true })
  }
})
