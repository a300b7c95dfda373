/**
 * `curfew worktrees clean`: removes what runs have left that nobody works on. Folders of items always, their work kept;
 * folders of runs that have ended; and with --kept also the work that was kept.
 */
import { Command } from 'commander'
import { durationMs } from '../core/duration.ts'
import type { RemovedRun, RunsKnown } from '../mapreduce/ended-runs.ts'
import { removeEndedRuns } from '../mapreduce/ended-runs.ts'
import type { KeptRef } from '../mapreduce/kept-refs.ts'
import { listKeptRefs, removeKeptRef } from '../mapreduce/kept-refs.ts'
import type { LeftFolder } from '../mapreduce/left-folders.ts'
import { cleanItemFolder } from '../mapreduce/left-folders.ts'
import { RunFolder, runsFolder } from '../mapreduce/run-folder.ts'
import { Colours } from './colours.ts'
import { EXIT, usageError } from './exit-code.ts'
import type { Io } from './io.ts'
import { neededByLetters, withKnownRuns } from './known-runs.ts'
import type { Flags } from './options.ts'
import { clientOptions } from './options.ts'
import { printable } from './plain-text.ts'
import { printJson, printLines } from './print.ts'
import { listFolders, placeOf } from './worktrees-list.ts'

interface CleanFlags extends Flags {
  dryRun?: boolean
  kept?: boolean
  olderThan?: string
}

interface CleanedFolder {
  jobId: string
  itemId: string
  path: string
  kept: string | null
  failed: string | null
}

/** `stays`: why it is still wanted. */
type CleanedKept = KeptRef & { stays: string | null; failed: string | null }

export function worktreesCleanCommand(io: Io): Command {
  const command = new Command('clean')
    .description('Remove what runs that nobody works on have left; commits and changes are kept as refs')
    .argument('[job]', 'only of this run')
    .option('--kept', 'also the kept work of runs that have ended, unless an open dead letter needs it')
    .option('--older-than <duration>', 'with --kept: only what was committed longer ago')
    .option('--dry-run', 'only say what would go')
    .addHelpText(
      'after',
      `
Examples:
  $ curfew worktrees clean --dry-run
  $ curfew worktrees clean --kept --older-than 30d

What was committed or changed in a folder is kept under refs/curfew/JOB/ITEM of its repository.
A run that is resumed makes its folders anew. Work that a dead letter needs goes when that is discarded.`,
    )
  return clientOptions(command).action((job: string | undefined, flags: CleanFlags) => clean(io, job, flags))
}

async function clean(io: Io, job: string | undefined, flags: CleanFlags): Promise<void> {
  const { dryRun = false, kept: withKept = false, olderThan } = flags
  if (olderThan !== undefined && !withKept) throw usageError('--older-than: only with --kept')
  const olderThanMs = olderThan === undefined ? 0 : durationMs(olderThan, '--older-than')
  const worktrees = await cleanFolders(io, job, dryRun)
  const { runs, kept } = await withKnownRuns(io, flags, async (client, known) => {
    const needed = client && withKept ? await neededByLetters(client) : new Set<string>()
    const wanted = { job, olderThanMs, needed, known, isDry: dryRun }
    // First: where the folder of a run is gone, nobody knows which store its letters are in.
    const keptWork = withKept ? await cleanKept(io, wanted) : []
    const options = { ...placeOf(io), jobId: job, isDry: dryRun }
    return { runs: known ? await removeEndedRuns(runsFolder(io.env), known, options) : [], kept: keptWork }
  })
  if ([...worktrees, ...runs, ...kept].some(({ failed }) => failed !== null)) io.exitCode = EXIT.failed
  if (flags.json) return printJson(io, { cleaned: worktrees, runs, kept, dryRun })
  if (worktrees.length + runs.length + kept.length === 0) io.stderr.write('There is nothing to clean.\n')
  printCleaned(io, { worktrees, runs, kept, dryRun })
}

