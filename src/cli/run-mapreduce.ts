/**
 * Runs a map-reduce to its end: a new one, or one that somebody left. Its tasks are run by this process alone, whoever
 * has the store. The first signal stops what runs and leaves the run to be resumed; the second ends at once.
 */
import type { Client } from '../client/client.ts'
import { CurfewError } from '../core/errors.ts'
import type { Failure } from '../core/failure.ts'
import { IdSource } from '../core/id.ts'
import { SystemRandomness } from '../core/system-clock.ts'
import type { TaskView, WorkerProcess } from '../curfew.ts'
import { MAPREDUCE_FORMAT } from '../definitions/mapreduce-model.ts'
import { MOST_BESIDE, removeEndedRuns } from '../mapreduce/ended-runs.ts'
import { MapreduceRun } from '../mapreduce/mapreduce-run.ts'
import { RunFolder, runsFolder } from '../mapreduce/run-folder.ts'
import { Colours } from './colours.ts'
import type { Config } from './config.ts'
import { loadConfig } from './config.ts'
import type { MapreduceFile } from './definition-file.ts'
import { EXIT } from './exit-code.ts'
import type { Engine, Place } from './find-engine.ts'
import { isLost, placeOf } from './find-engine.ts'
import { follow } from './follow.ts'
import type { Io, Output } from './io.ts'
import { knownRuns, recordedPlace } from './known-runs.ts'
import { attachWorker } from './lent-worker.ts'
import { storeLogger } from './logger.ts'
import type { MapreduceDisplay } from './mapreduce-display.ts'
import { openMapreduceDisplay } from './mapreduce-display.ts'
import type { MapreduceValuesGiven } from './mapreduce-flags.ts'
import { refuseConcurrency } from './mapreduce-flags.ts'
import { snapshotOf, summarize } from './mapreduce-outcome.ts'
import { checkPrograms } from './mapreduce-plan.ts'
import type { MapreduceSummary } from './mapreduce-snapshot.ts'
import { hasNoLetters, summaryText } from './mapreduce-summary.ts'
import type { Flags } from './options.ts'
import { printJson } from './print.ts'
import { planFolders } from './run-surroundings.ts'
import { openEngine } from './run-to-end.ts'
import { SmallHeap } from './small-heap.ts'
import { takeTimedOutLetters } from './timed-out-letters.ts'
import { handleOf } from './work-handle.ts'

/** What changes meanwhile is shown with it. */
const SHOW_AFTER_MS = 20
const LEFT_SHOWN = 10

export interface RunMapreduceOptions extends MapreduceValuesGiven {
  /** Its definition is as the file and the options of the call make it. */
  checked: MapreduceFile
  /** For `loadConfig(io, 'run', flags)`. */
  flags: Flags & { worktrees?: boolean }
  json: boolean
}

export async function runMapreduce(io: Io, options: RunMapreduceOptions): Promise<void> {
  const { checked, args, params, flags, json } = options
  const { model } = checked.definition
  const config = await loadConfig(io, 'run', flags)
  const place = placeOf(io, config)
  refuseConcurrency(flags, 'stands in the file, as max_parallel')
  MapreduceRun.prepare()
  await checkPrograms(io, model, { args, params })
  const useGit = flags.worktrees !== false
  // A repository that cannot be worked with is told before anything is begun.
  await planFolders(io, useGit)
  const jobId = new IdSource(new SystemRandomness()).next('w', io.clock.wall())
  const folder = RunFolder.create(runsFolder(io.env), {
    ...{ format: MAPREDUCE_FORMAT, jobId, file: checked.file, cwd: io.cwd, model, params, args },
    ...{ useGit, base: null, overrides: [], retrying: [], retryOf: null, endedAt: null, memberOf: null },
    ...{ place: recordedPlace(place), isStarted: false },
  })
  await workOnRun(io, { config, place, folder, json, retryTimeouts: false })
}

export interface WorkOnRun {
  config: Config
  place: Place
  folder: RunFolder
  json: boolean
  /** Items that timed out in an earlier session are worked on once more. */
  retryTimeouts: boolean
  /** See `openEngine`. */
  first?: (client: Client) => Promise<void>
}

