/**
 * An agent's row while something is decided about it, and what the decision brings with it.
 * Owns the moves: a result, the stop, the end of the code. Which to make is decided in `agent-decide.ts`.
 */
import type { Activity, JournalResult, JournalStep } from '../core/agent-journal.ts'
import { workKind, workName } from '../core/own-work.ts'
import type { StopReason } from '../core/states.ts'
import { isEnded } from '../core/states.ts'
import { decodePolicy, readablePolicy } from '../definitions/policy-text.ts'
import type { SignalRow } from '../store/agent-statements.ts'
import type { NewBelow } from '../store/hot-statements.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { AgentWaits } from './agent-waits.ts'
import { decodeWaits } from './agent-waits.ts'
import { readablePolicyOf } from './inherited-policy.ts'
import { TaskDraft } from './task-draft.ts'
import { cleanupDeadline } from './task-limits.ts'

/** Its code runs or waits, if only to clean up. */
export function codeAlive(row: TaskRow): boolean {
  return row.status === 'pending' || row.status === 'running' || row.stopping === 1
}

/** A cancel does not disarm the deadline: it ends the clean-up, too. */
export function hasUntil(
  row: Pick<TaskRow, 'status' | 'stopBoundAt' | 'deadlineAt' | 'policy'>,
): number | null {
  const { status, stopBoundAt, deadlineAt } = row
  if (stopBoundAt === null || isEnded(status)) return stopBoundAt ?? deadlineAt
  return Math.min(stopBoundAt, cleanupDeadline(row, readablePolicy(row.policy)) ?? Infinity)
}

type ResultBody = JournalResult extends infer R ? (R extends JournalResult ? Omit<R, 'seq'> : never) : never

export class AgentDraft extends TaskDraft {
  readonly waits: AgentWaits
  /** On their way into the journal: what has no row of its own. */
  readonly steps: JournalStep[] = []
  /** Everything that came in this decision, in its order. */
  readonly results: JournalResult[] = []
  readonly children: NewBelow[] = []
  /** Ids of children its code cancelled. */
  readonly cancels: string[] = []
  /** Everything below it has to stop. */
  cancelBelow = false
  readonly queued: SignalRow[] = []
  activity: Activity | null = null
  readonly taken: SignalRow[] = []
  #wakes = false

  constructor(row: TaskRow, now: number) {
    super(row, now, readablePolicyOf(row))
    this.waits = this.#readWaits()
  }

  /** Ends below it are counted whatever its record says; one that cannot be read is parked. */
  #readWaits(): AgentWaits {
    try {
      decodePolicy(this.row.policy)
      return decodeWaits(this.row.waits)
    } catch (error) {
      const reason = `its record cannot be read: ${(error as Error).message}`
      this.row.parked = reason
      this.row.wokenAt = null
      if (this.before.parked === null)
        this.record({ type: 'agent_parked', reason, code: 'unreadable', step: null })
      return decodeWaits(null)
    }
  }

  get codeAlive(): boolean {
    return codeAlive(this.row)
  }

  /** A turn should start. */
  get wakes(): boolean {
    const { row } = this
    return this.#wakes && row.live === 0 && row.parked === null && this.codeAlive
  }

  wake(): void {
    this.#wakes = true
  }

  result(body: ResultBody, wakes: boolean): number {
    const { row } = this
    const seq = ++row.results
    this.results.push({ seq, ...body } as JournalResult)
    if (wakes) this.#wakes = true
    if (row.live === 1) this.news(false)
    return seq
  }

  news(dropped: boolean): void {
    const { row } = this
    if (row.token !== null) {
      this.effects.push({ type: 'news', nodeId: row.nodeId, agentId: row.id, token: row.token, dropped })
    }
  }

  /** Its clean-up begins, within its budget; what is below it stops at once. */
  stopCode(reason: StopReason): void {
    const { row, policy, now } = this
    this.cancelBelow = true
    const neverRan = row.attempt === 0 && row.live === 0
    if (neverRan || row.parked !== null || policy.cleanupMs === 0) return this.codeOver()
    row.stopping = 1
    row.stopBoundAt = now + policy.cleanupMs
    // Its code gives these waits up when it learns of the stop: a signal must not go to one of them meanwhile.
    this.waits.timers = []
    this.waits.signals = []
    this.waits.stuck = null
    this.waits.stop = this.result({ type: 'stop', reason }, true)
  }

  recordTimeout(): void {
    const { timeoutKind: kind, deadlineAt, endedAt } = this.row
    if (kind === null || deadlineAt === null || endedAt === null) return
    const { timeoutMs } = this.policy
    const lateMs = endedAt - deadlineAt
    this.row.endedSeq = this.record({ type: 'agent_timed_out', kind, deadlineAt, timeoutMs, lateMs })
  }

  /** Nothing of its code counts any more. What is still open below it is stopped. */
  codeOver(): void {
    const { row } = this
    if (row.endedSeq === null) this.recordTimeout()
    if (row.live === 1) this.news(true)
    row.live = 0
    row.stopping = 0
    row.stopBoundAt = null
    row.wokenAt = null
    row.token = null
    this.waits.steps = []
    this.waits.timers = []
    this.waits.signals = []
    this.waits.stuck = null
    this.waits.since = null
    if (row.open > 0) this.cancelBelow = true
    this.finish()
  }

  /** Its outcome may be told once nothing below it is left. */
  finish(): void {
    const { row } = this
    if (this.codeAlive || row.open > 0 || row.settledAt !== null) return
    if (row.status === 'cancelling') {
      row.status = 'cancelled'
      row.endedAt = this.now
      row.endedSeq = this.record({ type: 'agent_cancelled' })
    }
    this.settle()
    const { status, createdAt } = row
    const work = { kind: workKind(row), name: workName(row) }
    this.effects.push({ type: 'agent_settled', work, status, tookMs: this.now - createdAt })
  }
}
