/**
 * The steps of an item or of a phase, one after the other: retries, handlers, captures, and the limits of each command.
 * A command is stopped here; the store is told its limit and stops the attempt where this worker, hung, does not.
 */
import path from 'node:path'
import { backoffMs } from '../core/backoff.ts'
import type { Clock } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'
import { formatDuration } from '../core/duration.ts'
import { CurfewError } from '../core/errors.ts'
import type { CommandEvent } from '../core/note.ts'
import { evaluateCondition } from '../definitions/mapping.ts'
import { commandLimit, limitOfAttempt } from '../definitions/mapreduce-limits.ts'
import type { MapreduceModel, Phase, StepModel } from '../definitions/mapreduce-model.ts'
import { SHELL_TYPE } from '../definitions/mapreduce-model.ts'
import { compileShell, renderArgument, shellVariables } from '../definitions/step-template.ts'
import type { CommandEnd } from '../worker/command.ts'
import type { AttemptCommands } from '../worker/command-task.ts'
import { capturedText } from './captured-text.ts'
import type { StepFailure, StepRecord, StepTimeout } from './step-records.ts'
import { failureValue, firstLine, isKilledLate, notedLimit, shown, whyNotTold } from './step-records.ts'

/** How long after a limit the store waits for this worker to have acted. */
const STORE_AFTER_MS = 2_000
/** Of each stream: what can be captured, and what a dead letter shows. */
const OUTPUT_BYTES = 128 * 1024

export type StepsEnd = { steps: StepRecord[] } & (
  | { type: 'completed' }
  | { type: 'failed'; failure: StepFailure }
  | { type: 'timed_out'; timeout: StepTimeout }
  /** The attempt was told to stop. */
  | { type: 'stopped' }
)

/** Of the agent or the phase as a whole, counted from when its steps begin. */
export interface Budget {
  type: 'agent' | 'phase'
  limitMs: number
  source: string
}

export interface StepsHost {
  model: MapreduceModel
  phase: Phase
  /** The item; null for a phase. */
  item: string | null
  /** For people: `Agent item-3`, `Phase setup`. */
  who: string
  /** Counts from 1. */
  attempt: number
  cwd: string
  env: NodeJS.ProcessEnv
  secrets: readonly string[]
  /** By their first name; captures are added. */
  values: Record<string, unknown>
  budget: Budget | null
  commands: AttemptCommands
  signal: AbortSignal
  /** Whether events are kept. */
  monitoring: boolean
  /** Null where there are no commits. */
  head: (() => Promise<string | null>) | null
  chance: () => number
  /** What a command printed, once it has ended. */
  printed?(output: { stdout: string; stderr: string }): void
  /** For a display: null when nothing runs. */
  running(command: RunningStep | null): void
}

export interface RunningStep {
  index: number
  type: string
  text: string
  startedAt: number
  limitMs: number | null
}

type Place = { step: StepModel; index: number; handler: 'on_failure' | 'on_success' | null }
type OneEnd =
  | { type: 'completed'; stdout: string }
  | { type: 'failed'; failure: StepFailure }
  | { type: 'timed_out'; timeout: StepTimeout }
  | { type: 'stopped' }

export class Steps {
  readonly #host: StepsHost
  readonly #clock: Clock
  readonly #startedAt: number
  readonly #records: StepRecord[] = []
  /** What its commands printed, by the names that were given to it. */
  readonly captures: Record<string, string> = {}
  /** As the store knows it. */
  #isLimited = false
  /** Not charged to anybody's limit. */
  #apartMs = 0
  /** Commands' own limits grow from one attempt to the next. */
  readonly #grown: (ms: number) => number

  constructor(host: StepsHost) {
    this.#host = host
    this.#clock = host.commands.clock
    this.#startedAt = this.#clock.monotonic()
    const { escalation } = host.model.map
    this.#grown = (ms) => (host.phase === 'map' ? limitOfAttempt(ms, host.attempt, escalation) : ms)
  }

