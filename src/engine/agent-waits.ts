/** What an agent waits for, as it stands in its row. */
import type { StepWait } from '../core/agent-journal.ts'
import { inRanges } from '../core/agent-journal.ts'
import type { CancelAnswer } from '../core/states.ts'
import type { SettledChild } from './agent-input.ts'

export interface AgentWaits {
  /** Tasks and children it is suspended for. */
  steps: StepWait[]
  /** Sleeps and the limits of waits: step and when. */
  timers: [number, number][]
  /** Waits for a signal: step and name. */
  signals: [number, string][]
  /** How many signals of each name nobody has taken. */
  queued: Record<string, number>
  since: number | null
  /** Whether things go on below it: the step, for how long they may stand still, and when that is looked at next. */
  stuck: [step: number, ms: number, at: number] | null
  /** The number of the result that told it to stop: what its code asked for before it saw that is not begun. */
  stop: number | null
  /** Titles of children that somebody cancelled: none of them starts any more. */
  cancelled: string[]
  /** Something of what it began ignored its signal when it had to stop, and may still run. */
  abandoned: boolean
  /** Requests to cancel one, by id and title, and what they were answered. */
  requests: [string, string, CancelAnswer][]
}

export function decodeWaits(text: string | null): AgentWaits {
  const stored = text === null ? {} : (JSON.parse(text) as Partial<AgentWaits>)
  const none = { steps: [], timers: [], signals: [], queued: {}, cancelled: [], requests: [] }
  return { ...none, since: null, stuck: null, stop: null, abandoned: false, ...stored }
}

/** What `abandoned` of these says, where nothing else of them matters. */
export function hasAbandoned(text: string | null): boolean {
  return text?.includes('"abandoned":true') ?? false
}

/** Only what there is: most agents wait for one thing. */
export function encodeWaits(waits: AgentWaits): string | null {
  const { steps, timers, signals, queued, since, stuck, stop, cancelled, abandoned, requests } = waits
  const kept = {
    ...(steps.length && { steps }),
    ...(timers.length && { timers }),
    ...(signals.length && { signals }),
    ...(Object.keys(queued).length && { queued }),
    ...(since !== null && { since }),
    ...(stuck !== null && { stuck }),
    ...(stop !== null && { stop }),
    ...(cancelled.length && { cancelled }),
    ...(abandoned && { abandoned }),
    ...(requests.length && { requests }),
  }
  return Object.keys(kept).length ? JSON.stringify(kept) : null
}

/** Counts an end; answers whether any wait is over by it. */
export function countEnd(waits: AgentWaits, { step, outcome, detached }: SettledChild): boolean {
  const completed = outcome.status === 'completed'
  if (!completed && !detached && outcome.task.receipt === 'abandoned') waits.abandoned = true
  let over = false
  for (const wait of waits.steps) {
    if (!inRanges(wait.steps, step)) continue
    wait.left--
    if (wait.left <= 0 || wait.mode === 'each') over = true
    else if (wait.mode === 'all' && !completed) over = true
    else if (wait.mode === 'any' && completed) over = true
  }
  return over
}

export function withdraw(waits: AgentWaits, steps: readonly number[]): void {
  if (steps.length === 0) return
  const gone = new Set(steps)
  waits.timers = waits.timers.filter(([step]) => !gone.has(step))
  waits.signals = waits.signals.filter(([step]) => !gone.has(step))
}

export function isWaiting({ timers, signals }: AgentWaits, step: number): boolean {
  return timers.some(([waiting]) => waiting === step) || signals.some(([waiting]) => waiting === step)
}

export function nextTimer({ timers, stuck }: AgentWaits): number | null {
  let first: number | null = stuck?.[2] ?? null
  for (const [, at] of timers) if (first === null || at < first) first = at
  return first
}

/** Those that are over, in the order in which they were due. */
export function takeDueTimers(waits: AgentWaits, now: number): number[] {
  const due = waits.timers.filter(([, at]) => at <= now)
  if (due.length === 0) return []
  const steps = due.toSorted(([a, aAt], [b, bAt]) => aAt - bAt || a - b).map(([step]) => step)
  withdraw(waits, steps)
  return steps
}

export function queueSignal(waits: AgentWaits, name: string, count: 1 | -1): void {
  // A name is the caller's: it may be that of something every object has.
  const queued = new Map(Object.entries(waits.queued))
  const left = (queued.get(name) ?? 0) + count
  if (left > 0) queued.set(name, left)
  else queued.delete(name)
  waits.queued = Object.fromEntries(queued)
}

export function queuedSignals(waits: AgentWaits, name: string): number {
  return Object.hasOwn(waits.queued, name) ? (waits.queued[name] as number) : 0
}
