/** The limits of joins: one timer for the timeout and one for its warning, from the first arrival until it fires. */
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import type { WorkflowPlan } from '../definitions/workflow-plan.ts'
import type { Join } from './graph-scope.ts'
import type { GraphCommand, GraphEvent } from './graph-types.ts'

interface TimerUse {
  join: Join
  use: 'timeout' | 'warning'
}

export class JoinTimers {
  readonly #plan: WorkflowPlan
  readonly #command: (command: GraphCommand) => void
  readonly #uses: TimerUse[] = []

  constructor(plan: WorkflowPlan, command: (command: GraphCommand) => void) {
    this.#plan = plan
    this.#command = command
  }

  start(join: Join): void {
    const ms = join.limitFor(this.#plan.largestMs(join.scope.group))
    if (ms === null) return
    join.timeoutTimer = this.#timer({ join, use: 'timeout' }, ms)
    const warnMs = Math.ceil(ms * this.#warnAt(join))
    if (warnMs < ms) join.warningTimer = this.#timer({ join, use: 'warning' }, warnMs)
  }

  /** What is told when its warning is due. */
  warning(join: Join): GraphEvent {
    join.warningTimer = null
    const warnAt = this.#warnAt(join)
    const ms = join.timeoutMs ?? 0
    const percent = Math.round(warnAt * 100)
    const remainingMs = ms - Math.ceil(ms * warnAt)
    return { type: 'join_warning', transition: join.transition.id, percent, remainingMs }
  }

  use(timer: number): TimerUse {
    return this.#uses[timer] as TimerUse
  }

  clear(join: Join): void {
    for (const timer of [join.timeoutTimer, join.warningTimer]) {
      if (timer !== null) this.#command({ type: 'clear', timer })
    }
    join.timeoutTimer = null
    join.warningTimer = null
  }

  #warnAt(join: Join): number {
    return join.rules.warnAt ?? this.#plan.model.warnAt ?? DEFAULT_POLICY.warnAt
  }

  #timer(use: TimerUse, ms: number): number {
    const timer = this.#uses.push(use) - 1
    this.#command({ type: 'timer', timer, ms })
    return timer
  }
}
