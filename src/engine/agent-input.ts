/** What can happen to an agent. */

import type { WorkOutcome } from '../core/agent-journal.ts'
import type { TurnBody } from '../core/reports.ts'
import type { Receipt, TaskStatus } from '../core/states.ts'
import type { TitledChild } from '../store/agent-statements.ts'

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
  | TurnBody
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
  /** As that of a task. */
  | { type: 'follow'; deadlineAt: number }
  | { type: 'resume' }
  | { type: 'lost'; nodeId: string; receipt: Receipt; token?: string }
