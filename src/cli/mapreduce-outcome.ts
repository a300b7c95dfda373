/** What a run is shown as: while this process works on it, and what it came to. */
import type { MapreduceRun } from '../mapreduce/mapreduce-run.ts'
import type { ItemResult } from '../mapreduce/run-folder.ts'
import type { MapreduceSnapshot, MapreduceSummary, TimeoutOfItem } from './mapreduce-snapshot.ts'

const SLOWEST = 5

export function snapshotOf(
  { jobId, model, live }: MapreduceRun,
  times: Pick<MapreduceSnapshot, 'startedAt' | 'deadlineAt'>,
): MapreduceSnapshot {
  return {
    ...{ jobId, name: model.name, ...times, phases: live.phases, counts: live.counts() },
    ...{ running: [...live.running.values()], recent: [...live.recent] },
  }
}

export function summarize(
  run: MapreduceRun,
  ended: Pick<MapreduceSummary, 'status' | 'failure' | 'ms' | 'notes'>,
): MapreduceSummary {
  const counts = run.live.counts(ended.status !== 'interrupted')
  const slowest: MapreduceSummary['slowest'] = []
  const timeouts: TimeoutOfItem[] = []
  const lettersRefused: MapreduceSummary['lettersRefused'] = []
  for (const result of run.folder.results()) {
    const { id: itemId, name, status, tookMs: ms } = result
    slowest.push({ itemId, name, status, ms })
    slowest.sort((a, b) => b.ms - a.ms).splice(SLOWEST)
    timeouts.push(...timeoutsOf(result))
    const { letterRefused: message } = result
    if (message !== undefined) lettersRefused.push({ itemId, name, message })
  }
  return {
    ...{ jobId: run.jobId, name: run.model.name, ...ended, counts, slowest },
    ...{ timeouts, lettersRefused },
    deadLetters: counts.failed + counts.timedOut + run.untried - lettersRefused.length,
    lettersOf: run.folder.record.retryOf ?? run.jobId,
  }
}

function timeoutsOf({ id: itemId, name, attempts }: ItemResult): TimeoutOfItem[] {
  return attempts.flatMap(({ timeout }) => {
    if (!timeout) return []
    const { type, command, commandType, limitMs, elapsedMs, source, resolution } = timeout
    const kind = type === 'phase' ? 'agent' : type
    const about = { itemId, name, kind, commandIndex: command, type: commandType }
    return [{ ...about, limitMs, elapsedMs, source, resolution }]
  })
}
