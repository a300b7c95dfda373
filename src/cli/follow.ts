/** Follows a piece of work until it has settled, showing what happens to it. */
import type { Client } from '../client/client.ts'
import type { Clock } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'
import type { TaskView, WatchView } from '../curfew.ts'
import type { Display } from './display.ts'
import type { Engine } from './find-engine.ts'
import { isSilence } from './find-engine.ts'
import type { Io } from './io.ts'
import { handleOf } from './work-handle.ts'
import type { Snapshot } from './work-tree.ts'
import { WorkTree } from './work-tree.ts'

/** Between two redraws. */
const REDRAW_MS = 100
/** Between two redraws because of the time alone. */
const TICK_MS = 250
/** Looking takes at most this share of the time of whoever is asked. */
const LOOK_SHARE = 0.2
const LONGEST_REST_MS = 2_000
const LOOK_AGAIN_MS = 1_000

export interface FollowOptions {
  display: Display | null
  /** Only what came after it is told. */
  lastSequence?: number
  /** Ends the following, not the work. */
  signal: AbortSignal
  /** Looks once, and does not wait for anything. */
  once?: boolean
  /** Told of everything that was seen. */
  onSeen?(seen: WatchView): void
}

/** The record as it was seen last: settled, unless the signal came first. */
export async function follow(
  io: Io,
  engine: Engine,
  id: string,
  { display, signal, onSeen, lastSequence = 0, once = false }: FollowOptions,
): Promise<TaskView | null> {
  const enough = new AbortController()
  const sight = new Sight()
  const watching = async () => {
    try {
      const options = { lastSequence, signal: AbortSignal.any([signal, enough.signal]) }
      for await (const seen of watch(io, engine, id, options)) {
        onSeen?.(seen)
        sight.see(seen.work)
        if (once) break
      }
    } finally {
      sight.end()
    }
  }
  const drawing = async (to: Display) => {
    try {
      await draw(io, sight, new WorkTree(engine.client, id), to, signal)
    } finally {
      enough.abort()
    }
  }
  const both = Promise.allSettled([watching(), ...(display ? [drawing(display)] : [])])
  const left = Promise.withResolvers<PromiseSettledResult<void>[]>()
  const leave = () => left.resolve([])
  signal.addEventListener('abort', leave, { once: true })
  if (signal.aborted) leave()
  const results = await Promise.race([both, left.promise])
  signal.removeEventListener('abort', leave)
  const failed = results.find((result) => result.status === 'rejected')
  if (failed?.status === 'rejected') throw failed.reason
  return sight.latest
}

function watch(
  io: Io,
  { client, via }: Engine,
  id: string,
  options: { lastSequence: number; signal: AbortSignal },
): AsyncIterable<WatchView> {
  return via === 'reader' ? lookAgain(io, client, id, options) : client.watch(id, options)
}

/** A store that others may work on tells nobody what happens: it is looked at. */
async function* lookAgain(
  io: Io,
  client: Client,
  id: string,
  { lastSequence, signal }: { lastSequence: number; signal: AbortSignal },
): AsyncGenerator<WatchView> {
  const handle = handleOf(client, id)
  for (let last = lastSequence; !signal.aborted; ) {
    const work = await handle.view()
    const events = (await handle.events()).filter(({ seq }) => seq > last)
    last = events.at(-1)?.seq ?? last
    yield { work, events, lastSequence: last, truncated: false, final: work.settled, below: true }
    if (work.settled) return
    await sleep(io.clock, LOOK_AGAIN_MS, signal)
  }
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

async function draw(
  io: Io,
  sight: Sight,
  tree: WorkTree,
  display: Display,
  signal: AbortSignal,
): Promise<void> {
  const { clock } = io
  let snapshot: Snapshot | null = null
  for (;;) {
    await sight.wait(clock, 'change', display.ticks ? TICK_MS : null)
    const last = sight.over
    const from = clock.monotonic()
    if (sight.isNew && sight.latest) {
      sight.isNew = false
      try {
        snapshot = await tree.look(sight.latest, () => clock.wall())
      } catch (error) {
        // Whether nobody answers for good the watch finds out: it is more patient than a single question.
        if (last || !isSilence(error)) throw error
        sight.isNew = true
      }
    }
    if (signal.aborted) return
    if (snapshot) display.show(snapshot)
    if (last) return
    const tookMs = clock.monotonic() - from
    await sight.wait(clock, 'end', Math.min(LONGEST_REST_MS, Math.max(REDRAW_MS, tookMs / LOOK_SHARE)))
  }
}
