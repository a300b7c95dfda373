/** The limits of joins: one timer for the timeout and one for its warning, from the first arrival until it fires. */
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import type { WorkflowPlan } from '../definitions/workflow-plan.ts'
import type { Join } from './graph-scope.ts'
import type { GraphCommand } from './graph-types.ts'

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
    const warnAt = this.warnAt(join)
    if (warnAt < 1) join.warningTimer = this.#timer({ join, use: 'warning' }, Math.ceil(ms * warnAt))
  }

  warnAt(join: Join): number {
    return join.rules.warnAt ?? this.#plan.model.warnAt ?? DEFAULT_POLICY.warnAt
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

  #timer(use: TimerUse, ms: number): number {
    const timer = this.#uses.push(use) - 1
    this.#command({ type: 'timer', timer, ms })
    return timer
  }
}
