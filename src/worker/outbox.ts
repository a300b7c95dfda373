/** Reports on their way up: those of one turn of the event loop go together. */
import type { Clock } from '../core/clock.ts'

export class Outbox<Report, Answer> {
  readonly #clock: Clock
  readonly #send: (reports: Report[]) => Promise<Answer[]> | null
  readonly #unanswered: Answer
  #waiting: Waiting<Report, Answer>[] = []

  /** `send` answers one for each, or null when there is nobody to send to; `unanswered`: for one that has none. */
  constructor(clock: Clock, send: (reports: Report[]) => Promise<Answer[]> | null, unanswered: Answer) {
    this.#clock = clock
    this.#send = send
    this.#unanswered = unanswered
  }

  get idle(): boolean {
    return this.#waiting.length === 0
  }

  add(report: Report): Promise<Answer> {
    return new Promise((resolve) => {
      this.#waiting.push(new Waiting(report, resolve))
      if (this.#waiting.length === 1) this.#clock.endOfTurn(() => void this.#flush())
    })
  }

  async #answers(reports: Report[]): Promise<Answer[] | null> {
    try {
      return await this.#send(reports)
    } catch {
      return [] // whoever refused them has said why
    }
  }

  async #flush(): Promise<void> {
    const outgoing = this.#waiting
    this.#waiting = []
    const answers = await this.#answers(outgoing.map(({ report }) => report))
    if (!answers) return
    for (let i = 0; i < outgoing.length; i++) outgoing[i]?.resolve(answers[i] ?? this.#unanswered)
  }
}

/** A class: objects of a literal are made old at once where the first ones stayed, and keep their attempts with them. */
class Waiting<Report, Answer> {
  readonly report: Report
  readonly resolve: (answer: Answer) => void

  constructor(report: Report, resolve: (answer: Answer) => void) {
    this.report = report
    this.resolve = resolve
  }
}
