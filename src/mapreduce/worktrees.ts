/**
 * The folders that the items of one run work in: git worktrees of one pinned commit, or plain folders where there is
 * no repository. Owns making and removing them; when that is done is for its caller to say.
 *
 * A folder goes only after what was made in it is kept. What cannot be kept stays; what cannot be removed is left under
 * another name. Both are found again by `listItemFolders`.
 */
import { lstat, mkdir, realpath, rmdir } from 'node:fs/promises'
import path from 'node:path'
import type { Clock } from '../core/clock.ts'
import { assert, CurfewError } from '../core/errors.ts'
import type { Logger } from '../core/logger.ts'
import { SystemClock } from '../core/system-clock.ts'
import { moveAside, removeFolder } from './folder-removal.ts'
import { Git } from './git.ts'
import type { ItemWork, KeptWork } from './kept-work.ts'
import { headOf, keepWork } from './kept-work.ts'
import type { MergeOutcome } from './merge-back.ts'
import { mergeItem } from './merge-back.ts'
import { unlessMissing } from './missing-file.ts'
import type { Repository } from './repository.ts'
import { commitOf, findRegistration, findRepository, unregister } from './repository.ts'

export interface ItemFoldersOptions {
  cwd: string
  jobId: string
  /** For the folders of this run, and nothing else. Outside the repository. */
  root: string
  /** Off: plain folders, also in a repository. */
  useGit?: boolean
  /** The commit that an earlier session of this run has pinned. */
  base?: string | null
  clock?: Clock
  env?: NodeJS.ProcessEnv
  logger: Logger
}

export interface ItemFolder {
  /** In a worktree, the folder that corresponds to `cwd`. */
  path: string
  kind: 'worktree' | 'plain'
}

export interface Removal {
  kept: KeptWork | null
  /** Why the folder, or a part of it, is still there. */
  failed: string | null
}

/** What stands in refs and paths as it is. */
const ID = /^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$/

interface Pinned {
  repository: Repository
  base: string
  /** `cwd` inside the checkout; empty for its top. */
  prefix: string
}

export class ItemFolders {
  readonly kind: 'worktree' | 'plain'
  /** The commit that every item starts from. */
  readonly base: string | null
  /** Why there are no worktrees, where they could have been expected. */
  readonly note: string | null
  readonly #jobId: string
  readonly #root: string
  readonly #logger: Logger
  readonly #pinned: Pinned | null

  private constructor(
    { jobId, logger }: ItemFoldersOptions,
    root: string,
    pinned: Pinned | null,
    note: string | null,
  ) {
    this.kind = pinned ? 'worktree' : 'plain'
    this.base = pinned?.base ?? null
    this.note = note
    this.#jobId = jobId
    this.#root = root
    this.#logger = logger
    this.#pinned = pinned
  }

  /** Looks at `cwd` once: what becomes of its repository later does not change where items start. */
  static async open(options: ItemFoldersOptions): Promise<ItemFolders> {
    const { cwd, jobId, useGit = true, base = null, clock = new SystemClock(), env = process.env } = options
    assert(ID.test(jobId), `'${jobId}' is no id of a job`)
    await mkdir(options.root, { recursive: true })
    const root = await realpath(options.root) // as git registers it
    if (!useGit) return new ItemFolders(options, root, null, null)

    const found = await findRepository(new Git({ clock, env }), cwd)
    if (found.type === 'none') {
      if (base !== null)
        throw new CurfewError('repository_gone', `the run began at commit ${base}, but ${found.why}`, {
          hint: 'Resume it in the repository that it was started in.',
        })
      const note = `${found.why}: every item works in a folder of its own that is empty at first`
      return new ItemFolders(options, root, null, note)
    }
    const { repository, head, prefix } = found
    if (base !== null && (await commitOf(repository, repository.main, base)) === null)
      throw new CurfewError('base_gone', `the run began at commit ${base}, which is not in this repository`, {
        hint: 'Resume it in the repository that it was started in.',
      })
    return new ItemFolders(options, root, { repository, prefix, base: base ?? head }, null)
  }

