// What a program of agent-programs.ts must come to: it runs once, in memory, without a store, a journal or a process
// that could die. Time is a list of moments. What has no order (two moments closer than `gapMs`) is reported as tied.

import { isDeepStrictEqual } from 'node:util'
import type { Failure } from '../../src/core/failure.ts'
import { failureOf, HandlerError } from '../../src/core/failure.ts'
import type { TaskStatus } from '../../src/core/states.ts'
import { outcomeError, Stopped } from '../../src/core/task-errors.ts'
import type { AgentContext } from '../../src/curfew.ts'
import type { End, ModelHandle } from './agent-model-context.ts'
import { modelContext } from './agent-model-context.ts'
import type { Probe, Program, ProgramInput, RunNode, TaskNode } from './agent-programs.ts'
import { BACKOFF_MS, describeCode, interpret } from './agent-programs.ts'

export interface Trial {
  program: Program
  timeout: number | null
  cleanup: number
  signals: readonly { at: number; name: string }[]
  /** It is cancelled then, whatever it does. */
  cancelAt: number
}

/** A task or agent, by its place in the programs. */
export interface ExpectedWork {
  kind: 'task' | 'agent'
  status: TaskStatus
  endedAt: number
  /** The output of an agent, the code of a failure, the kind of a timeout. */
  detail: unknown
}

export interface Expectation {
  works: Map<string, ExpectedWork>
  /** When the last of them was over. */
  overAt: number
  tied: boolean
}

const ROOT = 'root'

/** `exact`: times are compared too. */
export async function expectation(trial: Trial, gapMs: number, exact: boolean): Promise<Expectation> {
  const plays = await Promise.all(ORDERS.map((order) => play(trial, new Timeline(gapMs, order), exact)))
  const [one] = plays as [Expectation, ...Expectation[]]
  return { ...one, tied: plays.some(({ tied, works }) => tied || !isDeepStrictEqual(works, one.works)) }
}

/**
 * Nobody promises in which order things end that are stopped at the same moment: as they were made, the other way
 * round, by their kind. What depends on it is tied.
 */
const ORDERS: readonly ((made: number, kind: StoppedKind) => number)[] = [
  (made) => made,
  (made) => -made,
  (made, kind) => made + STOPPED_KINDS.indexOf(kind) * 1e6,
  (made, kind) => made - STOPPED_KINDS.indexOf(kind) * 1e6,
]
const STOPPED_KINDS = ['step', 'task', 'agent'] as const
type StoppedKind = (typeof STOPPED_KINDS)[number]

async function play(trial: Trial, timeline: Timeline, exact: boolean): Promise<Expectation> {
  const model = { timeline, works: new Map<string, ExpectedWork>(), ids: 0 }
  const input = { program: trial.program, since: exact ? 0 : null }
  const root = new ModelAgent(model, ROOT, input, trial, () => undefined)
  for (const [i, { at, name }] of trial.signals.entries()) {
    timeline.at(at, () => root.signal(name, { signal: i }))
  }
  timeline.at(trial.cancelAt, () => root.cancel())
  await timeline.run()
  if (!exact) for (const work of model.works.values()) work.endedAt = 0
  return { works: model.works, overAt: timeline.now, tied: timeline.tied }
}

export interface Moment {
  cancel(): void
}

class Timeline {
  now = 0
  /** Moments that have come. */
  count = 0
  tied = false
  /** When an agent last ended at the moment it was made. */
  instantEndAt = -1
  readonly #gapMs: number
  readonly #moments = new Set<{ at: number; madeAt: number; order: number; happen: () => void }>()
  readonly #stopOrder: (typeof ORDERS)[number]
  #order = 0

  constructor(gapMs: number, stopOrder: (typeof ORDERS)[number]) {
    this.#gapMs = gapMs
    this.#stopOrder = stopOrder
  }

