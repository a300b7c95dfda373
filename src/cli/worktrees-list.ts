/** `curfew worktrees list`: the folders of items, and the refs and branches under which work was kept. */
import path from 'node:path'
import { Command } from 'commander'
import type { KeptRef } from '../mapreduce/kept-refs.ts'
import { listKeptRefs } from '../mapreduce/kept-refs.ts'
import type { LeftFolder } from '../mapreduce/left-folders.ts'
import { listItemFolders } from '../mapreduce/left-folders.ts'
import { RunFolder, runsFolder } from '../mapreduce/run-folder.ts'
import { Colours } from './colours.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { jsonOption } from './options.ts'
import { outputWidth, printJson, printLines, roughDuration } from './print.ts'
import { tableLines } from './text-table.ts'

/** `isOrphaned`: nobody works on its run. */
export type ListedFolder = LeftFolder & { isOrphaned: boolean }

interface ListFlags extends Flags {
  orphaned?: boolean
  kept?: boolean
}

export function worktreesListCommand(io: Io): Command {
  const command = new Command('list')
    .description('List work folders, those in use and those that were left, and the kept work of items')
    .option('--orphaned', 'only folders of runs that nobody works on')
    .option('--kept', 'only kept work')
    .addHelpText('after', '\nExample:\n  $ curfew worktrees list --orphaned --json')
  return jsonOption(command).action(async ({ json, orphaned, kept: keptOnly }: ListFlags) => {
    const all = keptOnly ? [] : await listFolders(io)
    const worktrees = orphaned ? all.filter(({ isOrphaned }) => isOrphaned) : all
    const kept = orphaned && !keptOnly ? [] : (await listKeptRefs(io.cwd, placeOf(io))).refs
    if (json) return printJson(io, { worktrees, kept })
    if (worktrees.length + kept.length === 0) io.stderr.write('There are none.\n')
    if (worktrees.length > 0) printLines(io, folderLines(io, worktrees))
    if (worktrees.length > 0 && kept.length > 0) printLines(io, [''])
    if (kept.length > 0) printLines(io, keptLines(io, kept))
  })
}

export async function listFolders(io: Io): Promise<ListedFolder[]> {
  const runs = runsFolder(io.env)
  const folders = await listItemFolders(runs, { cwd: io.cwd, ...placeOf(io) })
  return folders.map((folder) => ({ ...folder, isOrphaned: !RunFolder.isHeld(runs, folder.jobId) }))
}

export function placeOf({ clock, env }: Io): Pick<Io, 'clock'> & { env: NodeJS.ProcessEnv } {
  return { clock, env: { ...env } }
}

function folderLines(io: Io, folders: readonly ListedFolder[]): string[] {
  const colours = new Colours(io, io.stdout)
  return tableLines(
    folders,
    [
      { title: 'RUN', text: ({ jobId }) => jobId },
      { title: 'ITEM', text: ({ itemId }) => itemId },
      { title: 'STATE', text: ({ isOrphaned }) => (isOrphaned ? 'orphaned' : 'in use') },
      {
        title: 'WORK',
        text: ({ hasChanges, commits }) =>
          [commits > 0 ? `${commits} commits` : '', hasChanges ? 'changes' : ''].filter(Boolean).join(', '),
      },
      { title: 'FOLDER', text: (folder) => path.relative(io.cwd, folder.path) || folder.path, shrinksTo: 20 },
    ],
    { width: outputWidth(io), colours },
  )
}

function keptLines(io: Io, kept: readonly KeptRef[]): string[] {
  const colours = new Colours(io, io.stdout)
  const now = io.clock.wall()
  return tableLines(
    kept,
    [
      { title: 'RUN', text: ({ jobId }) => jobId },
      { title: 'ITEM', text: ({ itemId }) => itemId },
      { title: 'KEPT', text: ({ branch }) => (branch === null ? 'ref' : 'branch') },
      { title: 'AGE', text: ({ committedAt }) => roughDuration(Math.max(0, now - committedAt)) },
      { title: 'COMMIT', text: ({ commit }) => commit.slice(0, 12) },
      { title: 'NAME', text: ({ branch, ref }) => branch ?? ref, shrinksTo: 20 },
    ],
    { width: outputWidth(io), colours },
  )
}
