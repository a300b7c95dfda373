/**
 * Workers in other processes. Owns who is attached, when each was last heard of, and what becomes of the attempts of
 * one that is silent: they are its own until their lease is over, and are adopted again when it comes back with them.
 * A worker that has not heard of a manager stops its work before that: see `worker/remote-manager.ts`.
 */
import type { Clock, Timer } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { MAX_REMOTE_WORKERS } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import type { Receipt } from '../core/states.ts'
import { lockTasks } from '../engine/light-claims.ts'
import { ATTEMPT_LEASE_BASE_MS, RENEW_EVERY_MS } from '../leadership/lease-times.ts'
import { run } from '../store/statement.ts'
import type { Fence, Store } from '../store/store.ts'
import type { StoreTime } from '../store/store-time.ts'
import type { TaskRow } from '../store/task-row.ts'
import type { WorkerView } from '../wire/task-service.ts'
import type { DownMessage, Held, WorkerHello } from '../wire/worker-port.ts'
import type { Manager } from './manager.ts'
import { stopReason } from './stop-reason.ts'
import type { Slot } from './worker-sessions.ts'
import { Session } from './worker-sessions.ts'

/** Where a process runs: another one on the same machine can tell whether it still does. */
export interface Machine {
  host: string
  bootId: string
  pidSpace: string
  pid: number
  pidStarted: string
}

export interface RemoteHello extends WorkerHello {
  /** Rises with every attach of this worker. */
  session: number
  version: string
  labels: Record<string, string>
  machine: Machine
  definitions: { kind: string; name: string; body: Record<string, unknown> }[]
  attempts: Held[]
  turnsHeld: Held[]
}

/** Where messages to a worker go: its stream. */
export interface Downstream {
  send(message: DownMessage): void
  /** Much of what was sent has not left yet. */
  readonly isBehind: boolean
  /** Another stream of the same worker has taken its place, or the manager leaves. */
  end(): void
}

export interface Welcome {
  confirmed: Held[]
  predecessors: { workerId: string; machine: Machine }[]
}

interface RemoteWorker {
  hello: RemoteHello
  session: Session
  stream: Downstream | null
  /** Monotonic. */
  heardAt: number
  /** It is given nothing because it was not heard of for a while. */
  silent: boolean
  attachedAt: number
  /** As the store had what it was given, from its attach until it is told. */
  rows: Map<string, TaskRow>
  /** Answers by the number of their request: one that comes again is answered as the first was. */
  answers: Map<number, Promise<unknown>>
}

interface Parts {
  nodeId: string
  manager: Manager
  store: Store
  time: StoreTime
  clock: Clock
  logger: Logger
  fence(): Fence | null
}

/** So many requests of a worker are known again; it has a few under way at a time. */
const REMEMBERED_ANSWERS = 16
/** Beats come once a second. */
const SILENT_MS = 3 * RENEW_EVERY_MS

export class RemoteWorkers {
  readonly #parts: Parts
  readonly #workers = new Map<string, RemoteWorker>()
  #timer: Timer | null = null
  #revision = 0
  #tickedAt = 0
  #closed = false

  constructor(parts: Parts) {
    this.#parts = parts
  }

  get size(): number {
    return this.#workers.size
  }

