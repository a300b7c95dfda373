/** What the expressions of a run may take between two things that happen to it. Counted in steps, so a replay agrees. */
import { MAX_STEPS_AT_ONCE } from '../core/limits.ts'
import { stepsTaken } from '../definitions/expression-functions.ts'

export class StepBudget {
  #before = 0

  renew(): void {
    this.#before = stepsTaken()
  }

  get isUsedUp(): boolean {
    return stepsTaken() - this.#before > MAX_STEPS_AT_ONCE
  }
}
