/** What a transaction is asked to do, what it answers, and what it leaves to be told after its commit. */
import type { Receipt } from '../core/states.ts'
import type { ClaimedTask, ClaimFloor, NewBelow, NewRow, NewTask } from '../store/hot-statements.ts'
import type { LightAttempt } from '../store/postgres/postgres-light.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { Scope, StartedTurn, TurnWish } from './agent-batch.ts'
import type { AgentInput } from './agent-input.ts'
import type { Effect } from './task-draft.ts'
import type { TaskEventBody } from './task-event.ts'
import type { TaskAnswer, TaskInput } from './task-input.ts'

/** `requestId`: of a caller who may have to ask again; what was done is not done twice. */
export type Command =
  /**
   * `scope`: its place below an agent, null for a task on its own; left out where the caller does not know.
   * `lightSince`: when the attempt began, if it may still be light in the store.
   */
  | {
      type: 'input'
      taskId: string
      input: TaskInput
      scope?: Scope | null
      lightSince?: number | null
      requestId?: string
    }
  /** `rootId`: left out where the caller does not know. */
  | { type: 'agent'; agentId: string; input: AgentInput; rootId?: string; requestId?: string }
  | { type: 'fire' }
  | { type: 'queue'; name: string }
  /** Claims of this process that were light, and what of them has not ended. */
  | { type: 'write_out'; tokens: readonly string[]; attempts: readonly LightAttempt[] }
  /**
   * Attempts of a process that is silent or, `proven`, gone. `lease`: those whose lease is over; without one those that
   * ran in that process, and not those in workers that may have outlived it.
   */
  | {
      type: 'lose'
      nodeId: string
      receipt: Receipt
      proven: boolean
      lease: { renewedAt: number; baseMs: number } | null
    }
  /** All of one name. */
  | { type: 'schedule'; name: string; count: number; tasks: (now: number) => (NewTask | NewBelow)[] }

export type Answer =
  | TaskAnswer
  | { type: 'not_found' }
  /** `busy`: some of what is due somebody else is about to change. */
  | { type: 'fired'; count: number; busy: boolean }
  | { type: 'lost'; count: number }
  /** `kept`: claims of which something is light still. */
  | { type: 'written_out'; kept: readonly string[] }
  | { type: 'scheduled'; tasks: { id: string; existing: boolean }[] }

export interface ClaimWish {
  token: string
  names: readonly string[]
  /** Queues without a limit, claimed from together; the others one by one. */
  queues: readonly string[]
  limitedQueues: readonly string[]
  slots: number
  /** Older work may wait than what this batch brings. */
  look: boolean
  /** Of one queue and name: the next ones stand behind it. */
  after: ClaimFloor | null
  /** Where light tasks of these queues and names begin. */
  floors: readonly ClaimFloor[]
  turns: TurnWish | null
}

export interface Committed {
  now: number
  effects: Effect[]
  recorded: { row: TaskRow; event: TaskEventBody; at: number }[]
  completed: { id: string; token: string; output: string }[]
  claimed: ClaimedTask[]
  /** Attempts that were light, and are not any more though they have not completed. */
  writtenOut: readonly LightAttempt[]
  turns: StartedTurn[]
  wish: ClaimWish | null
  newTasks: NewRow[]
  /** The earliest moment anything written here is due. */
  dueAt: number
  /** All work it has changed, with what is above it. */
  touched(): Iterable<{ id: string; parentId?: string | null; rootId?: string | null }>
}
