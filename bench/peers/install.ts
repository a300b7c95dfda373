// Owns the peers' packages: a folder of their own with exact versions, so that the root's `npm ci`,
// its types and its unused-check know nothing of them.

import { execFile } from 'node:child_process'
import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'

const folder = import.meta.dirname

/** Installs the peers unless what is there was installed from this lock file. */
export async function installPeers(say: (line: string) => void): Promise<void> {
  const installed = join(folder, 'node_modules', '.package-lock.json')
  if (
    existsSync(installed) &&
    statSync(installed).mtimeMs >= statSync(join(folder, 'package-lock.json')).mtimeMs
  ) {
    return
  }
  say('installing the peers into bench/peers')
  await promisify(execFile)('npm', ['ci', '--no-audit', '--no-fund'], { cwd: folder })
}

/** Resolved from this folder. The caller says what it expects of the package. */
export async function importPeer<Exports>(specifier: string): Promise<Exports> {
  return (await import(specifier)) as Exports
}
