/**
 * One attempt at one item: its folder, its commands within their limits, its commits merged back, and what is kept of
 * it. Making and putting away the folder is not charged to anybody's limit.
 */
import { sleep } from '../core/clock.ts'
import { assert } from '../core/errors.ts'
import { HandlerError } from '../core/failure.ts'
import type { CommandEvent } from '../core/note.ts'
import { overruledLimit } from '../core/note.ts'
import type { Stopped } from '../core/task-errors.ts'
import { limitOfAttempt, maxAttempts } from '../definitions/mapreduce-limits.ts'
import { isToleranceUsedUp } from '../definitions/mapreduce-model.ts'
import { letterOf } from './item-letter.ts'
import { sendLetter } from './letter-sending.ts'
import type { Attempt, MapreduceRun } from './mapreduce-run.ts'
import { overruledAttempt, overruledEvents } from './overruled-item.ts'
import type { ItemAttempt, ItemResult, ItemStatus, RunItem } from './run-folder.ts'
import type { Budget, StepsEnd } from './steps.ts'
import { Steps } from './steps.ts'
import type { ItemFolder } from './worktrees.ts'

/** When the grace is over: an attempt is waited for a little longer. */
const CLEAN_UP_MS = 1_000

/** What the graph is told of an item: the rest stands in the folder of the run. */
export interface ItemOutput {
  id: string
  status: ItemStatus
  ms: number
  attempts: number
  /** Which limits were over, of what; null where nothing is to be kept of it. */
  timeouts: { type: string; commandType: string }[] | null
  /** Nothing more is worth doing, and why. */
  stop: string | null
}

export async function workOnItem(run: MapreduceRun, id: string, attempt: Attempt): Promise<ItemOutput> {
  const item = run.folder.items()?.get(id)
  if (!item) {
    const message = `item ${id} is not in the folder of its run, ${run.folder.path}`
    throw new HandlerError(message, { code: 'unknown_item', retryable: false })
  }
  // Of an attempt that was stopped here the folder is put away.
  const stopped = await run.takeStopped(id)
  const work = new ItemWork(run, item, attempt)
  const isRetried = run.folder.record.retrying.includes(id)
  if (isRetried && run.live.status(id) === 'timed_out') run.live.forget(id)
  // Its process died between writing it down and saying so.
  const known = run.live.status(id) === null ? null : run.folder.result(id)
  if (known) return work.sayAgain(known)
  return (await work.overruled(stopped)) ?? work.run()
}

class ItemWork {
  readonly #run: MapreduceRun
  readonly #item: RunItem
  readonly #attempt: Attempt
  /** Those before this one that came to an end. */
  readonly #earlier: ItemAttempt[]
  readonly #events: CommandEvent[] = []
  #abortedAt = 0

  constructor(run: MapreduceRun, item: RunItem, attempt: Attempt) {
    this.#run = run
    this.#item = item
    this.#attempt = attempt
    this.#earlier = run.folder.result(item.id)?.attempts ?? []
    const { context, commands } = attempt
    context.signal.addEventListener('abort', () => {
      this.#abortedAt = commands.clock.monotonic()
    })
  }

  /** Those that left no word, because their process died, are counted by the store alone. */
  get #number(): number {
    return Math.max(this.#attempt.context.attempt, this.#earlier.length + 1)
  }

