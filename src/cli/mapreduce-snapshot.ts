/** A map-reduce as it is shown: while it runs, and once it has ended. Times are milliseconds since the epoch. */

export interface ItemCounts {
  /** The sum of the others. */
  total: number
  waiting: number
  running: number
  successful: number
  failed: number
  timedOut: number
  skipped: number
  cancelled: number
}

export interface PhaseSnapshot {
  phase: 'setup' | 'map' | 'reduce' | 'merge'
  /** `none`: the file has no such phase. */
  state: 'waiting' | 'running' | 'done' | 'failed' | 'none'
  startedAt: number | null
  endedAt: number | null
  /** Indexes count from 0. */
  step: { index: number; of: number; text: string; startedAt: number; limitMs: number | null } | null
}

export interface RunningItem {
  itemId: string
  name: string
  /** From 1. */
  attempt: number
  startedAt: number
  agentLimitMs: number | null
  command: { index: number; type: string; text: string; startedAt: number; limitMs: number | null } | null
}

export interface EndedItem {
  itemId: string
  name: string
  status: string
  message: string | null
  ms: number
}

export interface MapreduceSnapshot {
  jobId: string
  name: string
  startedAt: number
  deadlineAt: number | null
  phases: PhaseSnapshot[]
  counts: ItemCounts
  running: RunningItem[]
  /** Items and attempts that ended last, the newest last. */
  recent: EndedItem[]
}

export interface TimeoutOfItem {
  itemId: string
  name: string
  kind: 'agent' | 'command' | 'idle'
  commandIndex: number | null
  type: string | null
  limitMs: number
  elapsedMs: number
  /** `agent_timeout_secs`, `idle_timeout_secs`, or that of a command: `step`, `command_timeouts["shell"]`, `default`. */
  source: string
  resolution: string
}

export interface MapreduceSummary {
  jobId: string
  name: string
  status: 'completed' | 'failed' | 'timed_out' | 'cancelled' | 'interrupted'
  failure: { code: string; message: string } | null
  ms: number
  counts: ItemCounts
  slowest: { itemId: string; name: string; status: string; ms: number }[]
  timeouts: TimeoutOfItem[]
  deadLetters: number
  /** Items that should have a dead letter, and have none: nobody would store it. */
  lettersRefused: { itemId: string; name: string; message: string }[]
  /** The run whose dead letters they are: of a retry, the one that is retried. */
  lettersOf: string
  notes: string[]
}
