/** The worker service on the wire, over the manager's remote workers. */
import type { ServiceImpl } from '@connectrpc/connect'
import type { JournalCursor } from '../core/agent-journal.ts'
import type { Clock } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { MAX_BEHIND_BYTES, MAX_BULK_ROWS, MAX_NAME_LENGTH } from '../core/limits.ts'
import type { Receipt } from '../core/states.ts'
import type { AttachRequest, WorkerService } from '../wire/gen/curfew/v1/workers_pb.ts'
import { MachineSchema, WorkerSchema } from '../wire/gen/curfew/v1/workers_pb.ts'
import { fromPlain } from '../wire/plain.ts'
import { negotiate, OURS, VERSION } from '../wire/protocol.ts'
import type { ReportsRequest } from '../wire/quick-reports.ts'
import { reportsFromWire } from '../wire/quick-reports.ts'
import type { Down } from '../wire/quick-starts.ts'
import { downMessage } from '../wire/quick-starts.ts'
import type { StreamContext } from '../wire/quick-stream.ts'
import { answerToWire, down } from '../wire/worker-messages.ts'
import type { DownMessage, ReportAnswer } from '../wire/worker-port.ts'
import { downParts } from './down-parts.ts'
import type { Manager } from './manager.ts'
import type { Downstream, RemoteWorkers } from './remote-workers.ts'
import { checkReport } from './report-check.ts'
import { readTurn } from './turn-check.ts'
import { readHello } from './worker-hello.ts'

interface Parts {
  nodeId: string
  manager: Manager
  workers: RemoteWorkers
  clock: Clock
  /** How long ago the lease that attempts stand on was renewed. */
  leaseAgeMs(): number
}

const PING_EVERY_MS = 1_000

export function workerService(parts: Parts) {
  const { manager, workers, nodeId } = parts
  const takeReports = async (request: ReportsRequest) => {
    workers.heard(request.workerId, request.draining)
    return workers.once(request.workerId, request.number, () => report(manager, request))
  }
  const follow = async function* (request: AttachRequest, { signal }: StreamContext): AsyncGenerator<Down> {
    const protocol = negotiate(
      { version: request.version, min: request.protocolMin, max: request.protocolMax },
      OURS,
    )
    const stream = new DownQueue(parts.clock, () => manager.claimIfWished())
    const hello = readHello(request)
    try {
      const { confirmed, predecessors } = await workers.attach(hello, stream)
      signal.addEventListener('abort', () => stream.end(), { once: true })
      if (signal.aborted) stream.end()
      const held = confirmed.map((one) => ({ $typeName: 'curfew.v1.Held' as const, ...one }))
      yield down('welcome', {
        ...{ $typeName: 'curfew.v1.Welcome', managerId: nodeId, version: VERSION, protocol },
        ...{ confirmed: held, leaseAgeMs: parts.leaseAgeMs() },
        predecessors: predecessors.map(({ workerId, machine }) => ({
          ...{ $typeName: 'curfew.v1.Predecessor' as const, workerId },
          machine: fromPlain(MachineSchema, machine),
        })),
      })
      workers.open(hello.workerId, stream)
      yield* stream.messages()
    } finally {
      stream.end()
      workers.cut(hello.workerId, stream)
    }
  }
  const service = {
    async *attach(request, { signal }) {
      for await (const message of follow(request, { signal })) yield downMessage(message)
    },
    async report(request) {
      return takeReports(reportsFromWire(request))
    },
    async beat({ workerId, draining }) {
      return { unknown: !workers.heard(workerId, draining), leaseAgeMs: parts.leaseAgeMs() }
    },
    async readJournal({ agentId, token, part, after }) {
      const cursor = { part, after } as JournalCursor
      if (!['work', 'open', 'steps', 'results'].includes(part))
        throw new CurfewError('invalid_request', `part: '${part}' is none of work, open, steps, results`)
      const page = await manager.desk.port.journal(agentId, token, cursor)
      return page ? { page: JSON.stringify(page) } : {}
    },
    async leave({ workerId, receipt }) {
      if (!['exited', 'killed'].includes(receipt))
        throw new CurfewError('invalid_request', `receipt: '${receipt}' is none of exited, killed`)
      await workers.leave(workerId, receipt as Receipt)
      return {}
    },
    async listWorkers() {
      return { workers: workers.list().map((worker) => fromPlain(WorkerSchema, worker)) }
    },
  } satisfies ServiceImpl<typeof WorkerService>
  return { service, follow, takeReports }
}

async function report(manager: Manager, { workerId, reports, turns, wakes }: ReportsRequest) {
  if (reports.length + turns.length + wakes.length > 4 * MAX_BULK_ROWS)
    throw new CurfewError('too_big', `at most ${4 * MAX_BULK_ROWS} reports travel together`)
  const said = reports.map((one, i) => {
    if (!one) throw new CurfewError('invalid_request', `reports[${i}] says nothing`)
    return checkReport(one, i)
  })
  const turnReports = turns.map((text, i) => readTurn(text, `turns[${i}]`))
  for (const { agentId, rootId, token } of wakes) checkWake(agentId, rootId, token)
  const { desk, turns: turnDesk } = manager
  for (const { agentId, rootId, token } of wakes) desk.port.wake(agentId, rootId, token)
  const [answers, turnAnswers] = await Promise.all([
    said.length ? desk.reportFrom(workerId, said) : [],
    turnReports.length ? turnDesk.reportFrom(workerId, turnReports) : [],
  ])
  return {
    answers: answers.every(isAccepted) ? [] : answers.map(answerToWire),
    turns: turnAnswers.map((answer) => JSON.stringify(answer)),
  }
}

function isAccepted({ type }: ReportAnswer): boolean {
  return type === 'accepted'
}

function checkWake(...texts: string[]): void {
  for (const text of texts) {
    if (text.length > MAX_NAME_LENGTH || text.includes('\u0000'))
      throw new CurfewError('invalid_request', 'wakes: one is for nobody')
  }
}

/** Messages on their way down a stream. */
class DownQueue implements Downstream {
  readonly #clock: Clock
  readonly #caughtUp: () => void
  readonly #waiting: ReturnType<typeof downParts> = []
  #bytes = 0
  #wake = () => {}
  #ended = false

  /** `caughtUp`: it is not behind any more. */
  constructor(clock: Clock, caughtUp: () => void) {
    this.#clock = clock
    this.#caughtUp = caughtUp
  }

  get isBehind(): boolean {
    return this.#bytes > MAX_BEHIND_BYTES
  }

  send(message: DownMessage): void {
    for (const part of downParts(message)) {
      this.#waiting.push(part)
      this.#bytes += part.bytes
    }
    this.#wake()
  }

  end(): void {
    this.#ended = true
    this.#wake()
  }

  /** Also what waits when it ends: an attempt that was handed out and does not arrive waits for its lease. */
  async *messages(): AsyncGenerator<Down> {
    while (this.#waiting.length > 0 || !this.#ended) {
      const next = this.#waiting.shift()
      if (next) {
        const wasBehind = this.isBehind
        this.#bytes -= next.bytes
        if (wasBehind && !this.isBehind) this.#caughtUp()
        yield next.message
      } else if (await this.#quiet()) yield down('ping', { $typeName: 'curfew.v1.Ping' })
    }
    yield down('goodbye', { $typeName: 'curfew.v1.Goodbye' })
  }

  /** Whether nothing came for a while. */
  #quiet(): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = this.#clock.setTimer(PING_EVERY_MS, () => resolve(true), { background: true })
      this.#wake = () => {
        timer.cancel()
        resolve(false)
      }
    })
  }
}
