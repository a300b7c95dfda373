/**
 * Reports on their way to a manager that may be out of reach: gathered into batches, a few under way at a time, each
 * sent with its number until it is answered. Never gives up by itself.
 */
import { MAX_BATCH_BYTES, MAX_BULK_ROWS } from '../core/limits.ts'
import type { Report, ReportAnswer, TurnAnswer, TurnReport } from '../wire/worker-port.ts'
import { turnPieces, weightOfTurn } from './turn-pieces.ts'

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

/** What was reported in one call, answered together. It may be sent in several batches. */
class Call<Report, Answer> {
  readonly reports: readonly Report[]
  readonly answered: Promise<Answer[]>
  /** So many of them are in batches. */
  taken = 0
  readonly #answers: Answer[] = []
  readonly #ends = Promise.withResolvers<Answer[]>()
  #left: number

  constructor(reports: readonly Report[]) {
    this.reports = reports
    this.answered = this.#ends.promise
    this.#left = reports.length
    if (this.#left === 0) this.#ends.resolve([])
  }

  answer(index: number, answer: Answer): void {
    this.#answers[index] = answer
    if (--this.#left === 0) this.#ends.resolve(this.#answers)
  }

  refuse(error: unknown): void {
    this.#ends.reject(error)
  }
}

/** A part of a call, in one batch. */
interface Part<Report, Answer> {
  call: Call<Report, Answer>
  from: number
  to: number
}

/** While one is being committed the next is on its way. */
const UNDER_WAY = 3
/** Of JSON text. A report alone may be larger. */
const BATCH_BYTES = 4 * 1024 * 1024

export class ReportSender {
  /** Answers when the manager has; rejects only what it will never take. */
  readonly #send: (batch: Batch) => Promise<BatchAnswer>
  readonly #reports = new Waiting<Report, ReportAnswer>(weightOf)
  readonly #turns = new Waiting<TurnReport, TurnAnswer>(weightOfTurn)
  #wakes: Batch['wakes'] = []
  #underWay = 0
  #number = 0

  constructor(send: (batch: Batch) => Promise<BatchAnswer>) {
    this.#send = send
  }

  report(reports: readonly Report[]): Promise<ReportAnswer[]> {
    const answered = this.#reports.add(reports)
    this.#pump()
    return answered
  }

  reportTurns(reports: readonly TurnReport[]): Promise<TurnAnswer[]> {
    if (reports.every((report) => weightOfTurn(report) <= MAX_BATCH_BYTES)) return this.#addTurns(reports)
    return Promise.all(reports.map((report) => this.#reportInPieces(report)))
  }

  #addTurns(reports: readonly TurnReport[]): Promise<TurnAnswer[]> {
    const answered = this.#turns.add(reports)
    this.#pump()
    return answered
  }

  async #reportInPieces(report: TurnReport): Promise<TurnAnswer> {
    const pieces = turnPieces(report, MAX_BATCH_BYTES)
    for (const [i, piece] of pieces.entries()) {
      const [answer] = (await this.#addTurns([piece])) as [TurnAnswer]
      if (i === pieces.length - 1 || answer.type !== 'more') return answer
    }
    return { type: 'stale' }
  }

  wake(wake: Batch['wakes'][number]): void {
    this.#wakes.push(wake)
    this.#pump()
  }

  #pump(): void {
    while (this.#underWay < UNDER_WAY && !(this.#reports.none && this.#turns.none && !this.#wakes.length)) {
      this.#underWay++
      void this.#sendBatch()
    }
  }

  async #sendBatch(): Promise<void> {
    // Where there are both, neither waits behind the other.
    const share = this.#reports.none || this.#turns.none ? 1 : 2
    const reports = this.#reports.take(share)
    const turns = this.#turns.take(share)
    const wakes = this.#wakes.splice(0, MAX_BULK_ROWS)
    try {
      const answered = await this.#send({
        ...{ number: ++this.#number, wakes },
        reports: reportsOf(reports),
        turns: reportsOf(turns),
      })
      answerAll(reports, answered.answers, ACCEPTED)
      answerAll(turns, answered.turns, STALE)
    } catch (error) {
      await this.#oneByOne(reports, turns, wakes, error as Error)
    } finally {
      this.#underWay--
      this.#pump()
    }
  }