  get elapsedMs(): number {
    return Math.round(this.#chargedMs)
  }

  get #chargedMs(): number {
    return this.#clock.monotonic() - this.#startedAt - this.#apartMs
  }

  async run(steps: readonly StepModel[]): Promise<StepsEnd> {
    try {
      for (const [index, step] of steps.entries()) {
        const end = await this.#step({ step, index, handler: null })
        if (end.type !== 'completed') return { ...end, steps: this.#records }
      }
      return { type: 'completed', steps: this.#records }
    } finally {
      this.#host.running(null)
      // What comes now, putting things in order, is not a command's.
      if (!this.#host.signal.aborted) this.#note([], null)
    }
  }

  async #step(place: Place): Promise<OneEnd> {
    const { step, index } = place
    const when = this.#when(place)
    if (when.type !== 'run') {
      if (when.type === 'failed') return when
      this.#record(place, 'skipped', null, 0, { ms: null, source: 'none' })
      return { type: 'completed', stdout: '' }
    }
    const end = await this.#tries(place)
    if (end.type === 'stopped') return end
    if (end.type === 'completed') {
      if (step.capture !== null) this.#capture(step.capture, end.stdout)
      return this.#onSuccess(step.onSuccess, index, end)
    }
    if (step.onFailure.length === 0) return end
    return this.#failed(place, end)
  }

  #capture(name: string, stdout: string): void {
    const text = capturedText(stdout)
    this.captures[name] = text
    this.#host.values[name] = text
  }

  #when({ step, index }: Place): { type: 'run' | 'skip' } | Extract<OneEnd, { type: 'failed' }> {
    const { phase, values, secrets } = this.#host
    const place = `${phase}: command ${index}: when`
    const passes = evaluateCondition(step.when, { ...values }, place)
    if (passes.ok) return { type: passes.value ? 'run' : 'skip' }
    const message = whyNotTold(step.when, values, secrets, place)
    return { type: 'failed', failure: this.#failure({ step, index }, 'invalid_condition', message) }
  }

  /** A handler that gets through makes good a failure; a timeout stays one, and the whole may be over meanwhile. */
  async #failed(
    { step, index }: Place,
    end: Extract<OneEnd, { type: 'failed' | 'timed_out' }>,
  ): Promise<OneEnd> {
    const { values } = this.#host
    const outer = values.failure
    values.failure =
      end.type === 'failed'
        ? failureValue('failed', end.failure, end.failure.exitCode)
        : failureValue('timed_out', end.timeout, null)
    // Its own: tries of a handler that failed come behind it.
    const last = this.#records.findLast(({ command, status }) => command === index && status === 'failed')
    const handled = await this.#onFailure(step.onFailure, index)
    values.failure = outer
    if (handled?.type === 'stopped') return handled
    if (end.type === 'timed_out') return end
    if (handled?.type === 'timed_out' && handled.timeout.type === this.#host.budget?.type) return handled
    if (handled?.type !== 'completed') return end
    if (last) last.status = 'handled'
    return handled
  }

  /** Null: there was no time for all of them, and what did not run has made nothing good. */
  async #onFailure(handlers: readonly StepModel[], index: number): Promise<OneEnd | null> {
    for (const step of handlers) {
      if (this.#leftMs() === 0) return null
      const end = await this.#step({ step, index, handler: 'on_failure' })
      if (end.type !== 'completed') return end
    }
    return { type: 'completed', stdout: '' }
  }

  async #onSuccess(
    handlers: readonly StepModel[],
    index: number,
    completed: Extract<OneEnd, { type: 'completed' }>,
  ): Promise<OneEnd> {
    for (const step of handlers) {
      const end = await this.#step({ step, index, handler: 'on_success' })
      if (end.type !== 'completed') return end
    }
    return completed
  }

