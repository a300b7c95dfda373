// What a program of agent-programs.ts must come to: it runs once, in memory, without a store, a journal or a process
// that could die. Time is a list of moments. What has no order (two moments closer than `gapMs`) is reported as tied.

import type { AgentContext, StepHandle } from '../../src/curfew.ts'
import { AllTasksFailed, CurfewError, RunFailed, Stopped, WaitTimedOut } from '../../src/curfew.ts'
import type { Failure } from '../../src/core/failure.ts'
import { failureOf, HandlerError } from '../../src/core/failure.ts'
import type { Outcome } from '../../src/core/settled-outcomes.ts'
import { settledOutcomes } from '../../src/core/settled-outcomes.ts'
import type { TaskStatus } from '../../src/core/states.ts'
import { outcomeError, TaskCancelled, TaskTimedOut } from '../../src/core/task-errors.ts'
import type { ChildNode, How, Probe, Program, ProgramInput, RunNode, TaskNode } from './agent-programs.ts'
import { BACKOFF_MS, childOptions, interpret } from './agent-programs.ts'

export interface ModelOptions {
  program: Program
  timeout: number | null
  cleanup: number
  signals: readonly { at: number; name: string; value: unknown }[]
  /** It is cancelled then, whatever it does. */
  cancelAt: number
  gapMs: number
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

export async function expectation(options: ModelOptions): Promise<Expectation> {
  const timeline = new Timeline(options.gapMs)
  const model = new Model(timeline)
  const input = { program: options.program, since: 0 }
  const root = new ModelAgent(model, 'root', input, { ...options, detached: false }, () => undefined)
  for (const { at, name, value } of options.signals) timeline.at(at, () => root.signal(name, value))
  timeline.at(options.cancelAt, () => root.cancel())
  await timeline.run()
  return { works: model.works, overAt: timeline.now, tied: timeline.tied }
}

interface Moment {
  at: number
  madeAt: number
  order: number
  happen: () => void
}

class Timeline {
  now = 0
  tied = false
  readonly #gapMs: number
  readonly #moments = new Set<Moment>()
  #order = 0

  constructor(gapMs: number) {
    this.#gapMs = gapMs
  }

  at(at: number, happen: () => void): { cancel(): void } {
    const moment = { at, madeAt: this.now, order: this.#order++, happen }
    if (at < Infinity) this.#moments.add(moment)
    return { cancel: () => this.#moments.delete(moment) }
  }

  soon(happen: () => void): void {
    this.at(this.now, happen)
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
      next.happen()
    }
  }
}

type End = { value: unknown } | { error: Error }

class Model {
  readonly timeline: Timeline
  readonly works = new Map<string, ExpectedWork>()
  ids = 0

  constructor(timeline: Timeline) {
    this.timeline = timeline
  }

  ended(place: string, work: ExpectedWork): void {
    if (this.works.has(place)) throw new Error(`the model ends ${place} twice`)
    this.works.set(place, work)
  }
}

/** A task or a child. */
interface Work {
  cancel(): void
}

class ModelHandle implements StepHandle {
  end: End | null = null
  readonly id: string
  readonly name = ''
  readonly kind: 'work' | 'run' | 'time' | 'group'
  readonly cancel: () => void
  readonly #listeners: ((end: End) => void)[] = []
  #promise: PromiseWithResolvers<unknown> | null = null

  constructor(kind: ModelHandle['kind'], cancel: () => void, id = '') {
    this.kind = kind
    this.cancel = cancel
    this.id = id
  }

  whenSettled(listener: (end: End) => void): void {
    if (this.end) listener(this.end)
    else this.#listeners.push(listener)
  }

