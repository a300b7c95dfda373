/**
 * The one port between a worker and a manager: `attach` and `report` up, messages down.
 * Every message is plain JSON data, so that it may be a direct call in one process or cross a wire between two.
 * A worker never touches the store; a manager never touches a handler.
 */

import type { JournalCursor, JournalPage, JournalResult } from '../core/agent-journal.ts'
import type { ExtensionAnswer } from '../core/extension.ts'
import type { AttemptReport, TurnBody } from '../core/reports.ts'
import type { StopReason } from '../core/states.ts'
import type { TraceContext } from '../core/trace-context.ts'

export interface WorkerHello {
  workerId: string
  /** The tasks it has the code of. */
  names: string[]
  /** The queues it works; null: all. */
  queues: string[] | null
  concurrency: number
  /** The agents it has the code of, and how many turns it runs at a time. */
  agents: string[]
  turns: number
}

/** One attempt, handed out. Remaining times count from the moment this message arrives. */
export interface Assignment {
  taskId: string
  name: string
  queue: string
  attempt: number
  token: string
  /** JSON text. */
  input: string
  /** What an earlier attempt last reported, as JSON text. */
  details: string | null
  /** The earlier of the attempt's and the total deadline, on the store's clock. */
  deadlineAt: number | null
  /** What is left of each at the claim. */
  attemptMs: number | null
  totalMs: number | null
  /** The abort signal comes this long before the deadline. */
  softStopMs: number
  /** Progress and heartbeats go up at most this often. */
  beatEveryMs: number
  graceMs: number
  trace: TraceContext | null
  /** Its place below an agent. */
  scope: { rootId: string; parentId: string; step: number; detached: boolean } | null
}

/** A turn of an agent, handed out. */
export interface Turn {
  agentId: string
  rootId: string
  name: string
  token: string
  /** Rises by one with each: a run in memory that has another before this one is outdated. */
  turn: number
  /** JSON text; null: it stands in the journal, for whoever does not have the run in memory. */
  input: string | null
  trace: TraceContext | null
  /** The store's time at the claim. */
  now: number
  /** How much is in its journal; nothing: it has never come to a step. */
  steps: number
  seen: number
  upTo: number
  /** Those after `seen`, up to `upTo`. */
  results: JournalResult[]
}

/** What is left of an attempt's limits. */
export interface RemainingLimits {
  deadlineAt: number | null
  attemptMs: number | null
  totalMs: number | null
}

export type DownMessage =
  | { type: 'start'; assignments: Assignment[] }
  | { type: 'stop'; taskId: string; token: string; reason: StopReason; graceMs: number }
  /** Its limits moved: what is left of them now. */
  | ({ type: 'limits'; taskId: string; token: string } & RemainingLimits)
  | { type: 'turns'; turns: Turn[] }
  /** There is news for a turn that runs; `dropped`: nothing it does counts any more. */
  | { type: 'news'; agentId: string; token: string; dropped: boolean }

export interface TurnReport extends TurnBody {
  agentId: string
  rootId: string
}

export type TurnAnswer =
  /** `now`: the store's time, not before that of the results. */
  | { type: 'more'; results: JournalResult[]; upTo: number; now: number }
  | { type: 'suspended' }
  | { type: 'ended' }
  | { type: 'stale' }

export type Report = AttemptReport & { taskId: string }

export type ReportAnswer =
  | { type: 'accepted' }
  /** Not its attempt any more: stop it. */
  | { type: 'stale'; reason: StopReason }
  | { type: 'extension'; answer: ExtensionAnswer; deadlineAt: number | null }
  | ({ type: 'limits' } & RemainingLimits)
  /** Of a note: it is not stored, and its attempt goes on. */
  | { type: 'refused'; message: string }

export interface WorkerSession {
  /** Resolves with one answer per report, after their commit. Never rejects while the manager lives. */
  report(reports: Report[]): Promise<ReportAnswer[]>
  reportTurns(reports: TurnReport[]): Promise<TurnAnswer[]>
  /** A page of the journal of an agent whose turn runs here; null when it does not any more. */
  journal(agentId: string, token: string, cursor: JournalCursor): Promise<JournalPage | null>
  /** Code of a suspended run goes on by itself: it wants a turn. */
  wake(agentId: string, rootId: string, token: string): void
  detach(): void
}

/** An attempt or turn, as a worker that was out of reach shows it. */
export interface Held {
  id: string
  token: string
}

/** What a manager that is somewhere else has to ask a worker. */
export interface AttachedWorker {
  /** What runs there, and what has ended there and was not reported yet. */
  held(): { attempts: (Held & { graceMs: number })[]; turns: Held[] }
  /** Nobody could be reached in time: everything goes down the ladder. */
  stopAll(reason: StopReason): void
}

export interface ManagerPort {
  attach(hello: WorkerHello, down: (message: DownMessage) => void, worker: AttachedWorker): WorkerSession
}
