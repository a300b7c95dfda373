// The `ctx` of the model: handles that are settled by moments of its timeline, and waits for several of them.

import { CurfewError } from '../../src/core/errors.ts'
import type { Failure } from '../../src/core/failure.ts'
import { failureOf } from '../../src/core/failure.ts'
import type { Outcome } from '../../src/core/settled-outcomes.ts'
import { settledOutcomes } from '../../src/core/settled-outcomes.ts'
import {
  AllTasksFailed,
  RunFailed,
  Stopped,
  TaskCancelled,
  TaskTimedOut,
  WaitTimedOut,
} from '../../src/core/task-errors.ts'
import type { StepHandle } from '../../src/curfew.ts'
import type { ModelAgent } from './agent-model.ts'
import type { How } from './agent-programs.ts'
import { BACKOFF_MS } from './agent-programs.ts'

export type End = { value: unknown } | { error: Error }

type RunFunction = (run: { signal: AbortSignal; attempt: number }) => unknown
type RunOptions = { retries?: number; timeout?: number }

export class ModelHandle implements StepHandle {
  id = ''
  end: End | null = null
  readonly kind: 'work' | 'run' | 'time' | 'group'
  cancel: () => void
  /** Of a wait for several: the agent has to stop. */
  stop: (error: Error) => void = () => undefined
  readonly #listeners: ((end: End) => void)[] = []
  #promise: PromiseWithResolvers<unknown> | null = null

