/**
 * Commands as processes of this worker. Owns what every one of them needs: its mark, its registration with the
 * supervisor, and what it left behind until that is swept. One command is `running-command.ts`.
 */
import type { Clock } from '../core/clock.ts'
import { assert } from '../core/errors.ts'
import type { Logger } from '../core/logger.ts'
import type { CommandLimit } from './command-limits.ts'
import { firstLimit } from './command-limits.ts'
import type { OnOutput } from './command-output.ts'
import { CommandOutput } from './command-output.ts'
import type { CommandNotStarted } from './command-start.ts'
import { startProcess } from './command-start.ts'
import { commandEnvironment } from './marker.ts'
import type { ProcessTable } from './process-table.ts'
import { killMarked, killTree } from './process-tree.ts'
import type { CommandEnded, LeftBehind } from './running-command.ts'
import { RunningCommand } from './running-command.ts'
import { SecretMask } from './secret-mask.ts'
import type { Supervisor } from './supervisor.ts'

export interface CommandRequest {
  /** A program and its arguments; a line for the shell is `['/bin/sh', '-c', line]`. */
  argv: readonly string[]
  /** All its variables; the marks are added. */
  env: NodeJS.ProcessEnv
  cwd: string | null
  /** From its start; null for none. */
  limitMs: number | null
  /** Without output. */
  idleMs: number | null
  /** Between SIGTERM and SIGKILL. */
  graceMs: number
  /** What it is part of: an attempt, whose commands are found by it together. */
  marker: string
  /** Masked in all it prints. Give the same list again: it is made ready once. */
  secrets: readonly string[]
  /** Of each stream: its end is kept. */
  outputBytes: number
  /** What it leaves behind is ended with it, or by `endLeft` of its marker. */
  sweep: 'command' | 'later'
}

export interface CommandCallbacks {
  /** Without secrets, in the order in which it came. */
  onOutput?: OnOutput
  onStarted?: (command: RunningCommand) => void
  /** A limit is over. It may just have ended by itself. */
  onLimit?: (which: CommandLimit) => void
  /** It has not: it was asked to stop, and goes down the ladder. */
  onOverrun?: (which: CommandLimit) => void
  /** It ended by itself. What it left is still looked at. */
  onExit?: () => void
}

export type CommandEnd = CommandEnded | CommandNotStarted

export interface CommandRunnerParts {
  supervisor: Pick<Supervisor, 'register' | 'release'>
  table: ProcessTable
  /** The system's: processes run on real time. */
  clock: Clock
  nodeId: string
  logger: Logger
}

export class CommandRunner {
  readonly #parts: CommandRunnerParts
  readonly #masks = new WeakMap<readonly string[], SecretMask>()
  readonly #left = new Map<string, LeftBehind[]>()
  #started = 0

  constructor(parts: CommandRunnerParts) {
    this.#parts = parts
  }

  get clock(): Clock {
    return this.#parts.clock
  }

  /** `killed` ends it while it starts. Never rejects. */
  async start(
    request: CommandRequest,
    { onOutput, onStarted, onLimit, onOverrun, onExit }: CommandCallbacks = {},
    killed?: AbortSignal,
  ): Promise<RunningCommand | CommandNotStarted> {
    const { supervisor, nodeId } = this.#parts
    const { argv, env, cwd, marker, secrets, outputBytes } = request
    assert(!/[,\0]/.test(marker), `${JSON.stringify(marker)} cannot be a mark`)
    const mask = this.#maskOf(secrets)
    const token = `${this.#tokenOf(marker)}/${++this.#started}`
    const started = await startProcess({
      ...{ argv, cwd, env: commandEnvironment(env, nodeId, token) },
      ...{ limitMs: firstLimit(request)?.ms ?? null, ...(killed && { killed }) },
    })
    if (started.type === 'not_started') return { ...started, message: mask.text(started.message) }
    const { process, root } = started
    supervisor.register({ ...root, token })
    const output = new CommandOutput(outputBytes, mask, onOutput)
    const command = new RunningCommand(process, root, {
      ...{ ...this.#parts, ...request, output, token, onLimit, onOverrun, onExit },
    })
    void command.ended.then((end) => this.#settle(command, request, end))
    onStarted?.(command)
    return command
  }

  /** Ends what the commands of a marker left behind; `left`: what could not be ended. Never rejects. */
  async endLeft(marker: string): Promise<{ killed: boolean; left: number[] }> {
    const { supervisor, clock, table, logger } = this.#parts
    const kept = this.#left.get(marker) ?? []
    this.#left.delete(marker)
    const tools = { clock, table }
    const ends = await Promise.all([
      killMarked({ token: this.#tokenOf(marker) }, tools),
      ...kept.map(({ tree }) => killTree(tree, tools)),
    ])
    for (const [i, { tree, close }] of kept.entries()) {
      close()
      if (ends[i + 1]?.gone) supervisor.release(tree.pid)
    }
    const left = [...new Set(ends.flatMap((end) => end.left.map(({ pid }) => pid)))]
    if (left.length > 0) logger.error({ marker, left }, 'processes that commands left could not be ended')
    return { killed: ends.some(({ killed }) => killed), left }
  }

  #settle({ root, token, left }: RunningCommand, { marker, argv }: CommandRequest, end: CommandEnded): void {
    const { supervisor, logger } = this.#parts
    // What is left stays registered: it ends with the worker at the latest.
    if (end.left.length > 0) {
      logger.error({ marker, program: argv[0], left: end.left }, 'processes of a command could not be ended')
    } else if (left && !left.isEmpty) {
      supervisor.register({ ...left.tree, token })
      this.#left.set(marker, [...(this.#left.get(marker) ?? []), left])
    } else supervisor.release(root.pid)
  }

  /** Its own also where another worker of this machine has the same marker. */
  #tokenOf(marker: string): string {
    return `${this.#parts.nodeId}:${marker}`
  }

  #maskOf(secrets: readonly string[]): SecretMask {
    const mask = this.#masks.get(secrets) ?? new SecretMask(secrets)
    this.#masks.set(secrets, mask)
    return mask
  }
}