  async #tries(place: Place): Promise<OneEnd> {
    const { step } = place
    const { signal, chance } = this.#host
    for (let tries = 0; ; tries++) {
      const end = await this.#once(place)
      if (end.type !== 'failed' || tries >= step.retries) return end
      const waitMs = backoffMs(step.backoff, tries, chance())
      const leftMs = this.#leftMs()
      if (leftMs !== null && waitMs >= leftMs) return end
      await sleep(this.#clock, waitMs, signal)
      if (signal.aborted) return { type: 'stopped' }
    }
  }

  async #once(place: Place): Promise<OneEnd> {
    const { step, index } = place
    const { commands, signal, phase, model, head, secrets } = this.#host
    if (signal.aborted) return { type: 'stopped' }
    const request = this.#request(step, index)
    if (request.type === 'failed') return request
    const idleMs = phase === 'map' ? model.map.idleTimeoutMs : null
    if (step.commitRequired && !head)
      return { type: 'failed', failure: this.#failure(place, 'no_repository', NO_GIT) }
    const before = await this.#lastCommit(place)
    const limit = this.#limit(place)
    const { argv, env, cwd } = request
    const at = this.#clock.monotonic()
    const about = { phase, item: this.#host.item, command: index, commandType: step.type }
    const { ms: limitMs, source } = limit
    const text = step.text.slice(0, 500)
    this.#host.running({ index, type: step.type, text, startedAt: this.#clock.wall(), limitMs })
    const started = { type: 'command_started', ...about, text, limitMs, source } as const
    if (limitMs === null) this.#note([started], null)
    else this.#note([started], limitMs + STORE_AFTER_MS, () => this.#timeout(place, null, limit, 0))
    let stoppedAt = 0
    const { graceMs } = model.map
    const fired = { timeout: null as StepTimeout | null }
    const overrun = (which: 'limit' | 'idle') => {
      stoppedAt = this.#clock.monotonic()
      const ownMs = Math.round(stoppedAt - at)
      const timeout = this.#timeout(place, which === 'idle' ? idleMs! : null, limit, ownMs)
      fired.timeout = timeout
      // Of what the limit is of: the command, or all of them.
      const { type, message, source: by, limitMs: ms, elapsedMs } = timeout
      const event = { ...about, timeoutType: type, limitMs: ms, elapsedMs, source: by, message }
      const ladderMs = graceMs + STORE_AFTER_MS + 1_000
      this.#note([{ type: 'timeout_occurred', ...event }], ladderMs, () => timeout, true)
    }
    const end = await commands.run(
      { argv, env, cwd, limitMs, idleMs, graceMs, secrets, outputBytes: OUTPUT_BYTES, sweep: 'later' },
      {
        onLimit: () => this.#note([], graceMs + STORE_AFTER_MS + 1_000),
        onOverrun: overrun,
        onExit: () => this.#noteBetween(place),
      },
    )
    const tookMs = Math.round(this.#clock.monotonic() - at)
    if (end.type === 'ended') this.#host.printed?.(end)
    else this.#noteBetween(place) // it never started, so it never exits
    if (end.type === 'ended' && (end.timedOut !== null || isKilledLate(end, limitMs, tookMs))) {
      // Killed by whoever watches over this process, while it stood still.
      if (!fired.timeout) overrun('limit')
      const isForced = end.receipt === 'killed' || end.receipt === 'abandoned' || end.signal === 'SIGKILL'
      const resolution = isForced ? 'ForceTermination' : 'GracefulTermination'
      const afterMs = Math.round(this.#clock.monotonic() - stoppedAt)
      this.#note([{ type: 'timeout_resolved', item: this.#host.item, resolution, tookMs: afterMs }], null)
      this.#record(place, 'timed_out', end.exitCode, tookMs, limit)
      return { type: 'timed_out', timeout: { ...fired.timeout!, resolution, ...shown(end) } }
    }
    if (signal.aborted) return { type: 'stopped' }
    const failure =
      this.#failureOf(place, end) ??
      (step.commitRequired && (await this.#lastCommit(place)) === before
        ? this.#failure(place, 'no_commit', `Command ${index} made no commit, and has to`, end)
        : null)
    if (failure) {
      const { exitCode, message } = failure
      this.#note([{ type: 'command_failed', ...about, tookMs, exitCode, message }])
      this.#record(place, 'failed', exitCode, tookMs, limit)
      return { type: 'failed', failure }
    }
    this.#note([{ type: 'command_completed', ...about, tookMs }])
    this.#record(place, 'completed', 0, tookMs, limit)
    const stdout = end.type === 'ended' ? end.stdout : ''
    return { type: 'completed', stdout }
  }

  /** What there is to run; or why there is nothing. */
  #request(step: StepModel, index: number) {
    const { env: outer, values, model, cwd } = this.#host
    try {
      const own = Object.fromEntries(
        Object.entries(step.env).map(([name, text]) => [name, renderArgument(text, values)]),
      )
      const seen = { ...values, ...own }
      const env = { ...outer, ...own }
      const folder = step.workingDir === null ? cwd : path.resolve(cwd, renderArgument(step.workingDir, seen))
      if (step.type === SHELL_TYPE) {
        const compiled = compileShell(step.text, Object.keys(env))
        const argv = ['/bin/sh', '-c', compiled.script]
        const variables = shellVariables(compiled, seen)
        return { type: 'request' as const, argv, env: { ...env, ...variables }, cwd: folder }
      }
      const program = (model.runners[step.type] ?? []).map((part) => renderArgument(part, seen))
      const text = renderArgument(step.text, seen)
      const isData = program.at(-1) === '--'
      if (text.startsWith('-') && !step.text.startsWith('-') && !isData) throw isOption(step)
      const argv = [...program, text]
      return { type: 'request' as const, argv, env, cwd: folder }
    } catch (error) {
      if (!(error instanceof CurfewError)) throw error
      const failure = this.#failure({ step, index }, error.code, `Command ${index}: ${error.message}`)
      return { type: 'failed' as const, failure }
    }
  }

  /** Its own, or what is left of the whole, whichever is shorter. */
  #limit({ step, index, handler }: Place): { ms: number | null; source: string; isWhole: boolean } {
    const { model, phase, budget } = this.#host
    const own = commandLimit(model.map, phase, step, index, handler).limit
    const ownMs = own.ms === null ? null : this.#grown(own.ms)
    const leftMs = this.#leftMs()
    if (budget && leftMs !== null && (ownMs === null || leftMs <= ownMs))
      return { ms: Math.max(1, leftMs), source: budget.source, isWhole: true }
    return { ms: ownMs, source: own.source, isWhole: false }
  }

  #leftMs(): number | null {
    const { budget } = this.#host
    return budget && Math.max(0, Math.ceil(budget.limitMs - this.#chargedMs))
  }

  /** Null where nobody asks for one. A repository may be slow, and no command is to blame for that. */
  async #lastCommit(place: Place): Promise<string | null> {
    const { head } = this.#host
    if (!place.step.commitRequired || !head) return null
    const from = this.#clock.monotonic()
    this.#note([], null)
    const commit = await head()
    this.#apartMs += this.#clock.monotonic() - from
    this.#noteBetween(place)
    return commit
  }

  #timeout(
    { step, index }: Place,
    idleMs: number | null,
    limit: { ms: number | null; source: string; isWhole: boolean },
    ownMs: number,
  ): StepTimeout {
    const { who, budget } = this.#host
    const about = { command: index, commandType: step.type, text: step.text.slice(0, 500) }
    const rest = { ...about, resolution: 'GracefulTermination' as const, stdout: '', stderr: '' }
    const of = `Command ${index} in ${who.toLowerCase()}`
    const what = `${step.type}: ${firstLine(step.text)}`
    if (idleMs !== null) {
      const message = `${of} timed out after ${formatDuration(idleMs)} without output (${what})`
      const idle = { type: 'idle' as const, limitMs: idleMs, elapsedMs: ownMs }
      return { ...idle, source: 'idle_timeout_secs', message, ...rest }
    }
    if (limit.isWhole && budget) {
      const message = `${who} timed out after ${formatDuration(budget.limitMs)} (command ${index}, ${what})`
      const { type, limitMs, source } = budget
      return { type, limitMs, elapsedMs: this.elapsedMs, source, message, ...rest }
    }
    const limitMs = limit.ms ?? 0
    const message = `${of} timed out after ${formatDuration(limitMs)} (${what})`
    return { type: 'command', limitMs, elapsedMs: ownMs, source: limit.source, message, ...rest }
  }

  #failureOf(place: Place, end: CommandEnd): StepFailure | null {
    const { index, step } = place
    if (end.type === 'not_started') return this.#failure(place, end.code, `Command ${index}: ${end.message}`)
    if (end.exitCode === 0) return null
    const how = end.signal === null ? `exit code ${end.exitCode}` : `signal ${end.signal}`
    const last = (end.stderr.trimEnd() || end.stdout.trimEnd()).split('\n').at(-1)?.slice(-500)
    const message = `Command ${index} (${step.type}) ended with ${how}${last ? `: ${last}` : ''}`
    return this.#failure(place, 'command_failed', message, end)
  }

