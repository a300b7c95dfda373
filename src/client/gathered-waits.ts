/**
 * Waits for work to settle, however many: those that begin together share a stream, and the streams are few. One alone
 * asks again and again. Each wait has a clock of its own here, so that its limit holds whatever the others, or the
 * managers, do.
 */
import type { Clock, Timer } from '../core/clock.ts'
import type { CurfewError } from '../core/errors.ts'
import { MAX_WAITED_FOR } from '../core/limits.ts'
import type { Waited } from '../wire/gen/curfew/v1/jobs_pb.ts'
import { WorkSchema } from '../wire/gen/curfew/v1/work_pb.ts'
import { toPlain } from '../wire/plain.ts'
import type { Settled, TaskView } from '../wire/task-service.ts'
import { errorOfDetail, fromConnectError, isWorthRetrying } from '../wire/wire-error.ts'
import type { ClientCounters } from './client-counters.ts'
import type { Manager, ManagerCalls } from './manager-calls.ts'

/** Each has a connection. From then on those that come join one of them, all that come within a moment together. */
const MOST_STREAMS = 50
const GATHER_MS = 20
/** How long a wait for one asks at a time: less than a manager may be silent for. */
const ASK_MS = 10_000

type Ended = Pick<Waited, 'id' | 'how'>

interface Wait {
  id: string
  /** When its limit is over, on the clock that only ever grows. */
  until: number
  /** Where it stands. */
  group: Group
  end(settled: Settled | null): void
  fail(error: CurfewError): void
}

/** Those of one stream, or of one that is about to be opened. */
class Group {
  readonly waits = new Map<string, Set<Wait>>()
  readonly stop = new AbortController()
  /** A manager has looked at all of them, or there was none that did. */
  isLookedAt = false
  /** Of those that its stream names. */
  #untold = 0

  /** For a stream that is opened. */
  names(): string[] {
    this.#untold = this.waits.size
    return [...this.waits.keys()]
  }

  add(wait: Wait): void {
    const others = this.waits.get(wait.id)
    if (others) others.add(wait)
    else this.waits.set(wait.id, new Set([wait]))
    wait.group = this
  }

  remove(wait: Wait): void {
    const others = this.waits.get(wait.id)
    others?.delete(wait)
    if (others?.size === 0) this.waits.delete(wait.id)
    // One that has told of all ends by itself: its connection serves again.
    if (this.waits.size === 0 && this.#untold > 0) this.stop.abort()
  }

  all(): Wait[] {
    return [...this.waits.values()].flatMap((same) => [...same])
  }

  /** Until the first limit is over. */
  leftMs(now: number): number {
    const first = this.all().reduce((least, { until }) => Math.min(least, until), Infinity)
    return Math.max(0, first - now)
  }

  lookedAt(now: number): void {
    if (this.isLookedAt) return
    this.isLookedAt = true
    for (const wait of this.all()) if (wait.until <= now) wait.end(null)
  }

  ended({ id, how }: Ended): void {
    this.#untold--
    for (const wait of this.waits.get(id) ?? []) {
      if (how.case === 'error') wait.fail(errorOfDetail(how.value))
      else if (how.case === 'output') wait.end({ status: 'completed', output: how.value })
      else if (how.case === 'work')
        wait.end({ status: 'not_completed', task: toPlain<TaskView>(WorkSchema, how.value) })
    }
  }
}

export class GatheredWaits {
  readonly #clock: Clock
  readonly #counters: ClientCounters
  readonly #calls: ManagerCalls
  readonly #groups = new Set<Group>()
  #next = new Group()
  #gathering = false

  constructor({ clock, counters }: { clock: Clock; counters: ClientCounters }, calls: ManagerCalls) {
    this.#clock = clock
    this.#counters = counters
    this.#calls = calls
  }

