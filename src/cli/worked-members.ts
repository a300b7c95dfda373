/** The map-reduces among the workflows of a job, while this process works on the job: their commands run here. */
import type { Client } from '../client/client.ts'
import { IdSource, idOfRequest } from '../core/id.ts'
import { SystemRandomness } from '../core/system-clock.ts'
import type { MemberView, WorkerProcess } from '../curfew.ts'
import type { MembersParts } from '../mapreduce/job-members.ts'
import { JobMembers } from '../mapreduce/job-members.ts'
import { MapreduceRun } from '../mapreduce/mapreduce-run.ts'
import type { MemberFile } from '../mapreduce/member-files.ts'
import { runsFolder } from '../mapreduce/run-folder.ts'
import { Colours } from './colours.ts'
import type { Config } from './config.ts'
import type { Display } from './display.ts'
import type { Place } from './find-engine.ts'
import type { Io } from './io.ts'
import { recordedPlace } from './known-runs.ts'
import type { Definitions } from './load-modules.ts'
import { storeLogger } from './logger.ts'
import { summarize } from './mapreduce-outcome.ts'
import { checkPrograms } from './mapreduce-plan.ts'
import type { MapreduceSummary } from './mapreduce-snapshot.ts'
import { summaryText } from './mapreduce-summary.ts'
import { planFolders } from './run-surroundings.ts'

export class WorkedMembers {
  readonly #io: Io
  readonly #members: JobMembers
  /** The job has this id once it is stored. */
  readonly jobId: string
  readonly requestId: string
  /** By queue, where another process has the store. */
  readonly #workers = new Map<string, WorkerProcess>()
  #display: Display | null = null
  /** Whoever made the folders may have been killed after the job was stored, and before they say so. */
  #mayBeStored: boolean
  #isOver = false

  private constructor(
    io: Io,
    config: Config,
    { requestId, mayBeStored }: { requestId: string; mayBeStored: boolean },
    open: (jobId: string, parts: MembersParts) => JobMembers,
  ) {
    this.#io = io
    this.requestId = requestId
    this.#mayBeStored = mayBeStored
    this.jobId = idOfRequest('j', requestId)
    this.#members = open(this.jobId, this.#parts(config))
  }

  /** Of a job that is to be stored. What they lack is told before anything is begun. */
  static async create(
    io: Io,
    files: readonly MemberFile[],
    { config, place }: { config: Config; place: Place },
  ): Promise<WorkedMembers> {
    MapreduceRun.prepare()
    for (const { model, input, waits } of files) {
      if (!waits) await checkPrograms(io, model, input)
      await planFolders(io, input.worktrees)
    }
    const ids = new IdSource(new SystemRandomness())
    const options = { folder: runsFolder(io.env), cwd: io.cwd, place: recordedPlace(place), ids }
    const job = { requestId: ids.next('q', io.clock.wall()), mayBeStored: false }
    return new WorkedMembers(io, config, job, (jobId, parts) =>
      JobMembers.create(files, { ...options, jobId }, parts),
    )
  }

  /** Of a job that somebody left. */
  static open(io: Io, id: string, config: Config): WorkedMembers {
    MapreduceRun.prepare()
    const job = { requestId: id.replace(/^j/, 'q'), mayBeStored: true }
    return new WorkedMembers(io, config, job, (jobId, parts) =>
      JobMembers.open(runsFolder(io.env), jobId, parts),
    )
  }

  #parts({ settings }: Config): MembersParts {
    const io = this.#io
    const randomness = new SystemRandomness()
    return {
      ...{ env: { ...io.env }, clock: io.clock, chance: () => randomness.next() },
      logger: storeLogger(io, settings.log),
      note: (text) => this.#note(text),
      // On stdout is what the job came to.
      print: ({ stdout, stderr }) => {
        for (const text of [stdout, stderr]) if (text !== '') this.#note(text.replace(/\n$/, ''))
      },
    }
  }

  #note(text: string): void {
    if (this.#display) this.#display.note(text)
    else this.#io.stderr.write(`${text}\n`)
  }

  /** Where what they say goes from now on. */
  shownOn(display: Display): void {
    this.#display = display
  }

  get #queues() {
    return [...this.#members.runs.values()].map(({ ownQueue }) => ownQueue)
  }

  /** What an engine of this process has to work on: not those that have a worker. */
  get ownQueues() {
    return this.#queues.filter(({ queue }) => !this.#workers.has(queue))
  }

  /** To whoever has the store, and then to the next that has it: what they run goes on. */
  async attach(
    attach: (
      definitions: Definitions,
      only: { queue: string; concurrency: number },
    ) => Promise<WorkerProcess | null>,
  ): Promise<void> {
    for (const { tasks, ...only } of this.ownQueues) {
      const worker = await attach({ tasks, agents: [], workflows: [], jobs: [] }, only)
      if (worker) this.#workers.set(only.queue, worker)
    }
  }

  async detach(): Promise<void> {
    const workers = [...this.#workers.values()]
    this.#workers.clear()
    await Promise.all(workers.map((worker) => worker.close()))
  }

  has(workflow: string): boolean {
    return this.#members.runs.has(workflow)
  }

  outline(workflow: string) {
    return this.#members.outline(workflow)
  }

  started(): void {
    this.#members.started()
  }

  /** The store has no record of the job. */
  neverStored(): void {
    this.#mayBeStored = false
  }

  /** The job has ended: what each came to, for people; their folders go. */
  async end(client: Client): Promise<Record<string, MapreduceSummary>> {
    const io = this.#io
    const colours = new Colours(io, io.stderr)
    const members = await client.job(this.jobId).workflows()
    const summaries: Record<string, MapreduceSummary> = {}
    // Whoever is asked may go meanwhile, and the next is asked for all of them: no folder goes before.
    for (const [workflow, run] of this.#members.runs) {
      await run.settle()
      const member = members.find(({ id }) => id === workflow)
      if (member?.runId) summaries[workflow] = await summaryOf(client, run, member)
    }
    for (const [workflow, run] of this.#members.runs) {
      const left = await run.end()
      const summary = summaries[workflow]
      if (!summary) continue
      summary.notes.push(...left)
      for (const line of summaryText(summary, { colours })) io.stderr.write(`${line}\n`)
    }
    this.#isOver = true
    return summaries
  }

  /** Whatever became of the job, this process works on it no longer. */
  async close(): Promise<void> {
    await this.detach()
    if (this.#isOver) return
    const isStarted = [...this.#members.runs.values()].every(({ folder }) => folder.record.isStarted)
    if (isStarted || this.#mayBeStored) await this.#members.leave()
    else this.#members.discard()
  }
}

async function summaryOf(client: Client, run: MapreduceRun, member: MemberView): Promise<MapreduceSummary> {
  const { startedAt, createdAt, endedAt } = await client.workflow(run.jobId).view()
  const { status, failure } = member
  const { message } = (failure?.details ?? {}) as { message?: string }
  return summarize(run, {
    status: status as MapreduceSummary['status'],
    failure: failure && { code: failure.code, message: message ?? failure.message },
    ms: Math.round((endedAt ?? createdAt) - (startedAt ?? createdAt)),
    notes: [],
  })
}
