/**
 * The journal of an agent as plain data. A step is what its code asked for, numbered in that order; a result is what
 * came of one, numbered in the order in which all of them are handed to the code. Both orders together make a replay
 * take the same path: which steps the code makes depends on nothing but the results it has seen.
 */
import type { Failure } from './failure.ts'
import type { WorkKind } from './own-work.ts'
import { matchedInput } from './own-work.ts'
import type { Progress, Receipt, StopReason, TaskStatus, TimeoutKind } from './states.ts'

/** A task or agent that ended, as far as an error about it needs it. */
export interface EndedWork {
  kind: WorkKind
  id: string
  name: string
  status: TaskStatus
  attempts: number
  deadlineAt: number | null
  startedAt: number | null
  timeoutKind: TimeoutKind | null
  timeoutMs: number | null
  failure: Failure | null
  receipt: Receipt | null
  progress: Progress | null
  details: unknown
}

export type WorkOutcome =
  | { status: 'completed'; output: string }
  | { status: 'not_completed'; task: EndedWork }

/** A step on its way into the store. `seen`: the last result the code had been given when it made it. */
export type NewStep = { no: number; seen?: number } & (
  | {
      kind: 'task' | 'agent'
      id: string
      name: string
      /** JSON text. */
      input: string
      /** A whole policy, as plain data. */
      policy: unknown
      start: { delayMs: number } | { at: number }
      detached: boolean
      title?: string
      /** It inherits the agent's deadline, minus so many milliseconds; null: minus the usual reserve. */
      reserveMs?: number | null
    }
  | { kind: 'sleep'; ms: number }
  | { kind: 'sleep_until'; at: number }
  /** The limit of a wait for several. */
  | { kind: 'wait'; ms: number; waits: string }
  | { kind: 'signal'; name: string; ms: number | null }
  | { kind: 'run'; name: string }
  | { kind: 'now' | 'random' | 'uuid'; value: unknown }
  /** Something that stands among the agent's events. */
  | { kind: 'event'; event: { type: string } }
  /** Ends when something below it runs without a limit of its own and nothing has moved for so long. */
  | { kind: 'stuck'; ms: number }
  /** `target`: the number of the step that is cancelled; `id` when that is a task or agent. */
  | { kind: 'cancel'; target: number; id: string | null }
)

/** A step as it is matched on replay: kind, name and input must be the same again. */
export interface JournalStep {
  no: number
  kind: NewStep['kind']
  name: string
  input: string
  /** Of `now`, `random`, `uuid`. */
  value?: unknown
  /** Of a task or agent. */
  id?: string
}

/** What is going on below an agent. */
export interface Activity {
  now: number
  /** When anything below it changed, progressed or was granted time. */
  lastAt: number | null
  /** Attempts that run without any limit of their own, and one of them. */
  unbounded: number
  example: string | null
}

export type RunOutcome = { output: string } | { failure: Failure; timedOutMs?: number }

export type JournalResult = { seq: number } & (
  | { type: 'work'; step: number; outcome: WorkOutcome }
  /** `at`: the store's time when it fired. */
  | { type: 'time'; step: number; at?: number }
  | { type: 'signal'; step: number; value: string }
  | { type: 'ran'; step: number; outcome: RunOutcome }
  | { type: 'stuck'; step: number; activity: Activity }
  /** A sleep or a wait for a signal that the code itself has cancelled. */
  | { type: 'withdrawn'; step: number }
  /** The agent has to stop: its waits end, its clean-up begins. */
  | { type: 'stop'; reason: StopReason }
)

/** Which ends wake a suspended agent: each, the last, the first bad one or the last, the first good one or the last. */
export type WaitMode = 'each' | 'settled' | 'all' | 'any'

export interface StepWait {
  mode: WaitMode
  /** Ranges of step numbers, both ends included. */
  steps: [number, number][]
  /** How many of them have not ended. */
  left: number
}

/** A page of a journal, for a worker that does not have the run in memory. */
export interface JournalPage {
  /** What the agent was started with; of the first page. */
  input: string | null
  steps: JournalStep[]
  results: JournalResult[]
  /** Where the next page starts; null after the last. */
  next: JournalCursor | null
}

export interface JournalCursor {
  part: 'work' | 'open' | 'steps' | 'results'
  after: number
}

export const JOURNAL_START: JournalCursor = { part: 'steps', after: -1 }

/** The part of a step that is kept, and that a replay has to make again. */
export function journalStep(step: NewStep): JournalStep {
  const { no, kind } = step
  switch (kind) {
    case 'task':
    case 'agent':
      return { no, kind, name: step.name, input: matchedInput(step.name, step.input), id: step.id }
    case 'sleep':
      return { no, kind, name: '', input: `${step.ms}` }
    case 'sleep_until':
      return { no, kind, name: '', input: `${step.at}` }
    case 'wait':
      return { no, kind, name: '', input: `${step.waits} ${step.ms}` }
    case 'signal':
      return { no, kind, name: step.name, input: `${step.ms}` }
    case 'run':
      return { no, kind, name: step.name, input: '' }
    case 'cancel':
      return { no, kind, name: '', input: `${step.target}` }
    case 'stuck':
      return { no, kind, name: '', input: `${step.ms}` }
    case 'event':
      return { no, kind, name: step.event.type, input: '' }
    default:
      return { no, kind, name: '', input: '', value: step.value }
  }
}

/** `covers`: whether a range may go over what lies from one step to another. */
export function ranges(
  steps: readonly number[],
  covers: (from: number, to: number) => boolean = () => false,
): [number, number][] {
  const out: [number, number][] = []
  for (const step of steps.toSorted((a, b) => a - b)) {
    const last = out.at(-1)
    if (last && (step <= last[1] + 1 || covers(last[1] + 1, step - 1))) last[1] = Math.max(last[1], step)
    else out.push([step, step])
  }
  return out
}

export function inRanges(steps: readonly [number, number][], step: number): boolean {
  return steps.some(([from, to]) => step >= from && step <= to)
}
