/**
 * The folder of a run: what it was started with, its items, what became of each, and their work folders. The store has
 * how far the run is; whoever goes on with it finds the rest here. One process at a time works in it.
 */
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { CurfewError } from '../core/errors.ts'
import { homeFolder } from '../core/home-folder.ts'
import type { SelectedItem } from '../definitions/item-selection.ts'
import type { MapreduceModel } from '../definitions/mapreduce-model.ts'
import { MAPREDUCE_FORMAT } from '../definitions/mapreduce-model.ts'
import { isAlive, startTimeOf } from '../worker/process-table.ts'
import { ItemNumbers } from './item-lines.ts'
import { ItemList } from './item-list.ts'
import { ResultLog } from './result-log.ts'
import type { StepFailure, StepRecord, StepTimeout } from './step-records.ts'
import { parseStored } from './stored-json.ts'

/** What a run was started with. */
export interface RunRecord {
  format: number
  jobId: string
  /** The file it came from, for people. */
  file: string | null
  /** The file of the store it is in, or the managers; null for a database, whose address may hold a password. */
  place: { store: string; isFile: boolean } | { managers: readonly string[] } | null
  /** The store has a record of it. */
  isStarted: boolean
  /** Where it was started: phases run here, and items are made from here. */
  cwd: string
  useGit: boolean
  /** The commit that every item begins with; null until the first is made, and without git. */
  base: string | null
  model: MapreduceModel
  params: Record<string, string>
  args: unknown
  /** What was set when it was resumed. */
  overrides: { at: number; agentTimeoutMs: number }[]
  /** Items that timed out and are to be worked on once more. */
  retrying: string[]
  /** Of a retry: the run whose dead letters it works on. */
  retryOf: string | null
  /** Of one among the workflows of a job. */
  memberOf: { job: string; workflow: string } | null
  /** It is kept for its dead letters alone. */
  endedAt: number | null
}

export const ITEM_STATUSES = ['successful', 'failed', 'timed_out', 'skipped'] as const
export type ItemStatus = (typeof ITEM_STATUSES)[number]

export interface ItemAttempt {
  attempt: number
  /** As the store knows it, which counts anew where an item is worked on once more: `TASK:ATTEMPT`. */
  stored?: string
  startedAt: number
  tookMs: number
  status: ItemStatus
  timeout: StepTimeout | null
  failure: Pick<StepFailure, 'code' | 'message'> | StepFailure | null
  steps: StepRecord[]
  /** What its folder held that is not merged. */
  kept: { ref: string | null; commit: string | null; changedFiles: string[]; diffStat: string } | null
}

export interface ItemResult {
  id: string
  name: string
  status: ItemStatus
  tookMs: number
  attempts: ItemAttempt[]
  /** What its commands captured. */
  captures: Record<string, unknown>
  /** Its commands are through, and its commits, up to this one, are being merged. */
  merging?: { head: string | null }
  /** Why it has no dead letter, though it should. */
  letterRefused?: string
}

/** An item, and of a retried one what it went through before. */
export type RunItem = SelectedItem & { history?: unknown[] }

/** The folder of all runs is in it, where it is set. */
export const STATE_VARIABLE = 'CURFEW_STATE_DIR'

function stateFolder(env: NodeJS.ProcessEnv = process.env): string {
  const state = env.XDG_STATE_HOME || path.join(homeFolder(env), '.local', 'state')
  return env[STATE_VARIABLE] || path.join(state, 'curfew')
}

export function runsFolder(env: NodeJS.ProcessEnv = process.env): string {
  return path.join(stateFolder(env), 'runs')
}

export class RunFolder {
  readonly path: string
  readonly record: RunRecord
  readonly numbers = new ItemNumbers()
  #items: ItemList | null = null
  #captures: Record<string, unknown> | null = null
  #results: ResultLog | null = null
  #isLocked = false

  private constructor(folder: string, record: RunRecord) {
    this.path = folder
    this.record = record
  }

  static create(runs: string, record: RunRecord): RunFolder {
    const folder = path.join(runs, record.jobId)
    const made = new RunFolder(folder, record)
    try {
      for (const part of ['files', 'worktrees']) makeFolders(path.join(folder, part))
      made.#lock()
      made.save()
      return made
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException
      if (existsSync(folder)) made.discard()
      if (code === undefined || error instanceof CurfewError) throw error
      throw new CurfewError('state_folder', `the folder of the run, ${folder}, cannot be made (${code})`, {
        hint: `Free some space, or set ${STATE_VARIABLE} to a folder that can be written.`,
        fields: { folder },
      })
    }
  }

