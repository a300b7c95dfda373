/**
 * One command from its start to its end. Owns its limits and its way down the ladder: SIGTERM to its group, the grace,
 * SIGKILL to everything it started, verified gone. Whoever made it owns the registration with the supervisor.
 *
 * It has ended when its main process has exited and its pipes are empty; a process that it left may hold them open for
 * 2 s. One that was asked to stop has ended when its whole group has, or the grace is over. What takes long after that
 * has a bound of its own, so that an end always comes.
 */
import type { Clock, Timer } from '../core/clock.ts'
import type { Receipt } from '../core/states.ts'
import type { CommandLimit } from './command-limits.ts'
import { CommandLimits, firstLimit } from './command-limits.ts'
import type { CommandOutput, OutputStream, OutputTexts } from './command-output.ts'
import type { ProcessEntry, ProcessTable } from './process-table.ts'
import { exists, isAlive } from './process-table.ts'
import type { Tree, TreeEnd, TreeRoot } from './process-tree.ts'
import { killTree, membersOf, signalGroup } from './process-tree.ts'
import type { SpawnedProcess } from './spawn.ts'

/** From the end of the main process to the end of its pipes. */
const DRAIN_MS = 2_000
/** From SIGKILL until this process hears of it. */
const EXIT_MS = 2_000
const LONGEST_PAUSE_MS = 50

export interface CommandEnded {
  type: 'ended'
  /** Null when a signal ended it, or it could not be ended at all. */
  exitCode: number | null
  signal: NodeJS.Signals | null
  /**
   * `exited`: by itself. `aborted`: it was asked to stop, and exited. `terminated`: it died of being asked. `killed`: it
   * or something in its group had to be. `abandoned`: something still runs.
   */
  receipt: Exclude<Receipt, 'unreachable'>
  timedOut: CommandLimit | null
  /** Of its main process. */
  durationMs: number
  /** The end of each stream, as much as was asked for. */
  stdout: string
  stderr: string
  truncated: Record<OutputStream, boolean>
  /** Something that it left behind had to be killed. */
  swept: boolean
  /** Processes that could not be ended. */
  left: number[]
}

interface Parts {
  clock: Clock
  table: ProcessTable
  output: CommandOutput
  token: string
  limitMs: number | null
  idleMs: number | null
  graceMs: number
  sweep: 'command' | 'later'
  onLimit?: ((which: CommandLimit) => void) | undefined
  onOverrun?: ((which: CommandLimit) => void) | undefined
  onExit?: (() => void) | undefined
}

/** What a command that was not swept leaves. */
export interface LeftBehind {
  tree: Tree
  /** Nobody is in its group or holds its pipes. What may be elsewhere is known by its mark. */
  isEmpty: boolean
  /** Its pipes, which are read on: a process that writes into a closed one dies of it. */
  close(): void
}

export class RunningCommand {
  readonly root: TreeRoot
  /** The mark of this command alone. */
  readonly token: string
  readonly ended: Promise<CommandEnded>
  left: LeftBehind | null = null
  readonly #process: SpawnedProcess
  readonly #parts: Parts
  readonly #limits: CommandLimits
  readonly #startedAt: number
  readonly #exited = Promise.withResolvers<void>()
  readonly #closed = Promise.withResolvers<void>()
  readonly #forced = Promise.withResolvers<void>()
  #exitedAt: number | null = null
  #isClosed = false
  #isForced = false
  #stopped: CommandLimit | 'asked' | null = null
  #askedAt: number | null = null
  #endedItself = false
  #seen: TreeRoot[] = []
  #graceTimer: Timer | null = null

