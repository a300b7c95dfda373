/**
 * Group commit. Commands that arrive while a commit is in flight go into the next one together; each is answered
 * after its commit. A batch that the database refuses is halved and run again until the command at fault is alone.
 * While the store is away commands wait: those of a caller within a bound, those of a worker for as long as it takes.
 */
import { backoffMs } from '../core/backoff.ts'
import type { Clock, Randomness, Timer } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { MAX_BATCH_BYTES, MAX_WAITING_COMMANDS } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import { StoreError } from '../store/store-error.ts'
import type { Touching } from './in-flight.ts'
import { InFlight } from './in-flight.ts'

export interface Batch<Answer, Committed> {
  answers: Answer[]
  committed: Committed
}

export interface SubmitOptions {
  bytes?: number
  /** How much work it is; 1 unless it is a bulk command. */
  rows?: number
  /** Waits out an outage of any length. */
  patient?: boolean
}

/** How much of a batch a command takes. */
export interface Weight {
  bytes: number
  rows: number
}

export type Answered<Answer> = { answer: Answer } | { error: unknown }

export interface FunnelOptions<Command, Answer, Committed> {
  clock: Clock
  randomness: Randomness
  logger: Logger
  /** Transactions at a time; more than one lets the engine work while the database does. */
  lanes: number
  /** In one transaction at most. */
  batchRows: number
  /** Those of one task do not go into two transactions at a time. */
  touching: Touching<Command>
  /** One transaction. `first`: not a part of a halved batch. */
  commit(commands: readonly Command[], first: boolean): Promise<Batch<Answer, Committed>>
  committed(committed: Committed): void
  /** How much there is to do even without a command, in rows. */
  wanted(): number
  /** The store is damaged; nothing is acknowledged any more. */
  failed(error: StoreError): void
}

interface Entry<Command, Answer> {
  command: Command
  bytes: number
  /** How much work it is, in rows. */
  rows: number
  /** Waits out an outage of any length. */
  patient: boolean
  since: number
  resolve(answer: Answer): void
  reject(error: unknown): void
}

/**
 * So many rows must wait before one more transaction is opened, by how many there are: one costs as much as some dozens
 * of rows, so few are better together. Two keep the database busy while this process works; a third is for a rush.
 */
const WORTH_A_LANE = [1, 64, 400]
/** What waits for longer gets one all the same: the others may be about something large. */
const LONGEST_BEHIND_MS = 50
/** Where all that waits is about what others decide just now. */
const LOOK_AGAIN_MS = 10

/** The part of a batch that callers have while reports could fill it. */
const CALLERS_SHARE = 0.2

/** How long a caller waits for a store that is away. */
const CALLER_WAITS_MS = 10_000
const STORE_BACKOFF = { initialMs: 100, factor: 2, maxMs: 2_000, jitter: 0.5 }
/** A database finds deadlocks only after a while, so trying again at once is no hot loop. */
const MOST_CONFLICTS = 10

export class Funnel<Command, Answer, Committed> {
  readonly #options: FunnelOptions<Command, Answer, Committed>
  /** What callers ask for. */
  #entries: Entry<Command, Answer>[] = []
  /** Reports, deadlines, losses: however much is asked for, these do not wait behind it. */
  #urgent: Entry<Command, Answer>[] = []
  /** Of all entries together. */
  #rows = 0
  #lanes = 0
  #starting = false
  #closed: Error | null = null
  /** Lanes that wait for a store that is away. */
  readonly #pauses = new Set<() => void>()
  readonly #inFlight: InFlight<Command>
  #later: Timer | null = null

  constructor(options: FunnelOptions<Command, Answer, Committed>) {
    this.#options = options
    this.#inFlight = new InFlight(options.touching)
  }

