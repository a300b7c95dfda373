/**
 * `curfew dlq retry`: works on dead letters once more. It is a run of its own, of those items alone: without setup,
 * reduce and merge, with what the first run was started with. What comes of an item is written into its letter.
 */
import { CurfewError } from '../core/errors.ts'
import type { MapreduceModel, StepModel } from '../definitions/mapreduce-model.ts'
import type { RunItem } from '../mapreduce/run-folder.ts'
import { RunFolder, runsFolder } from '../mapreduce/run-folder.ts'
import { loadConfig } from './config.ts'
import { placeOf } from './find-engine.ts'
import type { Io } from './io.ts'
import { recordedPlace } from './known-runs.ts'
import { limitOf } from './mapreduce-flags.ts'
import type { Flags } from './options.ts'
import { workOnRun } from './run-mapreduce.ts'

export interface RetryLetters {
  jobId: string
  /** Of the run that works on them again: the letters are marked with it. */
  retryId: string
  letters: readonly { itemId: string; name: string; body: { item?: unknown; history?: unknown } }[]
  flags: Flags & { timeout?: string; maxParallel?: number }
  json: boolean
}

/** Before anything is claimed: the run that is retried has to be known here. */
export function checkRetry(io: Io, jobId: string): void {
  if (RunFolder.exists(runsFolder(io.env), jobId)) return
  throw new CurfewError('unknown_run', `what ${jobId} was started with is not known on this machine`, {
    hint: `curfew dlq export ${jobId} prints its items, for another run.`,
  })
}

export async function retryLetters(
  io: Io,
  { jobId, retryId, letters, flags, json }: RetryLetters,
): Promise<void> {
  const runs = runsFolder(io.env)
  checkRetry(io, jobId)
  const first = RunFolder.look(runs, jobId)
  const { record } = first
  const config = await loadConfig(io, 'run', flags)
  const place = placeOf(io, config)
  const model = modelOfRetry(record.model, flags)
  // From where the first was started, and from what is there by now.
  const folder = RunFolder.create(runs, {
    ...{ ...record, jobId: retryId, model, base: null, overrides: [], retryOf: jobId, endedAt: null },
    ...{ memberOf: null, retrying: [], place: recordedPlace(place), isStarted: false },
  })
  folder.setItems(letters.map(itemOf))
  folder.setCaptures(first.captures())
  await workOnRun(io, { config, place, folder, json, retryTimeouts: false })
}

function itemOf({ itemId: id, name, body }: RetryLetters['letters'][number]): RunItem {
  const history = Array.isArray(body.history) ? body.history : []
  return { id, name, item: body.item, history }
}

/** With another limit, that is the only one: it is the item's as a whole. */
function modelOfRetry(model: MapreduceModel, flags: RetryLetters['flags']): MapreduceModel {
  const none = { timeoutMs: null, steps: [] }
  const maxParallel = flags.maxParallel ?? model.map.maxParallel
  const map = { ...model.map, maxParallel }
  const retry = { ...model, setup: none, reduce: none, merge: none, map }
  retry.errorPolicy = { maxFailures: null, failureRate: null, onFailure: 'continue' }
  if (flags.timeout === undefined) return retry
  const agentTimeoutMs = limitOf(flags.timeout, '--timeout')
  const template = map.template.map(withoutLimit)
  const limits = { policy: 'per_agent', agentTimeoutMs, idleTimeoutMs: null } as const
  return { ...retry, map: { ...map, ...limits, template } }
}

function withoutLimit({ timeoutMs: _, onFailure, onSuccess, ...step }: StepModel): StepModel {
  return { ...step, onFailure: onFailure.map(withoutLimit), onSuccess: onSuccess.map(withoutLimit) }
}
