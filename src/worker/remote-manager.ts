/**
 * The manager port over the wire. Owns the connection: attaches, reattaches with what runs here after it was cut,
 * sends reports until they are answered. Owns the worker's side of the lease: without a manager that renews it for
 * the orphan grace, everything here is stopped, the kill inside the lease.
 */
import { create } from '@bufbuild/protobuf'
import type { Client as RpcClient } from '@connectrpc/connect'
import { Code, ConnectError, createClient } from '@connectrpc/connect'
import type { JournalCursor, JournalPage } from '../core/agent-journal.ts'
import type { Backoff } from '../core/backoff.ts'
import { backoffMs } from '../core/backoff.ts'
import type { Clock, Randomness, Timer } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { ORPHAN_GRACE_MS } from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import type { AttachRequest, Welcome } from '../wire/gen/curfew/v1/workers_pb.ts'
import { AttachRequestSchema, WorkerService } from '../wire/gen/curfew/v1/workers_pb.ts'
import type { Endpoint } from '../wire/http-client.ts'
import { PROTOCOL_MAX, PROTOCOL_MIN, VERSION } from '../wire/protocol.ts'
import { reportsToBytes } from '../wire/quick-reports.ts'
import { downFromBytes } from '../wire/quick-starts.ts'
import { callStream } from '../wire/stream-call.ts'
import { callUnary } from '../wire/unary-call.ts'
import { fromConnectError, isWorthRetrying } from '../wire/wire-error.ts'
import { answerFromWire } from '../wire/worker-messages.ts'
import type {
  AttachedWorker,
  DownMessage,
  Held,
  ManagerPort,
  TurnAnswer,
  WorkerHello,
  WorkerSession,
} from '../wire/worker-port.ts'
import type { Beats } from './beats.ts'
import { beatTarget, LoopBeats, ThreadBeats } from './beats.ts'
import type { ThisMachine } from './machine.ts'
import type { Batch, BatchAnswer } from './report-sender.ts'
import { ReportSender } from './report-sender.ts'
import type { BeatTarget } from './send-beat.ts'

export interface RemoteManagerOptions {
  endpoints: readonly Endpoint[]
  token: string | undefined
  tls: BeatTarget['tls']
  clock: Clock
  randomness: Randomness
  logger: Logger
  labels: Record<string, string>
  machine: ThisMachine
  definitions: readonly { kind: 'task' | 'agent' | 'workflow'; name: string; body: object }[]
  /** Of this machine, and silent: ends what it left when it is gone, and answers whether it is. */
  isGone(predecessor: { workerId: string; pid: number; pidStarted: string }): Promise<boolean>
  /** In the event loop instead of a thread of their own. */
  beatsInLoop?: boolean
}

const RECONNECT: Backoff = { initialMs: 100, factor: 2, maxMs: 5_000, jitter: 1 }
/** With work: a manager that is back within the orphan grace is found within it, and told of what was stopped within the lease. */
const RECONNECT_WITH_WORK: Backoff = { ...RECONNECT, maxMs: 500 }
/** A stream says something every second, and every part of it counts: work may take longer to arrive. */
const STREAM_SILENT_MS = 5_000
/** A manager whose store is away answers late; the same number again waits for the same answer. */
const ANSWER_WITHIN_MS = 15_000
/** Looking at the lease; what was blocked longer looks before it does anything else. */
const LOOK_EVERY_MS = 500
const LEAVE_WITHIN_MS = 2_000
const BEAT_WITHIN_MS = 2_000
/** Why a stream is given up. */
const SILENT = new ConnectError(`nothing came within ${STREAM_SILENT_MS} ms`, Code.DeadlineExceeded)
const UNKNOWN = new ConnectError('the manager does not know this worker any more', Code.Unavailable)

/** It is refused itself, whatever it says: what it has to report is kept until somebody changes something. */
const UNWELCOME = ['version_mismatch', 'unauthenticated', 'permission_denied']
/** Trying to attach again will not help until somebody changes something. */
const REFUSALS = [...UNWELCOME, 'invalid_request', 'too_big']

interface Attached {
  hello: WorkerHello
  down: (message: DownMessage) => void
  worker: AttachedWorker
}

export class RemoteManager implements ManagerPort {
  /** The first attach, and to whom; rejects when it was refused for a reason that stays. */
  readonly attached: Promise<string>
  readonly #options: RemoteManagerOptions
  readonly #beats: Beats
  readonly #sender = new ReportSender((batch) => this.#send(batch))
  readonly #first = Promise.withResolvers<string>()
  readonly #closing = new AbortController()
  #worker: Attached | null = null
  #rpc: RpcClient<typeof WorkerService> | null = null
  /** Where it is, or was last, attached. */
  #endpoint: Endpoint | null = null
  #connected = Promise.withResolvers<void>()
  /** Aborts what was asked: by the next welcome, for whoever was asked before may stand still, or when it is closed. */
  #asking = new AbortController()
  #stream: AbortController | null = null
  #next = 0
  #session = 0
  #target: BeatTarget | null = null
  #draining = false
  /** It has said goodbye. */
  #left = false
  #orphaned = false
  /** The renewal that none followed in time, where that has been acted upon. */
  #overSince = -Infinity
  #leaseTimer: Timer | null = null

