/**
 * A chaos run: starts engines, kills them with -9 at random moments, starts them again; at the end one last engine
 * lets everything end, and the auditor looks at what is left. Half of the kills come within half a second of the
 * restart, counted from where the program begins to open its engine.
 */
import type { ChildProcess } from 'node:child_process'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as pause } from 'node:timers/promises'
import pg from 'pg'
import type { Fact } from '../journal.ts'
import { monotonicMs, note, readJournal } from '../journal.ts'
import { SeededRandom } from '../random.ts'
import { Scratch } from '../scratch.ts'
import { until, within } from '../wait.ts'
import type { AuditRules, Complaint, TaskRecord } from './auditor.ts'
import { audit } from './auditor.ts'
import type { ProgramOptions } from './program.ts'
import type { Run, Summary } from './summary.ts'
import { summarize } from './summary.ts'

export interface ChaosOptions {
  /** The URL of an empty database; SQLite without. */
  postgresUrl?: string
  seconds: number
  seed: number
  /** Processes are killed; on unless set. */
  kills?: boolean
  /** Connections of the database are ended at random. */
  terminateConnections?: boolean
}

/** What runs in the engines, and how it is judged. */
export interface ChaosLoad<Kept, Figures> {
  program: string
  /** Who is not killed at once lives so long at most. */
  longestLifeMs: number
  audit(facts: readonly Fact[], records: readonly Kept[], rules: AuditRules): Complaint[]
  summarize(records: readonly Kept[], run: Run): Figures
}

export interface ChaosReport<Figures> {
  summary: Figures
  complaints: Complaint[]
  /** Where the journal and the records are kept, when there are complaints. */
  kept: string | null
}

const TASKS: ChaosLoad<TaskRecord, Summary> = {
  program: path.join(import.meta.dirname, 'program.ts'),
  longestLifeMs: 4_000,
  audit,
  summarize,
}
const POSTGRES_PROCESSES = 3
const OPEN_WITHIN_MS = 30_000
const EARLY_MS = 500
const FINISH_WITHIN_MS = 240_000

export function runChaos(options: ChaosOptions): Promise<ChaosReport<Summary>> {
  return runLoad(TASKS, options)
}

export async function runLoad<Kept, Figures>(
  load: ChaosLoad<Kept, Figures>,
  options: ChaosOptions,
): Promise<ChaosReport<Figures>> {
  const scratch = new Scratch()
  try {
    return await new ChaosRun(load, options, scratch).run()
  } finally {
    await scratch.remove()
  }
}

class ChaosRun<Kept, Figures> {
  readonly #load: ChaosLoad<Kept, Figures>
  readonly #options: ChaosOptions
  readonly #scratch: Scratch
  readonly #random: SeededRandom
  readonly #journal: string
  readonly #records: string
  readonly #store: string
  readonly #complaints: Complaint[] = []
  /** What each wrote to its standard error. */
  readonly #said = new WeakMap<ChildProcess, string[]>()
  #kills = 0
  #earlyKills = 0
  #endsAt = 0

  constructor(load: ChaosLoad<Kept, Figures>, options: ChaosOptions, scratch: Scratch) {
    this.#load = load
    this.#options = options
    this.#scratch = scratch
    this.#random = new SeededRandom(options.seed)
    this.#journal = scratch.path('journal.jsonl')
    this.#records = scratch.path('records.jsonl')
    this.#store = options.postgresUrl ?? scratch.path('store.db')
  }

