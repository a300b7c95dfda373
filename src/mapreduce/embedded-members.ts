/** The map-reduces in jobs of a program with an engine of its own: made when a job is stored, taken up again at an open. */
import type { Clock } from '../core/clock.ts'
import type { CurfewError } from '../core/errors.ts'
import type { IdSource } from '../core/id.ts'
import type { Logger } from '../core/logger.ts'
import type { JobDefinition } from '../definitions/job.ts'
import { DefinitionError, hasErrors } from '../definitions/problem.ts'
import type { OwnQueue } from '../worker/worker.ts'
import type { MembersParts } from './job-members.ts'
import { JobMembers, memberRuns } from './job-members.ts'
import { MapreduceRun } from './mapreduce-run.ts'
import { readMemberFiles } from './member-files.ts'
import type { RunRecord } from './run-folder.ts'
import { runsFolder } from './run-folder.ts'

export interface EmbeddedParts {
  /** As runs write it down. */
  place: RunRecord['place']
  worker: { takeQueue(own: OwnQueue): void; leaveQueue(queue: string): void }
  /** Null: there is no record of it. */
  isOver(jobId: string): Promise<boolean | null>
  /** False: it was told to stop waiting. */
  settled(jobId: string, signal: AbortSignal): Promise<boolean>
  clock: Clock
  chance: () => number
  ids: IdSource
  logger: Logger
}

export interface StoredJob {
  id: string
  existing: boolean
}

export class EmbeddedMembers {
  readonly #parts: EmbeddedParts
  readonly #cwd = process.cwd()
  readonly #env = { ...process.env }
  readonly #open = new Set<JobMembers>()
  readonly #ending = new Set<Promise<void>>()
  readonly #closing = new AbortController()

  constructor(parts: EmbeddedParts) {
    this.#parts = parts
    MapreduceRun.prepare()
  }

  /** `store` is given the job as it is stored, and the id it has to have. */
  async store(
    definition: JobDefinition,
    store: (definition: JobDefinition, id?: string) => Promise<StoredJob>,
  ): Promise<StoredJob> {
    const { members: files, problems } = readMemberFiles(definition.model, { cwd: this.#cwd, env: this.#env })
    if (hasErrors(problems))
      throw new DefinitionError(`job ${definition.model.name ?? ''}`.trimEnd(), problems)
    if (files.length === 0) return store(definition)
    const { ids, clock, place } = this.#parts
    const jobId = ids.next('j', clock.wall())
    const options = { folder: runsFolder(this.#env), jobId, cwd: this.#cwd, place, ids }
    const members = JobMembers.create(files, options, this.#membersParts())
    let stored: StoredJob
    try {
      stored = await store(members.definitionOf(definition), jobId)
    } catch (error) {
      members.discard()
      throw error
    }
    if (stored.existing) members.discard()
    else {
      members.started()
      this.#take(jobId, members)
    }
    return stored
  }

  /** What an earlier process left in this store; what another one works on is its own. */
  async takeUp(): Promise<void> {
    const runs = runsFolder(this.#env)
    const here = JSON.stringify(this.#parts.place)
    const jobs = new Set<string>()
    memberRuns(runs, ({ job }, { place }) => {
      if (JSON.stringify(place) === here) jobs.add(job)
      return false
    })
    for (const jobId of jobs) {
      // Of one that ended while nobody ran it the folders go.
      if ((await this.#parts.isOver(jobId)) === null) continue
      try {
        const members = JobMembers.open(runs, jobId, this.#membersParts())
        members.started()
        this.#take(jobId, members)
      } catch (error) {
        const { code, message } = error as CurfewError
        // The others, and all else in the store, go on.
        if (code !== 'in_use')
          this.#parts.logger.error({ jobId, error: message }, 'the map-reduces of a job cannot go on')
      }
    }
  }

  /** The engine is about to close. */
  leave(): void {
    this.#closing.abort()
  }

  /** Nothing runs here any more: others may go on. */
  async close(): Promise<void> {
    await Promise.all(this.#ending)
    for (const members of this.#open) await members.leave()
    this.#open.clear()
  }

  #take(jobId: string, members: JobMembers): void {
    this.#open.add(members)
    for (const { ownQueue } of members.runs.values()) this.#parts.worker.takeQueue(ownQueue)
    const { logger } = this.#parts
    const followed = this.#untilOver(jobId, members)
      .catch((error: Error) => logger.warn({ jobId, error: error.message }, 'the end of a job was not seen'))
      .finally(() => this.#ending.delete(followed))
    this.#ending.add(followed)
  }

  async #untilOver(jobId: string, members: JobMembers): Promise<void> {
    if (!(await this.#parts.settled(jobId, this.#closing.signal))) return
    this.#open.delete(members)
    for (const run of members.runs.values()) {
      await run.settle()
      for (const left of await run.end()) this.#parts.logger.warn({ runId: run.jobId }, left)
      this.#parts.worker.leaveQueue(run.ownQueue.queue)
    }
  }

  #membersParts(): MembersParts {
    const { clock, chance, logger } = this.#parts
    return {
      ...{ env: this.#env, clock, chance, logger },
      note: (text) => logger.warn({}, text),
      print: (output) => logger.info(output, 'a command of a phase printed'),
    }
  }
}
