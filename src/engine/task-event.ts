/** What is recorded about a task beyond its columns. */
import type { ExtensionAnswer } from '../core/extension.ts'
import type { Failure } from '../core/failure.ts'
import type { CommandEvent } from '../core/note.ts'
import type { Progress, Receipt, TaskStatus, TimeoutKind } from '../core/states.ts'

/** When a deadline was due and how late it fired. */
interface Fired {
  kind: TimeoutKind
  deadlineAt: number
  timeoutMs: number | null
  lateMs: number
}

export type TaskEventBody =
  /** The task ended. `startedAt` is null when nobody ever started it. */
  | ({ type: 'task_timed_out'; startedAt: number | null; attempts: number; agentId?: string } & Fired)
  | { type: 'task_failed'; failure: Failure; attempts: number }
  | { type: 'task_cancelled'; wasRunning: boolean }
  /** An attempt ended and the task goes on. */
  | ({ type: 'attempt_timed_out'; attempt: number } & Fired)
  | { type: 'attempt_failed'; attempt: number; failure: Failure }
  | { type: 'attempt_lost'; attempt: number; nodeId: string }
  | { type: 'attempt_stopped'; attempt: number; receipt: Receipt; tookMs: number | null }
  | { type: 'retry_scheduled'; attempt: number; retryAt: number }
  /** `percent` of a limit are over. */
  | { type: 'limit_warning'; kind: TimeoutKind; percent: number; deadlineAt: number; remainingMs: number }
  | {
      type: 'extension_answered'
      attempt: number
      requestId: string
      progress: Progress
      answer: ExtensionAnswer
    }
  | { type: 'deadlines_extended'; byMs: number; deadlineAt: number | null }
  /** Something came after the outcome was decided; it changes nothing. Without its attempt: of an earlier one. */
  | { type: 'late_result'; attempt?: number; status: TaskStatus; output?: string; failure?: Failure }
  /** An earlier attempt was stopped only past its lease: it may have run beside this one. Its worker heard of nobody for so long. */
  | { type: 'attempt_overlapped'; attempt: number; receipt: Receipt; silentMs: number }
  | { type: 'resumed' }
  | (CommandEvent & { attempt: number })
  /** Of agents. The first three end one; with a `failure`, as what ended it did. */
  | ({ type: 'agent_timed_out' } & (Fired | { kind: TimeoutKind; failure: Failure }))
  | { type: 'agent_failed'; failure: Failure }
  | { type: 'agent_cancelled'; failure?: Failure }
  | { type: 'agent_cancelling' }
  /** Its clean-up took longer than its budget. */
  | { type: 'cleanup_abandoned'; cleanupMs: number }
  | { type: 'turn_lost'; turn: number; nodeId: string }
  | { type: 'agent_parked'; reason: string; code: string; step: number | null }
  | { type: 'signal_received'; name: string }
  /** Of a job: one of its workflows, and those that wait for it. */
  | { type: 'workflow_cancelling'; workflow: string; dependents: readonly string[]; requestId: string | null }
  /** Of workflows, recorded by the machine of graphs. */
  | { type: 'token_timed_out'; timeoutType: string; policyApplied: string }

/** Read from columns. */
export type PlainEventBody =
  | { type: 'task_scheduled'; startAt: number }
  | { type: 'attempt_started'; attempt: number; nodeId: string }
  | { type: 'task_completed'; attempts: number }
  | { type: 'agent_scheduled' }
  | { type: 'agent_started' }
  | { type: 'agent_completed'; turns: number }

export type TaskEvent = { taskId: string; seq: number; at: number } & (TaskEventBody | PlainEventBody)
