/**
 * One attempt from its assignment to its last report. Owns its timers, the throttling of its beats and its way
 * down the stop ladder: abort signal, grace, forced end, receipt.
 */

import type { Clock, Timer } from '../core/clock.ts'
import { hearingMs, sleep } from '../core/clock.ts'
import type { ExtensionAnswer } from '../core/extension.ts'
import type { LateResult } from '../core/failure.ts'
import type { Note } from '../core/note.ts'
import type { Progress, Receipt, StopReason } from '../core/states.ts'
import { Stopped } from '../core/task-errors.ts'
import type { Assignment, Report, ReportAnswer } from '../wire/worker-port.ts'
import type { AttemptCallbacks, AttemptEnd, HeldNote, NoteCallback, RunningAttempt } from './attempt.ts'
import { remainingMsOf } from './task-context.ts'

/**
 * The store decides, and its word comes first. This timer is for a store that cannot be reached; it waits a little
 * so that it never speaks before a store whose clock reads low.
 */
const AFTER_STORE_MS = 250

/** How long the store is asked before the worker acts by itself. */
const ANSWER_WITHIN_MS = 1_000

/** The longest that a note is held back. */
const NOTE_MS = 50

/** It made room for a deadline that was moved then: the time that was given is for another attempt. */
const MOVED_AWAY: StopReason = {
  code: 'soft_stop',
  message: 'it ended for a deadline that was moved then',
}

type Beat = { progress: Progress | null; details: string | null; moved: boolean }

export interface AttemptHost {
  clock: Clock
  /** Commits the report and answers it. */
  report(report: Report): Promise<ReportAnswer>
  start(assignment: Assignment, callbacks: AttemptCallbacks & NoteCallback): RunningAttempt
  /** Nothing of it is left to do here. */
  gone(attempt: WorkerAttempt): void
}

/** One per task that runs: what it need not make, it does not. */
export class WorkerAttempt implements AttemptCallbacks, NoteCallback {
  readonly assignment: Assignment
  readonly #host: AttemptHost
  readonly #running: RunningAttempt
  #stopping: StopReason | null = null
  #hasEnded = false
  #forced = false
  #beating = false
  /** It followed the soft stop and has nothing to show: the deadline says what becomes of it. */
  #gaveUp = false
  #timers: Timer[] = []
  #waitingBeat: Beat | null = null
  #beatTimer: Timer | null = null
  #beatAt = -Infinity
  #waitingNote: { note: HeldNote; stored: PromiseWithResolvers<string | null> } | null = null
  #noteTimer: Timer | null = null
  /** That are being stored. */
  #notes = 0
  #whenStopped: (() => void)[] | null = null
  #isReported = false
  #whenReported: (() => void)[] | null = null

  constructor(assignment: Assignment, host: AttemptHost) {
    this.assignment = assignment
    this.#host = host
    this.#running = host.start(assignment, this)
    this.#armLimits(assignment)
    void this.#running.ended.then((end) => this.#ended(end))
  }

