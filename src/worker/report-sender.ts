/**
 * Reports on their way to a manager that may be out of reach: gathered into batches, a few under way at a time, each
 * sent with its number until it is answered. Never gives up by itself.
 */
import { MAX_BULK_ROWS } from '../core/limits.ts'
import type { Report, ReportAnswer, TurnAnswer, TurnReport } from '../wire/worker-port.ts'

export interface Batch {
  number: number
  reports: Report[]
  turns: TurnReport[]
  wakes: { agentId: string; rootId: string; token: string }[]
}

export interface BatchAnswer {
  answers: ReportAnswer[]
  turns: TurnAnswer[]
}

type Item =
  | { kind: 'report'; report: Report; resolve(answer: ReportAnswer): void; reject(error: unknown): void }
  | { kind: 'turn'; report: TurnReport; resolve(answer: TurnAnswer): void; reject(error: unknown): void }
  | { kind: 'wake'; wake: Batch['wakes'][number] }

/** While one is being committed the next is on its way. */
const UNDER_WAY = 3
/** Of JSON text. A report alone may be larger. */
const BATCH_BYTES = 4 * 1024 * 1024

export class ReportSender {
  /** Answers when the manager has; rejects only what it will never take. */
  readonly #send: (batch: Batch) => Promise<BatchAnswer>
  #waiting: Item[] = []
  #underWay = 0
  #number = 0

  constructor(send: (batch: Batch) => Promise<BatchAnswer>) {
    this.#send = send
  }

  report(reports: readonly Report[]): Promise<ReportAnswer[]> {
    return this.#addAll(reports.map((report) => (ends) => ({ kind: 'report', report, ...ends })))
  }

  reportTurns(reports: readonly TurnReport[]): Promise<TurnAnswer[]> {
    return this.#addAll(reports.map((report) => (ends) => ({ kind: 'turn', report, ...ends })))
  }

  wake(wake: Batch['wakes'][number]): void {
    this.#waiting.push({ kind: 'wake', wake })
    this.#pump()
  }

  #addAll<Answer>(
    makers: ((ends: { resolve(answer: Answer): void; reject(error: unknown): void }) => Item)[],
  ): Promise<Answer[]> {
    const answers = makers.map(
      (make) =>
        new Promise<Answer>((resolve, reject) => {
          this.#waiting.push(make({ resolve, reject }))
        }),
    )
    this.#pump()
    return Promise.all(answers)
  }

  #pump(): void {
    while (this.#waiting.length > 0 && this.#underWay < UNDER_WAY) {
      this.#underWay++
      void this.#sendBatch(this.#take())
    }
  }

  #take(): Item[] {
    let bytes = 0
    let count = 0
    for (const item of this.#waiting) {
      bytes += weightOf(item)
      if (count > 0 && (bytes > BATCH_BYTES || count >= MAX_BULK_ROWS)) break
      count++
    }
    return this.#waiting.splice(0, count)
  }

  async #sendBatch(items: Item[]): Promise<void> {
    const reports = items.filter((item) => item.kind === 'report')
    const turns = items.filter((item) => item.kind === 'turn')
    try {
      const answered = await this.#send({
        number: ++this.#number,
        reports: reports.map(({ report }) => report),
        turns: turns.map(({ report }) => report),
        wakes: items.flatMap((item) => (item.kind === 'wake' ? [item.wake] : [])),
      })
      for (const [i, { resolve }] of reports.entries()) resolve(answered.answers[i] ?? { type: 'accepted' })
      for (const [i, { resolve }] of turns.entries()) resolve(answered.turns[i] ?? { type: 'stale' })
    } catch (error) {
      for (const item of items) if (item.kind !== 'wake') item.reject(error)
    } finally {
      this.#underWay--
      this.#pump()
    }
  }
}

function weightOf(item: Item): number {
  if (item.kind === 'report') return item.report.type === 'completed' ? item.report.output.length : 1_000
  if (item.kind === 'wake') return 0
  const { steps, ran, state } = item.report
  let bytes = 1_000 + (state.type === 'returned' ? state.output.length : 0)
  for (const step of steps) if ('input' in step) bytes += step.input.length
  for (const { outcome } of ran) if ('output' in outcome) bytes += outcome.output.length
  return bytes
}
