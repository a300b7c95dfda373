/**
 * A map-reduce in the process that runs it: its definition as a graph, the tasks the graph is made of, and what they
 * share. Made anew by whoever goes on with the run; everything that lasts is in the store and in its folder.
 */
import { realpathSync } from 'node:fs'
import path from 'node:path'
import type { Clock } from '../core/clock.ts'
import { HandlerError } from '../core/failure.ts'
import { MAX_CONCURRENCY } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import { mapreduceQueue } from '../core/own-work.ts'
import { maxAttempts } from '../definitions/mapreduce-limits.ts'
import type { MapreduceModel, Phase } from '../definitions/mapreduce-model.ts'
import type { MapreduceOutline } from '../definitions/mapreduce-outline.ts'
import { outlineOf } from '../definitions/mapreduce-outline.ts'
import { renderArgument } from '../definitions/step-template.ts'
import type { TaskContext } from '../definitions/task.ts'
import type { WorkflowDefinition } from '../definitions/workflow.ts'
import { contentHash } from '../definitions/workflow-model.ts'
import {
  ITEM_TASK,
  ITEMS_TASK,
  MAPREDUCE_TASKS,
  mapreduceGraph,
  mapreducePolicies,
  PHASE_TASK,
  TALLY_TASK,
} from '../graph/mapreduce-graph.ts'
import type { AttemptCommands, CommandTask } from '../worker/command-task.ts'
import { childEnvironment } from '../worker/node-options.ts'
import { prepareSupervisor } from '../worker/supervisor.ts'
import { tracedEnvironment } from '../worker/traced-environment.ts'
import type { OwnQueue } from '../worker/worker.ts'
import { Git, REPOSITORY_VARIABLES } from './git.ts'
import { workOnItem } from './item-work.ts'
import { cleanItemFolder, findItemFolder } from './left-folders.ts'
import { LiveRun } from './live-run.ts'
import { findItems, tally, workOnPhase } from './phase-work.ts'
import { findRepository } from './repository.ts'
import type { ItemAttempt, ItemResult, RunFolder } from './run-folder.ts'
import { withSignsOfLife } from './signs-of-life.ts'
import { ItemFolders } from './worktrees.ts'

export { ITEM_TASK, MAPREDUCE_TASKS }

export interface MapreduceParts {
  folder: RunFolder
  env: NodeJS.ProcessEnv
  clock: Clock
  chance: () => number
  logger: Logger
  /** Something is to be shown. */
  changed(): void
  /** Somebody should know. */
  note(text: string): void
  /** What a command of a phase printed. */
  print(output: { stdout: string; stderr: string }): void
  /** Items that timed out in an earlier session are worked on once more. */
  retryTimeouts?: boolean
}

/** What a task of the run is given beside its input. */
export interface Attempt {
  context: TaskContext
  commands: AttemptCommands
}

export class MapreduceRun {
  readonly folder: RunFolder
  readonly live: LiveRun
  readonly clock: Clock
  readonly chance: () => number
  readonly logger: Logger
  readonly secrets: readonly string[]
  /** Work folders of attempts that were stopped are put away beside everything else. */
  readonly #cleanUps = new Set<Promise<unknown>>()
  /** By item, what its last attempt here had come to when it was stopped, its folder put away. */
  readonly #stopped = new Map<string, Promise<ItemAttempt>>()
  readonly #env: NodeJS.ProcessEnv
  readonly tell: (text: string) => void
  readonly print: MapreduceParts['print']
  #folders: Promise<ItemFolders> | null = null
  #usesItemFile: boolean | null = null

  /** There will be one, with commands: what starts them takes a while to start itself. */
  static prepare(): void {
    prepareSupervisor()
  }

  constructor(parts: MapreduceParts) {
    const { folder, env, clock, chance, logger, retryTimeouts = false } = parts
    const { model } = folder.record
    this.folder = folder
    this.clock = clock
    this.chance = chance
    this.logger = logger
    this.#env = env
    this.tell = parts.note
    this.print = parts.print
    const own = model.secrets.some((name) => name in model.env) ? this.#ownVariables({ ...env }) : {}
    this.secrets = model.secrets.flatMap((name) => [env[name] || [], own[name] || []].flat())
    const has = (phase: Phase) => phase === 'map' || model[phase].steps.length > 0
    this.live = new LiveRun(has, folder.numbers, parts.changed)
    this.live.restore(folder.items()?.size ?? 0, this.#ended())
    if (retryTimeouts) this.#retryTimedOut()
  }

  /** One that is to be tried again has not ended, and neither has one whose commits were being merged. */
  *#ended(): Iterable<ItemResult> {
    const tries = maxAttempts(this.model.map)
    for (const result of this.folder.results()) {
      const { status, attempts, merging } = result
      if (!merging && (status !== 'timed_out' || attempts.length >= tries)) yield result
    }
  }