  settled(id: string, timeoutMs: number | null): Promise<Settled | null> {
    const result = Promise.withResolvers<Settled | null>()
    this.#counters.requests++
    const over = () => {
      timer?.cancel()
      wait.group.remove(wait)
    }
    const wait: Wait = {
      ...{ id, until: this.#clock.monotonic() + (timeoutMs ?? Infinity), group: this.#next },
      end: (settled) => {
        over()
        result.resolve(settled)
      },
      fail: (error) => {
        over()
        this.#counters.failures++
        result.reject(error)
      },
    }
    // However short it is, what has settled by now is told.
    const limit = () => {
      if (wait.group.isLookedAt) wait.end(null)
    }
    const timer: Timer | null = timeoutMs === null ? null : this.#clock.setTimer(timeoutMs, limit)
    this.#next.add(wait)
    this.#gather()
    return result.promise
  }

  #gather(): void {
    if (this.#gathering) return
    this.#gathering = true
    const open = () => {
      this.#gathering = false
      this.#open()
    }
    if (this.#groups.size < MOST_STREAMS) this.#clock.endOfTurn(open)
    else this.#clock.setTimer(GATHER_MS, open)
  }

  #open(): void {
    const waits = this.#next.all()
    this.#next = new Group()
    if (waits.length === 0) return
    if (this.#groups.size >= MOST_STREAMS) waits.push(...this.#closeSmallest())
    let group = new Group()
    for (const wait of waits) {
      if (group.waits.size >= MAX_WAITED_FOR && !group.waits.has(wait.id)) {
        this.#follow(group)
        group = new Group()
      }
      group.add(wait)
    }
    this.#follow(group)
  }

  /** Answers its waits. */
  #closeSmallest(): Wait[] {
    const [smallest] = [...this.#groups].sort((a, b) => a.waits.size - b.waits.size)
    if (!smallest) return []
    this.#groups.delete(smallest)
    smallest.stop.abort()
    return smallest.all()
  }

  #follow(group: Group): void {
    this.#groups.add(group)
    this.#read(group)
      .catch((error: CurfewError) => {
        for (const wait of group.all()) wait.fail(error)
      })
      .finally(() => this.#groups.delete(group))
  }

  async #read(group: Group): Promise<void> {
    const lookedAt = () => group.lookedAt(this.#clock.monotonic())
    const open = ({ jobs }: Manager, options: { signal: AbortSignal }) => {
      const ids = group.names()
      if (ids.length > 1) return untilOver(jobs.waitMany({ ids }, options), lookedAt)
      const firstMs = Math.min(group.leftMs(this.#clock.monotonic()), ASK_MS)
      return untilOver(endOf(jobs, ids[0] as string, firstMs, options), lookedAt)
    }
    for await (const { ends, looked } of this.#calls.follow(
      open,
      group.stop.signal,
      () => group.waits.size === 0,
    )) {
      for (const waited of ends) group.ended(waited)
      if (looked) lookedAt()
    }
  }
}

/** `over`: they have ended, or nobody could be asked. Not if they were refused: that is an answer. */
async function* untilOver<T>(messages: AsyncIterable<T>, over: () => void): AsyncGenerator<T> {
  try {
    yield* messages
    over()
  } catch (error) {
    if (isWorthRetrying(fromConnectError(error))) over()
    throw error
  }
}

/** Most wait for one alone: requests that are answered cost less than a stream. */
async function* endOf(
  jobs: Manager['jobs'],
  id: string,
  firstMs: number,
  { signal }: { signal: AbortSignal },
): AsyncGenerator<{ ends: Ended[]; looked: boolean }> {
  for (let timeoutMs = firstMs; ; timeoutMs = ASK_MS) {
    const { settled, output, work } = await jobs.wait({ id, timeoutMs }, { signal })
    const how = work
      ? { case: 'work' as const, value: work }
      : { case: 'output' as const, value: output ?? 'null' }
    yield { ends: settled ? [{ id, how }] : [], looked: true }
    if (settled) return
  }
}