  constructor(options: RemoteManagerOptions) {
    this.#options = options
    this.attached = this.#first.promise
    // Whoever waits for it hears of it; nobody has to.
    this.attached.catch((error: Error) => options.logger.debug({ error: error.message }, 'not attached'))
    this.#closing.signal.addEventListener('abort', () => this.#asking.abort())
    const listener = {
      // Once it has said goodbye nobody has to know it.
      unknown: () => this.#left || this.#stream?.abort(UNKNOWN),
      failed: (error: Error) =>
        options.logger.error({ error: error.message }, 'the thread of the beats died'),
    }
    this.#beats = options.beatsInLoop
      ? new LoopBeats(options.clock, listener)
      : new ThreadBeats(options.clock, listener)
  }

  attach(hello: WorkerHello, down: (message: DownMessage) => void, worker: AttachedWorker): WorkerSession {
    this.#worker = { hello, down, worker }
    void this.#run(this.#worker)
    this.#watchLease()
    return {
      report: (reports) => this.#sender.report(reports),
      reportTurns: (reports) => this.#sender.reportTurns(reports),
      journal: (agentId, token, cursor) => this.#journal(agentId, token, cursor),
      wake: (agentId, rootId, token) => this.#sender.wake({ agentId, rootId, token }),
      detach: () => {
        this.#closing.abort()
        this.#connected.resolve()
      },
    }
  }

  /** Takes no more work; what runs goes on. */
  drain(): void {
    this.#draining = true
    if (this.#target) this.#setTarget({ ...this.#target, draining: true })
    const { workerId } = this.#worker?.hello ?? {}
    if (workerId !== undefined)
      this.#rpc
        ?.beat({ workerId, draining: true })
        .catch((error: Error) =>
          this.#options.logger.debug({ error: error.message }, 'the next beat says it'),
        )
  }

  /** Nothing runs here any more: whoever it was attached to need not wait. */
  async leave(): Promise<void> {
    const { workerId } = this.#worker?.hello ?? {}
    this.#left = true
    if (this.#rpc && workerId !== undefined) {
      try {
        await this.#rpc.leave({ workerId, receipt: 'exited' }, { timeoutMs: LEAVE_WITHIN_MS })
      } catch (error) {
        const { message } = fromConnectError(error)
        this.#options.logger.warn(
          { error: message },
          'could not say goodbye; the manager waits for the lease',
        )
      }
    }
  }

  close(): void {
    this.#closing.abort()
    this.#connected.resolve()
    this.#stream?.abort()
    this.#leaseTimer?.cancel()
    this.#beats.close()
    for (const endpoint of this.#options.endpoints) endpoint.close()
    this.#first.reject(new CurfewError('closed', 'this worker was closed'))
  }

  /** Attached, or on its way to be, until it is closed. */
  async #run(attached: Attached): Promise<void> {
    const { endpoints, clock, randomness, logger } = this.#options
    let refusals = 0
    let told = false
    for (let tries = 0; !this.#closing.signal.aborted; tries++) {
      const endpoint = endpoints[this.#next++ % endpoints.length] as Endpoint
      try {
        await this.#follow(endpoint, attached, () => {
          tries = 0
          refusals = 0
          told = false
        })
      } catch (error) {
        const fault = fromConnectError(error)
        if (this.#closing.signal.aborted) return
        const refused = REFUSALS.includes(fault.code)
        if (!told || refused) {
          told = true
          logger.warn(
            { manager: endpoint.url, code: fault.code, error: fault.message },
            'no manager; it is tried again',
          )
        }
        if (refused && ++refusals >= endpoints.length) this.#first.reject(fault)
      }
      this.#rpc = null
      this.#setTarget(null)
      const backoff = this.#hasWork ? RECONNECT_WITH_WORK : RECONNECT
      await sleep(clock, backoffMs(backoff, tries, randomness.next()), this.#closing.signal)
    }
  }

  get #hasWork(): boolean {
    const held = this.#worker?.worker.held()
    return held !== undefined && held.attempts.length + held.turns.length > 0
  }

