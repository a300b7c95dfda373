/**
 * The worker's side of its supervisor: starts it, tells it what runs, and starts another one when it dies.
 * It is the worker's last line only: as long as the worker lives, it ends its attempts itself.
 */
import type { ChildProcess } from 'node:child_process'
import { spawn } from 'node:child_process'
import type { Backoff } from '../core/backoff.ts'
import { backoffMs } from '../core/backoff.ts'
import type { Clock, Timer } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'
import { entryFile } from '../core/entry-file.ts'
import { CurfewError } from '../core/errors.ts'
import type { Logger } from '../core/logger.ts'
import { connectionOptions } from './node-options.ts'
import { ProcessTable, startTimeOf } from './process-table.ts'
import { prepareSpawn } from './spawn.ts'
import type { FromSupervisor, Obituary, RegisteredAttempt, ToSupervisor } from './supervisor-messages.ts'

export interface SupervisorOptions {
  nodeId: string
  /** The system's: processes run on real time. */
  clock: Clock
  logger: Logger
  obituary: Obituary | null
  /** It died; another one is being started. */
  onLost?: () => void
}

const START_MS = 10_000
const CLOSE_MS = 5_000
const RELEASE_MS = 20
const RESTART_BACKOFF: Backoff = { initialMs: 10, factor: 4, maxMs: 5_000, jitter: 0 }

export class Supervisor {
  /** One for all attempts of the worker, so that one scan serves all that ended since the last. */
  readonly table: ProcessTable
  readonly #options: SupervisorOptions
  readonly #attempts = new Map<number, RegisteredAttempt>()
  readonly #closing = new AbortController()
  #released: number[] = []
  #releaseTimer: Timer | null = null
  #child: ChildProcess | null = null
  #restarting: Promise<void> | null = null

  static async start(options: SupervisorOptions): Promise<Supervisor> {
    const supervisor = new Supervisor(options)
    await supervisor.#launch()
    return supervisor
  }

  private constructor(options: SupervisorOptions) {
    this.#options = options
    this.table = new ProcessTable(options.clock, startTimeOf(process.pid) ?? 0)
  }

  /** Of the running one; null while another one is being started. */
  get pid(): number | null {
    return this.#child?.pid ?? null
  }

  register(attempt: RegisteredAttempt): void {
    this.#attempts.set(attempt.pid, attempt)
    // A pid may be given out again: in its order.
    if (this.#released.includes(attempt.pid)) this.#sendReleased()
    this.#send({ type: 'register', attempt })
  }

  /** Told a little later, many in one: a pid that is another process by then is not mistaken for what it was. */
  release(pid: number): void {
    if (!this.#attempts.delete(pid)) return
    this.#released.push(pid)
    this.#releaseTimer ??= this.#options.clock.setTimer(RELEASE_MS, () => this.#sendReleased())
  }

  /** After the last attempt. What is still registered is killed; there is no obituary. */
  async close(): Promise<void> {
    this.#closing.abort()
    await this.#restarting
    this.#sendReleased()
    const child = this.#child
    if (!child) return
    child.ref()
    const exited = new Promise<void>((resolve) => child.once('exit', () => resolve()))
    this.#send({ type: 'close' })
    const timer = this.#options.clock.setTimer(CLOSE_MS, () => child.kill('SIGKILL'))
    await exited
    timer.cancel()
  }

  /** Resolves when it watches; rejects when it does not within its bound. */
  async #launch(): Promise<void> {
    const { nodeId, clock, obituary } = this.#options
    const child = takePrepared() ?? startSupervisor()
    await new Promise<void>((resolve, reject) => {
      const timer = clock.setTimer(START_MS, () => child.kill('SIGKILL'))
      const fail = (why: string, cause?: unknown) => {
        timer.cancel()
        reject(new CurfewError('supervisor_failed', `the supervisor process ${why}`, { cause }))
      }
      child.on('error', (error) => fail('could not be started', error))
      child.on('exit', (code, signal) => {
        fail(`ended with ${signal ?? `exit code ${code}`}`)
        if (this.#child === child) this.#lost(child)
      })
      child.on('message', (message: FromSupervisor) => {
        if (message.type !== 'ready') return
        timer.cancel()
        this.#child = child
        for (const attempt of this.#attempts.values()) this.#send({ type: 'register', attempt })
        // It is no reason for the worker to stay.
        child.unref()
        child.channel?.unref()
        resolve()
      })
      const worker = { pid: process.pid, startTime: startTimeOf(process.pid) }
      sendTo(child, { type: 'watch', nodeId, worker, obituary })
      prepareSpawn()
    })
  }

  #lost(child: ChildProcess): void {
    this.#child = null
    if (this.#closing.signal.aborted) return
    const { logger, onLost } = this.#options
    logger.warn({ pid: child.pid, signal: child.signalCode, exitCode: child.exitCode }, 'supervisor lost')
    onLost?.()
    this.#restarting = this.#restart().finally(() => {
      this.#restarting = null
    })
  }

  async #restart(): Promise<void> {
    const { clock, logger } = this.#options
    for (let tries = 0; !this.#closing.signal.aborted; tries++) {
      try {
        return await this.#launch()
      } catch (error) {
        logger.error({ error }, 'supervisor could not be started again')
        await sleep(clock, backoffMs(RESTART_BACKOFF, tries, 0), this.#closing.signal)
      }
    }
  }

  #sendReleased(): void {
    this.#releaseTimer?.cancel()
    this.#releaseTimer = null
    const pids = this.#released.splice(0)
    if (pids.length > 0) this.#send({ type: 'release', pids })
  }

  #send(message: ToSupervisor): void {
    if (this.#child) sendTo(this.#child, message)
  }
}

/** Started before anybody needed it, and not taken yet. */
let prepared: ChildProcess | null = null

/** For whoever knows early that there will be one: it takes a while to start. */
export function prepareSupervisor(): void {
  if (prepared?.connected) return
  prepared = startSupervisor()
  // Whoever needs one and finds that this could not be started says so of its own.
  prepared.on('error', () => null)
  prepared.unref()
  prepared.channel?.unref()
}

function takePrepared(): ChildProcess | null {
  const child = prepared
  prepared = null
  if (!child?.connected) return null
  child.ref()
  child.channel?.ref()
  return child
}

function startSupervisor(): ChildProcess {
  const program = entryFile('worker/supervisor-process')
  return spawn(process.execPath, [...connectionOptions(process.execArgv, process.env), program], {
    detached: true,
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    env: { ...process.env, NODE_OPTIONS: '' },
  })
}

/** A channel that is closed means that the supervisor has died: its exit is what is acted upon. */
function sendTo(child: ChildProcess, message: ToSupervisor): void {
  if (child.connected) child.send(message, () => {})
}