  at(at: number, happen: () => void, order: number = ++this.#order): Moment {
    const moment = { at, madeAt: this.now, order, happen }
    if (at < Infinity) this.#moments.add(moment)
    return { cancel: () => this.#moments.delete(moment) }
  }

  /** When the code that runs now has come to rest. */
  soon(happen: () => void): void {
    this.at(this.now, happen)
  }

  stopSoon(kind: StoppedKind, happen: () => void): Moment {
    return this.at(this.now, happen, this.#stopOrder(++this.#order, kind))
  }

  async run(): Promise<void> {
    for (;;) {
      await new Promise<void>((resolve) => setImmediate(resolve))
      const [next, ...others] = [...this.#moments].sort((a, b) => a.at - b.at || a.order - b.order)
      if (!next) return
      for (const { at, madeAt } of others) {
        if (at - next.at < this.#gapMs && madeAt < next.at && next.madeAt < next.at) this.tied = true
      }
      this.#moments.delete(next)
      this.now = next.at
      this.count++
      next.happen()
    }
  }
}

interface Model {
  timeline: Timeline
  works: Map<string, ExpectedWork>
  ids: number
}

interface Work {
  readonly id: string
  readonly kind: 'task' | 'agent'
  /** It will be cancelled: what has not begun never does. */
  hold(): void
  cancel(): void
}

class ModelTask implements Work {
  readonly kind = 'task'
  readonly id: string
  readonly #model: Model
  readonly #place: string
  readonly #node: TaskNode
  readonly #tell: (end: End) => void
  readonly #deadlineAt: number
  readonly #deadline: Moment
  #next: Moment
  #isOver = false

  constructor(model: Model, place: string, node: TaskNode, tell: (end: End) => void) {
    this.#model = model
    this.#place = place
    this.#node = node
    this.#tell = tell
    this.id = `t${++model.ids}`
    const { timeline } = model
    const startAt = timeline.now + node.delay
    this.#deadlineAt = node.timeout === null ? Infinity : startAt + node.timeout
    this.#deadline = timeline.at(this.#deadlineAt, () => this.#end('timed_out', 'total'))
    this.#next = timeline.at(startAt, () => this.#try(0))
  }

  #try(failed: number): void {
    const { ms, end, flaky } = this.#node
    const { timeline } = this.#model
    const hangs = failed === flaky && end === 'hang'
    this.#next = timeline.at(hangs ? Infinity : timeline.now + ms, () => {
      if (failed === flaky) return end === 'ok' ? this.#end('completed', null) : this.#end('failed', 'broken')
      const again = timeline.now + BACKOFF_MS
      if (again >= this.#deadlineAt) return this.#end('failed', 'no_time_to_retry')
      this.#next = timeline.at(again, () => this.#try(failed + 1))
    })
  }

  hold(): void {
    this.#next.cancel()
  }

  cancel(): void {
    this.#end('cancelled', null)
  }

  #end(status: 'completed' | 'failed' | 'timed_out' | 'cancelled', detail: string | null): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#deadline.cancel()
    this.#next.cancel()
    const { works, timeline } = this.#model
    works.set(this.#place, { kind: 'task', status, endedAt: timeline.now, detail })
    const failure = status === 'failed' ? { code: String(detail), message: '', retryable: false } : null
    this.#tell(status === 'completed' ? { value: this.id } : { error: errorOf('task', status, failure) })
  }
}

function errorOf(kind: 'task' | 'agent', status: TaskStatus, failure: Failure | null): Error {
  return outcomeError({
    kind,
    id: '',
    name: '',
    status,
    attempts: 1,
    deadlineAt: null,
    startedAt: null,
    timeoutKind: kind === 'agent' ? 'agent' : 'total',
    timeoutMs: null,
    failure,
    receipt: null,
    progress: null,
    details: null,
  })
}

export class ModelAgent implements Work {
  readonly kind = 'agent'
  readonly id: string
  readonly model: Model
  /** In the order in which they were made. */
  readonly groups = new Set<ModelHandle>()
  readonly steps = new Set<ModelHandle>()
  readonly waiting: { name: string; handle: ModelHandle }[] = []
  readonly signals: { name: string; value: unknown }[] = []
  readonly #place: string
  readonly #cleanup: number
  readonly #createdAt: number
  readonly #createdIn: number
  readonly #tell: (end: End) => void
  readonly #moments = new Set<Moment>()
  /** What ends with it. */
  readonly #below = new Set<Work>()
  #status: TaskStatus = 'running'
  #endedAt = 0
  #output: unknown = null
  #failure: Failure | null = null
  #isHeld = false
  #hasRun = false
  #codeOver = false
  #isSettled = false

  constructor(
    model: Model,
    place: string,
    input: ProgramInput,
    { timeout, cleanup }: { timeout: number | null; cleanup: number },
    tell: (end: End) => void,
  ) {
    this.model = model
    this.id = `g${++model.ids}`
    this.#place = place
    this.#cleanup = cleanup
    this.#tell = tell
    const { timeline } = model
    this.#createdAt = timeline.now
    this.#createdIn = timeline.count
    this.at(timeout === null ? Infinity : timeline.now + timeout, () => this.#timeOut())
    timeline.soon(() => void this.#execute(input))
  }

  /** While its code lives. */
  at(at: number, happen: () => void, order?: number): Moment {
    return this.#whileAlive(() => this.model.timeline.at(at, happen, order))
  }

  stopSoon(happen: () => void): Moment {
    return this.#whileAlive(() => this.model.timeline.stopSoon('step', happen))
  }

  #whileAlive(make: () => Moment): Moment {
    if (this.#codeOver) return { cancel: () => undefined }
    const moment = make()
    this.#moments.add(moment)
    return moment
  }

  async #execute(input: ProgramInput): Promise<void> {
    if (this.#codeOver || this.#isHeld) return
    this.#hasRun = true
    const context = modelContext(this) as unknown as AgentContext
    const end = await interpret(input, context, this.#probe()).then(
      (output): { output: unknown } | { failure: Failure } => ({ output }),
      (error: unknown) => ({ failure: failureOf(error) }),
    )
    // Before anything else happens to it, but not before the code that runs now has come to rest.
    this.at(this.model.timeline.now, () => this.#ended(end), -Infinity)
  }

  #ended(end: { output: unknown } | { failure: Failure }): void {
    if (this.#status === 'running') {
      this.#endedAt = this.model.timeline.now
      this.#status = 'output' in end ? 'completed' : 'failed'
      if ('output' in end) this.#output = end.output
      else this.#failure = end.failure
    }
    this.#endCode()
  }

  hold(): void {
    const { timeline } = this.model
    this.#isHeld = !this.#hasRun
    // Cancelled by the code that made it, it never runs; a little later it depends on who is faster.
    if (timeline.now === this.#createdAt && timeline.count !== this.#createdIn) timeline.tied = true
  }

  cancel(): void {
    if (this.#status !== 'running') return
    if (!this.#isHeld) this.hold()
    this.#status = 'cancelling'
    this.#stop(new Stopped({ code: 'cancelled', message: '' }))
  }

  signal(name: string, value: unknown): void {
    if (this.#codeOver) return
    const at = this.waiting.findIndex((one) => one.name === name)
    if (at < 0) return void this.signals.push({ name, value })
    this.waiting.splice(at, 1)[0]?.handle.settle({ value })
  }

  #timeOut(): void {
    if (this.#status === 'cancelling') return this.#endCode()
    if (this.#status !== 'running') return
    this.#status = 'timed_out'
    this.#endedAt = this.model.timeline.now
    this.#stop(new Stopped({ code: 'timed_out', message: '' }))
  }

  /** Its waits end, what is below it ends, and its code has so much time to clean up. */
  #stop(error: Stopped): void {
    const { timeline } = this.model
    if (!this.#hasRun || this.#cleanup === 0) return this.#endCode()
    this.at(timeline.now + this.#cleanup, () => this.#endCode())
    const below = [...this.#below]
    for (const work of below) timeline.stopSoon(work.kind, () => work.cancel())
    this.waiting.length = 0
    // The outer before the inner ones: nobody should go on with what is there.
    for (const handle of [...this.groups].reverse()) handle.stop(error)
    for (const handle of [...this.steps]) {
      if (handle.kind === 'run') handle.cancel()
      handle.settle({ error })
    }
  }

  #endCode(): void {
    this.#codeOver = true
    for (const moment of this.#moments) moment.cancel()
    for (const work of [...this.#below]) work.cancel()
    this.#settle()
  }

  #settle(): void {
    if (!this.#codeOver || this.#below.size > 0 || this.#isSettled) return
    this.#isSettled = true
    const { works, timeline } = this.model
    if (this.#status === 'cancelling') {
      this.#status = 'cancelled'
      this.#endedAt = timeline.now
    }
    const status = this.#status
    const failure = this.#failure && describeCode(this.#failure.code)
    const detail = status === 'timed_out' ? 'agent' : (failure ?? this.#output)
    works.set(this.#place, { kind: 'agent', status, endedAt: this.#endedAt, detail })
    const end =
      status === 'completed' ? { value: this.#output } : { error: errorOf('agent', status, this.#failure) }
    if (timeline.now !== this.#createdAt) return this.#tell(end)
    // Which of two that take no time is faster is anybody's guess.
    if (timeline.instantEndAt === timeline.now) timeline.tied = true
    timeline.instantEndAt = timeline.now
    timeline.stopSoon('agent', () => this.#tell(end))
  }

  #probe(): Probe {
    const context = modelContext(this)
    const started = (detached: boolean, make: (tell: (end: End) => void) => Work) => {
      const handle = context.work()
      if (this.#codeOver) return handle as never
      const work = make((end) => {
        this.#below.delete(work)
        if (this.#codeOver) this.#settle()
        else handle.settle(end)
      })
      handle.id = work.id
      handle.cancel = () => {
        work.hold()
        this.model.timeline.stopSoon(work.kind, () => work.cancel())
      }
      if (!detached) this.#below.add(work)
      return handle as never
    }
    const at = (place: string) => `${this.#place}/${place}`
    return {
      schedule: (_, place, node) =>
        started(node.detached, (tell) => new ModelTask(this.model, at(place), node, tell)),
      child: (_, place, node, input) =>
        started(node.detached, (tell) => new ModelAgent(this.model, at(place), input, node, tell)),
      saw: () => undefined,
      effect: (_, place, node, signal) => this.#effect(place, node, signal),
    }
  }

  readonly #tries = new Map<string, number>()

  #effect(place: string, { ms, end, flaky }: RunNode, signal: AbortSignal): Promise<string> {
    const failed = this.#tries.get(place) ?? 0
    this.#tries.set(place, failed + 1)
    return new Promise((resolve, reject) => {
      const moment = this.at(this.model.timeline.now + ms, () => {
        if (failed < flaky) reject(new Error('flaky'))
        else if (end === 'fail') reject(new HandlerError('broken', { code: 'broken', retryable: false }))
        else resolve(place)
      })
      signal.addEventListener('abort', () => {
        moment.cancel()
        reject(signal.reason)
      })
    })
  }
}
