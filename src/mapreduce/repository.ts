/**
 * The git repository of a run: what is known of it, and the questions that are asked of it in more than one place.
 * Worktrees are found by what git itself has registered, never by the `.git` file inside them: commands can destroy it.
 */
import { readdir, readFile } from 'node:fs/promises'
import path from 'node:path'
import { CurfewError } from '../core/errors.ts'
import type { Git, GitPlace } from './git.ts'
import { gitFailed } from './git.ts'
import { unlessMissing } from './missing-file.ts'
import { RepositoryTurn } from './repository-turn.ts'

export interface Repository {
  git: Git
  /** The checkout that the run was started in. */
  main: GitPlace
  /** The `.git` folder that all worktrees share. */
  commonDir: string
  /** For registering and unregistering worktrees. */
  registering: RepositoryTurn
  /** For moving the head of a checkout. */
  merging: RepositoryTurn
}

/** A worktree that git knows of. */
export interface Registration {
  /** It may be gone. */
  folder: string
  /** What git keeps for it, its head among it. */
  gitDir: string
  commonDir: string
}

export type FoundRepository =
  | { type: 'none'; why: string }
  /** `prefix`: the folder that was looked at, inside the checkout; empty for its top. */
  | { type: 'found'; repository: Repository; head: string; prefix: string }

/** The first with `merge-tree --write-tree`. */
const OLDEST_GIT = [2, 38] as const
const MAX_NAMES = 100

/** Rejects where there is a repository that cannot be worked with: plain folders would not be what was meant. */
export async function findRepository(git: Git, cwd: string): Promise<FoundRepository> {
  let version: string
  try {
    version = await git.run({ cwd }, ['--version'])
  } catch (error) {
    if (!(error instanceof CurfewError) || error.code !== 'git_not_found') throw error
    return { type: 'none', why: 'there is no git program on PATH' }
  }
  const asked = ['--show-toplevel', '--git-common-dir', '--show-prefix']
  const args = ['rev-parse', '--path-format=absolute', ...asked]
  const places = await git.ask({ cwd }, args)
  if (places.code !== 0) {
    // git has one exit code for all of this.
    if (places.stderr.includes('not a git repository'))
      return { type: 'none', why: `${cwd} is not in a git repository` }
    if (places.stderr.includes('must be run in a work tree'))
      return { type: 'none', why: `${cwd} is in a git repository without a checkout` }
    checkVersion(version)
    throw gitFailed(args, places)
  }
  checkVersion(version)
  const lines = places.stdout.split('\n').slice(0, -1)
  const [top = '', commonDir = '', prefix = ''] =
    lines.length === asked.length ? lines : await oneByOne(git, cwd, asked)
  const repository = openRepository(git, { cwd: top }, commonDir)
  const head = await commitOf(repository, repository.main, 'HEAD')
  if (head === null) return { type: 'none', why: `the git repository ${top} has no commit yet` }
  return { type: 'found', repository, head, prefix: prefix.replace(/\/$/, '') }
}

/** Where a path holds a line break. */
async function oneByOne(git: Git, cwd: string, asked: readonly string[]): Promise<string[]> {
  const answers: string[] = []
  for (const one of asked) answers.push(await git.run({ cwd }, ['rev-parse', '--path-format=absolute', one]))
  return answers
}

export function openRepository(git: Git, main: GitPlace, commonDir: string): Repository {
  return {
    ...{ git, main, commonDir },
    registering: new RepositoryTurn(path.join(commonDir, 'curfew-worktrees'), git.clock),
    merging: new RepositoryTurn(path.join(commonDir, 'curfew-merge'), git.clock),
  }
}

export function checkVersion(version: string): void {
  const [major = 0, minor = 0] = (/(\d+)\.(\d+)/.exec(version) ?? []).slice(1).map(Number)
  if (major > OLDEST_GIT[0] || (major === OLDEST_GIT[0] && minor >= OLDEST_GIT[1])) return
  const message = `worktrees need git ${OLDEST_GIT.join('.')} or newer, but this is ${version}`
  throw new CurfewError('git_too_old', message, { hint: 'Update git, or run without worktrees.' })
}