  /** Nothing waits and nothing is in flight, or it waits for a store that is away. */
  get idle(): boolean {
    if (this.#lanes > 0) return this.#pauses.size === this.#lanes
    return !this.#starting && this.#rows === 0
  }

  /** It waits for a store that is away, and whoever has submitted something waits with it. */
  get paused(): boolean {
    return this.#pauses.size > 0
  }

  submit(command: Command, options: SubmitOptions = {}): Promise<Answer> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(this.#closed)
      const patient = options.patient ?? false
      if (!patient && this.#entries.length >= MAX_WAITING_COMMANDS) {
        return reject(
          new CurfewError('overloaded', `${this.#entries.length} commands wait for the store already`, {
            hint: 'Schedule in bulk with scheduleMany, or wait for earlier calls first.',
          }),
        )
      }
      const since = this.#options.clock.monotonic()
      const { bytes = 0, rows = 1 } = options
      this.#add({ command, bytes, rows, patient, since, resolve, reject })
      this.kick()
    })
  }

  /** Several at once, answered together. They wait out an outage of any length. */
  submitAll(commands: readonly Command[], weigh: (command: Command) => Weight): Promise<Answered<Answer>[]> {
    return new Promise((resolve) => {
      if (this.#closed || commands.length === 0) return resolve(commands.map(() => ({ error: this.#closed })))
      const group = new Group<Answer>(commands.length, resolve)
      const since = this.#options.clock.monotonic()
      for (let index = 0; index < commands.length; index++) {
        const command = commands[index] as Command
        this.#add(new GroupEntry(command, weigh(command), since, group, index))
      }
      this.kick()
    })
  }

  /** There is something to do. */
  kick(): void {
    if (this.#starting || this.#closed || this.#lanes >= this.#options.lanes) return
    if (this.#isWorthALane(this.#lanes)) this.#open()
    else this.#openLater()
  }

  #open(forFew = false): void {
    this.#starting = true
    this.#options.clock.endOfTurn(() => {
      this.#starting = false
      this.#lanes++
      this.#drain(forFew).catch((error: unknown) =>
        this.#options.logger.error({ error: String(error) }, 'the funnel stopped'),
      )
    })
  }

  /** For the few that are better together with others, if these take their time. */
  #openLater(): void {
    if (this.#later || this.#rows === 0) return
    const { clock, lanes } = this.#options
    const waitedMs = () =>
      clock.monotonic() - Math.min(this.#urgent[0]?.since ?? Infinity, this.#entries[0]?.since ?? Infinity)
    const look = () => {
      this.#later = null
      if (this.#closed || this.#starting || this.#lanes >= lanes) return
      if (waitedMs() >= LONGEST_BEHIND_MS) this.#open(true)
      else this.#openLater()
    }
    this.#later = clock.setTimer(Math.max(LOOK_AGAIN_MS, LONGEST_BEHIND_MS - waitedMs()), look, {
      background: true,
    })
  }

  /** The store may be back, or this process may decide again. */
  wake(): void {
    for (const end of [...this.#pauses]) end()
  }

  close(error: Error): void {
    this.#closed = error
    for (const entry of [...this.#urgent.splice(0), ...this.#entries.splice(0)]) entry.reject(error)
    this.#rows = 0
    this.#later?.cancel()
    this.wake()
  }

  async #drain(forFew: boolean): Promise<void> {
    try {
      for (let worth = forFew; !this.#closed; worth = false) {
        if (!worth && !this.#isWorthALane(this.#lanes - 1)) return
        const batch = this.#take()
        // All of it waits for another transaction.
        if (batch.length === 0 && this.#options.wanted() === 0) return
        const ended = this.#inFlight.add(batch.map(({ command }) => command))
        this.kick() // what is left may be worth a lane of its own
        await this.#runBatch(batch, true).finally(ended)
        // Answers and handlers come first: what they bring makes the next batch.
        await new Promise<void>((resolve) => this.#options.clock.endOfTurn(resolve))
      }
    } finally {
      this.#lanes--
      this.kick() // what waited for it may go on
    }
  }

  /** Whether there is enough to do for one more beside so many others. */
  #isWorthALane(others: number): boolean {
    const enough = WORTH_A_LANE[others] ?? this.#options.batchRows
    return this.#rows >= enough || this.#rows + this.#options.wanted() >= enough
  }

  #add(entry: Entry<Command, Answer>): void {
    const list = entry.patient ? this.#urgent : this.#entries
    list.push(entry)
    this.#rows += entry.rows
  }

  /** The oldest that wait. */
  #take(): Entry<Command, Answer>[] {
    const most = this.#options.batchRows
    const taken: Entry<Command, Answer>[] = []
    let bytes = 0
    let rows = 0
    // Callers wait behind reports, but not for ever: a part of every batch is theirs.
    const callers = this.#entries.length > 0 ? Math.ceil(most * CALLERS_SHARE) : 0
    const mustWait = this.#inFlight.check()
    for (const list of [this.#urgent, this.#entries]) {
      const room = list === this.#urgent ? most - callers : most
      const left: Entry<Command, Answer>[] = []
      let count = 0
      for (const entry of list) {
        // The first of each is taken, however much work it is.
        if (rows + entry.rows > room && count > left.length) break
        if (bytes + entry.bytes > MAX_BATCH_BYTES && taken.length > 0) break
        count++
        if (mustWait(entry.command)) {
          left.push(entry)
          continue
        }
        taken.push(entry)
        bytes += entry.bytes
        rows += entry.rows
      }
      list.splice(0, count, ...left)
    }
    this.#rows -= rows
    return taken
  }

  async #runBatch(entries: Entry<Command, Answer>[], first: boolean): Promise<void> {
    let waiting = entries
    for (let tries = 0, conflicts = 0; ; tries++) {
      if (this.#closed) return void rejectAll(waiting, this.#closed)
      let batch: Batch<Answer, Committed>
      try {
        batch = await this.#options.commit(
          waiting.map(({ command }) => command),
          first,
        )
      } catch (error) {
        const code = error instanceof StoreError ? error.code : null
        if (code === 'store_failed') {
          this.#options.failed(error as StoreError)
          return void rejectAll(waiting, error)
        }
        if (code === 'store_conflict' && conflicts++ < MOST_CONFLICTS) {
          await new Promise<void>((resolve) => this.#options.clock.endOfTurn(resolve))
          continue
        }
        if (code === null || code === 'store_refused' || code === 'store_conflict') {
          // Alone, it may still have failed for what was claimed beside it.
          if (first && waiting.length === 1) return this.#runBatch(waiting, false)
          return this.#isolate(waiting, error)
        }
        // Repeating it would do no harm to a worker's reports; to anything else it might.
        if (code === 'commit_unknown') waiting = rejectAll(waiting, error, ({ patient }) => !patient)
        if (tries === 0)
          this.#options.logger.warn({ code, error: (error as Error).message }, 'the store is not available')
        waiting = this.#dropImpatient(waiting, error)
        await this.#wait(backoffMs(STORE_BACKOFF, tries, this.#options.randomness.next()))
        waiting = this.#dropImpatient(waiting, error)
        this.#entries = this.#dropImpatient(this.#entries, error)
        this.#rows = [...this.#urgent, ...this.#entries].reduce((sum, entry) => sum + entry.rows, 0)
        continue
      }
      this.#tell(batch.committed)
      for (let i = 0; i < waiting.length; i++) waiting[i]?.resolve(batch.answers[i] as Answer)
      return
    }
  }

  /** Whoever asked is answered, whatever becomes of those who are told: it is committed. */
  #tell(committed: Committed): void {
    try {
      this.#options.committed(committed)
    } catch (error) {
      this.#options.logger.error({ error: String(error) }, 'what was committed could not be told')
    }
  }

  /** Halves, until the command at fault is alone. */
  async #isolate(entries: Entry<Command, Answer>[], error: unknown): Promise<void> {
    if (entries.length <= 1) {
      if (entries.length === 0) {
        this.#options.logger.error({ error: (error as Error).message }, 'claiming failed')
        await this.#wait(backoffMs(STORE_BACKOFF, 3, this.#options.randomness.next()))
      }
      return void rejectAll(entries, error)
    }
    const middle = Math.ceil(entries.length / 2)
    await this.#runBatch(entries.slice(0, middle), false)
    await this.#runBatch(entries.slice(middle), false)
  }

  #dropImpatient(entries: Entry<Command, Answer>[], error: unknown): Entry<Command, Answer>[] {
    const now = this.#options.clock.monotonic()
    return rejectAll(entries, error, ({ patient, since }) => !patient && now - since >= CALLER_WAITS_MS)
  }

  #wait(delayMs: number): Promise<void> {
    return new Promise((resolve) => {
      const end = () => {
        timer.cancel()
        this.#pauses.delete(end)
        resolve()
      }
      const timer: Timer = this.#options.clock.setTimer(delayMs, end)
      this.#pauses.add(end)
    })
  }
}

