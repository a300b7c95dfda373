/**
 * Keeps what an item committed and changed, before its worktree goes: one commit that a ref points to. Files that git
 * ignores are not part of it.
 *
 * Nothing of the item is relied on but its files and the head that git registered for it: its index may be broken or
 * locked, its `.git` gone.
 */
import { copyFile, lstat, rm, stat, utimes } from 'node:fs/promises'
import path from 'node:path'
import type { GitPlace } from './git.ts'
import { gitFailed } from './git.ts'
import { unlessMissing } from './missing-file.ts'
import type { Repository } from './repository.ts'
import { commitOf, identityOf, isAncestor, nameCommit } from './repository.ts'

export interface KeptWork {
  /** `refs/curfew/JOB/ITEM`, with a number behind it where an earlier attempt has that name. */
  ref: string
  /** Its last commit, on top of which the uncommitted changes are, if there were any. */
  commit: string
  /** How many the item made itself, without those that are merged. */
  commits: number
  /** The first 1000. */
  changedFiles: string[]
  diffStat: string
  /** What git said of files that it could not take along. */
  incomplete: string | null
}

export interface ItemWork {
  jobId: string
  itemId: string
  folder: string
  /** What git registered for it; null where that is gone, and its commits with it. */
  gitDir: string | null
  /** The commit it started from, where that is known. */
  base: string | null
}

const MAX_CHANGED_FILES = 1_000
const MAX_INCOMPLETE = 1_000

/** Null where there is nothing that is not merged. Rejects where it cannot be kept. */
export async function keepWork(repository: Repository, work: ItemWork): Promise<KeptWork | null> {
  const { git, main } = repository
  const ownHead = await headOf(repository, work.gitDir)
  const mayHaveChanges = await hasChanges(repository, work)
  if (!mayHaveChanges && ownHead !== null && ownHead === work.base) return null // as most are, without a question more

  const mainHead = await commitOf(repository, main, 'HEAD')
  const head = ownHead ?? work.base ?? mainHead
  if (head === null) return null
  const changes = mayHaveChanges ? await takeChanges(repository, work, head) : null
  const isChanged =
    changes !== null && changes.tree !== (await git.run(main, ['rev-parse', `${head}^{tree}`]))
  const commits = await countCommits(repository, head, [work.base, mainHead])
  if (!isChanged && commits === 0) return null

  const message = `Changes of item ${work.itemId} of ${work.jobId} that were not committed`
  const commit = isChanged ? await writeCommit(repository, changes.tree, [head], message) : head
  const from = await whereItBegan(repository, head, work.base, mainHead)
  const names = await git.run(main, ['diff-tree', '-r', '-z', '--name-only', '--no-renames', from, commit], {
    mayBeCut: true,
  })
  return {
    ref: await nameCommit(repository, `refs/curfew/${work.jobId}/${work.itemId}`, commit),
    ...{ commit, commits, incomplete: changes?.incomplete ?? null },
    changedFiles: names.split('\0').filter(Boolean).slice(0, MAX_CHANGED_FILES),
    diffStat: await git.run(main, ['diff-tree', '-r', '--stat=100', '--stat-count=50', from, commit]),
  }
}

/** As git has it registered, also where the folder is gone. */
export async function headOf(repository: Repository, gitDir: string | null): Promise<string | null> {
  return gitDir === null ? null : await commitOf(repository, { cwd: gitDir, gitDir }, 'HEAD')
}

/** Also where that cannot be told. */
export async function hasChanges(repository: Repository, work: ItemWork): Promise<boolean> {
  if ((await unlessMissing(lstat(work.folder)))?.isDirectory() !== true) return false
  if (work.gitDir === null) return true
  const args = ['status', '--porcelain', '-z', '--untracked-files=normal', '--ignore-submodules=none']
  const { code, stdout } = await repository.git.ask(placeOf(repository, work), args, {
    ...{ isLong: true, mayBeCut: true },
  })
  return code !== 0 || stdout !== ''
}

/** Those of `head` that none of the others has. */
export async function countCommits(
  { git, main }: Repository,
  head: string,
  others: readonly (string | null)[],
): Promise<number> {
  const without = others.flatMap((other) => (other === null ? [] : [`^${other}`]))
  return Number(await git.run(main, ['rev-list', '--count', head, ...without]))
}

export async function writeCommit(
  repository: Repository,
  tree: string,
  parents: readonly string[],
  message: string,
): Promise<string> {
  const { git, main } = repository
  const args = ['commit-tree', ...parents.flatMap((parent) => ['-p', parent]), '-m', message, tree]
  return await git.run(main, args, { settings: await identityOf(repository) })
}

function placeOf({ commonDir }: Repository, { folder, gitDir }: ItemWork): Required<GitPlace> {
  return { cwd: folder, workTree: folder, gitDir: gitDir ?? commonDir }
}

interface Changes {
  tree: string
  incomplete: string | null
}

/** All files as they are now, in an index of our own. */
async function takeChanges(repository: Repository, work: ItemWork, head: string): Promise<Changes> {
  const { git } = repository
  const place = placeOf(repository, work)
  // Goes with the worktree, should this process die.
  const index = path.join(place.gitDir, `curfew-index-${work.jobId}-${work.itemId}`)
  const options = { isLong: true, env: { GIT_INDEX_FILE: index } }
  // Also files outside of a sparse checkout: git would leave them out.
  const args = ['add', '--all', '--sparse', '--ignore-errors']
  try {
    // With its own index, files that were not touched need not be read, and what it staged by force is known.
    let added = (await copyIndex(work.gitDir, index)) ? await git.ask(place, args, options) : null
    if (added === null || added.code > 1 || added.code < 0) {
      await rm(index, { force: true })
      await git.run(place, ['read-tree', head], options)
      added = await git.ask(place, args, options)
    }
    // 1: some files could not be added, the others are.
    if (added.code !== 0 && added.code !== 1) throw gitFailed(args, added)
    const tree = await git.run(place, ['write-tree'], options)
    return { tree, incomplete: added.stderr.trim().slice(0, MAX_INCOMPLETE) || null }
  } finally {
    await Promise.all([index, `${index}.lock`].map((file) => rm(file, { force: true })))
  }
}

async function copyIndex(gitDir: string | null, to: string): Promise<boolean> {
  if (gitDir === null) return false
  const from = path.join(gitDir, 'index')
  const written = await unlessMissing(stat(from))
  if (written === null) return false
  await copyFile(from, to)
  // A file may have changed within the tick in which the index was written. git looks at such files again only where
  // the index is not newer than they are, as a copy would be.
  const writtenSecs = Math.floor(written.mtimeMs / 1000)
  await utimes(to, writtenSecs, writtenSecs)
  return true
}

/** The commit that its changes are shown against: where it left what is in the main checkout now, or its base. */
async function whereItBegan(
  repository: Repository,
  head: string,
  base: string | null,
  mainHead: string | null,
): Promise<string> {
  const { git, main } = repository
  if (mainHead === null) return base ?? head
  const { stdout } = await git.ask(main, ['merge-base', mainHead, head])
  const met = stdout.trim()
  if (met === '') return base ?? head
  return base === null || (await isAncestor(repository, base, met)) ? met : base
}