  /** Somebody works on it at this moment. */
  static isHeld(runs: string, jobId: string): boolean {
    const holder = holderOf(path.join(runs, jobId, LOCK))
    return holder !== null && isAlive(holder.pid, holder.startTime)
  }

  static exists(runs: string, jobId: string): boolean {
    return /^\w+$/.test(jobId) && existsSync(path.join(runs, jobId, 'run.json'))
  }

  /** Nobody can begin to work on it meanwhile. Null: somebody does. */
  static async whileFree<T>(runs: string, jobId: string, work: () => Promise<T>): Promise<T | null> {
    const folder = new RunFolder(path.join(runs, jobId), { jobId } as RunRecord)
    try {
      folder.#lock()
    } catch (error) {
      const { code } = error as { code?: string }
      if (code === 'in_use') return null
      // What has no folder is gone on with by nobody.
      if (code !== 'ENOENT') throw error
    }
    try {
      return await work()
    } finally {
      folder.unlock()
    }
  }

  /** To go on with it. Refused while somebody works in it. */
  static open(runs: string, jobId: string): RunFolder {
    const opened = RunFolder.look(runs, jobId)
    opened.#lock()
    return opened
  }

  /** Only to read it. */
  static look(runs: string, jobId: string): RunFolder {
    const folder = path.join(runs, jobId)
    const file = path.join(folder, 'run.json')
    const record = parseStored<RunRecord>(file, readFileSync(file, 'utf8'))
    if (record.format !== MAPREDUCE_FORMAT) {
      const message = `${jobId} was started by another version of curfew (format ${record.format})`
      throw new CurfewError('unknown_format', message)
    }
    // What is from before there were any has none.
    record.memberOf ??= null
    return new RunFolder(folder, record)
  }

  get worktrees(): string {
    return path.join(this.path, 'worktrees')
  }

  save(): void {
    this.#write('run.json', this.record)
  }

  setItems(items: readonly RunItem[]): void {
    this.#items?.close()
    this.#items = null
    this.#writeWhole('items.jsonl', (opened) => ItemList.write(opened, items))
  }

  /** In their order. Null before they are known. */
  items(): ItemList | null {
    try {
      this.#items ??= ItemList.read(path.join(this.path, 'items.jsonl'), this.numbers)
      return this.#items
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
      throw error
    }
  }

  setCaptures(captures: Record<string, unknown>): void {
    this.#write('captures.json', captures)
    this.#captures = captures
  }

  captures(): Record<string, unknown> {
    this.#captures ??= this.#readJson<Record<string, unknown>>('captures.json') ?? {}
    return this.#captures
  }

  setResult(result: ItemResult): void {
    this.#resultLog().add(result)
  }

  /** So far: also of one that is tried again. */
  result(id: string): ItemResult | null {
    return this.#resultLog().get(id)
  }

