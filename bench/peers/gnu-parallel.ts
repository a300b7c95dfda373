// GNU parallel: the one on PATH, else that of the system's packages, unpacked into a folder of ours without installing it.

import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'

const run = promisify(execFile)
const folder = join(import.meta.dirname, 'node_modules', '.gnu-parallel')

export async function findParallel(): Promise<string> {
  const own = join(folder, 'usr', 'bin', 'parallel')
  if (existsSync(own)) return own
  const onPath = (process.env.PATH ?? '').split(':').map((part) => join(part, 'parallel'))
  const found = onPath.find((file) => existsSync(file))
  if (found) return found
  await mkdir(folder, { recursive: true })
  await run('apt-get', ['download', 'parallel'], { cwd: folder })
  const archive = (await readdir(folder)).find((name) => name.endsWith('.deb'))
  if (archive === undefined) throw new Error('GNU parallel is not on PATH and could not be fetched')
  await run('dpkg', ['-x', archive, folder], { cwd: folder })
  return own
}
