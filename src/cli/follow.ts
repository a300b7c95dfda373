/** Follows a piece of work until it has settled, showing what happens to it. */
import type { Client } from '../client/client.ts'
import type { Clock } from '../core/clock.ts'
import type { TaskView, WatchView } from '../curfew.ts'
import type { Display } from './display.ts'
import type { Io } from './io.ts'
import type { Snapshot } from './work-tree.ts'
import { WorkTree } from './work-tree.ts'

/** Between two redraws. */
const REDRAW_MS = 100
/** Between two redraws because of the time alone. */
const TICK_MS = 250
/** Looking takes at most this share of the time of whoever is asked. */
const LOOK_SHARE = 0.2
const LONGEST_REST_MS = 2_000

export interface FollowOptions {
  display: Display | null
  /** Ends the following, not the work. */
  signal: AbortSignal
  /** Told of everything that was seen. */
  onSeen?(seen: WatchView): void
}

/** The record as it was seen last: settled, unless the signal came first. */
export async function follow(
  io: Io,
  client: Client,
  id: string,
  { display, signal, onSeen }: FollowOptions,
): Promise<TaskView | null> {
  const enough = new AbortController()
  const sight = new Sight()
  const watching = async () => {
    try {
      const options = { signal: AbortSignal.any([signal, enough.signal]) }
      for await (const seen of client.watch(id, options)) {
        onSeen?.(seen)
        sight.see(seen.work)
      }
    } finally {
      sight.end()
    }
  }
  const drawing = async (to: Display) => {
    try {
      await draw(io, sight, new WorkTree(client, id), to)
    } finally {
      enough.abort()
    }
  }
  const results = await Promise.allSettled([watching(), ...(display ? [drawing(display)] : [])])
  const failed = results.find((result) => result.status === 'rejected')
  if (failed) throw failed.reason
  return sight.latest
}

/** What was seen last, and whether it was drawn. One waits for it at a time. */
class Sight {
  latest: TaskView | null = null
  isNew = false
  over = false
  #waiting: { for: 'change' | 'end'; wake: () => void } | null = null

  see(view: TaskView): void {
    this.latest = view
    this.isNew = true
    if (this.#waiting?.for === 'change') this.#waiting.wake()
  }

  end(): void {
    this.over = true
    this.#waiting?.wake()
  }

  /** Until something is new, or only until the end; at most so long. */
  wait(clock: Clock, what: 'change' | 'end', atMostMs: number | null): Promise<void> {
    if (this.over || (what === 'change' && this.isNew)) return Promise.resolve()
    return new Promise((resolve) => {
      const wake = () => {
        timer?.cancel()
        this.#waiting = null
        resolve()
      }
      const timer = atMostMs === null ? null : clock.setTimer(atMostMs, wake)
      this.#waiting = { for: what, wake }
    })
  }
}

async function draw(io: Io, sight: Sight, tree: WorkTree, display: Display): Promise<void> {
  const { clock } = io
  let snapshot: Snapshot | null = null
  for (;;) {
    await sight.wait(clock, 'change', display.ticks ? TICK_MS : null)
    const last = sight.over
    const from = clock.monotonic()
    if (sight.isNew && sight.latest) {
      sight.isNew = false
      snapshot = await tree.look(sight.latest, () => clock.wall())
    }
    if (snapshot) display.show(snapshot)
    if (last) return
    const tookMs = clock.monotonic() - from
    await sight.wait(clock, 'end', Math.min(LONGEST_REST_MS, Math.max(REDRAW_MS, tookMs / LOOK_SHARE)))
  }
}