async function cleanFolders(io: Io, job: string | undefined, isDry: boolean): Promise<CleanedFolder[]> {
  const left = (await listFolders(io)).filter(
    ({ isOrphaned, jobId }) => isOrphaned && (!job || jobId === job),
  )
  const cleaned: CleanedFolder[] = []
  for (const folder of left) {
    const { jobId, itemId } = folder
    const done = isDry ? NOTHING_DONE : await cleanIfFree(io, folder)
    if (done)
      cleaned.push({ jobId, itemId, path: folder.path, kept: done.kept?.ref ?? null, failed: done.failed })
  }
  return cleaned
}

const NOTHING_DONE = { kept: null, failed: null }

/** Null where somebody has begun to work on its run meanwhile. */
function cleanIfFree(io: Io, folder: LeftFolder) {
  const work = () => cleanItemFolder(folder, { cwd: io.cwd, ...placeOf(io) })
  return RunFolder.whileFree(runsFolder(io.env), folder.jobId, work)
}

interface WantedKept {
  job: string | undefined
  olderThanMs: number
  needed: ReadonlySet<string>
  known: RunsKnown | null
  isDry: boolean
}

async function cleanKept(io: Io, wanted: WantedKept): Promise<CleanedKept[]> {
  const { job, olderThanMs, needed, known, isDry } = wanted
  const { repository, refs } = await listKeptRefs(io.cwd, placeOf(io))
  const before = io.clock.wall() - olderThanMs
  const chosen = refs.filter(
    ({ jobId, committedAt }) => (!job || jobId === job) && (olderThanMs === 0 || committedAt < before),
  )
  const whys = new Map<string, string | null>()
  const cleaned: CleanedKept[] = []
  for (const one of chosen) {
    const { jobId, itemId } = one
    if (!whys.has(jobId)) whys.set(jobId, await whyItStays(io, jobId, known))
    const isNeeded = needed.has(`${jobId} ${itemId}`)
    const stays = isNeeded ? 'its dead letter is open' : (whys.get(jobId) ?? null)
    const failed = stays !== null || isDry || !repository ? null : await removeKeptRef(repository, one)
    cleaned.push({ ...one, stays, failed })
  }
  return cleaned
}

/** Null: its run is over, here and in its store. */
async function whyItStays(io: Io, jobId: string, known: RunsKnown | null): Promise<string | null> {
  const runs = runsFolder(io.env)
  if (RunFolder.isHeld(runs, jobId)) return 'its run is at work'
  const isOver = known && (await known.isOver(jobId))
  if (isOver === false) return 'its run has not ended'
  if (isOver || !RunFolder.exists(runs, jobId)) return null
  const { endedAt, place } = RunFolder.look(runs, jobId).record
  if (endedAt === null) return 'its run has not ended'
  if (known && JSON.stringify(place) === JSON.stringify(known.place)) return null
  return 'its dead letters may be in another store: name it with --store or --manager'
}

function printCleaned(
  io: Io,
  cleaned: { worktrees: CleanedFolder[]; runs: RemovedRun[]; kept: CleanedKept[]; dryRun: boolean },
): void {
  const { worktrees, runs, kept, dryRun } = cleaned
  const colours = new Colours(io, io.stdout)
  const went = dryRun ? 'would be removed' : 'removed'
  const what = (failed: string | null, done: string) =>
    failed === null ? done : colours.style('red', `could not be removed: ${printable(failed)}`)
  printLines(io, [
    ...worktrees.map((one) => {
      const done = one.kept === null ? went : `${went}, kept as ${one.kept}`
      return `${printable(one.path)} ${what(one.failed, done)}`
    }),
    ...runs.map(({ folder, failed }) => `${printable(folder)} ${what(failed, went)}`),
    ...kept.map(({ branch, ref, commit, failed, stays }) => {
      const done = stays === null ? `${went}; it was ${commit}` : colours.dim(`stays: ${stays}`)
      return `${printable(branch ?? ref)} ${what(failed, done)}`
    }),
  ])
}