  /** One stream, from the attach to its end. */
  async #follow(endpoint: Endpoint, attached: Attached, onWelcome: () => void): Promise<void> {
    const { clock, logger } = this.#options
    const rpc = createClient(WorkerService, endpoint.transport)
    const stream = new AbortController()
    this.#stream = stream
    let silence: Timer | null = null
    const listen = () => {
      silence?.cancel()
      silence = clock.setTimer(STREAM_SILENT_MS, () => stream.abort(SILENT))
    }
    const held = attached.worker.held()
    const sentAt = clock.monotonic()
    listen()
    try {
      const signal = AbortSignal.any([stream.signal, this.#closing.signal])
      const { attach } = WorkerService.method
      const options = { token: this.#options.token, signal, fromBytes: downFromBytes, onBytes: listen }
      for await (const down of callStream(endpoint, attach, this.#request(attached.hello, held), options)) {
        listen()
        this.#checkLease()
        const message = 'type' in down ? null : down.message
        // Somebody speaks: the lease may have been renewed since the last beat.
        if (this.#orphaned && message?.case !== 'welcome') await this.#askForLease(rpc, attached)
        if (message?.case === 'welcome') {
          onWelcome()
          this.#welcomed(message.value, { endpoint, rpc, sentAt, held, attached })
        } else if (message?.case === 'goodbye') {
          logger.info({ manager: endpoint.url }, 'the manager leaves')
          return
        } else {
          if ('type' in down) attached.down(down)
          if (this.#orphaned) this.#checkLease() // nothing runs without a lease
        }
      }
    } finally {
      ;(silence as Timer | null)?.cancel()
      stream.abort()
      // Only where somebody was connected: whoever waits does so for the promise that is there.
      if (this.#rpc === rpc) {
        this.#rpc = null
        this.#connected = Promise.withResolvers<void>()
      }
    }
  }

  /** A beat out of turn, so that work which comes with the end of an outage is not turned away. */
  async #askForLease(rpc: RpcClient<typeof WorkerService>, { hello }: Attached): Promise<void> {
    const { clock, logger } = this.#options
    const sentAt = clock.monotonic()
    try {
      const { unknown, leaseAgeMs } = await rpc.beat(
        { workerId: hello.workerId, draining: this.#draining },
        { timeoutMs: BEAT_WITHIN_MS, signal: this.#closing.signal },
      )
      if (!unknown) this.#beats.lease.renew(sentAt - leaseAgeMs)
    } catch (error) {
      logger.debug({ error: String(error) }, 'the lease could not be asked for; the next beat says it')
    }
    this.#checkLease()
  }

  #request(hello: WorkerHello, held: ReturnType<AttachedWorker['held']>): AttachRequest {
    const { machine, labels, definitions } = this.#options
    const message = ({ id, token }: Held) => ({ id, token })
    return create(AttachRequestSchema, {
      ...{ workerId: hello.workerId, session: ++this.#session, version: VERSION, labels, machine },
      ...{ protocolMin: PROTOCOL_MIN, protocolMax: PROTOCOL_MAX },
      definitions: definitions.map(({ kind, name, body }) => ({ kind, name, body: body as never })),
      ...{ queues: hello.queues ?? [], allQueues: hello.queues === null },
      ...{ concurrency: this.#draining ? 0 : hello.concurrency, turns: this.#draining ? 0 : hello.turns },
      ...{ attempts: held.attempts.map(message), turnsHeld: held.turns.map(message) },
    })
  }

  #welcomed(
    welcome: Welcome,
    at: {
      endpoint: Endpoint
      rpc: RpcClient<typeof WorkerService>
      sentAt: number
      held: ReturnType<AttachedWorker['held']>
      attached: Attached
    },
  ): void {
    const { endpoint, rpc, sentAt, held, attached } = at
    const { logger, token, tls } = this.#options
    const { workerId } = attached.hello
    const confirmed = new Set(welcome.confirmed.map(({ id, token: its }) => `${id} ${its}`))
    for (const { id: taskId, token: its, graceMs } of held.attempts) {
      if (confirmed.has(`${taskId} ${its}`)) continue
      const reason = { code: 'stale', message: 'somebody else has it by now' } as const
      attached.down({ type: 'stop', taskId, token: its, reason, graceMs })
    }
    for (const { id: agentId, token: its } of held.turns) {
      if (!confirmed.has(`${agentId} ${its}`))
        attached.down({ type: 'news', agentId, token: its, dropped: true })
    }
    this.#beats.lease.renew(sentAt - welcome.leaseAgeMs)
    // What runs here now the manager has confirmed.
    this.#overSince = this.#beats.lease.lapsedAt
    const target = beatTarget(endpoint, { workerId, token, tls })
    this.#setTarget({ ...target, draining: this.#draining })
    this.#rpc = rpc
    this.#endpoint = endpoint
    this.#asking.abort()
    if (!this.#closing.signal.aborted) this.#asking = new AbortController()
    this.#connected.resolve()
    this.#first.resolve(endpoint.url)
    logger.info(
      { manager: endpoint.url, managerId: welcome.managerId, protocol: welcome.protocol },
      'attached',
    )
    for (const { workerId: gone, machine } of welcome.predecessors) {
      if (machine) void this.#reportGone(rpc, gone, machine)
    }
  }

  async #reportGone(
    rpc: RpcClient<typeof WorkerService>,
    workerId: string,
    { pid, pidStarted }: { pid: number; pidStarted: string },
  ): Promise<void> {
    const { isGone, logger } = this.#options
    try {
      if (await isGone({ workerId, pid, pidStarted })) await rpc.leave({ workerId, receipt: 'killed' })
    } catch (error) {
      logger.warn(
        { workerId, error: String(error) },
        'could not tell of a worker that is gone; its lease will',
      )
    }
  }

  #setTarget(target: BeatTarget | null): void {
    this.#target = target
    this.#beats.setTarget(target)
  }

  /** Until it is answered: by this manager or the next. */
  async #send({ number, reports, turns, wakes }: Batch): Promise<BatchAnswer> {
    const { clock, randomness, logger, token } = this.#options
    const { workerId } = (this.#worker as Attached).hello
    const head = { workerId, number, wakes, turns: turns.map((turn) => JSON.stringify(turn)) }
    for (let tries = 0; ; tries++) {
      await this.#untilConnected()
      try {
        const answer = await callUnary(
          this.#endpoint as Endpoint,
          WorkerService.method.report,
          reportsToBytes({ ...head, draining: this.#draining }, reports),
          { token, clock, timeoutMs: ANSWER_WITHIN_MS, signal: this.#asking.signal },
        )
        this.#checkLease()
        return {
          answers: answer.answers.map(answerFromWire),
          turns: answer.turns.map((text) => JSON.parse(text) as TurnAnswer),
        }
      } catch (error) {
        const fault = fromConnectError(error)
        if (this.#closing.signal.aborted) throw new CurfewError('closed', 'this worker was closed')
        if (fault.code === 'not_attached') this.#stream?.abort(UNKNOWN)
        else if (!isWorthRetrying(fault) && !UNWELCOME.includes(fault.code)) {
          logger.error(
            { code: fault.code, error: fault.message, reports: reports.length },
            'reports were refused',
          )
          throw fault
        }
        await sleep(clock, backoffMs(RECONNECT, tries, randomness.next()), this.#closing.signal)
      }
    }
  }

  async #journal(agentId: string, token: string, cursor: JournalCursor): Promise<JournalPage | null> {
    const { clock, randomness } = this.#options
    const { workerId } = (this.#worker as Attached).hello
    for (let tries = 0; ; tries++) {
      await this.#untilConnected()
      try {
        const rpc = this.#rpc as RpcClient<typeof WorkerService>
        const options = { timeoutMs: ANSWER_WITHIN_MS, signal: this.#asking.signal }
        const { page } = await rpc.readJournal({ workerId, agentId, token, ...cursor }, options)
        return page === undefined ? null : (JSON.parse(page) as JournalPage)
      } catch (error) {
        const fault = fromConnectError(error)
        if (this.#closing.signal.aborted || !isWorthRetrying(fault)) throw fault
        await sleep(clock, backoffMs(RECONNECT, tries, randomness.next()), this.#closing.signal)
      }
    }
  }

  async #untilConnected(): Promise<void> {
    while (!this.#rpc) {
      if (this.#closing.signal.aborted) throw new CurfewError('closed', 'this worker was closed')
      await this.#connected.promise
    }
  }

  #watchLease(): void {
    this.#leaseTimer = this.#options.clock.setTimer(LOOK_EVERY_MS, () => {
      this.#checkLease()
      if (!this.#closing.signal.aborted) this.#watchLease()
    })
  }

  /** Before anything else that comes in: it may have slept past its lease. */
  #checkLease(): void {
    const { clock, logger } = this.#options
    const { renewedAt, lapsedAt } = this.#beats.lease
    this.#orphaned = clock.monotonic() - renewedAt > ORPHAN_GRACE_MS
    const overSince = this.#orphaned ? renewedAt : lapsedAt
    // A lapse is longer than the grace, so that another one begins later than that.
    const isNew = overSince - this.#overSince > ORPHAN_GRACE_MS
    this.#overSince = overSince
    // While it is over also what comes then: nothing runs here without a lease.
    if (!(this.#orphaned || isNew) || !this.#hasWork) return
    const silentMs = Math.round(clock.monotonic() - overSince)
    if (isNew) logger.error({ silentMs }, 'no manager could be reached in time; attempts are stopped')
    const message = 'no manager could be reached in time'
    this.#worker?.worker.stopAll({ code: 'lease_over', message, timeoutMs: silentMs })
  }
}
