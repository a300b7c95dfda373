/** A running attempt as the worker sees it: the same for a handler in this process and for one in its own. */
import type { ExtensionAnswer } from '../core/extension.ts'
import type { Failure } from '../core/failure.ts'
import type { Note, NotedLimit } from '../core/note.ts'
import type { Progress, StopReason } from '../core/states.ts'

export interface AttemptCallbacks {
  /** Every report of the handler; throttling is the worker's. `moved`: more progress than at the report before. */
  beat(beat: { progress: Progress | null; details: string | null; moved: boolean }): void
  extend(request: { requestId: string; progress: Progress }): Promise<ExtensionAnswer>
}

/** Of attempts that run commands. */
export interface NoteCallback {
  /** Resolves when it is stored, or nobody wants it any more: with null, or with why its letters were refused. */
  note(note: HeldNote): Promise<string | null>
}

/** A limit is described only when it is told: most commands end before. */
export interface HeldNote extends Omit<Note, 'limitOf'> {
  limitOf?: () => NotedLimit
}

export type AttemptEnd = { type: 'completed'; output: string } | { type: 'failed'; failure: Failure }

export interface RunningAttempt {
  /** Settles once, when the handler has ended (and, for a process, when nothing of it is left). Never rejects. */
  readonly ended: Promise<AttemptEnd>
  /** Tells the handler to stop; idempotent, the first reason stays. */
  abort(reason: StopReason): void
  /** New limits for `ctx.deadline` and `ctx.remaining()`. */
  setDeadline(deadlineAt: number | null, remainingMs: number | null): void
  /**
   * The forced end. A process: its tree is killed, `killed` when verified gone, `abandoned` when something would
   * not go. Inline: `abandoned` at once.
   */
  kill(): Promise<'killed' | 'abandoned'>
}