  /** To be made in the turn of the event loop in which the process was started. */
  constructor(process: SpawnedProcess, root: TreeRoot, parts: Parts) {
    this.#process = process
    this.#parts = parts
    this.root = root
    this.token = parts.token
    const { clock, output } = parts
    this.#startedAt = clock.monotonic()
    this.#limits = new CommandLimits(clock, parts, (which) => {
      parts.onLimit?.(which)
      this.#stop(which)
    })
    for (const stream of ['stdout', 'stderr'] as const) {
      process[stream].on('data', (chunk: Buffer) => {
        this.#limits.said()
        output.add(stream, chunk)
      })
      process[stream].on('error', ignore) // its close follows
    }
    process.once('exit', () => this.#setExited())
    process.once('close', () => {
      this.#isClosed = true
      this.#closed.resolve()
    })
    this.ended = this.#follow()
    if (process.isLate) this.#endAtStart(firstLimit(parts)?.which ?? 'limit')
  }

  tails(maxBytes: number): OutputTexts {
    return this.#parts.output.tails(maxBytes)
  }

  /** Asks it to stop. It is not made to: its limits hold on. */
  terminate(): void {
    void this.#ask()
  }

  /** Makes it stop now. */
  kill(): void {
    this.#stopped ??= 'asked'
    this.#force()
  }

  /** It was killed already. */
  #endAtStart(why: CommandLimit): void {
    this.#limits.cancel()
    this.#stopped = why
    this.#parts.onLimit?.(why)
    this.#parts.onOverrun?.(why)
    this.#force()
  }

  /** Asks it to stop, and makes it when the grace is over. */
  #stop(why: CommandLimit): void {
    if (this.#stopped || this.#exitedAt !== null) return
    this.#stopped = why
    void this.#ask().then((isRunning) => {
      if (isRunning) this.#parts.onOverrun?.(why)
      if (this.#exitedAt !== null || this.#isForced) return
      this.#graceTimer = this.#parts.clock.setTimer(this.#parts.graceMs, () => this.#force())
    })
  }

  /** A stopped process hears it when it goes on. False: it has ended by itself. */
  async #ask(): Promise<boolean> {
    // Looked for before anything is signalled: a descendant is known by its parent only while that one lives.
    const members = (await this.#members()) ?? []
    // Its end may be known to the system and not yet here.
    if (!this.#isRunning()) return false
    if (this.#isForced) return true
    this.#seen = members
    this.#askedAt = this.#parts.clock.monotonic()
    signalGroup(this.root, 'SIGTERM')
    signalGroup(this.root, 'SIGCONT')
    return true
  }

  #isRunning(): boolean {
    try {
      return this.#exitedAt === null && isAlive(this.root.pid, this.root.startTime)
    } catch {
      return true // no file descriptor to look with
    }
  }

  #force(): void {
    this.#isForced = true
    this.#forced.resolve()
  }

  #setExited(): void {
    this.#exitedAt = this.#parts.clock.monotonic()
    this.#endedItself = this.#askedAt === null && !this.#isForced
    this.#limits.cancel()
    if (this.#endedItself) this.#parts.onExit?.()
    this.#exited.resolve()
  }

  async #follow(): Promise<CommandEnded> {
    const { sweep, output } = this.#parts
    await Promise.race([this.#exited.promise, this.#forced.promise])
    let tree: TreeEnd = NOTHING
    if (this.#endedItself) {
      await this.#within(DRAIN_MS, Promise.race([this.#closed.promise, this.#forced.promise]))
      if (sweep === 'command') tree = await this.#killTree()
      else this.left = await this.#leave()
    } else {
      await this.#groupEnded()
      tree = await this.#killTree()
      if (this.#exitedAt === null) await this.#exit()
      await this.#within(DRAIN_MS, this.#closed.promise)
    }
    this.#graceTimer?.cancel()
    output.close()
    if (!this.left) this.#closePipes()
    return this.#end(tree)
  }

  /** The group was asked, not only its leader: each of it has the grace. */
  async #groupEnded(): Promise<void> {
    const { clock, graceMs } = this.#parts
    const until = (this.#askedAt ?? -Infinity) + graceMs
    for (let pauseMs = 1; !this.#isForced; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
      if (!exists(-this.root.pid)) return
      // Zombies that nobody has looked at yet count for the system.
      const members = await this.#members()
      if (members?.every(({ group }) => group !== this.root.pid)) return
      if (clock.monotonic() >= until) return this.#force()
      await this.#within(pauseMs, this.#forced.promise)
    }
  }

  async #leave(): Promise<LeftBehind> {
    const members = this.#isClosed && !exists(-this.root.pid) ? [] : await this.#members()
    for (const { pid, startTime } of members ?? []) this.#seen.push({ pid, startTime })
    for (const pipe of [this.#process.stdout, this.#process.stderr]) (pipe as { unref?(): void }).unref?.()
    return {
      tree: { ...this.root, seen: this.#seen, rootless: true, marker: { token: this.token } },
      isEmpty: this.#isClosed && members?.length === 0,
      close: () => this.#closePipes(),
    }
  }

  /** Found alive by nobody and yet not gone: the last that can be done. */
  async #exit(): Promise<void> {
    signalGroup(this.root, 'SIGKILL')
    await this.#within(EXIT_MS, this.#exited.promise)
  }

  #killTree(): Promise<TreeEnd> {
    const { clock, table } = this.#parts
    return killTree({ ...this.root, marker: { token: this.token }, seen: this.#seen }, { clock, table })
  }

  /** Null where that cannot be told. */
  async #members(): Promise<ProcessEntry[] | null> {
    const { token } = this
    const entries = await this.#parts.table.scan().catch(() => null) // no file descriptor to look with
    return entries && membersOf(entries, { ...this.root, seen: this.#seen }, { token })
  }

  #end(tree: TreeEnd): CommandEnded {
    const { exitCode, signalCode: signal } = this.#process
    const left = tree.left.map(({ pid }) => pid)
    const isGone = tree.gone && this.#exitedAt !== null
    const why = this.#stopped ?? 'asked'
    return {
      type: 'ended',
      exitCode,
      signal,
      receipt: this.#receipt(tree, isGone),
      timedOut: this.#endedItself || why === 'asked' ? null : why,
      durationMs: (this.#exitedAt ?? this.#parts.clock.monotonic()) - this.#startedAt,
      ...this.#parts.output.kept(),
      swept: tree.killed && (this.#endedItself || !this.#isForced),
      left: isGone || left.length > 0 ? left : [this.root.pid],
    }
  }

  #receipt(tree: TreeEnd, isGone: boolean): CommandEnded['receipt'] {
    if (this.#endedItself) return 'exited'
    if (!isGone) return 'abandoned'
    const { signalCode } = this.#process
    if (signalCode === 'SIGKILL' || (this.#isForced && tree.killed)) return 'killed'
    return signalCode === 'SIGTERM' ? 'terminated' : 'aborted'
  }

  #closePipes(): void {
    this.#process.stdout.destroy()
    this.#process.stderr.destroy()
  }

  async #within(ms: number, work: Promise<void>): Promise<void> {
    const over = Promise.withResolvers<void>()
    const timer = this.#parts.clock.setTimer(ms, () => over.resolve())
    await Promise.race([work, over.promise])
    timer.cancel()
  }
}

const NOTHING: TreeEnd = { gone: true, killed: false, left: [], error: null }

function ignore(): void {
  // nothing to do
}