  #stored(attempt = this.#attempt.context.attempt): string {
    return `${this.#attempt.context.taskId}:${attempt}`
  }

  /** The store had to end the attempt before this one. Null: it did not, or the item is tried again now. */
  async overruled(stopped: ItemAttempt | null): Promise<ItemOutput | null> {
    const kept = overruledLimit(this.#attempt.context.previousDetails)
    if (!kept) return null
    const stored = this.#stored(kept.attempt)
    if (this.#earlier.some((one) => one.stored === stored)) return null
    const attempt = Math.max(kept.attempt, this.#earlier.length + 1)
    const made = { ...overruledAttempt(kept, stopped), attempt, stored }
    if (this.#run.model.map.action === 'skip') made.status = 'skipped'
    made.kept ??= await this.#putAway(true)
    const events = overruledEvents(this.#item.id, 'map', kept, made.timeout!)
    this.#events.unshift(...events)
    const ended = await this.#end(made, {})
    if (ended) return ended
    this.#earlier.push(made)
    this.#events.splice(0)
    return null
  }

  async run(): Promise<ItemOutput> {
    const { live, clock } = this.#run
    const { id, name } = this.#item
    const budget = this.#budget()
    live.phaseBegins('map', clock.wall())
    const about = { itemId: id, name, attempt: this.#number, agentLimitMs: budget?.limitMs ?? null }
    live.itemBegins({ ...about, startedAt: clock.wall(), command: null })
    const startedAt = clock.wall()
    try {
      const before = this.#run.folder.result(id)
      if (before?.merging) return await this.#goOnMerging(before, before.merging.head)
      const folders = await this.#run.folders()
      const folder = await folders.create(id)
      return await this.#inFolder(folder, budget)
    } catch (error) {
      const { context } = this.#attempt
      const isEnd = error instanceof HandlerError || context.signal.aborted
      if (isEnd || !(error instanceof Error)) {
        live.itemLeaves(id)
        throw error
      }
      // Its folder could not be made, or what came of it not be written down.
      const code = (error as { code?: string }).code ?? 'failed'
      const failure = { code, message: error.message }
      return this.#conclude({ ...this.#made(startedAt, 0), status: 'failed', failure }, {})
    }
  }

  async #inFolder(folder: ItemFolder, budget: Budget | null): Promise<ItemOutput> {
    const { live, clock } = this.#run
    const { id, name } = this.#item
    const { context, commands } = this.#attempt
    const startedAt = clock.wall()
    const running = live.running.get(id)
    if (running) running.startedAt = startedAt
    this.#note([{ type: 'agent_started', item: id, name, limitMs: budget?.limitMs ?? null }])
    const steps = this.#steps(folder, budget)
    const end = await steps.run(this.#run.model.map.template)
    const tookMs = steps.elapsedMs
    if (end.type === 'stopped' || context.signal.aborted) {
      const stopped = this.#stopped(end, startedAt, tookMs)
      this.#run.itemStopped(id, stopped)
      if ((context.signal.reason as Stopped).code === 'closing') await this.#untilPutAway(stopped)
      throw context.signal.reason
    }
    await commands.endLeft()
    const ended = await this.#ended(end, startedAt, tookMs, steps.captures)
    return this.#conclude(ended, steps.captures)
  }

  async #stopped(end: StepsEnd, startedAt: number, tookMs: number): Promise<ItemAttempt> {
    const timeout = end.type === 'timed_out' ? end.timeout : null
    return { ...this.#made(startedAt, tookMs), steps: end.steps, timeout, kept: await this.#putAway() }
  }

  /** The process ends: only now can the store be told how that went. No longer than the attempt is waited for. */
  async #untilPutAway(stopped: Promise<unknown>): Promise<void> {
    const { commands } = this.#attempt
    const over = new AbortController()
    const putAway = stopped.catch(() => null) // whoever cleans up has said so
    const leftMs = commands.graceMs - (commands.clock.monotonic() - this.#abortedAt)
    await Promise.race([putAway, sleep(commands.clock, Math.max(CLEAN_UP_MS, leftMs), over.signal)])
    over.abort()
    this.#note(this.#events)
  }

  #steps(folder: ItemFolder, budget: Budget | null): Steps {
    const { model, folder: files, secrets, chance, live } = this.#run
    const { context, commands } = this.#attempt
    const { id, item } = this.#item
    const { env, values } = this.#run.surroundings(context)
    Object.assign(values, {
      ...{ item, item_id: id, item_index: Number(id.replace(/^.*-/, '')) },
      ...{ item_file: this.#run.usesItemFile ? files.file(id, item) : '', attempt: this.#number },
    })
    const head = folder.kind === 'plain' ? null : async () => (await this.#run.folders()).headOf(id)
    return new Steps({
      ...{
        model,
        phase: 'map',
        item: id,
        who: `Agent ${id}`,
        attempt: this.#earlier.length + 1,
        cwd: folder.path,
      },
      ...{ env, secrets, values, budget, commands, signal: context.signal, head, chance },
      monitoring: model.map.monitoring,
      running: (command) => live.itemStep(id, command),
    })
  }

  #budget(): Budget | null {
    const { map } = this.#run.model
    if (map.agentTimeoutMs === null || map.policy === 'per_command') return null
    const { overrides } = this.#run.folder.record
    const source = overrides.length > 0 ? 'resume --agent-timeout' : 'agent_timeout_secs'
    const limitMs = limitOfAttempt(map.agentTimeoutMs, this.#earlier.length + 1, map.escalation)
    return { type: 'agent', limitMs, source }
  }

  /** What it came to, with its commits merged and its folder put away. */
  async #ended(
    end: StepsEnd,
    startedAt: number,
    tookMs: number,
    captures: Record<string, string>,
  ): Promise<ItemAttempt> {
    const { map } = this.#run.model
    const made: ItemAttempt = { ...this.#made(startedAt, tookMs), steps: end.steps }
    if (end.type === 'failed') Object.assign(made, { status: 'failed', failure: end.failure })
    else if (end.type === 'timed_out') {
      made.status = map.action === 'skip' ? 'skipped' : 'timed_out'
      made.timeout = end.timeout
    } else {
      const folders = await this.#run.folders()
      const head = await folders.headOf(this.#item.id).catch(() => null) // why is told by the merge
      this.#writeMerging(made, captures, head)
      const failure = await this.#mergeBack(head)
      if (failure) Object.assign(made, { status: 'failed', failure })
    }
    made.kept = await this.#putAway(end.type === 'timed_out')
    return made
  }

  #made(startedAt: number, tookMs: number): ItemAttempt {
    return {
      ...{ attempt: this.#number, stored: this.#stored(), startedAt, tookMs },
      ...{ status: 'successful', steps: [] },
      ...{ timeout: null, failure: null, kept: null },
    }
  }

  /** Its commands are through: whatever happens now, they are not run again. */
  #writeMerging(made: ItemAttempt, captures: Record<string, string>, head: string | null): void {
    if (this.#run.folder.record.base === null) return
    const { id, name } = this.#item
    const attempts = [...this.#earlier, made]
    const { tookMs } = made
    const merging = { head }
    this.#run.folder.setResult({ id, name, status: 'successful', tookMs, attempts, captures, merging })
  }

  /** A process died while it merged, before or after it had: its folder may be gone, and not be removed by it. */
  async #goOnMerging(before: ItemResult, head: string | null): Promise<ItemOutput> {
    const made = this.#earlier.pop()
    assert(made !== undefined, 'what is merged has been made')
    const failure = await this.#mergeBack(head)
    if (failure) Object.assign(made, { status: 'failed', failure })
    made.kept = await this.#putAway()
    return this.#conclude(made, before.captures)
  }

  async #mergeBack(head: string | null): Promise<{ code: string; message: string } | null> {
    const { id } = this.#item
    const merged = await (await this.#run.folders()).mergeBack(id, head)
    if (merged.type === 'nothing' || merged.type === 'merged') return null
    const kept = merged.branch === null ? '' : `; they are kept in branch ${merged.branch}`
    const message =
      merged.type === 'conflict'
        ? `its commits conflict with what was merged before, in ${merged.files.join(', ')}${kept}`
        : `its commits could not be merged: ${merged.message}${kept}`
    return { code: merged.type === 'conflict' ? 'merge_conflict' : 'merge_refused', message }
  }

  async #putAway(isTold = false): Promise<ItemAttempt['kept']> {
    const { id } = this.#item
    const { kept, failed } = await (await this.#run.folders()).remove(id, { keep: true })
    if (failed !== null) {
      this.#events.push({ type: 'cleanup_failed', item: id, message: failed })
      this.#run.tell(`The folder of ${id} could not be removed: ${failed}`)
    } else if (isTold) this.#events.push({ type: 'cleanup_completed', item: id })
    if (!kept || (kept.commit === null && kept.changedFiles.length === 0)) return null
    const { ref, commit, changedFiles, diffStat } = kept
    return { ref, commit, changedFiles, diffStat }
  }

  async #conclude(made: ItemAttempt, captures: Record<string, unknown>): Promise<ItemOutput> {
    const ended = await this.#end(made, captures)
    if (ended) return ended
    const message = made.timeout?.message ?? 'it timed out'
    throw new HandlerError(message, { code: 'item_timed_out', retryable: true })
  }

  /** Null: it is tried again. */
  async #end(made: ItemAttempt, captures: Record<string, unknown>): Promise<ItemOutput | null> {
    const { folder, live, model } = this.#run
    const { id, name } = this.#item
    const { status, timeout, tookMs } = made
    const attempts = [...this.#earlier, made]
    const total = attempts.reduce((sum, one) => sum + one.tookMs, 0)
    const result: ItemResult = { id, name, status, tookMs: total, attempts, captures }
    folder.setResult(result)
    this.#run.retried(id)
    const isAgain = status === 'timed_out' && attempts.length < maxAttempts(model.map)
    this.#events.push({ type: 'agent_completed', item: id, status: isAgain ? 'retried' : status, tookMs })
    const message = timeout?.message ?? made.failure?.message ?? null
    if (isAgain) {
      this.#note(this.#events)
      live.itemLeaves(id, { itemId: id, name, status, message: `${message}; it is tried again`, ms: tookMs })
      return null
    }
    await this.#noteEnd(result, message)
    live.itemEnds(result, timeout ? `${message}; the limit is set by ${timeout.source}` : message)
    return this.#output(result, message)
  }

  /** What came of it is known: nothing is done twice. */
  async sayAgain(result: ItemResult): Promise<ItemOutput> {
    this.#run.retried(result.id)
    const last = result.attempts.at(-1)
    const message = last?.timeout?.message ?? last?.failure?.message ?? null
    await this.#noteEnd(result, message)
    return this.#output(result, message)
  }

  #output({ id, status, tookMs, attempts }: ItemResult, message: string | null): ItemOutput {
    const timeouts = attempts.flatMap(({ timeout: one }) =>
      one ? [{ type: one.type, commandType: one.commandType }] : [],
    )
    return {
      ...{ id, status, ms: tookMs, attempts: attempts.length },
      timeouts: this.#run.model.map.monitoring ? timeouts : null,
      stop: this.#stop(status, message),
    }
  }

  #stop(status: ItemStatus, message: string | null): string | null {
    const { model, live } = this.#run
    if (status !== 'failed' && status !== 'timed_out') return null
    if (status === 'timed_out' && model.map.action === 'fail') return stopText(this.#item, message)
    const who = whoOf(this.#item)
    const { total } = live.counts()
    if (model.errorPolicy.onFailure !== 'stop' || !isToleranceUsedUp(model.errorPolicy, live.bad, total))
      return null
    return `${live.bad} of ${total} items failed, which error_policy does not tolerate; the last was ${who}: ${message}`
  }

  async #noteEnd(result: ItemResult, message: string | null): Promise<void> {
    const letter = letterOf(this.#run, this.#item, result, message)
    const events = this.#run.model.map.monitoring ? this.#events : []
    if (letter) await sendLetter(this.#run, this.#attempt.commands, { result, letter, events })
    else this.#note(events)
  }

  #note(events: CommandEvent[]): void {
    if (!this.#run.model.map.monitoring || events.length === 0) return
    void this.#attempt.commands.note({ events, letters: [] })
  }
}

function whoOf({ id, name }: RunItem): string {
  return name === id ? id : `${id} (${name})`
}

export function stopText(item: RunItem, message: string | null): string {
  return `item ${whoOf(item)} timed out and timeout_action is fail: ${message}`
}
