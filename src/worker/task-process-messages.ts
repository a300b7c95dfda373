/** What a worker and the process of a task tell each other. */
import type { ExtensionAnswer } from '../core/extension.ts'
import type { Failure } from '../core/failure.ts'
import type { Logger } from '../core/logger.ts'
import type { Progress, StopReason } from '../core/states.ts'
import type { Assignment } from '../wire/worker-port.ts'
import type { AttemptEnd } from './attempt.ts'

export type ToTaskProcess =
  /** `stop`: it was told to before it could listen. */
  | { type: 'run'; file: string; assignment: Assignment; stop: StopReason | null }
  | { type: 'abort'; reason: StopReason }
  | { type: 'deadline'; deadlineAt: number | null; remainingMs: number | null }
  | { type: 'extension'; requestId: string; answer: ExtensionAnswer }
  | { type: 'extension_failed'; requestId: string; failure: Failure }

export type FromTaskProcess =
  /** It listens, and has begun nothing. */
  | { type: 'ready' }
  | { type: 'beat'; progress: Progress | null; details: string | null; moved: boolean }
  | { type: 'extend'; requestId: string; progress: Progress }
  | { type: 'log'; level: keyof Logger; fields: object; message: string }
  /** An exception that nobody caught: it is about to die of it. */
  | { type: 'crashed'; failure: Failure }
  | { type: 'ended'; end: AttemptEnd }

/** The handler may use the channel for messages of its own: ours are wrapped. */
export interface Envelope<Message> {
  curfew: Message
}
