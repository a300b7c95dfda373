/**
 * Brings the commits of an item into the main checkout. The merge is made without touching a file, so a conflict
 * leaves everything as it was; then the checkout is moved forward, which git refuses where it would overwrite anything.
 * What is not merged gets a branch.
 */
import { CurfewError } from '../core/errors.ts'
import { gitFailed } from './git.ts'
import { countCommits, writeCommit } from './kept-work.ts'
import type { Repository } from './repository.ts'
import { commitOf, isAncestor, nameCommit } from './repository.ts'

export type MergeOutcome =
  /** It has made no commit. */
  | { type: 'nothing' }
  /** `commit` is in the main checkout, and with it all of the item's. */
  | { type: 'merged'; commit: string }
  | { type: 'conflict'; branch: string; files: string[] }
  /** The main checkout could not be moved, for example for changes in it that are not committed. */
  | { type: 'refused'; branch: string | null; message: string }

export interface MergedItem {
  jobId: string
  itemId: string
  /** Its last commit; null where it is not known any more. */
  head: string | null
  base: string
}

/** The head of the main checkout may move while the merge is made: by a user, or another run. */
const MAX_TRIES = 5
const MAX_CONFLICTS = 1_000
const BRANCHES = 'refs/heads/'

/** Never rejects: what goes wrong is `refused`. To be called in the turn for merging. */
export async function mergeItem(repository: Repository, item: MergedItem): Promise<MergeOutcome> {
  const { head } = item
  try {
    if (head === null)
      throw new CurfewError('git_failed', 'its commits cannot be found: its worktree is gone')
    return await merge(repository, item, head)
  } catch (error) {
    const message = (error as Error).message
    try {
      return { type: 'refused', message, branch: head && (await keepBranch(repository, item, head)) }
    } catch (second) {
      const why = `its branch could not be made: ${(second as Error).message}`
      return { type: 'refused', message: `${message}; ${why}`, branch: null }
    }
  }
}

async function merge(repository: Repository, item: MergedItem, head: string): Promise<MergeOutcome> {
  const { git, main } = repository
  if ((await countCommits(repository, head, [item.base])) === 0) return { type: 'nothing' }
  for (let tries = 1; ; tries++) {
    const mainHead = await commitOf(repository, main, 'HEAD')
    if (mainHead === null) throw new CurfewError('git_failed', 'the main checkout has no commit')
    // A run that was killed right after the merge comes here again.
    if (await isAncestor(repository, head, mainHead)) return { type: 'merged', commit: head }
    const target = await mergedCommit(repository, item, head, mainHead)
    if (typeof target !== 'string') {
      const branch = await keepBranch(repository, item, head)
      return { type: 'conflict', branch, files: target.conflicts }
    }
    // Unless told, git overwrites files that it ignores: a user's `.env`.
    const args = [
      ...['merge', '--ff-only', '--no-squash', '--no-autostash', '--no-overwrite-ignore', '--quiet'],
      target,
    ]
    const moved = await git.ask(main, args, { isLong: true })
    if (moved.code === 0) return { type: 'merged', commit: target }
    const isOvertaken = (await commitOf(repository, main, 'HEAD')) !== mainHead
    if (!isOvertaken || tries === MAX_TRIES) throw gitFailed(args, moved)
  }
}

/** Of both, or which files stand against it. */
async function mergedCommit(
  repository: Repository,
  { jobId, itemId }: MergedItem,
  head: string,
  mainHead: string,
): Promise<string | { conflicts: string[] }> {
  if (await isAncestor(repository, mainHead, head)) return head
  const { git, main } = repository
  const args = ['merge-tree', '--write-tree', '-z', '--name-only', '--no-messages', mainHead, head]
  const merged = await git.ask(main, args, { isLong: true, mayBeCut: true })
  const [tree = '', ...files] = merged.stdout.split('\0').filter(Boolean)
  if (merged.code === 1) return { conflicts: files.slice(0, MAX_CONFLICTS) }
  if (merged.code !== 0) throw gitFailed(args, merged)
  return await writeCommit(repository, tree, [mainHead, head], `Merge item ${itemId} of ${jobId}`)
}

/** Its name as git shows it; that of a ref elsewhere where there can be no such branch, for one named `curfew`. */
async function keepBranch(repository: Repository, item: MergedItem, head: string): Promise<string> {
  const name = `curfew/${item.jobId}/${item.itemId}`
  try {
    const ref = await nameCommit(repository, `${BRANCHES}${name}`, head)
    return ref.slice(BRANCHES.length)
  } catch (error) {
    if (!(error instanceof CurfewError)) throw error
    return await nameCommit(repository, `refs/${name}`, head)
  }
}