  /** A file for each item is made only where a command may read it. */
  get usesItemFile(): boolean {
    this.#usesItemFile ??= JSON.stringify([this.model.map.template, this.model.runners]).includes('item_file')
    return this.#usesItemFile
  }

  get model(): MapreduceModel {
    return this.folder.record.model
  }

  get jobId(): string {
    return this.folder.record.jobId
  }

  /** What the store is told of it. */
  get outline(): MapreduceOutline {
    const { path: folder, record } = this.folder
    return outlineOf(record.model, { runId: record.jobId, file: record.file, folder })
  }

  /** Only whoever runs it takes its tasks. */
  get ownQueue(): OwnQueue & { tasks: CommandTask[] } {
    const tasks = this.tasks()
    // One more for what is not an item; where there cannot be one more, that waits for an item to end.
    const concurrency = Math.min(this.model.map.maxParallel + 1, MAX_CONCURRENCY)
    return { queue: mapreduceQueue(this.jobId), tasks, concurrency }
  }

  /** Its graph, with the tasks it is made of. */
  definition(): WorkflowDefinition {
    const model = mapreduceGraph(this.outline)
    const uses = { tasks: this.tasks(), agents: [], workflows: [] }
    return {
      ...{ kind: 'workflow', name: model.name, model, hash: contentHash(model), uses },
      ...{ schema: null, warnings: [] },
    }
  }