  /** One at a time: together they may be much. */
  *results(): Iterable<ItemResult> {
    const items = this.items()
    for (const id of [...this.#resultLog().ids()]) if (items?.has(id)) yield this.result(id) as ItemResult
  }

  /** A file with this value as JSON, for commands. */
  file(name: string, value: unknown): string {
    const file = path.join('files', `${name}.json`)
    this.#write(file, value)
    return path.join(this.path, file)
  }

  /** A file with a list, written one by one: it may be larger than a text can be. */
  listFile(name: string, list: Iterable<unknown>): string {
    const file = path.join(this.path, 'files', `${name}.json`)
    const opened = openSync(file, 'w', 0o600)
    try {
      let between = '['
      for (const one of list) {
        writeFileSync(opened, `${between}${JSON.stringify(one)}`)
        between = ',\n'
      }
      writeFileSync(opened, between === '[' ? '[]\n' : ']\n')
    } finally {
      closeSync(opened)
    }
    return file
  }

  /** Ids of items that have one. */
  workFolders(): string[] {
    return existsSync(this.worktrees) ? readdirSync(this.worktrees) : []
  }

  /** It was never begun. */
  discard(): void {
    this.unlock()
    rmSync(this.path, { recursive: true, force: true })
  }

  /**
   * The run has ended. Nothing of it is needed any more but work folders that could not be removed and, for dead
   * letters that are tried again, what it was started with.
   */
  end(now: number, { hasLetters }: { hasLetters: boolean }): void {
    this.record.endedAt = now
    this.save()
    const needed = [
      ...(this.workFolders().length > 0 ? ['worktrees'] : []),
      ...(hasLetters ? ['run.json', 'captures.json'] : []),
    ]
    const gone = needed.length > 0 ? readdirSync(this.path).filter((name) => !needed.includes(name)) : ['.']
    for (const name of gone)
      rmSync(path.join(this.path, name), { recursive: true, force: true, maxRetries: 2 })
    this.#isLocked = false
  }

  unlock(): void {
    this.#items?.close()
    this.#items = null
    this.#results?.close()
    this.#results = null
    if (this.#isLocked) rmSync(path.join(this.path, LOCK), { force: true })
    this.#isLocked = false
  }

  #resultLog(): ResultLog {
    this.#results ??= new ResultLog(path.join(this.path, 'results.jsonl'), this.numbers)
    return this.#results
  }

  /** By a process that is not there any more it does not count. One at a time looks whose it is, and takes it. */
  #lock(): void {
    const turn = this.#takeTurn()
    try {
      const holder = holderOf(path.join(this.path, LOCK))
      const { memberOf, jobId } = this.record
      if (holder && isAlive(holder.pid, holder.startTime)) throw inUse(memberOf?.job ?? jobId, holder.pid)
      this.#write(LOCK, { pid: process.pid, startTime: startTimeOf(process.pid) })
      this.#isLocked = true
    } finally {
      turn.close()
    }
  }

  /** Of those who look who works on a run, one at a time. */
  #takeTurn(): DatabaseSync {
    const file = `${path.dirname(this.path)}.lock`
    let turn: DatabaseSync | null = null
    try {
      turn = new DatabaseSync(file, { timeout: TURN_WITHIN_MS })
      turn.exec('BEGIN EXCLUSIVE')
      return turn
    } catch (error) {
      turn?.close()
      throw new CurfewError('state_folder', `${file} cannot be locked: ${(error as Error).message}`, {
        hint: `Free some space, or set ${STATE_VARIABLE} to a folder that can be written.`,
        fields: { file },
        cause: error,
      })
    }
  }

  #write(name: string, value: unknown): void {
    const text = JSON.stringify(value)
    this.#writeWhole(name, (opened) => writeFileSync(opened, text))
  }

  /** Whole or not at all. */
  #writeWhole(name: string, write: (opened: number) => void): void {
    const file = path.join(this.path, name)
    const draft = path.join(path.dirname(file), `.${path.basename(file)}.${process.pid}`)
    const opened = openSync(draft, 'w', 0o600)
    try {
      write(opened)
    } finally {
      closeSync(opened)
    }
    renameSync(draft, file)
  }

  #readJson<T>(name: string): T | null {
    const text = this.#read(name)
    return text === null ? null : parseStored<T>(path.join(this.path, name), text)
  }

  #read(name: string): string | null {
    try {
      return readFileSync(path.join(this.path, name), 'utf8')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
      throw error
    }
  }
}

const LOCK = 'runner.lock'
/** Looking at it takes no time; whoever does may be slow to get on. */
const TURN_WITHIN_MS = 10_000

/**
 * One by one: `recursive` never comes back where there is a parent and nothing can be made in it, as in /proc.
 */
function makeFolders(folder: string): void {
  const missing: string[] = []
  for (let one = path.resolve(folder); !existsSync(one); one = path.dirname(one)) missing.push(one)
  for (const one of missing.reverse()) {
    try {
      mkdirSync(one, { mode: 0o700 })
    } catch (error) {
      // Another run makes them too.
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
  }
}

function holderOf(lock: string): { pid: number; startTime: number } | null {
  try {
    return JSON.parse(readFileSync(lock, 'utf8')) as { pid: number; startTime: number }
  } catch {
    return null // it went meanwhile
  }
}

function inUse(jobId: string, pid: number): CurfewError {
  return new CurfewError('in_use', `${jobId} is being run by process ${pid}`, {
    hint: `See what it does: curfew watch ${jobId}`,
    fields: { jobId, pid },
  })
}
