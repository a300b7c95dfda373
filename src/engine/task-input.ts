/** What can happen to a task, and what whoever made it happen is told. */
import type { JournalResult } from '../core/agent-journal.ts'
import type { ExtensionAnswer } from '../core/extension.ts'
import type { AttemptReport } from '../core/reports.ts'
import type { CancelAnswer, Receipt, StopReason } from '../core/states.ts'

export type TaskInput =
  | AttemptReport
  | { type: 'due' }
  | { type: 'cancel' }
  | { type: 'extend_by'; byMs: number }
  /** What is above it has more time: whatever inherits from it does too. */
  | { type: 'follow'; deadlineAt: number }
  | { type: 'resume' }
  /** The process that ran its attempt is gone. `receipt`: what is known of what it left. */
  | { type: 'lost'; nodeId: string; receipt: Receipt; token?: string }

export type TaskAnswer =
  | { type: 'accepted' }
  | { type: 'stale'; reason: StopReason }
  | { type: 'extension'; answer: ExtensionAnswer; deadlineAt: number | null }
  | { type: 'limits'; deadlineAt: number | null; attemptMs: number | null; totalMs: number | null }
  | { type: 'cancel'; answer: CancelAnswer }
  | { type: 'extended'; deadlineAt: number | null }
  | { type: 'unchanged'; reason: string }
  /** Of a turn: there is more for it now (or may be soon), it is suspended, or its code is over. */
  | { type: 'turn'; state: 'more' | 'suspended' | 'ended'; results?: JournalResult[]; upTo?: number }
