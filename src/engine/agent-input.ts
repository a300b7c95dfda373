/** What can happen to an agent. */

import type { NewStep, RunOutcome, StepWait, WorkOutcome } from '../core/agent-journal.ts'
import type { Failure } from '../core/failure.ts'
import type { EndsAs, Receipt, TaskStatus } from '../core/states.ts'
import type { TitledChild } from '../store/agent-statements.ts'

/** How a turn goes on after its commit. */
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

export interface TurnInput {
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

export interface SettledChild {
  id: string
  step: number
  detached: boolean
  outcome: WorkOutcome
}

/** Time for something below an agent: so much in total, until then. An operator's knows no bound. */
export interface Grant {
  totalMs: number
  until: number | null
  operator: boolean
}

export type AgentInput =
  | TurnInput
  | { type: 'settled'; children: SettledChild[] }
  | { type: 'signal'; name: string; value: string }
  | ({ type: 'granted' } & Grant)
  /** Code of a suspended run goes on by itself. */
  | { type: 'wake'; token: string }
  | { type: 'due' }
  | { type: 'cancel' }
  /**
   * One child, by its title, and those `below` that wait for it, the furthest first. `status`: what it counts as without
   * a row. `signal`: how the agent's code hears of it. `children`: those there are by now.
   */
  | {
      type: 'cancel_child'
      title: string
      below: readonly string[]
      status: TaskStatus
      requestId: string | null
      signal: { name: string; value: string }
      children: readonly TitledChild[]
    }
  | { type: 'extend_by'; byMs: number }
  | { type: 'resume' }
  | { type: 'lost'; nodeId: string; receipt: Receipt; token?: string }