export async function listRegistrations(commonDir: string): Promise<Registration[]> {
  const worktrees = path.join(commonDir, 'worktrees')
  const names = (await unlessMissing(readdir(worktrees))) ?? []
  const found = await Promise.all(
    names.map(async (name) => {
      const gitDir = path.join(worktrees, name)
      const text = await unlessMissing(readFile(path.join(gitDir, 'gitdir'), 'utf8'))
      const file = text?.trim() ?? ''
      return file === '' ? [] : [{ gitDir, commonDir, folder: path.dirname(path.resolve(gitDir, file)) }]
    }),
  )
  return found.flat()
}

export async function findRegistration(commonDir: string, folder: string): Promise<Registration | null> {
  return (await listRegistrations(commonDir)).find((registration) => registration.folder === folder) ?? null
}

/**
 * Forgets the worktree of a folder that is gone, and those that were made in it. Others are left alone, also those
 * that `prune` would take.
 */
export async function unregister(repository: Repository, gone: string): Promise<void> {
  const { git, main, registering, commonDir } = repository
  await registering.take(async () => {
    for (const { folder } of await listRegistrations(commonDir))
      if (folder === gone || folder.startsWith(gone + path.sep))
        await git.run(main, ['worktree', 'remove', '--force', '--force', '--', folder])
  })
}

/** Of what it stands for now, or null where there is no such commit. */
export async function commitOf({ git }: Repository, place: GitPlace, name: string): Promise<string | null> {
  const { code, stdout } = await git.ask(place, ['rev-parse', '--verify', '--quiet', `${name}^{commit}`])
  return code === 0 ? stdout.trim() : null
}

export async function isAncestor({ git, main }: Repository, older: string, newer: string): Promise<boolean> {
  const args = ['merge-base', '--is-ancestor', older, newer]
  const result = await git.ask(main, args)
  if (result.code !== 0 && result.code !== 1) throw gitFailed(args, result)
  return result.code === 0
}

/**
 * Makes a ref that points to this commit, and nothing that another ref points to is lost for it: where the name is
 * taken, the ref is `NAME.2`, and so on. Answers with its name.
 */
export async function nameCommit(repository: Repository, ref: string, commit: string): Promise<string> {
  const { git, main } = repository
  const nothing = '0'.repeat(commit.length)
  for (let count = 1; count <= MAX_NAMES; count++) {
    const name = count === 1 ? ref : `${ref}.${count}`
    // A branch and a ref that git would shorten to the same name are never told apart at a glance.
    if ((await commitOf(repository, main, twinOf(name))) !== null) continue
    const args = ['update-ref', name, commit, nothing]
    const made = await git.ask(main, args)
    if (made.code === 0) return name
    const taken = await commitOf(repository, main, name)
    if (taken === null) throw gitFailed(args, made)
    if (taken === commit) return name
  }
  throw new CurfewError('git_failed', `there are ${MAX_NAMES} refs named ${ref}, and none is free`)
}

/** `refs/curfew/x` is `curfew/x` for short, and so is the branch `curfew/x`. */
function twinOf(ref: string): string {
  const branches = 'refs/heads/'
  return ref.startsWith(branches) ? `refs/${ref.slice(branches.length)}` : ref.replace(/^refs\//, branches)
}

/** Settings for a commit of our own: the user's name, or ours where there is none. */
export async function identityOf({ git, main }: Repository): Promise<string[]> {
  const { stdout } = await git.ask(main, ['config', '--name-only', '--get-regexp', '^user\\.(name|email)$'])
  const set = stdout.split('\n')
  return [
    ...(set.includes('user.name') ? [] : ['user.name=curfew']),
    ...(set.includes('user.email') ? [] : ['user.email=curfew@localhost']),
  ]
}
