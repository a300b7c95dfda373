/** `curfew worktrees list` and `curfew worktrees clean`: the folders of items that are still there. */
import path from 'node:path'
import { Command } from 'commander'
import type { LeftFolder } from '../mapreduce/left-folders.ts'
import { cleanItemFolder, listItemFolders } from '../mapreduce/left-folders.ts'
import { RunFolder, runsFolder } from '../mapreduce/run-folder.ts'
import { Colours } from './colours.ts'
import { EXIT } from './exit-code.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { jsonOption } from './options.ts'
import { printable } from './plain-text.ts'
import { outputWidth, printJson, printLines } from './print.ts'
import { tableLines } from './text-table.ts'

/** `isOrphaned`: nobody works on its run. */
type Listed = LeftFolder & { isOrphaned: boolean }

export function worktreesCommand(io: Io): Command {
  return new Command('worktrees')
    .description('Look at the work folders of map-reduce items, and clean up what a crash left')
    .addCommand(listCommand(io))
    .addCommand(cleanCommand(io))
}

function listCommand(io: Io): Command {
  const command = new Command('list')
    .description('List work folders: those in use, and those that were left')
    .option('--orphaned', 'only those of runs that nobody works on')
    .addHelpText('after', '\nExample:\n  $ curfew worktrees list --orphaned --json')
  return jsonOption(command).action(async (flags: Flags & { orphaned?: boolean }) => {
    const all = await listed(io)
    const shown = flags.orphaned ? all.filter(({ isOrphaned }) => isOrphaned) : all
    if (flags.json) return printJson(io, { worktrees: shown })
    if (shown.length === 0) io.stderr.write('There are none.\n')
    else printLines(io, folderLines(io, shown))
  })
}

function cleanCommand(io: Io): Command {
  const command = new Command('clean')
    .description('Remove what runs that nobody works on have left; commits and changes are kept as refs')
    .argument('[job]', 'only of this run')
    .option('--dry-run', 'only say what would go')
    .addHelpText(
      'after',
      `
Example:
  $ curfew worktrees clean --dry-run

What was committed or changed in a folder is kept under refs/curfew/JOB/ITEM of its repository.
A run that is resumed makes its folders anew.`,
    )
  return jsonOption(command).action(async (job: string | undefined, flags: Flags & { dryRun?: boolean }) => {
    const left = (await listed(io)).filter(({ isOrphaned, jobId }) => isOrphaned && (!job || jobId === job))
    const cleaned: {
      jobId: string
      itemId: string
      path: string
      kept: string | null
      failed: string | null
    }[] = []
    for (const folder of left) {
      const { jobId, itemId } = folder
      const done = flags.dryRun ? NOTHING_DONE : await cleanIfFree(io, folder)
      if (done)
        cleaned.push({ jobId, itemId, path: folder.path, kept: done.kept?.ref ?? null, failed: done.failed })
    }
    if (cleaned.some(({ failed }) => failed !== null)) io.exitCode = EXIT.failed
    if (flags.json) return printJson(io, { cleaned, dryRun: flags.dryRun === true })
    if (cleaned.length === 0) io.stderr.write('There is nothing to clean.\n')
    const colours = new Colours(io, io.stdout)
    printLines(
      io,
      cleaned.map(({ path: folder, kept, failed }) => {
        const what =
          failed !== null ? colours.style('red', `could not be removed: ${printable(failed)}`) : null
        const verb = flags.dryRun
          ? 'would be removed'
          : kept === null
            ? 'removed'
            : `removed, kept as ${kept}`
        return `${printable(folder)} ${what ?? verb}`
      }),
    )
  })
}

const NOTHING_DONE = { kept: null, failed: null }

/** Null where somebody has begun to work on its run meanwhile. */
function cleanIfFree(io: Io, folder: LeftFolder) {
  const clean = () => cleanItemFolder(folder, { cwd: io.cwd, env: { ...io.env } })
  return RunFolder.whileFree(runsFolder(io.env), folder.jobId, clean)
}

async function listed(io: Io): Promise<Listed[]> {
  const runs = runsFolder(io.env)
  const folders = await listItemFolders(runs, { cwd: io.cwd, env: { ...io.env } })
  return folders.map((folder) => ({ ...folder, isOrphaned: !RunFolder.isHeld(runs, folder.jobId) }))
}

function folderLines(io: Io, folders: readonly Listed[]): string[] {
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