  settle(end: End): void {
    if (this.end) return
    this.end = end
    for (const listener of this.#listeners) listener(end)
    if (this.#promise) this.#resolve(end)
  }

  // biome-ignore lint/suspicious/noThenProperty: a handle is awaited
  then<A, B>(
    onFulfilled?: ((value: unknown) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (!this.#promise) {
      this.#promise = Promise.withResolvers()
      if (this.end) this.#resolve(this.end)
    }
    return this.#promise.promise.then(onFulfilled, onRejected) as Promise<A | B>
  }

  catch<R>(onRejected?: ((reason: unknown) => R | PromiseLike<R>) | null): Promise<R> {
    return this.then(null, onRejected)
  }

  finally(onFinally?: (() => void) | null): Promise<unknown> {
    return this.then().finally(onFinally)
  }

  #resolve(end: End): void {
    if ('error' in end) this.#promise?.reject(end.error)
    else this.#promise?.resolve(end.value)
  }
}

class ModelTask implements Work {
  readonly #model: Model
  readonly #place: string
  readonly #node: TaskNode
  readonly #tell: (end: End) => void
  readonly #deadlineAt: number
  readonly #deadline: { cancel(): void }
  #next: { cancel(): void }
  #isOver = false
  readonly id: string

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

  cancel(): void {
    this.#end('cancelled', null)
  }

  #end(status: 'completed' | 'failed' | 'timed_out' | 'cancelled', detail: string | null): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#deadline.cancel()
    this.#next.cancel()
    this.#model.ended(this.#place, { kind: 'task', status, endedAt: this.#model.timeline.now, detail })
    this.#tell(status === 'completed' ? { value: this.id } : { error: errorOf('task', status, detail) })
  }
}

function errorOf(kind: 'task' | 'agent', status: TaskStatus, detail: unknown): Error {
  const failure = typeof detail === 'string' ? { code: detail, message: detail, retryable: false } : (detail as Failure)
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

class ModelAgent implements Work {
  readonly #model: Model
  readonly #place: string
  readonly #cleanup: number
  readonly #tell: (end: End) => void
  readonly #deadline: { cancel(): void }
  #bound: { cancel(): void } | null = null
  #status: TaskStatus = 'running'
  #endedAt = 0
  #detail: unknown = null
  #hasRun = false
  #codeOver = false
  #isSettled = false
  /** What it stops when it ends. */
  readonly #below = new Set<Work>()
  readonly #groups = new Set<ModelHandle>()
  readonly #steps = new Set<ModelHandle>()
  readonly #waiting: { name: string; handle: ModelHandle }[] = []
  readonly #signals: { name: string; value: unknown }[] = []

  constructor(
    model: Model,
    place: string,
    input: ProgramInput,
    options: { timeout: number | null; cleanup: number },
    tell: (end: End) => void,
  ) {
    this.#model = model
    this.#place = place
    this.#cleanup = options.cleanup
    this.#tell = tell
    const { timeline } = model
    const deadlineAt = options.timeout === null ? Infinity : timeline.now + options.timeout
    this.#deadline = timeline.at(deadlineAt, () => this.#timeOut())
    timeline.soon(() => void this.#execute(input))
  }

  async #execute(input: ProgramInput): Promise<void> {
    if (this.#codeOver) return
    this.#hasRun = true
    const context = this.#context() as unknown as AgentContext
    let end: End
    try {
      end = { value: await interpret(input, context, this.#probe()) }
    } catch (error) {
      end = { error: error as Error }
    }
    if (this.#codeOver) return
    if (this.#status === 'running') {
      this.#endedAt = this.#model.timeline.now
      if ('value' in end) {
        this.#status = 'completed'
        this.#detail = end.value
      } else {
        this.#status = 'failed'
        this.#detail = failureOf(end.error)
      }
    }
    this.#endCode()
  }

  cancel(): void {
    if (this.#status !== 'running') return
    this.#status = 'cancelling'
    this.#stop(new Stopped({ code: 'cancelled', message: '' }))
  }

  signal(name: string, value: unknown): void {
    const hears = this.#status === 'running' || this.#status === 'cancelling'
    if (!hears || this.#codeOver) return
    const at = this.#waiting.findIndex((one) => one.name === name)
    if (at < 0) return void this.#signals.push({ name, value })
    const [taken] = this.#waiting.splice(at, 1)
    taken?.handle.settle({ value })
  }

  #timeOut(): void {
    if (this.#codeOver) return
    if (this.#status === 'cancelling') return this.#endCode()
    if (this.#status !== 'running') return
    this.#status = 'timed_out'
    this.#endedAt = this.#model.timeline.now
    this.#stop(new Stopped({ code: 'timed_out', message: '' }))
  }

  /** Its waits end, what is below it ends, and its code has so much time to clean up. */
  #stop(error: Stopped): void {
    const { timeline } = this.#model
    if (!this.#hasRun || this.#cleanup === 0) return this.#endCode()
    this.#bound = timeline.at(timeline.now + this.#cleanup, () => this.#endCode())
    const below = [...this.#below]
    timeline.soon(() => {
      for (const work of below) work.cancel()
    })
    for (const handle of [...this.#groups].reverse()) handle.settle({ error })
    for (const handle of [...this.#steps]) {
      if (handle.kind === 'run') handle.cancel()
      handle.settle({ error })
    }
    this.#waiting.splice(0)
  }

  #endCode(): void {
    if (this.#codeOver) return
    this.#codeOver = true
    this.#bound?.cancel()
    this.#deadline.cancel()
    for (const handle of this.#steps) handle.cancel()
    for (const work of [...this.#below]) work.cancel()
    this.#settle()
  }

  #settle(): void {
    if (!this.#codeOver || this.#below.size > 0 || this.#isSettled) return
    this.#isSettled = true
    if (this.#status === 'cancelling') {
      this.#status = 'cancelled'
      this.#endedAt = this.#model.timeline.now
    }
    const failed = this.#status === 'failed'
    const detail = failed ? (this.#detail as Failure).code : this.#status === 'timed_out' ? 'agent' : this.#detail
    this.#model.ended(this.#place, { kind: 'agent', status: this.#status, endedAt: this.#endedAt, detail })
    this.#tell(
      this.#status === 'completed'
        ? { value: this.#detail }
        : { error: errorOf('agent', this.#status, this.#detail) },
    )
  }

  #probe(): Probe {
    return {
      schedule: (_, node) => this.#work(node.detached, `t${this.#model.ids}`, (tell, place) => new ModelTask(this.#model, place, node, tell)),
      child: (_, node, input) =>
        this.#work(node.detached, '', (tell, place) => this.#child(node, input, place, tell)),
      made: () => undefined,
      saw: () => undefined,
      effect: (_, place, node, signal) => this.#effect(place, node, signal),
    }
  }
}
