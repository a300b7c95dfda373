/**
 * Removes the folders of items. A folder is first moved aside, as ITEM.left-1: so what cannot be removed is in nobody's
 * way, and is never taken for work that is still to be kept.
 */
import { chmod, lstat, readdir, rename, rm, rmdir, unlink } from 'node:fs/promises'
import path from 'node:path'
import { CurfewError } from '../core/errors.ts'

const LEFT = /^(.+)\.left-\d+$/
const MAX_LEFT = 100

/** The item whose folder was moved aside under this name, or null. */
export function itemOfLeftFolder(name: string): string | null {
  return LEFT.exec(name)?.[1] ?? null
}

/** Answers with its new name; null where there is no such folder. */
export async function moveAside(folder: string): Promise<string | null> {
  for (let count = 1; ; count++) {
    const aside = `${folder}.left-${count}`
    try {
      await rename(folder, aside)
      return aside
    } catch (error) {
      const { code = '', message } = error as NodeJS.ErrnoException
      if (code === 'ENOENT') return null
      const isTaken = ['ENOTEMPTY', 'EEXIST', 'ENOTDIR', 'EISDIR'].includes(code)
      if (!isTaken || count === MAX_LEFT)
        throw new CurfewError('folder_failed', `${folder} stays: ${message}`)
    }
  }
}

/** Follows no link. Rejects where something of it cannot be removed; the rest is. */
export async function removeFolder(folder: string): Promise<void> {
  try {
    await rm(folder, { recursive: true, force: true })
  } catch {
    // Commands leave read-only folders behind. And of some errors `rm` does not tell the reason.
    const problem = await removeCarefully(folder)
    if (problem === null) return
    const message = `${folder} is left, as it could not be removed: ${problem.message}`
    throw new CurfewError('folder_failed', message, { cause: problem })
  }
}

/** Goes on after a problem, and answers with the first. */
async function removeCarefully(entry: string): Promise<Error | null> {
  try {
    const found = await lstat(entry)
    if (!found.isDirectory()) {
      await unlink(entry)
      return null
    }
    if ((found.mode & 0o700) !== 0o700) await chmod(entry, 0o700)
    let first: Error | null = null
    for (const name of await readdir(entry)) {
      const problem = await removeCarefully(path.join(entry, name))
      first ??= problem
    }
    if (first === null) await rmdir(entry)
    return first
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? null : (error as Error)
  }
}
