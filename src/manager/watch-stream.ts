/** One piece of work, watched: what has happened since a sequence, then everything as it happens, until it settles. */
import type { Clock } from '../core/clock.ts'
import { sleep, within } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import type { TaskEventView, TaskView, WatchView } from '../wire/task-service.ts'
import type { Watchers } from './watchers.ts'

export interface WatchParts {
  watchers: Watchers
  clock: Clock
  /** What peers commit is seen by looking; in one process it is a backstop. */
  lookEveryMs: number
  record(id: string): Promise<{ work: TaskView; events: TaskEventView[] } | null>
}

/** The first change is told at once; those that come in quick succession are told together. */
const GATHER_MS = 5

export async function* watchStream(
  parts: WatchParts,
  id: string,
  lastSequence: number,
  signal: AbortSignal,
): AsyncGenerator<WatchView> {
  const { watchers, clock, lookEveryMs } = parts
  let news: 'own' | 'below' | null = null
  let wake = () => {}
  const forget = watchers.add(id, (what) => {
    news = what === 'below' || news === 'below' ? 'below' : 'own'
    wake()
  })
  const onAbort = () => wake()
  signal.addEventListener('abort', onAbort, { once: true })
  let told = lastSequence
  let shown = ''
  try {
    for (let first = true; !signal.aborted; first = false) {
      const below = news === 'below'
      news = null
      const readAt = clock.monotonic()
      const record = await parts.record(id)
      if (!record) {
        throw new CurfewError('not_found', `there is no work ${id}`, {
          hint: 'Records are removed some time after their end (retention, 7 days by default).',
          fields: { id },
        })
      }
      const { work } = record
      const events = record.events.filter(({ seq }) => seq > told)
      const truncated = first && isTruncated(record.events, told)
      const looks = JSON.stringify(work)
      if (first || below || events.length > 0 || work.settled || looks !== shown) {
        told = Math.max(told, ...events.map(({ seq }) => seq))
        shown = looks
        yield { work, events, lastSequence: told, truncated, final: work.settled, below }
      }
      if (work.settled) return
      const changed = new Promise<void>((resolve) => {
        wake = resolve
        if (news || signal.aborted) resolve()
      })
      await within(clock, lookEveryMs, changed)
      const tooSoonMs = readAt + GATHER_MS - clock.monotonic()
      if (tooSoonMs > 0 && !signal.aborted) await sleep(clock, tooSoonMs, signal)
    }
  } finally {
    forget()
    signal.removeEventListener('abort', onAbort)
  }
}

/** Sequences have no gaps: a missing one was removed, or belongs to another life of the store. */
function isTruncated(events: readonly TaskEventView[], told: number): boolean {
  const known = new Set(events.map(({ seq }) => seq))
  const last = Math.max(0, ...known)
  if (told > last) return true
  for (let seq = told + 1; seq <= last; seq++) if (!known.has(seq)) return true
  return false
}
