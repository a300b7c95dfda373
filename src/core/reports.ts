/** What a worker says of an attempt and of a turn: on its way to the manager, and as the engine decides it. */
import type { NewStep, RunOutcome, StepWait } from './agent-journal.ts'
import type { Failure, LateResult } from './failure.ts'
import type { Note } from './note.ts'
import type { EndsAs, Progress, Receipt, StopReason } from './states.ts'

export type AttemptReport = { token: string } & (
  | { type: 'completed'; output: string }
  | { type: 'failed'; failure: Failure }
  | { type: 'beat'; progress: Progress | null; details: string | null; moved: boolean }
  | { type: 'extend'; requestId: string; progress: Progress }
  | ({ type: 'note' } & Note)
  /** A limit is over by this worker's own clock, and the store has not said so: has it moved? */
  | { type: 'overdue' }
  /** The stop ladder is through; `reason` is why it was walked. */
  | { type: 'stopped'; reason: StopReason; receipt: Receipt; late: LateResult | null }
  /** An abandoned handler came back at last: its slot is free. */
  | { type: 'returned'; late: LateResult }
)

/** What a turn brings: its steps so far, and how it goes on after its commit. */
export interface TurnBody {
  type: 'turn'
  token: string
  /** The last result the code was given. */
  seen: number
  steps: NewStep[]
  ran: { step: number; outcome: RunOutcome }[]
  /** Sleeps and waits that are no longer waited for. */
  withdrawn: number[]
  state: TurnState
}

export type TurnState =
  /** The code has something open: it wants whatever there is, and goes on. */
  | { type: 'open' }
  /** It waits for these, and for its timers and signals. */
  | { type: 'suspended'; waits: StepWait[] }
  /** Its process lets go of it: another one replays it. */
  | { type: 'released' }
  /** `runsLeft`: a `ctx.run` has not come back. */
  | { type: 'returned'; output: string; runsLeft?: boolean }
  | { type: 'threw'; failure: Failure; stopped: boolean; runsLeft?: boolean; endsAs?: EndsAs }
  | { type: 'parked'; reason: string; code: string; step: number | null }