  /** One that is refused does not take the others with it. */
  async #oneByOne(
    reports: readonly Part<Report, ReportAnswer>[],
    turns: readonly Part<TurnReport, TurnAnswer>[],
    wakes: Batch['wakes'],
    error: Error,
  ): Promise<void> {
    if ((error as { code?: string }).code === 'closed') {
      for (const { call } of [...reports, ...turns]) call.refuse(error)
      return
    }
    // An agent that is not woken waits for ever.
    if (wakes.length > 0 && reports.length + turns.length > 0)
      await this.#firstTaken([wakes], (them) => ({ wakes: them }))
    const alone =
      reports.length + turns.length === 1 && [...reports, ...turns].every(({ from, to }) => to - from === 1)
    for (const { call, from, to } of reports) {
      for (let i = from; i < to; i++) {
        const report = call.reports[i] as Report
        const tries = [alone ? null : report, refusedReport(report, error)]
        const answered = await this.#firstTaken(tries, (one) => ({ reports: [one] }))
        call.answer(i, answered ? (answered.answers[0] ?? ACCEPTED) : refusal(report, error))
      }
    }
    for (const { call, from, to } of turns) {
      for (let i = from; i < to; i++) {
        const report = call.reports[i] as TurnReport
        const tries = [alone ? null : report, refusedTurn(report, error)]
        const answered = await this.#firstTaken(tries, (one) => ({ turns: [one] }))
        call.answer(i, answered?.turns[0] ?? STALE)
      }
    }
  }

  /** By itself, and if that is what is refused, that it was. Null: neither is taken. */
  async #firstTaken<T>(
    tries: readonly (T | null)[],
    batchOf: (one: T) => Partial<Batch>,
  ): Promise<BatchAnswer | null> {
    for (const one of tries) {
      if (!one) continue
      const batch = { number: ++this.#number, reports: [], turns: [], wakes: [], ...batchOf(one) }
      try {
        return await this.#send(batch)
      } catch (fault) {
        if ((fault as { code?: string }).code === 'closed') break
      }
    }
    return null
  }
}

/** What is told of an attempt whose report nobody takes: it ends, and says why. Null: it goes on without. */
function refusedReport(report: Report, { message }: Error): Report | null {
  const { taskId, token } = report
  switch (report.type) {
    case 'beat':
    case 'overdue':
    case 'note':
    case 'extend':
      return null
    case 'stopped':
      return { ...report, late: null }
    default: {
      const failure = { code: 'report_refused', message: message.slice(0, 1_000), retryable: false }
      return { taskId, token, type: 'failed', failure }
    }
  }
}

/** For one that nobody takes, in whatever form. */
function refusal({ type }: Report, { message }: Error): ReportAnswer {
  return type === 'note'
    ? { type: 'refused', message }
    : { type: 'stale', reason: { code: 'stale', message } }
}

function refusedTurn(report: TurnReport, { message }: Error): TurnReport {
  const reason = `its turn was refused: ${message.slice(0, 1_000)}`
  const state = { type: 'parked', reason, code: 'turn_refused', step: null } as const
  return { ...report, steps: [], ran: [], withdrawn: [], state }
}

const ACCEPTED: ReportAnswer = { type: 'accepted' }
const STALE: TurnAnswer = { type: 'stale' }

/** Calls that are not wholly in batches, in order. */
class Waiting<Report, Answer> {
  readonly #weigh: (report: Report) => number
  readonly #calls: Call<Report, Answer>[] = []

  constructor(weigh: (report: Report) => number) {
    this.#weigh = weigh
  }

  get none(): boolean {
    return this.#calls.length === 0
  }

  add(reports: readonly Report[]): Promise<Answer[]> {
    const call = new Call<Report, Answer>(reports)
    if (reports.length > 0) this.#calls.push(call)
    return call.answered
  }

  /** The oldest, so many as fit into that part of a batch; the first always does. */
  take(share: number): Part<Report, Answer>[] {
    const parts: Part<Report, Answer>[] = []
    let bytes = 0
    let count = 0
    for (let call = this.#calls[0]; call !== undefined; call = this.#calls[0]) {
      const from = call.taken
      for (; call.taken < call.reports.length; call.taken++, count++) {
        bytes += this.#weigh(call.reports[call.taken] as Report)
        if (count > 0 && (bytes > BATCH_BYTES / share || count >= MAX_BULK_ROWS / share)) break
      }
      if (call.taken > from) parts.push({ call, from, to: call.taken })
      if (call.taken < call.reports.length) break
      this.#calls.shift()
    }
    return parts
  }
}

function reportsOf<Report, Answer>(parts: readonly Part<Report, Answer>[]): Report[] {
  return parts.flatMap(({ call, from, to }) => call.reports.slice(from, to))
}

/** `missing`: for one that has no answer. */
function answerAll<Report, Answer>(
  parts: readonly Part<Report, Answer>[],
  answers: readonly Answer[],
  missing: Answer,
): void {
  let next = 0
  for (const { call, from, to } of parts)
    for (let i = from; i < to; i++) call.answer(i, answers[next++] ?? missing)
}

function weightOf(report: Report): number {
  if (report.type === 'completed') return report.output.length
  if (report.type === 'beat') return 200 + (report.details?.length ?? 0)
  if (report.type === 'note' && report.letters.length > 0) return 200 + JSON.stringify(report.letters).length
  // Failures are rare, and as long as their texts.
  return 'failure' in report || 'late' in report ? JSON.stringify(report).length : 200
}
