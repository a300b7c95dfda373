/**
 * The handler's side of the channel to its worker. `send` writes to the pipe before it returns, so that reports of a
 * handler which never lets go of its event loop arrive as well. What a handler can say in a tight loop is bounded:
 * beats go up at most ten times a second, the newest wins; log lines that find too many others waiting are dropped and
 * counted.
 */
import type { Clock, Timer } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import type { ExtensionAnswer } from '../core/extension.ts'
import { failureOf } from '../core/failure.ts'
import type { Logger } from '../core/logger.ts'
import type { Progress } from '../core/states.ts'
import type { AttemptCallbacks, AttemptEnd } from './attempt.ts'
import type { Envelope, FromTaskProcess, ToTaskProcess } from './task-process-messages.ts'

type Beat = Parameters<AttemptCallbacks['beat']>[0]
type Answer = Extract<ToTaskProcess, { type: 'extension' | 'extension_failed' }>

const BEAT_EVERY_MS = 100
const MAX_WAITING_LINES = 1_000

export class TaskChannel implements AttemptCallbacks {
  readonly logger: Logger
  readonly #clock: Clock
  readonly #process: Pick<NodeJS.Process, 'send'>
  readonly #extensions = new Map<string, PromiseWithResolvers<ExtensionAnswer>>()
  #beat: Beat | null = null
  #beatSentAt = -Infinity
  #beatTimer: Timer | null = null
  #waitingLines = 0
  #droppedLines = 0

  constructor(clock: Clock, channel: Pick<NodeJS.Process, 'send'>) {
    this.#clock = clock
    this.#process = channel
    const log = (level: keyof Logger) => (fields: object, message: string) =>
      this.#log(level, fields, message)
    this.logger = { debug: log('debug'), info: log('info'), warn: log('warn'), error: log('error') }
  }

  /** Without a worker there is nobody to tell: the end of the channel ends this process. */
  send(message: FromTaskProcess, sent: () => void = () => {}): void {
    const envelope: Envelope<FromTaskProcess> = { curfew: message }
    this.#process.send?.(envelope, () => sent())
  }

  beat(beat: Beat): void {
    this.#beat = {
      progress: beat.progress ?? this.#beat?.progress ?? null,
      details: beat.details ?? this.#beat?.details ?? null,
      moved: beat.moved || (this.#beat?.moved ?? false),
    }
    const waitMs = this.#beatSentAt + BEAT_EVERY_MS - this.#clock.monotonic()
    if (waitMs <= 0) this.#sendBeat()
    else this.#beatTimer ??= this.#clock.setTimer(waitMs, () => this.#sendBeat())
  }

  extend(request: { requestId: string; progress: Progress }): Promise<ExtensionAnswer> {
    const asked = this.#extensions.get(request.requestId) ?? Promise.withResolvers<ExtensionAnswer>()
    this.#extensions.set(request.requestId, asked)
    this.send({ type: 'extend', ...request })
    return asked.promise
  }

  answer(answer: Answer): void {
    const asked = this.#extensions.get(answer.requestId)
    this.#extensions.delete(answer.requestId)
    if (answer.type === 'extension') asked?.resolve(answer.answer)
    else asked?.reject(new CurfewError(answer.failure.code, answer.failure.message))
  }

  end(end: AttemptEnd, sent: () => void): void {
    this.#sendBeat()
    this.send({ type: 'ended', end }, sent)
  }

  #sendBeat(): void {
    this.#beatTimer?.cancel()
    this.#beatTimer = null
    if (!this.#beat) return
    this.send({ type: 'beat', ...this.#beat })
    this.#beat = null
    this.#beatSentAt = this.#clock.monotonic()
  }

  #log(level: keyof Logger, fields: object, message: string): void {
    if (this.#waitingLines >= MAX_WAITING_LINES) {
      this.#droppedLines++
      return
    }
    const sendable = plain(this.#droppedLines > 0 ? { ...fields, droppedLines: this.#droppedLines } : fields)
    this.#droppedLines = 0
    this.#waitingLines++
    this.send({ type: 'log', level, fields: sendable, message: String(message) }, () => {
      this.#waitingLines--
    })
  }
}

/** Log fields hold anything: errors and big numbers are kept readable, what JSON refuses is named. */
function plain(fields: object): object {
  try {
    return JSON.parse(
      JSON.stringify(fields, (_key, value: unknown) => {
        if (value instanceof Error) return failureOf(value)
        return typeof value === 'bigint' ? String(value) : value
      }),
    ) as object
  } catch (error) {
    return { unreadableFields: failureOf(error).message }
  }
}