  constructor(kind: ModelHandle['kind'], cancel: () => void = () => undefined) {
    this.kind = kind
    this.cancel = cancel
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
  then<A = unknown, B = never>(
    onFulfilled?: ((value: unknown) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (!this.#promise) {
      this.#promise = Promise.withResolvers()
      if (this.end) this.#resolve(this.end)
    }
    return this.#promise.promise.then(onFulfilled, onRejected)
  }

  catch<R = never>(onRejected?: ((reason: unknown) => R | PromiseLike<R>) | null): Promise<unknown> {
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

export function modelContext(agent: ModelAgent) {
  const { timeline } = agent.model
  const soon = (happen: () => void) => agent.at(timeline.now, happen)

  const step = (kind: 'run' | 'time'): ModelHandle => {
    const handle = new ModelHandle(kind)
    agent.steps.add(handle)
    handle.whenSettled(() => agent.steps.delete(handle))
    return handle
  }

  /** A sleep, or a wait for a signal: ends at its time, unless it has before. */
  const timed = (ms: number, end: () => End): ModelHandle => {
    const handle = step('time')
    const moment = agent.at(timeline.now + ms, () => handle.settle(end()))
    handle.whenSettled(() => moment.cancel())
    handle.cancel = () => {
      agent.stopSoon(() => handle.settle({ error: new Stopped({ code: 'cancelled', message: '' }) }))
    }
    return handle
  }

  const group = (
    how: How,
    members: ModelHandle[],
    options: { timeout?: number; cancelRest?: boolean } = {},
  ) => {
    const handle = new ModelHandle('group', () => {
      for (const member of members) if (!member.end) member.cancel()
    })
    const { timeout, cancelRest } = options
    const settle = (end: End, timedOut: boolean) => {
      const rest = members.filter((member) => !member.end)
      handle.settle(end)
      if (cancelRest ?? timedOut) for (const member of rest) member.cancel()
    }
    handle.stop = (error) => {
      if (!handle.end) settle({ error }, false)
    }
    const outcomes = (): Outcome[] => members.map(({ end }, index) => outcomeOf(index, end, timeout ?? 0))
    let left = members.length
    const allEnded = () => {
      const errors = members.flatMap(({ end }) => (end && 'error' in end ? [end.error] : []))
      const values = members.map(({ end }) => (end && 'value' in end ? end.value : undefined))
      if (how === 'all') settle({ value: values }, false)
      else if (how === 'any') settle({ error: new AllTasksFailed(errors) }, false)
      else settle({ value: settledOutcomes(outcomes()) }, false)
    }
    for (const [index, member] of members.entries()) {
      member.whenSettled((end) => {
        if (handle.end) return
        left--
        const failed = 'error' in end
        if (how === 'race' || how === (failed ? 'all' : 'any'))
          settle(failed ? end : { value: { index, value: end.value } }, false)
        else if (left === 0) allEnded()
      })
    }
    if (timeout !== undefined && !handle.end) {
      const moment = agent.at(timeline.now + timeout, () => {
        const settled = settledOutcomes(outcomes())
        const late = new WaitTimedOut('', timeout, settled)
        settle(how === 'allSettled' ? { value: settled } : { error: late }, true)
      })
      handle.whenSettled(() => moment.cancel())
    }
    agent.groups.add(handle)
    handle.whenSettled(() => agent.groups.delete(handle))
    return handle
  }

  const tryOnce = (fn: RunFunction, attempt: number, timeout: number | null, stopped: AbortSignal) => {
    const over = new AbortController()
    const signal = AbortSignal.any([stopped, over.signal])
    return new Promise<{ value: unknown } | { failure: Failure; error: Error }>((resolve) => {
      const moment = agent.at(timeline.now + (timeout ?? Infinity), () => {
        over.abort()
        const failure = { code: 'timed_out', message: '', retryable: true }
        resolve({ failure, error: new WaitTimedOut('', timeout ?? 0) })
      })
      const fails = (thrown: unknown) => {
        moment.cancel()
        const failure = failureOf(thrown)
        resolve({ failure, error: new RunFailed('', failure) })
      }
      Promise.resolve(fn({ signal, attempt })).then((value) => {
        moment.cancel()
        resolve({ value })
      }, fails)
    })
  }

  const run = async (handle: ModelHandle, fn: RunFunction, options: RunOptions, stopped: AbortSignal) => {
    const { retries = 0, timeout = null } = options
    for (let attempt = 1; ; attempt++) {
      const end = await tryOnce(fn, attempt, timeout, stopped)
      if ('value' in end) return void soon(() => handle.settle(end))
      if (end.failure.retryable && attempt <= retries && !stopped.aborted) {
        await new Promise<void>((resolve) => {
          agent.at(timeline.now + BACKOFF_MS, resolve)
          stopped.addEventListener('abort', () => resolve())
        })
        if (!stopped.aborted) continue
      }
      return void soon(() => handle.settle({ error: end.error }))
    }
  }

  return {
    agentId: agent.id,
    work: () => new ModelHandle('work'),
    all: group.bind(null, 'all'),
    allSettled: group.bind(null, 'allSettled'),
    any: group.bind(null, 'any'),
    race: group.bind(null, 'race'),
    sleep: (ms: number) => timed(ms, () => ({ value: undefined })),
    waitForSignal(name: string, { timeout }: { timeout?: number }) {
      const at = agent.signals.findIndex((one) => one.name === name)
      if (at >= 0) {
        const handle = step('time')
        const [taken] = agent.signals.splice(at, 1)
        soon(() => handle.settle({ value: taken?.value }))
        return handle
      }
      const handle = timed(timeout ?? Infinity, () => ({ error: new WaitTimedOut('', timeout ?? 0) }))
      const waiting = { name, handle }
      agent.waiting.push(waiting)
      handle.whenSettled(() => {
        const index = agent.waiting.indexOf(waiting)
        if (index >= 0) agent.waiting.splice(index, 1)
      })
      return handle
    },
    run(_: string, fn: RunFunction, options: RunOptions) {
      const handle = step('run')
      const stop = new AbortController()
      handle.cancel = () => {
        agent.stopSoon(() => stop.abort(new CurfewError('cancelled', '')))
      }
      void run(handle, fn, options, stop.signal)
      return handle
    },
    cancel: (handle: ModelHandle) => {
      if (!handle.end) handle.cancel()
    },
    now: () => timeline.now,
    random: () => 0,
    uuid: () => '',
  }
}

function outcomeOf(index: number, end: End | null, timeout: number): Outcome {
  if (!end) return { index, status: 'timed_out', error: new WaitTimedOut('', timeout) }
  if ('value' in end) return { index, status: 'completed', value: end.value }
  const { error } = end
  if (error instanceof TaskTimedOut || error instanceof WaitTimedOut)
    return { index, status: 'timed_out', error }
  return { index, status: error instanceof TaskCancelled ? 'cancelled' : 'failed', error }
}
