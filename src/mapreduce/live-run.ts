/** What a run is doing at this moment, for whoever shows it. Counts add up at any time. */
import type { Phase } from '../definitions/mapreduce-model.ts'
import { PHASES } from '../definitions/mapreduce-model.ts'
import type { ItemNumbers } from './item-lines.ts'
import { setAt } from './item-lines.ts'
import type { ItemResult, ItemStatus } from './run-folder.ts'
import type { RunningStep } from './steps.ts'

export interface LivePhase {
  phase: Phase
  state: 'none' | 'waiting' | 'running' | 'done' | 'failed'
  startedAt: number | null
  endedAt: number | null
  step: (RunningStep & { of: number }) | null
}

export interface LiveItem {
  itemId: string
  name: string
  attempt: number
  startedAt: number
  agentLimitMs: number | null
  command: RunningStep | null
}

export interface EndedItem {
  itemId: string
  name: string
  status: ItemStatus
  message: string | null
  ms: number
}

export type ItemCounts = Record<
  'total' | 'waiting' | 'running' | 'successful' | 'failed' | 'timedOut' | 'skipped' | 'cancelled',
  number
>

const RECENT = 100
const COUNTED = {
  successful: 'successful',
  failed: 'failed',
  timed_out: 'timedOut',
  skipped: 'skipped',
} as const satisfies Record<ItemStatus, keyof ItemCounts>

export class LiveRun {
  readonly phases: LivePhase[]
  readonly running = new Map<string, LiveItem>()
  readonly recent: EndedItem[] = []
  readonly #changed: () => void
  readonly #numbers: ItemNumbers
  /** By number of the item. */
  readonly #ended: (ItemStatus | null)[] = []
  readonly #tally: Record<ItemStatus, number> = { successful: 0, failed: 0, timed_out: 0, skipped: 0 }
  #total = 0

  constructor(has: (phase: Phase) => boolean, numbers: ItemNumbers, changed: () => void) {
    this.#numbers = numbers
    this.#changed = changed
    this.phases = PHASES.map((phase) => ({
      ...{ phase, state: has(phase) ? ('waiting' as const) : ('none' as const) },
      ...{ startedAt: null, endedAt: null, step: null },
    }))
  }

  phase(phase: Phase): LivePhase {
    return this.phases.find((one) => one.phase === phase) as LivePhase
  }

  phaseBegins(phase: Phase, now: number): void {
    const live = this.phase(phase)
    if (live.state === 'none' || live.state === 'running') return
    Object.assign(live, { state: 'running', startedAt: now, endedAt: null })
    this.#changed()
  }

  phaseEnds(phase: Phase, state: 'done' | 'failed', now: number): void {
    const live = this.phase(phase)
    if (live.state === 'none') return
    Object.assign(live, { state, endedAt: now, step: null })
    this.#changed()
  }

  phaseStep(phase: Phase, step: RunningStep | null, of: number): void {
    this.phase(phase).step = step && { ...step, of }
    this.#changed()
  }

  setTotal(total: number): void {
    this.#total = total
    this.#changed()
  }

  itemBegins(item: LiveItem): void {
    this.running.set(item.itemId, item)
    this.#changed()
  }

  itemStep(itemId: string, command: RunningStep | null): void {
    const item = this.running.get(itemId)
    if (item) item.command = command
    this.#changed()
  }

  /** It has stopped, and is worked on again later. */
  itemLeaves(itemId: string, ended: EndedItem | null = null): void {
    this.running.delete(itemId)
    if (ended) this.#tell(ended)
    this.#changed()
  }

  itemEnds(result: ItemResult, message: string | null): void {
    this.running.delete(result.id)
    this.#count(result)
    const { id: itemId, name, status, tookMs: ms } = result
    this.#tell({ itemId, name, status, message, ms })
    this.#changed()
  }

  /** Of an earlier session. */
  restore(total: number, results: Iterable<ItemResult>): void {
    this.#total = total
    for (const result of results) this.#count(result)
  }

  /** It is to be worked on again. */
  forget(itemId: string): void {
    const status = this.status(itemId)
    if (status === null) return
    this.#tally[status]--
    this.#ended[this.#numbers.of(itemId)] = null
  }

  status(itemId: string): ItemStatus | null {
    return this.#ended[this.#numbers.of(itemId)] ?? null
  }

  get bad(): number {
    return this.#tally.failed + this.#tally.timed_out
  }

  /** `isOver`: what has not ended never will. */
  counts(isOver = false): ItemCounts {
    const ended = Object.values(this.#tally).reduce((sum, some) => sum + some, 0)
    const running = isOver ? 0 : this.running.size
    const open = Math.max(0, this.#total - ended - running)
    const counts: ItemCounts = {
      ...{ total: Math.max(this.#total, ended + running), running },
      ...{ waiting: isOver ? 0 : open, cancelled: isOver ? open : 0 },
      ...{ successful: 0, failed: 0, timedOut: 0, skipped: 0 },
    }
    for (const [status, key] of Object.entries(COUNTED)) counts[key] = this.#tally[status as ItemStatus]
    return counts
  }

  #tell(ended: EndedItem): void {
    this.recent.push(ended)
    if (this.recent.length > RECENT) this.recent.shift()
  }

  #count({ id, status }: ItemResult): void {
    this.forget(id)
    setAt(this.#ended, this.#numbers.add(id), status, null)
    this.#tally[status]++
  }
}