  #failure(
    { step, index }: Pick<Place, 'step' | 'index'>,
    code: string,
    message: string,
    end: CommandEnd | null = null,
  ): StepFailure {
    const output = end?.type === 'ended' ? shown(end) : { stdout: '', stderr: '' }
    const exitCode = end?.type === 'ended' ? end.exitCode : null
    const text = step.text.slice(0, 500)
    return { code, command: index, commandType: step.type, text, exitCode, message, ...output }
  }

  #record(
    place: Place,
    status: StepRecord['status'],
    exitCode: number | null,
    tookMs: number,
    { ms, source }: { ms: number | null; source: string },
  ): void {
    const { step, index } = place
    this.#records.push({
      ...{ command: index, commandType: step.type, text: step.text.slice(0, 200), status, exitCode, tookMs },
      ...{ limitMs: ms, source },
    })
  }

  /** Its limit is over with a command, however long the next one is away. */
  #noteBetween(place: Place): void {
    const { budget } = this.#host
    const leftMs = this.#leftMs()
    if (!budget || leftMs === null) return this.#note([], null)
    const whole = { ms: leftMs, source: budget.source, isWhole: true }
    this.#note([], leftMs + STORE_AFTER_MS, () => this.#timeout(place, null, whole, 0))
  }

  /** Not waited for: a command does not start later because somebody writes down that it does. */
  #note(events: CommandEvent[], limitMs?: number | null, of?: () => StepTimeout, isTold = false): void {
    const { commands, monitoring } = this.#host
    const kept = monitoring ? events : []
    const isSame = limitMs === undefined || (limitMs === null && !this.#isLimited)
    if (kept.length === 0 && isSame) return
    if (limitMs !== undefined) this.#isLimited = limitMs !== null
    void commands.note({
      events: kept,
      letters: [],
      ...(!isSame && { limitMs }),
      ...(of && { limitOf: () => notedLimit(of(), isTold) }),
    })
  }
}

const NO_GIT = 'commit_required: it does not run in a git repository'

/** Values are data: one that a program takes for an option would tell it what to do. */
function isOption({ type, text }: StepModel): CurfewError {
  const message = `the value that its text begins with begins with '-', which ${type} may take for an option: ${firstLine(text)}`
  return new CurfewError('invalid_value', message, {
    hint: "Begin the text with a word of your own, or end the arguments of the runner with '--'.",
  })
}