/** Commands that are answered together. */
class Group<Answer> {
  readonly #answers: Answered<Answer>[] = []
  readonly #resolve: (answers: Answered<Answer>[]) => void
  #left: number

  constructor(size: number, resolve: (answers: Answered<Answer>[]) => void) {
    this.#left = size
    this.#resolve = resolve
  }

  settle(index: number, answer: Answered<Answer>): void {
    this.#answers[index] = answer
    if (--this.#left === 0) this.#resolve(this.#answers)
  }
}

class GroupEntry<Command, Answer> implements Entry<Command, Answer> {
  readonly rows: number
  readonly patient = true
  readonly command: Command
  readonly bytes: number
  readonly since: number
  readonly #group: Group<Answer>
  readonly #index: number

  constructor(command: Command, { bytes, rows }: Weight, since: number, group: Group<Answer>, index: number) {
    this.command = command
    this.bytes = bytes
    this.rows = rows
    this.since = since
    this.#group = group
    this.#index = index
  }

  resolve(answer: Answer): void {
    this.#group.settle(this.#index, { answer })
  }

  reject(error: unknown): void {
    this.#group.settle(this.#index, { error })
  }
}

/** Answers those that were left alone. */
function rejectAll<E extends { reject(error: unknown): void }>(
  entries: E[],
  error: unknown,
  which: (entry: E) => boolean = () => true,
): E[] {
  return entries.filter((entry) => {
    if (!which(entry)) return true
    entry.reject(error)
    return false
  })
}
