/**
 * The folders of items that are still there, of all runs: those of runs at work, and what a crash or a removal that
 * failed has left. Which of them may go is for the caller to say.
 */
import { readdir, readFile, realpath, stat } from 'node:fs/promises'
import path from 'node:path'
import type { Clock } from '../core/clock.ts'
import { SystemClock } from '../core/system-clock.ts'
import { itemOfLeftFolder, removeFolder } from './folder-removal.ts'
import { Git } from './git.ts'
import type { KeptWork } from './kept-work.ts'
import { hasChanges, headOf } from './kept-work.ts'
import { unlessMissing } from './missing-file.ts'
import type { Registration, Repository } from './repository.ts'
import {
  commitOf,
  findRegistration,
  findRepository,
  listRegistrations,
  openRepository,
} from './repository.ts'
import { keepItem, removeItem } from './worktrees.ts'

export interface LeftFolder {
  jobId: string
  itemId: string
  path: string
  /** The `.git` folder that it is a worktree of; null for a plain folder. */
  repository: string | null
  /** Something that is not committed; in a plain folder, anything at all. False where its removal has begun. */
  hasChanges: boolean
  /** Those that no branch, tag or ref has. */
  commits: number
}

export interface LeftFoldersOptions {
  /** Worktrees that the repository of this folder knows are found as well, also where their own files are destroyed. */
  cwd?: string
  clock?: Clock
  env?: NodeJS.ProcessEnv
}

/** `runsFolder` holds them as JOB/worktrees/ITEM. */
export async function listItemFolders(
  runsFolder: string,
  options: LeftFoldersOptions = {},
): Promise<LeftFolder[]> {
  const runs = await unlessMissing(realpath(runsFolder))
  if (runs === null) return []
  const git = gitOf(options)
  const known = await knownRegistrations(git, options.cwd)
  const folders = new Set(known.map(({ folder }) => folder).filter((folder) => isItemFolder(runs, folder)))
  for (const job of await foldersIn(runs))
    for (const folder of await foldersIn(path.join(job, 'worktrees'))) folders.add(folder)

  const list: LeftFolder[] = []
  for (const folder of [...folders].toSorted()) list.push(await describe(git, folder, known))
  return list
}

/** The one at this path. */
export function findItemFolder(folder: string, options: LeftFoldersOptions): Promise<LeftFolder> {
  return describe(gitOf(options), folder, [])
}

/** What was committed or changed in it is kept, as after an item. Never rejects. */
export async function cleanItemFolder(
  { jobId, itemId, path: folder, repository: commonDir }: LeftFolder,
  options: LeftFoldersOptions = {},
): Promise<{ kept: KeptWork | null; failed: string | null }> {
  let kept: KeptWork | null = null
  try {
    if (itemOfLeftFolder(path.basename(folder)) !== null) {
      await removeFolder(folder)
      return { kept, failed: null }
    }
    const repository = commonDir === null ? null : repositoryAt(gitOf(options), commonDir)
    if (repository) {
      const gitDir = (await findRegistration(repository.commonDir, folder))?.gitDir ?? null
      kept = await keepItem(repository, { jobId, itemId, folder, gitDir, base: null })
    }
    await removeItem(repository, folder)
    return { kept, failed: null }
  } catch (error) {
    return { kept, failed: (error as Error).message }
  }
}

async function describe(git: Git, folder: string, known: readonly Registration[]): Promise<LeftFolder> {
  const name = path.basename(folder)
  const removed = itemOfLeftFolder(name)
  const itemId = removed ?? name
  const jobId = path.basename(path.dirname(path.dirname(folder)))
  const entry = { jobId, itemId, path: folder }
  if (removed !== null) return { ...entry, repository: null, hasChanges: false, commits: 0 }
  const registered = known.find((each) => each.folder === folder) ?? (await registrationIn(folder))
  if (registered === null) {
    const files = (await unlessMissing(readdir(folder))) ?? []
    return { ...entry, repository: null, hasChanges: files.length > 0, commits: 0 }
  }
  const { gitDir, commonDir } = registered
  const repository = repositoryAt(git, commonDir)
  const head = await headOf(repository, gitDir)
  const work = { jobId, itemId, folder, gitDir, base: null }
  return {
    ...{ ...entry, repository: commonDir },
    hasChanges: head === null || (await hasChanges(repository, work)),
    commits: head === null ? 0 : await countUnnamed(repository, head),
  }
}

async function countUnnamed(repository: Repository, head: string): Promise<number> {
  const { git, main } = repository
  const mainHead = await commitOf(repository, main, 'HEAD')
  const named = [
    '--branches',
    '--tags',
    '--remotes',
    '--glob=curfew',
    ...(mainHead === null ? [] : [mainHead]),
  ]
  return Number(await git.run(main, ['rev-list', '--count', head, '--not', ...named]))
}

async function knownRegistrations(git: Git, cwd: string | undefined): Promise<Registration[]> {
  if (cwd === undefined) return []
  const found = await findRepository(git, cwd)
  if (found.type === 'none') return []
  return await listRegistrations(found.repository.commonDir)
}

/** By the `.git` file in it, if the repository agrees. */
async function registrationIn(folder: string): Promise<Registration | null> {
  const file = path.join(folder, '.git')
  if ((await unlessMissing(stat(file)))?.isFile() !== true) return null
  const gitDir = /^gitdir: (.*)$/m.exec(await readFile(file, 'utf8'))?.[1]
  if (gitDir === undefined) return null
  const commonDir = path.resolve(folder, gitDir, '..', '..')
  return await findRegistration(commonDir, folder)
}

function repositoryAt(git: Git, commonDir: string): Repository {
  return openRepository(git, { cwd: commonDir, gitDir: commonDir }, commonDir)
}

function gitOf({ clock = new SystemClock(), env = process.env }: LeftFoldersOptions): Git {
  return new Git({ clock, env })
}

/** RUNS/JOB/worktrees/ITEM */
function isItemFolder(runs: string, folder: string): boolean {
  const parts = path.relative(runs, folder).split(path.sep)
  return parts.length === 3 && parts[0] !== '..' && parts[1] === 'worktrees'
}

async function foldersIn(folder: string): Promise<string[]> {
  const entries = (await unlessMissing(readdir(folder, { withFileTypes: true }))) ?? []
  return entries.filter((entry) => entry.isDirectory()).map((entry) => path.join(folder, entry.name))
}
