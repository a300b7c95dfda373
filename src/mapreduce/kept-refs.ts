/**
 * What is kept in a repository of items whose work was not merged: refs, and branches of those that conflicted. Which
 * of them may go is for the caller to say.
 */
import type { Clock } from '../core/clock.ts'
import { SystemClock } from '../core/system-clock.ts'
import { Git, gitFailed } from './git.ts'
import type { Repository } from './repository.ts'
import { findRepository } from './repository.ts'

export interface KeptRef {
  jobId: string
  itemId: string
  ref: string
  /** Its name as people say it; null for a ref that is none. */
  branch: string | null
  commit: string
  committedAt: number
}

export interface KeptRefs {
  repository: Repository | null
  refs: KeptRef[]
}

/** Not of items alone: commands make worktrees too. */
const KEPT = /^refs\/(heads\/)?curfew\/([a-z]_\w+)\/([^/]+?)(?:\.\d+)?$/

/** Of the repository of this folder. */
export async function listKeptRefs(
  cwd: string,
  { clock = new SystemClock(), env = process.env }: { clock?: Clock; env?: NodeJS.ProcessEnv } = {},
): Promise<KeptRefs> {
  const git = new Git({ clock, env })
  const found = await findRepository(git, cwd)
  if (found.type === 'none') return { repository: null, refs: [] }
  const { repository } = found
  const format = '--format=%(objectname) %(committerdate:unix) %(refname)'
  const text = await git.run(repository.main, ['for-each-ref', format, 'refs/curfew', 'refs/heads/curfew'])
  const refs = text.split('\n').flatMap((line): KeptRef[] => {
    const [commit = '', secs = '', ref = ''] = line.split(' ')
    const [, heads, jobId, itemId] = KEPT.exec(ref) ?? []
    if (jobId === undefined || itemId === undefined) return []
    const branch = heads === undefined ? null : ref.slice('refs/heads/'.length)
    return [{ jobId, itemId, ref, branch, commit, committedAt: Number(secs) * 1_000 }]
  })
  return { repository, refs }
}

/** Only as it was listed. Answers why it stays, or null: git keeps a branch that somebody has checked out. */
export async function removeKeptRef(
  { git, main }: Repository,
  { ref, branch, commit }: KeptRef,
): Promise<string | null> {
  const args =
    branch === null ? ['update-ref', '-d', ref, commit] : ['branch', '--delete', '--force', '--', branch]
  // Somebody may have worked on the branch since; one that is checked out git does not remove.
  const now = await git.ask(main, ['rev-parse', '--verify', '--quiet', ref])
  if (now.code === 0 && now.stdout.trim() !== commit) return `${branch ?? ref} has moved since`
  const removed = await git.ask(main, args)
  return removed.code === 0 ? null : gitFailed(args, removed).message
}
