/**
 * Folders of runs that have ended while nobody ran them, or whose dead letters are all done with: nobody will open them
 * again, and they go, with their work kept. What has become of a run is known by the store, which the caller asks.
 */
import { readdirSync } from 'node:fs'
import path from 'node:path'
import type { Clock } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { cleanItemFolder, listItemFolders } from './left-folders.ts'
import type { RunRecord } from './run-folder.ts'
import { RunFolder } from './run-folder.ts'

export interface RunsKnown {
  /** Where the store is, as runs write it down; null: a database. */
  place: RunRecord['place']
  /** Null: there is no record of it. */
  isOver(jobId: string): Promise<boolean | null>
  hasOpenLetters(jobId: string): Promise<boolean>
}

export interface EndedRunsOptions {
  clock: Clock
  env: NodeJS.ProcessEnv
  /** Only this one. */
  jobId?: string | undefined
  isDry?: boolean
  /** All of them unless set. */
  most?: number
}

export interface RemovedRun {
  jobId: string
  folder: string
  failed: string | null
}

/** A command that does something else looks at so many, the last that were begun, and does not wait for thousands. */
export const MOST_BESIDE = 200

export async function removeEndedRuns(
  runs: string,
  known: RunsKnown,
  options: EndedRunsOptions,
): Promise<RemovedRun[]> {
  const removed: RemovedRun[] = []
  const jobIds = foldersOf(runs).filter((jobId) => options.jobId === undefined || jobId === options.jobId)
  for (const jobId of jobIds
    .sort()
    .reverse()
    .slice(0, options.most ?? jobIds.length)) {
    const verdict = await verdictOn(runs, jobId, known)
    if (verdict === 'stays') continue
    const folder = path.join(runs, jobId)
    try {
      const isDone = options.isDry || (await removeRun(runs, jobId, verdict === 'letters', options))
      if (isDone) removed.push({ jobId, folder, failed: null })
    } catch (error) {
      removed.push({ jobId, folder, failed: (error as Error).message })
    }
  }
  return removed
}

/** `letters`: what a retry of them needs stays. */
async function verdictOn(
  runs: string,
  jobId: string,
  known: RunsKnown,
): Promise<'stays' | 'goes' | 'letters'> {
  if (!RunFolder.exists(runs, jobId) || RunFolder.isHeld(runs, jobId)) return 'stays'
  let record: RunRecord
  try {
    record = RunFolder.look(runs, jobId).record
  } catch (error) {
    if (error instanceof CurfewError) return 'stays' // of another version, or broken: for a person to look at
    throw error
  }
  const isHere = record.place !== null && JSON.stringify(record.place) === JSON.stringify(known.place)
  const isOver = await known.isOver(record.memberOf?.job ?? jobId)
  // A store that has no record of it has removed it, if it is that store.
  const hasEnded = isOver ?? (isHere && record.isStarted)
  if (!hasEnded && record.endedAt === null) return 'stays'
  if (!isHere && isOver === null) return 'stays'
  const hasLetters = record.retryOf === null && (await known.hasOpenLetters(jobId))
  if (!hasLetters) return 'goes'
  return record.endedAt === null ? 'letters' : 'stays'
}

/** False: somebody has begun to work on it. */
async function removeRun(
  runs: string,
  jobId: string,
  hasLetters: boolean,
  { clock, env }: EndedRunsOptions,
): Promise<boolean> {
  let folder: RunFolder
  try {
    folder = RunFolder.open(runs, jobId)
  } catch (error) {
    if (error instanceof CurfewError && error.code === 'in_use') return false
    throw error
  }
  const failures: string[] = []
  if (folder.workFolders().length > 0) {
    const left = await listItemFolders(runs, { cwd: folder.record.cwd, clock, env })
    for (const one of left.filter((each) => each.jobId === jobId)) {
      const { failed } = await cleanItemFolder(one, { clock, env })
      if (failed !== null) failures.push(failed)
    }
  }
  folder.end(clock.wall(), { hasLetters })
  if (failures.length > 0) throw new CurfewError('folder_failed', failures.join('; '))
  return true
}

/** All there are. */
export function foldersOf(runs: string): string[] {
  try {
    return readdirSync(runs)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return []
    throw error
  }
}
