/**
 * The map-reduces among the workflows of a job, in the process that runs them: each has a folder, a queue and an id that
 * are made before the job is stored, so that whoever goes on with the job finds them. What they come to is for the job.
 */
import { CurfewError } from '../core/errors.ts'
import type { IdSource } from '../core/id.ts'
import type { JobDefinition } from '../definitions/job.ts'
import type { JobModel } from '../definitions/job-model.ts'
import { MAPREDUCE_FORMAT } from '../definitions/mapreduce-model.ts'
import type { MapreduceOutline } from '../definitions/mapreduce-outline.ts'
import { keepPlaces, placesOf } from '../definitions/places.ts'
import { contentHash } from '../definitions/workflow-model.ts'
import { foldersOf } from './ended-runs.ts'
import type { MapreduceParts } from './mapreduce-run.ts'
import { MapreduceRun } from './mapreduce-run.ts'
import type { MemberFile } from './member-files.ts'
import type { RunRecord } from './run-folder.ts'
import { RunFolder } from './run-folder.ts'

export type MembersParts = Omit<MapreduceParts, 'folder' | 'changed' | 'retryTimeouts'>

interface NewMembers {
  /** Of all runs. */
  folder: string
  jobId: string
  cwd: string
  place: RunRecord['place']
  ids: IdSource
}

export class JobMembers {
  /** By the ids of their workflows. */
  readonly runs: ReadonlyMap<string, MapreduceRun>

  private constructor(folders: readonly RunFolder[], parts: MembersParts) {
    const runs = folders.map((folder) => new MapreduceRun({ ...parts, folder, changed: () => undefined }))
    this.runs = new Map(runs.map((run) => [run.folder.record.memberOf?.workflow ?? '', run]))
  }

  /** Of a job that is about to be stored under this id. */
  static create(files: readonly MemberFile[], options: NewMembers, parts: MembersParts): JobMembers {
    const { folder: runs, jobId: job, cwd, place, ids } = options
    const folders: RunFolder[] = []
    try {
      for (const { id: workflow, file, model, input } of files) {
        const jobId = ids.next('w', parts.clock.wall())
        const { params, args, worktrees: useGit } = input
        const record: RunRecord = {
          ...{ format: MAPREDUCE_FORMAT, jobId, file, cwd, model, params, args, useGit, base: null, place },
          ...{ overrides: [], retrying: [], retryOf: null, endedAt: null, isStarted: false },
          memberOf: { job, workflow },
        }
        folders.push(RunFolder.create(runs, record))
      }
      return new JobMembers(folders, parts)
    } catch (error) {
      for (const folder of folders) folder.discard()
      throw error
    }
  }

  /** Of a job that somebody left; those whose folders are not here are not among them. */
  static open(runs: string, jobId: string, parts: MembersParts): JobMembers {
    const folders: RunFolder[] = []
    try {
      for (const id of memberRuns(runs, ({ job }) => job === jobId)) folders.push(RunFolder.open(runs, id))
      return new JobMembers(folders, parts)
    } catch (error) {
      for (const folder of folders) folder.unlock()
      throw error
    }
  }

  /** The job as it is stored: with what was made of the files it names. */
  definitionOf(definition: JobDefinition): JobDefinition {
    const workflows = definition.model.workflows.map((one) => {
      const outline = this.outline(one.id)
      return outline ? { ...one, outline } : one
    })
    const model: JobModel = { ...definition.model, workflows }
    keepPlaces(model, placesOf(definition.model))
    return { ...definition, model, hash: contentHash(model) }
  }

  outline(workflow: string): MapreduceOutline | null {
    return this.runs.get(workflow)?.outline ?? null
  }

  /** The job is stored. */
  started(): void {
    for (const { folder } of this.runs.values()) {
      folder.record.isStarted = true
      folder.save()
    }
  }

  /** The job was never stored. */
  discard(): void {
    for (const { folder } of this.runs.values()) folder.discard()
  }

  /** Nothing of them runs here any more; somebody may go on with them. */
  async leave(): Promise<void> {
    for (const run of this.runs.values()) {
      await run.settle()
      run.folder.unlock()
    }
  }
}

/** The runs in jobs of which this is true, by what is written down of them. */
export function memberRuns(
  runs: string,
  test: (member: NonNullable<RunRecord['memberOf']>, record: RunRecord) => boolean,
): string[] {
  return foldersOf(runs).filter((id) => {
    if (!RunFolder.exists(runs, id)) return false
    const record = recordOf(runs, id)
    return record?.memberOf != null && record.endedAt === null && test(record.memberOf, record)
  })
}

function recordOf(runs: string, id: string): RunRecord | null {
  try {
    return RunFolder.look(runs, id).record
  } catch (error) {
    if (error instanceof CurfewError) return null // of another version, or broken: for a person to look at
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null // somebody has ended it meanwhile
    throw error
  }
}