  /** Takes a worker up, or back; what it shows is confirmed as far as the store agrees. */
  async attach(hello: RemoteHello, stream: Downstream): Promise<Welcome> {
    if (this.#closed) throw new CurfewError('closed', 'this manager is closing')
    const { clock, time, manager } = this.#parts
    let worker = this.#workers.get(hello.workerId)
    if (worker && worker.hello.session >= hello.session)
      throw new CurfewError('refused', `worker ${hello.workerId} has a later session`)
    if (!worker) {
      if (this.#workers.size >= MAX_REMOTE_WORKERS) {
        throw new CurfewError(
          'overloaded',
          `${MAX_REMOTE_WORKERS} workers are attached to this manager already`,
        )
      }
      const session = new Session(hello, true, null)
      session.attached = false
      worker = {
        ...{ hello, session, stream: null, heardAt: clock.monotonic(), silent: false },
        ...{ attachedAt: time.now(), answers: new Map(), rows: new Map() },
      }
      this.#workers.set(hello.workerId, worker)
      manager.desk.add(session)
    }
    const { session } = worker
    // Nothing is given to it until it is clear what it has.
    session.disconnect()
    worker.stream?.end()
    worker.stream = stream
    worker.silent = false
    worker.hello = hello
    session.hello = hello
    this.#revision++
    worker.heardAt = clock.monotonic()
    this.#watch()
    const adopted = await this.#adopt(hello)
    if (worker.stream !== stream || this.#closed)
      throw new CurfewError('refused', 'another stream took its place')
    return { confirmed: adopted.map(heldOf), predecessors: this.#predecessors(hello) }
  }

  /** After the welcome was sent: what the worker has to know beyond it, and new work from now on. */
  open(workerId: string, stream: Downstream): void {
    const worker = this.#workers.get(workerId)
    if (worker?.stream !== stream) return
    const { manager, time } = this.#parts
    const { session, hello, rows } = worker
    session.connect(
      (message) => stream.send(message),
      () => stream.isBehind,
    )
    const shown = new Set(hello.attempts.map(({ id, token }) => `${id} ${token}`))
    const now = time.now()
    const unsent: TaskRow[] = []
    for (const slot of session.slots) {
      const { taskId, token } = slot.assignment
      const row = rows.get(taskId)
      if (!row) continue
      if (shown.has(`${taskId} ${token}`)) this.#bringUpToDate(slot, row, now)
      else if (isRunning(row)) unsent.push(row)
      // It never got there, and has to stop by now: that is done.
      else void this.#neverStarted(slot, row)
    }
    rows.clear()
    manager.desk.resend(session, unsent, now)
    const turns = new Map(hello.turnsHeld.map(({ id, token }) => [id, token]))
    for (const [agentId, token] of session.turns) {
      if (turns.get(agentId) !== token) manager.turns.lose(agentId, token, 'exited')
      else session.send({ type: 'news', agentId, token, dropped: false })
    }
    session.attached = true
    manager.workArrived()
  }

  /** Its stream was cut: it goes on, and is expected back. */
  cut(workerId: string, stream: Downstream): void {
    const worker = this.#workers.get(workerId)
    if (worker?.stream !== stream) return
    worker.stream = null
    worker.session.disconnect()
  }

  /** False: it is not attached, and has to. */
  heard(workerId: string, draining: boolean): boolean {
    const worker = this.#workers.get(workerId)
    if (!worker) return false
    worker.heardAt = this.#parts.clock.monotonic()
    if (draining) worker.session.attached = false
    else if (worker.silent && worker.stream !== null) {
      worker.session.attached = true
      this.#parts.manager.workArrived()
    }
    worker.silent = false
    return worker.stream !== null
  }

  /** A request that may come twice. */
  once<T>(workerId: string, number: number, answer: () => Promise<T>): Promise<T> {
    const worker = this.#workers.get(workerId)
    if (!worker) throw new CurfewError('not_attached', `worker ${workerId} is not attached to this manager`)
    const known = worker.answers.get(number)
    if (known !== undefined) return known as Promise<T>
    const answered = answer()
    worker.answers.set(number, answered)
    for (const [oldest] of worker.answers) {
      if (worker.answers.size <= REMEMBERED_ANSWERS) break
      worker.answers.delete(oldest)
    }
    // One that failed was not done: it may be asked again.
    answered.catch(() => worker.answers.delete(number))
    return answered
  }

  /** It is gone, and says so itself, or whoever saw it die does: nothing of it runs any more. */
  async leave(workerId: string, receipt: Receipt): Promise<void> {
    const worker = this.#workers.get(workerId)
    if (!worker) return
    worker.session.attached = false
    await this.#lose(worker, receipt, [...worker.session.slots], true)
    this.#forget(worker)
  }

  list(): WorkerView[] {
    const { nodeId, clock, time } = this.#parts
    return [...this.#workers.values()].map(({ hello, session, stream, heardAt, attachedAt }) => {
      const silentMs = clock.monotonic() - heardAt
      const slots = [...session.slots]
      return {
        ...{ id: hello.workerId, host: hello.machine.host, pid: hello.machine.pid, version: hello.version },
        ...{ labels: hello.labels, queues: [...(hello.queues ?? [])], allQueues: hello.queues === null },
        status: stream && silentMs < SILENT_MS ? ('attached' as const) : ('silent' as const),
        ...{ tasks: [...hello.names], agents: [...hello.agents], concurrency: hello.concurrency },
        ...{ running: slots.length, abandoned: slots.filter(({ abandoned }) => abandoned).length },
        ...{ attachedAt, heardAt: time.now() - silentMs, managerId: nodeId },
      }
    })
  }

  /** Changes with what attached workers know. */
  get revision(): number {
    return this.#revision
  }

  /** What attached workers know, by kind and name. */
  definitions(): RemoteHello['definitions'] {
    return [...this.#workers.values()].flatMap(({ hello }) => hello.definitions)
  }

  /** Says goodbye: their attempts go on, and come back to whoever leads then. */
  close(): void {
    this.#closed = true
    this.#timer?.cancel()
    for (const { stream, session } of this.#workers.values()) {
      session.disconnect()
      stream?.end()
    }
  }

  /** The store's word on what a worker shows, and on what it was given and may not have got. */
  async #adopt({ attempts, turnsHeld, workerId }: RemoteHello): Promise<TaskRow[]> {
    const { store, nodeId, manager, time, logger, fence } = this.#parts
    const shown = new Map([...attempts, ...turnsHeld].map(({ id, token }) => [id, token]))
    const given = [...(this.#workers.get(workerId)?.session.slots ?? [])]
    if (shown.size + given.length === 0) return []
    const { live, rows } = await store.write(fence(), function* () {
      const ids = [...shown.keys(), ...given.map(({ assignment }) => assignment.taskId)]
      const known = yield* lockTasks(store.statements, [...new Set(ids)])
      const live = known.filter((row) => row.live === 1)
      const rows = live.filter(({ id, token }) => shown.get(id) === token)
      const others = rows.filter((row) => row.nodeId !== nodeId).map(({ id }) => id)
      if (others.length) yield* run(store.statements.adoptAttempts(others, nodeId))
      return { live, rows }
    })
    const worker = this.#workers.get(workerId)
    if (!worker) return []
    worker.rows = new Map(live.map((row) => [row.id, row]))
    for (const slot of given) {
      const { taskId, token } = slot.assignment
      // Somebody else's by now, or over: it must not be started again.
      if (worker.rows.get(taskId)?.token !== token) manager.desk.forget(slot)
    }
    const now = time.now()
    let transferred = 0
    for (const row of rows) {
      const token = row.token as string
      if (row.nodeId !== nodeId) transferred++
      if (row.kind === 'agent') manager.turns.hold(worker.session, row.id, token)
      else if (!manager.desk.holds({ taskId: row.id, token }))
        manager.desk.adopt(worker.session, row, token, now)
    }
    manager.metrics.transferred('accepted', transferred)
    manager.metrics.transferred('rejected', shown.size - rows.length)
    if (transferred > 0 || rows.length < shown.size) {
      logger.info(
        { workerId, adopted: transferred, confirmed: rows.length, rejected: shown.size - rows.length },
        'a worker came back with what it runs',
      )
    }
    manager.watcher.look()
    return rows
  }

  /** Its limits may have moved, or its end may have been decided, while it was away. */
  #bringUpToDate({ session, assignment: { taskId, token } }: Slot, row: TaskRow, now: number): void {
    if (!isRunning(row)) return session.stop({ taskId, token, graceMs: row.graceMs, reason: stopReason(row) })
    const { deadlineAt, attemptDeadlineAt } = row
    this.#parts.manager.desk.limits({ taskId, token, deadlineAt, attemptDeadlineAt }, now)
  }

  async #neverStarted({ assignment: { taskId, token } }: Slot, row: TaskRow): Promise<void> {
    const { manager, logger } = this.#parts
    try {
      await manager.desk.port.report([
        { type: 'stopped', taskId, token, reason: stopReason(row), receipt: 'exited', late: null },
      ])
    } catch (error) {
      logger.warn(
        { taskId, error: String(error) },
        'an attempt that never started could not be ended; the sweep will',
      )
    }
  }

  /** Of the same machine, holding work, and silent: they may have died. */
  #predecessors({ workerId, machine }: RemoteHello): Welcome['predecessors'] {
    return [...this.#workers.values()]
      .filter(
        ({ hello, stream }) =>
          hello.workerId !== workerId &&
          stream === null &&
          hello.machine.host === machine.host &&
          hello.machine.bootId === machine.bootId &&
          hello.machine.pidSpace === machine.pidSpace,
      )
      .map(({ hello }) => ({ workerId: hello.workerId, machine: hello.machine }))
  }

  #watch(): void {
    if (this.#timer || this.#closed) return
    const { clock } = this.#parts
    this.#tickedAt = clock.monotonic()
    this.#timer = clock.setTimer(RENEW_EVERY_MS, () => void this.#tick(), { background: true })
  }

  async #tick(): Promise<void> {
    this.#timer = null
    const { clock, logger } = this.#parts
    const now = clock.monotonic()
    const lateMs = now - this.#tickedAt - RENEW_EVERY_MS
    // This process stood still: what its workers said meanwhile it has not heard yet.
    if (lateMs > RENEW_EVERY_MS) for (const worker of this.#workers.values()) worker.heardAt += lateMs
    try {
      // Together: with one machine hundreds of them may be gone.
      await Promise.all([...this.#workers.values()].map((worker) => this.#judge(worker, now)))
    } catch (error) {
      logger.warn({ error: (error as Error).message }, 'looking after workers failed; it is tried again')
    }
    if (this.#workers.size > 0) this.#watch()
  }

  /** What it runs is given away as each lease ends. */
  async #judge(worker: RemoteWorker, now: number): Promise<void> {
    const silentMs = now - worker.heardAt
    if (silentMs <= SILENT_MS) return
    worker.silent ||= worker.session.attached
    worker.session.attached = false
    const overMs = silentMs - ATTEMPT_LEASE_BASE_MS
    if (overMs <= 0) return
    const over = [...worker.session.slots].filter(({ assignment }) => assignment.graceMs < overMs)
    await this.#lose(worker, 'unreachable', over, true)
    if (worker.session.slots.size === 0) this.#forget(worker)
  }

  async #lose(worker: RemoteWorker, receipt: Receipt, slots: Slot[], turns: boolean): Promise<void> {
    const { manager, nodeId, logger } = this.#parts
    const { session } = worker
    if (turns) for (const [agentId, token] of session.turns) manager.turns.lose(agentId, token, receipt)
    if (slots.length === 0) return
    logger.warn({ workerId: session.workerId, attempts: slots.length, receipt }, 'a worker is gone')
    await Promise.all(
      slots.map(async (slot) => {
        const { taskId, token } = slot.assignment
        const input = { type: 'lost', nodeId, receipt, token } as const
        await manager.submit({ type: 'input', taskId, input }, { patient: true })
        manager.desk.forget(slot)
      }),
    )
    manager.workArrived()
  }

  #forget(worker: RemoteWorker): void {
    if (this.#workers.get(worker.hello.workerId) !== worker) return
    this.#workers.delete(worker.hello.workerId)
    this.#revision++
    worker.stream?.end()
    this.#parts.manager.desk.remove(worker.session)
  }
}

/** Nothing has been decided against it. */
function isRunning({ status, stopping }: TaskRow): boolean {
  return status === 'running' && stopping === 0
}

function heldOf({ id, token }: TaskRow): Held {
  return { id, token: token as string }
}
