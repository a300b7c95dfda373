/**
 * What the code of an agent holds while it waits: a step, or a wait for several. Settled by the run alone, when it
 * hands over a result; `then` is how the run learns that somebody waits.
 */
import type { WaitMode } from '../core/agent-journal.ts'
import type { StepHandle } from '../definitions/agent.ts'

export type StepEnd = { value: unknown } | { error: Error }

/** What a waitable tells its run. */
export interface Awaiting {
  /** Somebody waits for it from now on. */
  awaited(waitable: Waitable): void
  /** It has settled and need not be looked at any more. */
  settled(waitable: Waitable): void
}

/** How many have ended in this process: their order is that of the results of their run, so the same on replay. */
let ends = 0

export abstract class Waitable<T = unknown> implements StepHandle<T> {
  readonly #run: Awaiting
  #promise: PromiseWithResolvers<T> | null = null
  #listeners: ((end: StepEnd) => void)[] | null = null
  #end: StepEnd | null = null
  #endedAs = 0

  constructor(run: Awaiting) {
    this.#run = run
  }

  isOf(run: Awaiting): boolean {
    return this.#run === run
  }

  /** Of two that have ended, the one that did first has the smaller number; 0 until then. */
  get endedAs(): number {
    return this.#endedAs
  }

  get end(): StepEnd | null {
    return this.#end
  }

  /** Steps it still depends on, and which of their ends are worth waking up for. */
  abstract openSteps(): { mode: WaitMode; steps: Step[] }

  // biome-ignore lint/suspicious/noThenProperty: a handle is awaited
  then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (!this.#promise) {
      this.#promise = Promise.withResolvers<T>()
      if (this.#end) this.#resolve(this.#end)
    }
    this.#run.awaited(this as Waitable)
    return this.#promise.promise.then(onFulfilled, onRejected)
  }

  catch<R = never>(onRejected?: ((reason: unknown) => R | PromiseLike<R>) | null): Promise<T | R> {
    return this.then(null, onRejected)
  }

  finally(onFinally?: (() => void) | null): Promise<T> {
    return this.then().finally(onFinally)
  }

  /** Called back as it settles, before any code that waits goes on; at once if it has. */
  whenSettled(listener: (end: StepEnd) => void): void {
    if (this.#end) return listener(this.#end)
    this.#listeners ??= []
    this.#listeners.push(listener)
  }

  /** Once; what comes later is not its end any more. */
  settle(end: StepEnd): void {
    if (this.#end) return
    this.#end = end
    this.#endedAs = ++ends
    this.#run.settled(this as Waitable)
    for (const listener of this.#listeners ?? []) listener(end)
    this.#listeners = null
    if (this.#promise) this.#resolve(end)
  }

  #resolve(end: StepEnd): void {
    if ('error' in end) this.#promise?.reject(end.error)
    else this.#promise?.resolve(end.value as T)
  }
}

export class Step<T = unknown> extends Waitable<T> {
  readonly no: number
  readonly kind: 'task' | 'agent' | 'sleep' | 'wait' | 'signal' | 'run' | 'stuck'
  readonly name: string
  readonly id: string
  /** Of a signal: how long it is waited for. */
  readonly timeoutMs: number | null
  /** Of a run: asks it to stop. */
  stop: (() => void) | null = null

  constructor(
    run: Awaiting,
    no: number,
    about: { kind: Step['kind']; name?: string; id?: string; timeoutMs?: number | null },
  ) {
    super(run)
    this.no = no
    this.kind = about.kind
    this.name = about.name ?? ''
    this.id = about.id ?? ''
    this.timeoutMs = about.timeoutMs ?? null
  }

  get isWork(): boolean {
    return this.kind === 'task' || this.kind === 'agent'
  }

  openSteps(): { mode: WaitMode; steps: Step[] } {
    return { mode: 'each', steps: this.end ? [] : [this as Step] }
  }
}