/** Until it has ended, or a signal comes. */
export async function workOnRun(io: Io, options: WorkOnRun): Promise<void> {
  const { config, folder, json, retryTimeouts } = options
  const randomness = new SystemRandomness()
  const display = openMapreduceDisplay(io, io.stderr)
  const times = { startedAt: io.clock.wall(), deadlineAt: null as number | null }
  let isShown = true
  const heap = new SmallHeap()
  const show = () => {
    isShown = true
    const snapshot = snapshotOf(run, times)
    heap.items(snapshot.counts.total)
    display.show(snapshot)
  }
  const run = new MapreduceRun({
    ...{ folder, env: { ...io.env }, clock: io.clock, chance: () => randomness.next(), retryTimeouts },
    logger: storeLogger(io, config.settings.log),
    changed: () => {
      if (isShown) io.clock.setTimer(SHOW_AFTER_MS, show)
      isShown = false
    },
    note: (text) => display.note(text),
    print: ({ stdout, stderr }) => {
      display.clear()
      // With --json, stdout is what it came to.
      writeLines(json ? io.stderr : io.stdout, stdout)
      writeLines(io.stderr, stderr)
    },
  })
  const interrupt = new AbortController()
  const ignore = io.onSignal(
    (signal) => {
      // The shell of a terminal that is closed sends it, and then the kernel does.
      if (interrupt.signal.aborted && signal === 'SIGHUP') return
      if (interrupt.signal.aborted) return io.exitNow(EXIT.interrupted)
      display.note('Stopping what runs; the run can be resumed. Once more ends at once.')
      interrupt.abort()
    },
    ['SIGINT', 'SIGTERM', 'SIGHUP'],
  )
  const from = io.clock.monotonic()
  const notes: string[] = []
  try {
    const first = async (client: Client) => {
      await options.first?.(client)
      const left = await takeTimedOutLetters(client, run)
      if (left.length > 0) notes.push(leftText(left, run))
    }
    const { signal } = interrupt
    const ended = await toItsEnd(io, run, { ...options, first, display, heap, signal, times })
    await run.settle()
    show()
    const ms = Math.round(io.clock.monotonic() - from)
    const summary = summarize(run, { ...(ended ?? INTERRUPTED), ms, notes })
    const left = folder.record.retrying.length - run.untried
    if (ended && left > 0)
      summary.notes.push(`${left} items that timed out were not tried again: the map phase was over.`)
    if (ended) summary.notes.push(...(await run.end()))
    display.close()
    printSummary(io, summary, json)
  } finally {
    display.close()
    ignore()
    // One that no store knows of can be gone on with by nobody.
    if (folder.record.isStarted) folder.unlock()
    else folder.discard()
  }
}

function leftText(ids: readonly string[], { folder: { record }, jobId }: MapreduceRun): string {
  const which = ids.length > LEFT_SHOWN ? `${ids.length} items` : ids.join(', ')
  const letters = `curfew dlq list ${record.retryOf ?? jobId} --state all`
  return `Timed out, and not tried again here, as others work or have worked on them, or gave them up: ${which}. See ${letters}`
}

type Ended = Pick<MapreduceSummary, 'status' | 'failure'>

const INTERRUPTED: Ended = { status: 'interrupted', failure: null }

