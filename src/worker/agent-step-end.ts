/** Between the journal and the code: what a result means to the one who waits, and what the store has to know of it. */
import type { JournalResult, StepWait } from '../core/agent-journal.ts'
import { ranges } from '../core/agent-journal.ts'
import { CurfewError } from '../core/errors.ts'
import type { Failure } from '../core/failure.ts'
import { failureOf } from '../core/failure.ts'
import { decodeJson } from '../core/json.ts'
import { MAX_STEPS } from '../core/limits.ts'
import type { EndsAs } from '../core/states.ts'
import {
  outcomeError,
  RunEnded,
  RunFailed,
  Stopped,
  TaskCancelled,
  WaitTimedOut,
} from '../core/task-errors.ts'
import type { Group } from './agent-group.ts'
import type { Step, StepEnd, Waitable } from './agent-step.ts'

type StepResult = Exclude<JournalResult, { type: 'stop' }>

export function stepEnd(step: Step, result: StepResult): StepEnd {
  switch (result.type) {
    case 'work': {
      const { outcome } = result
      if (outcome.status === 'completed') return { value: decodeJson(outcome.output) }
      return { error: outcomeError(outcome.task) }
    }
    case 'time':
      return step.kind === 'signal'
        ? { error: new WaitTimedOut(`the wait for signal '${step.name}'`, step.timeoutMs ?? 0) }
        : { value: undefined }
    case 'signal':
      return { value: decodeJson(result.value) }
    case 'activity':
      return { value: result.activity }
    case 'withdrawn':
      return { error: new Stopped({ code: 'cancelled', message: `${step.kind} was cancelled` }) }
    case 'ran': {
      const { outcome } = result
      if ('output' in outcome) return { value: decodeJson(outcome.output) }
      if (outcome.timedOutMs === undefined) return { error: new RunFailed(step.name, outcome.failure) }
      return { error: new WaitTimedOut(`run ${step.name}`, outcome.timedOutMs) }
    }
  }
}

/** An estimate of what the value takes in memory. */
export function resultBytes(result: StepResult): number {
  if (result.type === 'signal') return result.value.length
  if (result.type !== 'work' && result.type !== 'ran') return 0
  return 'output' in result.outcome ? result.outcome.output.length : 0
}

/** Which ends of tasks and children are worth waking up for; those of `groups` that cancel the rest, awaited or not. */
export function stepWaits(awaited: Iterable<Waitable>, groups: Iterable<Group>): StepWait[] {
  const each: number[] = []
  const waits: StepWait[] = []
  const cancelling = [...groups].filter((group) => group.cancelsRest)
  for (const waitable of new Set([...awaited, ...cancelling])) {
    const { mode, steps } = waitable.openSteps()
    const work = steps.filter((step) => step.isWork).map(({ no }) => no)
    if (mode === 'each') each.push(...work)
    else if (work.length) waits.push({ mode, steps: ranges(work), left: new Set(work).size })
  }
  if (each.length) waits.push({ mode: 'each', steps: ranges(each), left: new Set(each).size })
  return waits
}

/** What the code of an agent threw. */
export function thrownEnd(
  thrown: unknown,
  isStopped: boolean,
): { type: 'threw'; failure: Failure; stopped: boolean; endsAs?: EndsAs } {
  if (thrown instanceof RunEnded) {
    return { type: 'threw', failure: thrown.failure, stopped: false, endsAs: thrown.endsAs }
  }
  const stopped = isStopped && (thrown instanceof Stopped || thrown instanceof TaskCancelled)
  return { type: 'threw', failure: failureOf(thrown), stopped }
}

export function tooManySteps(name: string): Failure {
  const error = new CurfewError(
    'too_many_steps',
    `agent ${name} came to step ${MAX_STEPS}; a journal holds no more`,
    { hint: 'Give parts of the work to child agents, or start the next one from where this one stands.' },
  )
  return { ...failureOf(error), retryable: false }
}