  async run(): Promise<ChaosReport<Figures>> {
    const { postgresUrl, seconds, terminateConnections } = this.#options
    this.#endsAt = monotonicMs() + seconds * 1_000
    const slots = postgresUrl ? POSTGRES_PROCESSES : 1
    const load = Array.from({ length: slots }, (_, slot) => this.#keepRunning(slot))
    if (terminateConnections && postgresUrl) load.push(this.#terminateConnections(postgresUrl))
    await Promise.all(load)
    await this.#finish()
    await this.#lookForLeftovers()
    const facts = readJournal(this.#journal)
    const records = this.#readRecords()
    this.#complaints.push(
      ...this.#load.audit(facts, records, {
        // Over SQLite one process fires its own; on PostgreSQL peers fire what is overdue by the leadership lease.
        latestResultMs: postgresUrl ? 5_000 : 1_000,
        clockSlackMs: postgresUrl ? 500 : 0,
        allowedCodes: terminateConnections ? ['store_unavailable'] : [],
      }),
    )
    const kept = this.#complaints.length > 0 ? this.#keep() : null
    const summary = this.#load.summarize(records, {
      store: postgresUrl ? 'postgres' : 'sqlite',
      seed: this.#options.seed,
      seconds,
      kills: this.#kills,
      earlyKills: this.#earlyKills,
      complaints: this.#complaints.length,
    })
    return { summary, complaints: this.#complaints, kept }
  }

  /** One engine after the other, each killed in the end. */
  async #keepRunning(slot: number): Promise<void> {
    const { kills = true, postgresUrl } = this.#options
    while (monotonicMs() < this.#endsAt) {
      const seed = this.#random.between(0, 2 ** 31)
      // On PostgreSQL the last one has no witness: what it leaves waits for its lease.
      const isolation = !postgresUrl || slot < POSTGRES_PROCESSES - 1
      const child = this.#start({ mode: 'load', seed, isolation })
      const exited = once(child, 'exit')
      if (!(await this.#heard(child, 'opening'))) continue
      const early = this.#random.chance(0.5)
      const { longestLifeMs } = this.#load
      const lifeMs = early ? this.#random.between(0, EARLY_MS) : this.#random.between(EARLY_MS, longestLifeMs)
      await this.#live(child, kills ? lifeMs : Infinity)
      if (child.exitCode !== null || child.signalCode !== null) {
        this.#died(child)
        continue
      }
      this.#kills++
      if (early) this.#earlyKills++
      note(this.#journal, { type: 'killed', victim: child.pid })
      child.kill('SIGKILL')
      await exited
    }
  }

  async #live(child: ChildProcess, ms: number): Promise<void> {
    const over = new AbortController()
    const exited = once(child, 'exit', { signal: over.signal }).catch(ignoreAbort)
    const left = Math.min(ms, Math.max(0, this.#endsAt - monotonicMs()))
    await Promise.race([exited, pause(left, null, { signal: over.signal }).catch(ignoreAbort)])
    over.abort()
  }

  #start(mode: Pick<ProgramOptions, 'mode' | 'seed' | 'isolation'>): ChildProcess {
    const options: ProgramOptions = {
      ...mode,
      store: this.#store,
      journal: this.#journal,
      records: this.#records,
      openAgain: this.#options.terminateConnections ?? false,
    }
    const child = spawn(process.execPath, [this.#load.program, JSON.stringify(options)], {
      stdio: ['ignore', 'inherit', 'pipe', 'ipc'],
      env: {
        ...this.#scratch.environment(),
        FAULTS_JOURNAL: this.#journal,
        CURFEW_LOG: process.env.CURFEW_LOG ?? 'silent',
      },
    })
    const said: string[] = []
    child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      said.push(text)
      if (process.env.CURFEW_LOG) process.stderr.write(text)
    })
    this.#said.set(child, said)
    return child
  }

  /** False when it ended instead. */
  async #heard(child: ChildProcess, message: string): Promise<boolean> {
    const heard = new Promise<boolean>((resolve) => {
      child.on('message', (said) => said === message && resolve(true))
      child.once('exit', () => resolve(false))
    })
    const answer = await within(`the program said ${message}`, OPEN_WITHIN_MS, heard)
    if (!answer) this.#died(child)
    return answer
  }

  #died(child: ChildProcess): void {
    const how = child.signalCode ?? `exit code ${child.exitCode}`
    const text = (this.#said.get(child) ?? []).join('').slice(-2_000)
    note(this.#journal, { type: 'died', victim: child.pid, how: `${how}\n${text}` })
  }

  async #finish(): Promise<void> {
    const child = this.#start({ mode: 'finish', seed: 0, isolation: true })
    await within('the last engine let everything end', FINISH_WITHIN_MS, once(child, 'exit'))
    if (child.exitCode !== 0) this.#died(child)
  }

  async #lookForLeftovers(): Promise<void> {
    const complain = (text: string) =>
      this.#complaints.push({ rule: 'nothing left behind', taskId: null, text })
    try {
      await until('no process is left', 10_000, () => this.#scratch.processes().length === 0)
    } catch {
      complain(`processes ${this.#scratch.processes().join(', ')} are left`)
    }
    const { postgresUrl } = this.#options
    if (postgresUrl) {
      const open = await openConnections(postgresUrl)
      if (open > 0) complain(`${open} connections to PostgreSQL are left`)
      return
    }
    if (existsSync(`${this.#store}.lock`)) complain('the lock file is left')
    const database = new DatabaseSync(this.#store)
    try {
      database.exec('begin exclusive; rollback')
      const [check] = Object.values(database.prepare('pragma integrity_check').get() ?? {})
      if (check !== 'ok') complain(`integrity_check: ${check}`)
    } finally {
      database.close()
    }
  }

  /** One at a time, whatever it is doing. */
  async #terminateConnections(url: string): Promise<void> {
    const client = new pg.Client({ connectionString: url, application_name: 'chaos' })
    await client.connect()
    try {
      while (monotonicMs() < this.#endsAt) {
        const { rowCount } = await client.query(
          `select pg_terminate_backend(pid) from pg_stat_activity
           where datname = current_database() and application_name = 'curfew'
           order by md5(pid::text || $1) limit 1`,
          [String(this.#random.next())],
        )
        this.#kills += rowCount ?? 0
        await pause(this.#random.between(20, 400))
      }
    } finally {
      await client.end()
    }
  }

  #readRecords(): Kept[] {
    if (!existsSync(this.#records)) return []
    return readFileSync(this.#records, 'utf8')
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Kept)
  }

  #keep(): string {
    const store = this.#options.postgresUrl ? 'postgres' : 'sqlite'
    const folder = path.join(tmpdir(), `curfew-chaos-${store}-${this.#options.seed}-${process.pid}`)
    cpSync(this.#scratch.folder, folder, { recursive: true })
    return folder
  }
}

async function openConnections(url: string): Promise<number> {
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  try {
    const { rows } = await client.query(
      `select count(*)::int as open from pg_stat_activity
       where datname = current_database() and application_name = 'curfew'`,
    )
    return rows[0].open
  } finally {
    await client.end()
  }
}

function ignoreAbort(error: Error): void {
  if (error.name !== 'AbortError') throw error
}
