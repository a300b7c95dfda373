/** Removes a folder with all that is in it, also where commands left parts of it read-only. */
import { chmod, lstat, readdir, rm } from 'node:fs/promises'
import path from 'node:path'
import { unlessMissing } from './missing-file.ts'

/** Follows no link. Rejects where something cannot be removed; a folder that is not there is no problem. */
export async function removeFolder(folder: string): Promise<void> {
  try {
    await rm(folder, { recursive: true, force: true })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code !== 'EACCES' && code !== 'EPERM' && code !== 'ENOTEMPTY') throw error
    if ((await lstat(folder)).isDirectory()) await makeWritable(folder)
    await rm(folder, { recursive: true, force: true })
  }
}

async function makeWritable(folder: string): Promise<void> {
  try {
    await chmod(folder, 0o700)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') throw error // of another user: the removal says so
    return
  }
  const entries = (await unlessMissing(readdir(folder, { withFileTypes: true }))) ?? []
  for (const entry of entries) if (entry.isDirectory()) await makeWritable(path.join(folder, entry.name))
}