  /** A fresh one, also where an earlier attempt left its own: that is removed first, and its work kept. */
  async create(itemId: string): Promise<ItemFolder> {
    const folder = this.#folderOf(itemId)
    if (this.#pinned === null && (await isDone(mkdir(folder)))) return { path: folder, kind: 'plain' }
    const { failed } = await this.remove(itemId, { keep: true })
    if (failed !== null)
      throw new CurfewError('folder_failed', `the folder of an earlier attempt is in the way: ${failed}`, {
        fields: { folder },
      })
    if (this.#pinned === null) {
      await mkdir(folder, { recursive: true })
      return { path: folder, kind: 'plain' }
    }
    const { repository, base, prefix } = this.#pinned
    try {
      await checkOut(repository, folder, base)
      const inside = path.join(folder, prefix)
      await mkdir(inside, { recursive: true }) // the commit may have no file there
      return { path: inside, kind: 'worktree' }
    } catch (error) {
      await this.remove(itemId, { keep: false })
      throw new CurfewError(
        'folder_failed',
        `there is no worktree for ${itemId}: ${(error as Error).message}`,
        {
          ...{ fields: { folder }, cause: error },
        },
      )
    }
  }

  /**
   * With `keep`, what was committed or changed, and is not merged, is kept before. Its commands have to be dead.
   * Never rejects. Where there is no such folder, there is nothing to do.
   */
  async remove(itemId: string, { keep }: { keep: boolean }): Promise<Removal> {
    const folder = this.#folderOf(itemId)
    let kept: KeptWork | null = null
    if (this.#pinned === null && (await isDone(rmdir(folder)))) return { kept, failed: null }
    try {
      const registered = this.#pinned && (await findRegistration(this.#pinned.repository.commonDir, folder))
      if (!registered && (await unlessMissing(lstat(folder))) === null) return { kept, failed: null }
      if (this.#pinned && keep) {
        const { repository, base } = this.#pinned
        const gitDir = registered?.gitDir ?? null
        kept = await keepItem(repository, { jobId: this.#jobId, itemId, folder, gitDir, base })
      }
      await removeItem(this.#pinned?.repository ?? null, folder)
      return { kept, failed: null }
    } catch (error) {
      const failed = (error as Error).message
      this.#logger.warn(
        { jobId: this.#jobId, itemId, folder, error: failed },
        'folder of an item not removed',
      )
      return { kept, failed }
    }
  }

  /**
   * One at a time, into whatever the main checkout is at. Changes that are not committed are not merged. Never rejects.
   * With `known`, its last commit, its folder need not be there any more.
   */
  async mergeBack(itemId: string, known: string | null = null): Promise<MergeOutcome> {
    if (this.#pinned === null) return { type: 'nothing' }
    const { repository, base } = this.#pinned
    try {
      const head = known ?? (await this.headOf(itemId))
      const item = { jobId: this.#jobId, itemId, head, base }
      return await repository.merging.take(() => mergeItem(repository, item))
    } catch (error) {
      return { type: 'refused', branch: null, message: (error as Error).message }
    }
  }

  /** The last commit of its worktree; null where there is none. */
  async headOf(itemId: string): Promise<string | null> {
    return this.#pinned && (await headOf(this.#pinned.repository, await this.#gitDirOf(itemId)))
  }

  /** Removes the folder of the run where nothing is left in it. */
  async close(): Promise<void> {
    try {
      await rmdir(this.#root)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOTEMPTY') throw error
    }
  }

  async #gitDirOf(itemId: string): Promise<string | null> {
    if (this.#pinned === null) return null
    const { commonDir } = this.#pinned.repository
    return (await findRegistration(commonDir, this.#folderOf(itemId)))?.gitDir ?? null
  }

  #folderOf(itemId: string): string {
    assert(ID.test(itemId), `'${itemId}' is no id of an item`)
    return path.join(this.#root, itemId)
  }
}

/** In one call of the system instead of five, for most items of a run without git. False: it takes more than that. */
async function isDone(call: Promise<unknown>): Promise<boolean> {
  try {
    await call
    return true
  } catch {
    return false // who makes sure of it says why not
  }
}

/** Only the registration waits for others; files are written by many at once. */
async function checkOut({ git, main, registering }: Repository, folder: string, base: string): Promise<void> {
  const args = ['worktree', 'add', '--detach', '--no-checkout', '--', folder, base]
  await registering.take(() => git.run(main, args))
  await git.run({ cwd: folder }, ['reset', '--hard', '--quiet'], { isLong: true })
}

export async function keepItem(repository: Repository, work: ItemWork): Promise<KeptWork | null> {
  try {
    return await keepWork(repository, work)
  } catch (error) {
    const message = `${work.folder} stays, as what was made in it could not be kept: ${(error as Error).message}`
    throw new CurfewError('folder_failed', message, { cause: error })
  }
}

/** git takes a worktree without a folder off its list, whatever was destroyed in it. */
export async function removeItem(repository: Repository | null, folder: string): Promise<void> {
  const aside = await moveAside(folder)
  if (repository) await unregister(repository, folder)
  if (aside !== null) await removeFolder(aside)
}
