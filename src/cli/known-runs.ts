/** What the store says of runs whose folders and refs are still there: which have ended, and which letters need them. */
import { existsSync } from 'node:fs'
import type { Client } from '../client/client.ts'
import { CurfewError } from '../core/errors.ts'
import { isEnded } from '../core/states.ts'
import type { RunsKnown } from '../mapreduce/ended-runs.ts'
import type { RunRecord } from '../mapreduce/run-folder.ts'
import { loadConfig } from './config.ts'
import type { Place } from './find-engine.ts'
import { findEngine, placeOf } from './find-engine.ts'
import type { Io } from './io.ts'
import type { Flags } from './options.ts'
import { handleOf } from './work-handle.ts'

/** With whatever the settings name; null where there is no such store, and so nothing to ask. */
export async function withKnownRuns<T>(
  io: Io,
  flags: Flags,
  work: (client: Client | null, known: RunsKnown | null) => Promise<T>,
): Promise<T> {
  const config = await loadConfig(io, 'client', flags)
  const place = placeOf(io, config)
  if ('isFile' in place && place.isFile && !existsSync(place.store)) return work(null, null)
  const engine = await findEngine(io, config, 'read')
  try {
    return await work(engine.client, knownRuns(engine.client, place))
  } finally {
    await engine.close()
  }
}

/** As another process, in another folder, finds it. */
export function recordedPlace(place: Place): RunRecord['place'] {
  return 'managers' in place || place.isFile ? place : null
}

export function knownRuns(client: Client, place: Place): RunsKnown {
  return {
    place: recordedPlace(place),
    isOver: async (jobId) => {
      try {
        const { status } = await handleOf(client, jobId).view()
        // A cancel is never taken back: what nobody runs now, nobody will.
        return isEnded(status) || status === 'cancelling'
      } catch (error) {
        if (error instanceof CurfewError && error.code === 'not_found') return null
        throw error
      }
    },
    hasOpenLetters: async (jobId) => {
      const { letters } = await client.deadLetters.list({ jobId, state: 'open', limit: 1 })
      return letters.length > 0
    },
  }
}

/** The runs in which the item of a letter was worked on, its retries among them. */
export function runsOfLetter({ jobId, body }: { jobId: string; body: Record<string, unknown> }): string[] {
  const history = Array.isArray(body.history) ? (body.history as { jobId?: unknown }[]) : []
  const ids = history.flatMap(({ jobId: id }) => (typeof id === 'string' ? [id] : []))
  return [...new Set([jobId, ...ids])]
}

/** What open letters may need: of each the item, in every run that worked on it. */
export async function neededByLetters(client: Client): Promise<Set<string>> {
  const jobs = new Set<string>()
  let cursor: string | null = null
  do {
    const page: Awaited<ReturnType<typeof client.deadLetters.list>> = await client.deadLetters.list({
      ...{ state: 'open' as const, limit: 1_000, ...(cursor !== null && { cursor }) },
    })
    for (const { jobId } of page.letters) jobs.add(jobId)
    cursor = page.cursor
  } while (cursor !== null)
  const needed = new Set<string>()
  for (const jobId of jobs)
    for await (const letter of client.deadLetters.read(jobId, { state: 'open' }))
      for (const id of runsOfLetter(letter)) needed.add(`${id} ${letter.itemId}`)
  return needed
}
