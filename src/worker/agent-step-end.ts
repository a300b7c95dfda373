/** Between the journal and the code: what a result means to the one who waits, and what the end of the code means. */
import type { JournalResult } from '../core/agent-journal.ts'
import { CurfewError } from '../core/errors.ts'
import type { Failure } from '../core/failure.ts'
import { failureOf, isThrown } from '../core/failure.ts'
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
import type { Step, StepEnd } from './agent-step.ts'

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
    case 'stuck':
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

/** What the code of an agent threw. */
export function thrownEnd(
  thrown: unknown,
  isStopped: boolean,
): { type: 'threw'; failure: Failure; stopped: boolean; endsAs?: EndsAs } {
  if (isThrown(thrown, RunEnded)) {
    return { type: 'threw', failure: thrown.failure, stopped: false, endsAs: thrown.endsAs }
  }
  const stopped = isStopped && (isThrown(thrown, Stopped) || isThrown(thrown, TaskCancelled))
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