  /** Settles when its outcome has been reported: it ended, was killed, or was given up as abandoned. */
  reported(): Promise<void> {
    return new Promise((resolve) => {
      if (this.#isReported) return resolve()
      this.#whenReported ??= []
      this.#whenReported.push(resolve)
    })
  }

  /** Idempotent: the first reason stays. */
  stop(reason: StopReason, graceMs: number): void {
    if (this.#stopping || (this.#hasEnded && !this.#gaveUp)) return
    this.#sendBeat()
    this.#sendNote()
    this.#stopping = reason
    for (const tell of this.#whenStopped ?? []) tell()
    this.#clearTimers()
    if (this.#gaveUp) return this.#reportAndGo(this.#reportStopped('aborted', null))
    this.#running.abort(reason)
    this.#timers.push(this.#host.clock.setTimer(graceMs, () => void this.#force()))
  }

  setLimits(limits: { deadlineAt: number | null; attemptMs: number | null; totalMs: number | null }): void {
    const remainingMs = remainingMsOf(limits)
    if (this.#stopping) return
    if (this.#gaveUp && (remainingMs ?? Infinity) > this.assignment.softStopMs)
      return this.stop(MOVED_AWAY, 0)
    if (this.#hasEnded) return
    this.#running.setDeadline(limits.deadlineAt, remainingMs)
    this.#disarm()
    this.#armLimits(limits)
  }

  #ended(end: AttemptEnd): void {
    this.#hasEnded = true
    this.#sendNote()
    if (this.#forced) return
    if (!this.#stopping && end.type === 'failed' && end.failure.code === 'soft_stop') {
      this.#gaveUp = true
      return
    }
    // What was last reported reaches the next attempt and whoever looks, also when it was held back a moment.
    if (end.type === 'failed' || this.#waitingBeat?.progress) this.#sendBeat()
    this.#clearTimers()
    this.#reportAndGo(this.#stopping ? this.#reportStopped('aborted', lateOf(end)) : this.#report(end))
  }

  #reportAndGo(report: Promise<ReportAnswer>): void {
    void report.then(() => {
      this.#host.gone(this)
      this.#setReported()
    })
  }

  /** The grace is over: the signal was not enough. */
  async #force(): Promise<void> {
    this.#forced = true
    const receipt = await this.#running.kill()
    await this.#reportStopped(receipt, null)
    this.#setReported()
    if (receipt === 'abandoned') {
      const end = await this.#running.ended
      await this.#report({ type: 'returned', late: lateOf(end) ?? { failure: FOLLOWED_SIGNAL } })
    }
    this.#host.gone(this)
  }

  #setReported(): void {
    this.#isReported = true
    for (const resolve of this.#whenReported ?? []) resolve()
  }

  #reportStopped(receipt: Receipt, late: LateResult | null): Promise<ReportAnswer> {
    return this.#report({ type: 'stopped', reason: this.#stopping as StopReason, receipt, late })
  }

  #report(body: ReportBody): Promise<ReportAnswer> {
    const { taskId, token } = this.assignment
    // The one that every task sends is written out: spreading costs.
    if (body.type === 'completed')
      return this.#host.report({ taskId, token, type: 'completed', output: body.output })
    return this.#host.report({ taskId, token, ...body } as Report)
  }

  #armLimits(limits: { attemptMs: number | null; totalMs: number | null }): void {
    const { clock } = this.#host
    const remainingMs = remainingMsOf(limits)
    if (remainingMs === null) return
    const kind = remainingMs === limits.attemptMs ? 'execution' : 'total'
    this.#timers.push(clock.setTimer(remainingMs + AFTER_STORE_MS, () => void this.#overdue(kind)))
    const { softStopMs } = this.assignment
    if (softStopMs > 0) {
      const untilMs = Math.max(0, remainingMs - softStopMs)
      this.#timers.push(clock.setTimer(untilMs, () => void this.#softStop(softStopMs)))
    }
  }

  /** A limit is over here and nobody has said so: it may have been moved, or the store is out of reach. */
  async #overdue(kind: 'execution' | 'total'): Promise<void> {
    // After a while in which this process stood still its commands have ended, or their own limits move this one.
    const { clock } = this.#host
    const waitMs = hearingMs(clock)
    if (waitMs > 0) await sleep(clock, waitMs)
    if (this.#stopping || this.#hasEnded) return
    this.#sendNote()
    const answer = await this.#askLimits()
    if (this.#stopping || this.#hasEnded) return
    if (answer?.type === 'limits') return this.setLimits(answer)
    const reason: StopReason = { code: 'timed_out', kind, message: `its ${kind} limit is over` }
    this.stop(answer?.type === 'stale' ? answer.reason : reason, this.assignment.graceMs)
  }

  async #softStop(softStopMs: number): Promise<void> {
    const answer = await this.#askLimits()
    if (this.#stopping || this.#hasEnded) return
    const leftMs = answer?.type === 'limits' ? remainingMsOf(answer) : 0
    if (answer?.type === 'limits' && (leftMs === null || leftMs > softStopMs)) return this.setLimits(answer)
    const { deadlineAt } = answer?.type === 'limits' ? answer : this.assignment
    const message = `its deadline is ${softStopMs} ms away`
    this.#running.abort({ code: 'soft_stop', message, ...(deadlineAt !== null && { deadlineAt }) })
  }

  /** What the store says of the limits; null when it does not answer in time. */
  async #askLimits(): Promise<ReportAnswer | null> {
    const silence = new Promise<null>((resolve) => {
      this.#timers.push(this.#host.clock.setTimer(ANSWER_WITHIN_MS, () => resolve(null)))
    })
    return Promise.race([this.#report({ type: 'overdue' }), silence])
  }

  beat(beat: Beat): void {
    if (this.#stopping) return
    const waiting = this.#waitingBeat
    this.#waitingBeat = {
      progress: beat.progress ?? waiting?.progress ?? null,
      details: beat.details ?? waiting?.details ?? null,
      moved: beat.moved || (waiting?.moved ?? false),
    }
    const sinceMs = this.#host.clock.monotonic() - this.#beatAt
    const { beatEveryMs } = this.assignment
    // One at a time: while the store is away they would pile up.
    if (this.#beating) return
    if (sinceMs >= beatEveryMs) this.#sendBeat()
    else this.#beatTimer ??= this.#host.clock.setTimer(beatEveryMs - sinceMs, () => this.#sendBeat())
  }

  #sendBeat(): void {
    const beat = this.#waitingBeat
    this.#beatTimer?.cancel()
    this.#beatTimer = null
    if (!beat) return
    this.#waitingBeat = null
    this.#beatAt = this.#host.clock.monotonic()
    this.#beating = true
    void this.#report({ type: 'beat', ...beat }).then((answer) => {
      this.#beating = false
      this.#heed(answer)
      const { beatEveryMs } = this.assignment
      if (this.#waitingBeat && !this.#stopping && !this.#hasEnded) {
        this.#beatTimer ??= this.#host.clock.setTimer(beatEveryMs, () => this.#sendBeat())
      }
    })
  }

  async extend(request: { requestId: string; progress: Progress }): Promise<ExtensionAnswer> {
    if (this.#stopping) throw new Stopped(this.#stopping)
    const stopped = new Promise<null>((resolve) => {
      this.#whenStopped ??= []
      this.#whenStopped.push(() => resolve(null))
    })
    // The handler has to hear of a stop: whoever was asked may be out of reach.
    const answer = await Promise.race([this.#report({ type: 'extend', ...request }), stopped])
    if (answer?.type === 'extension') return answer.answer
    if (answer) this.#heed(answer)
    throw new Stopped(this.#stopping ?? { code: 'stale', message: 'not the current attempt any more' })
  }

  /** Held back a moment: a command that ends soon is told of together with its end. */
  note({ events, limitMs, limitOf, letters }: HeldNote): Promise<string | null> {
    this.#waitingNote ??= {
      note: { events: [], letters: [] },
      stored: Promise.withResolvers<string | null>(),
    }
    const { note, stored } = this.#waitingNote
    note.events.push(...events)
    note.letters.push(...letters)
    if (limitMs !== undefined) note.limitMs = limitMs
    if (limitOf) note.limitOf = limitOf
    if (letters.length > 0) this.#sendNote()
    else this.#sendNoteSoon()
    return stored.promise
  }

  /** Not beside another one: of two limits the later one has to stay. */
  #sendNoteSoon(): void {
    if (this.#notes > 0) return
    this.#noteTimer ??= this.#host.clock.setTimer(NOTE_MS, () => this.#sendNote())
  }

  #sendNote(): void {
    const waiting = this.#waitingNote
    this.#waitingNote = null
    this.#noteTimer?.cancel()
    this.#noteTimer = null
    if (!waiting) return
    const { stored } = waiting
    const { events, letters, limitMs, limitOf } = waiting.note
    const note: Note = { events, letters }
    // What has ended while it was held back needs no limit any more.
    if (!this.#hasEnded) {
      if (limitMs !== undefined) note.limitMs = limitMs
      if (limitOf) note.limitOf = limitOf()
    }
    this.#notes++
    void this.#report({ type: 'note', ...note }).then(async (answer) => {
      this.#heed(answer)
      const refused = answer.type === 'refused' ? answer.message : null
      // What it says besides its letters need not be lost with them.
      if (refused !== null && note.letters.length > 0)
        await this.#report({ type: 'note', ...note, letters: [] })
      this.#notes--
      if (this.#waitingNote) this.#sendNoteSoon()
      stored.resolve(refused)
    })
  }

  /** A stale answer: somebody else has the task, or nobody. */
  #heed(answer: ReportAnswer): void {
    if (answer.type === 'stale') this.stop(answer.reason, this.assignment.graceMs)
  }

  /** Of its limits alone: a beat that is held back is still sent. */
  #disarm(): void {
    for (const timer of this.#timers.splice(0)) timer.cancel()
  }

  #clearTimers(): void {
    this.#disarm()
    this.#beatTimer?.cancel()
    this.#beatTimer = null
  }
}

type ReportBody = Report extends infer R ? (R extends Report ? Omit<R, 'taskId' | 'token'> : never) : never

const FOLLOWED_SIGNAL = { code: 'aborted', message: 'it followed its signal', retryable: false }

/** What a stopped handler gave back; an error that is just its abort signal says nothing. */
function lateOf(end: AttemptEnd): LateResult | null {
  if (end.type === 'completed') return { output: end.output }
  return STOP_CODES.includes(end.failure.code) ? null : { failure: end.failure }
}

const STOP_CODES = ['timed_out', 'cancelled', 'stale', 'lease_over', 'closing', 'soft_stop', 'ABORT_ERR']