  tasks(): CommandTask[] {
    return [
      this.#task(ITEMS_TASK, (_, attempt) => findItems(this, attempt)),
      this.#task(TALLY_TASK, (_, attempt) => tally(this, attempt)),
      this.#task(PHASE_TASK, (input, attempt) =>
        workOnPhase(this, (input as { phase: Exclude<Phase, 'map'> }).phase, attempt),
      ),
      this.#task(ITEM_TASK, (input, attempt) => workOnItem(this, (input as { id: string }).id, attempt)),
    ]
  }

  #task(
    name: (typeof MAPREDUCE_TASKS)[number],
    run: (input: unknown, attempt: Attempt) => Promise<unknown>,
  ): CommandTask {
    return {
      ...{ kind: 'task', name, work: 'shell', isolation: 'inline', commands: true, file: null, schema: null },
      policy: mapreducePolicies(this.outline)[name],
      run: async (input: never, context: TaskContext, commands?: AttemptCommands) => {
        const own = commands as AttemptCommands
        const inJob = this.folder.record.memberOf !== null
        try {
          return await run(input, { context, commands: inJob ? withSignsOfLife(own, context) : own })
        } catch (error) {
          throw error instanceof HandlerError || context.signal.aborted ? error : final(error)
        }
      },
    }
  }

  /** The work folders of its items; the commit they begin with is pinned once, after setup. */
  folders(): Promise<ItemFolders> {
    this.#folders ??= this.#openFolders()
    return this.#folders
  }

  async #openFolders(): Promise<ItemFolders> {
    const { record } = this.folder
    const { cwd, jobId, useGit, base } = record
    const folders = await ItemFolders.open({
      ...{ cwd, jobId, useGit, base, root: this.folder.worktrees },
      ...{ clock: this.clock, logger: this.logger },
    })
    if (folders.note !== null) this.tell(folders.note)
    if (record.base !== folders.base) {
      record.base = folders.base
      this.folder.save()
    }
    return folders
  }

  /** Of where the run was started; null where there are no commits. */
  headOfCheckout(): (() => Promise<string | null>) | null {
    const { useGit, cwd } = this.folder.record
    if (!useGit) return null
    const git = new Git({ clock: this.clock, env: this.#env })
    return async () => {
      const found = await findRepository(git, cwd)
      return found.type === 'found' ? found.head : null
    }
  }

  /** What commands see, and what texts may name. */
  surroundings(context: TaskContext): { env: NodeJS.ProcessEnv; values: Record<string, unknown> } {
    const { params, args } = this.folder.record
    const outer = childEnvironment(this.#env)
    // In a hook of git they would lead every command of an item to the repository of the hook.
    for (const name of REPOSITORY_VARIABLES) delete outer[name]
    const values: Record<string, unknown> = { ...outer, params, args }
    const own = this.#ownVariables(outer)
    const captures = this.folder.captures()
    return {
      env: { ...tracedEnvironment(outer, context.trace), ...own },
      values: { ...values, ...own, ...captures, params, args },
    }
  }

  /** Those that the file sets. */
  #ownVariables(outer: Record<string, unknown>): Record<string, string> {
    const { params, args, model } = this.folder.record
    const values = { ...outer, params, args }
    return Object.fromEntries(
      Object.entries(model.env).map(([name, text]) => [name, renderArgument(text, values)]),
    )
  }

  /** Written down: whoever goes on with the run after this session works on them too. */
  #retryTimedOut(): void {
    const { record } = this.folder
    const timedOut = [...(this.folder.items()?.ids() ?? [])].filter(
      (id) => this.live.status(id) === 'timed_out' && !record.retrying.includes(id),
    )
    record.retrying.push(...timedOut)
    this.folder.save()
  }

  /** Items that timed out in an earlier session, are to be worked on once more, and have not been since. */
  get timedOutBefore(): string[] {
    return this.folder.record.retrying.filter((id) => this.live.status(id) === 'timed_out')
  }

  /** Others have worked on them. */
  leaveTimedOut(ids: readonly string[]): void {
    if (ids.length === 0) return
    const { record } = this.folder
    const left = new Set(ids)
    record.retrying = record.retrying.filter((id) => !left.has(id))
    this.folder.save()
  }

  /** They are worked on now. */
  takeTimedOut(): string[] {
    const ids = this.timedOutBefore
    for (const id of ids) this.live.forget(id)
    return ids
  }

  /** So many were to be worked on once more, and have come to nothing yet: their dead letters are open. */
  get untried(): number {
    return this.folder.record.retrying.filter((id) => this.live.status(id) === null).length
  }

  /** It has been worked on once more. */
  retried(id: string): void {
    const { record } = this.folder
    if (!record.retrying.includes(id)) return
    record.retrying = record.retrying.filter((one) => one !== id)
    this.folder.save()
  }

  /** An attempt at it was told to stop. */
  itemStopped(id: string, attempt: Promise<ItemAttempt>): void {
    this.#stopped.set(id, attempt)
    this.cleanUp(attempt)
  }

  /** Told once. Null: nothing was stopped here, or nothing is known of it. */
  async takeStopped(id: string): Promise<ItemAttempt | null> {
    const stopped = this.#stopped.get(id)
    if (!stopped) return null
    this.#stopped.delete(id)
    return stopped.catch(() => null) // whoever cleans up has said so
  }

  /** Not waited for by the attempt, but by the end of the process. */
  cleanUp(work: Promise<unknown>): void {
    const noted = work
      .catch((error: unknown) => this.logger.error({ error: String(error) }, 'a clean-up failed'))
      .finally(() => this.#cleanUps.delete(noted))
    this.#cleanUps.add(noted)
  }

  /** Nothing is done in its folder any more. */
  async settle(): Promise<void> {
    while (this.#cleanUps.size > 0) await Promise.all(this.#cleanUps)
  }

  /**
   * The run has ended: what it left, with what could not be put away before, goes. What stays is told, for people.
   * Never rejects: what the run came to does not change for it.
   */
  async end(): Promise<string[]> {
    const left: string[] = []
    try {
      const items = this.folder.items()
      for (const name of this.folder.workFolders()) {
        const { kept, failed } = items?.has(name)
          ? { kept: null, ...(await this.#removeItem(name)) }
          : await this.#removeOther(name)
        if (kept) left.push(`A command made the worktree ${name}; what was in it is kept as ${kept.ref}`)
        if (failed !== null) left.push(`A work folder is left: ${name}: ${failed}`)
      }
      // A retry has none of its own: they are those of the run it retries.
      const hasLetters = this.live.bad + this.untried > 0 && this.folder.record.retryOf === null
      this.folder.end(this.clock.wall(), { hasLetters })
    } catch (error) {
      left.push(`The folder of the run is left: ${this.folder.path}: ${(error as Error).message}`)
    }
    return left
  }

  async #removeItem(id: string): Promise<{ failed: string | null }> {
    try {
      const { failed } = await (await this.folders()).remove(id, { keep: true })
      return { failed }
    } catch (error) {
      return { failed: (error as Error).message }
    }
  }

  /** What was moved out of an item's way, or made by its commands: a worktree of theirs may hold work. */
  async #removeOther(name: string): Promise<Awaited<ReturnType<typeof cleanItemFolder>>> {
    const options = { clock: this.clock, env: this.#env }
    const folder = path.join(realpathSync(this.folder.worktrees), name) // as git registers it
    try {
      return await cleanItemFolder(await findItemFolder(folder, options), options)
    } catch (error) {
      return { kept: null, failed: (error as Error).message }
    }
  }
}

/** What is worth another try is said by the items themselves. */
function final(error: unknown): HandlerError {
  const { code, message } = error as { code?: string; message?: string }
  return new HandlerError(message ?? String(error), {
    code: code ?? 'failed',
    retryable: false,
    cause: error,
  })
}