/** Null when a signal came first. */
async function toItsEnd(
  io: Io,
  run: MapreduceRun,
  options: WorkOnRun & {
    display: MapreduceDisplay
    heap: SmallHeap
    signal: AbortSignal
    times: { deadlineAt: number | null }
  },
): Promise<Ended | null> {
  const { config, place, display, heap, signal, times, first } = options
  const { tasks, ...only } = run.ownQueue
  const definitions = { tasks, agents: [], workflows: [], jobs: [] }
  const { jobId } = run
  // Attached to whoever has the store, and then to the next that has it: what it runs goes on.
  let worker: WorkerProcess | null = null
  const closeWorker = async () => {
    const open = worker
    worker = null
    await open?.close()
  }
  const work = async (engine: Engine): Promise<Ended | null> => {
    worker ??= await attachWorker(io, engine, config, definitions, { only, stop: signal })
    const { folder } = run
    if (signal.aborted && !folder.record.isStarted)
      throw new CurfewError('interrupted', `${run.model.name} was stopped before it began`)
    if (signal.aborted) return null
    if (folder.record.isStarted) await refuseUnknown(engine, folder)
    else {
      const input = { folder: folder.path, file: folder.record.file }
      await engine.client.start(run.definition(), input, { id: jobId })
      folder.record.isStarted = true
      folder.save()
    }
    heap.loaded()
    const stop = AbortSignal.any([engine.gone, signal])
    const onSeen = ({ work: { deadlineAt } }: { work: TaskView }) => {
      times.deadlineAt = deadlineAt
    }
    const last = await follow(io, engine, jobId, { display: null, signal: stop, onSeen })
    if (!last?.settled) return null
    await removeLeft(io, engine.client, options)
    return await endOf(engine.client, jobId, last)
  }
  try {
    for (;;) {
      const here = worker === null ? only : { ...only, concurrency: 0 }
      const { isStarted: isStored } = run.folder.record
      const engine = await openEngine(io, {
        ...{ config, place, definitions, isStored, only: here, ...(first && { first }) },
      })
      let isLeft = false
      try {
        const ended = await work(engine).catch(async (error: unknown) => {
          if (!(await isLost(io, engine, error))) throw error
          return null
        })
        if (ended || signal.aborted) return ended
        isLeft = true
      } finally {
        if (!isLeft) await closeWorker()
        await engine.close()
      }
      display.note(`${engine.who} is gone.`)
    }
  } finally {
    await closeWorker()
  }
}

/** Runs that have ended while nobody ran them: their folders go. It is no reason to fail. */
async function removeLeft(io: Io, client: Client, { config, place }: WorkOnRun): Promise<void> {
  const logger = storeLogger(io, config.settings.log)
  try {
    const options = { clock: io.clock, env: { ...io.env }, most: MOST_BESIDE }
    const removed = await removeEndedRuns(runsFolder(io.env), knownRuns(client, place), options)
    for (const run of removed) logger.info({ ...run }, 'the folder of a run that has ended is removed')
  } catch (error) {
    logger.warn({ error: (error as Error).message }, 'folders of runs that have ended were not removed')
  }
}

/** What was started once is never started anew: it would be done twice. */
async function refuseUnknown(
  { client, who }: Engine,
  { record: { jobId }, path: folder }: RunFolder,
): Promise<void> {
  try {
    await handleOf(client, jobId).view()
  } catch (error) {
    if (!(error instanceof CurfewError) || error.code !== 'not_found') throw error
    throw new CurfewError('unknown_run', `${who} has no record of ${jobId}: it cannot go on`, {
      hint: `It was removed, or the store is another one. What is left of it is in ${folder}.`,
      fields: { jobId, folder },
    })
  }
}

function writeLines(output: Output, text: string): void {
  if (text !== '') output.write(text.endsWith('\n') ? text : `${text}\n`)
}

async function endOf(client: Client, id: string, { status }: TaskView): Promise<Ended> {
  const ended = { status: status as Ended['status'], failure: null }
  if (status === 'completed') return ended
  try {
    await handleOf(client, id).result()
    return ended
  } catch (error) {
    if (!(error instanceof CurfewError)) throw error
    const { failure } = error as { failure?: Failure }
    const { message } = (failure?.details ?? {}) as { message?: string }
    const { code } = failure ?? error
    return { ...ended, failure: { code, message: message ?? failure?.message ?? error.message } }
  }
}

function printSummary(io: Io, summary: MapreduceSummary, json: boolean): void {
  const colours = new Colours(io, io.stderr)
  for (const line of summaryText(summary, { colours })) io.stderr.write(`${line}\n`)
  if (json) printJson(io, summary)
  io.exitCode = exitCodeOf(summary)
}

function exitCodeOf(summary: MapreduceSummary): number {
  const { status } = summary
  if (status === 'completed') return hasNoLetters(summary) ? EXIT.completed : EXIT.failed
  if (status === 'failed') return EXIT.failed
  return status === 'timed_out' ? EXIT.timedOut : EXIT.interrupted
}
