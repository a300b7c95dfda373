// A worker by hand: it attaches as one does, and then says what it likes.

import type { MessageInitShape } from '@bufbuild/protobuf'
import { create } from '@bufbuild/protobuf'
import { createClient } from '@connectrpc/connect'
import type { Curfew, CurfewError } from '../../src/curfew.ts'
import type {
  Assignment,
  AttachResponse,
  ReportRequestSchema,
} from '../../src/wire/gen/curfew/v1/workers_pb.ts'
import { AttachRequestSchema, WorkerService } from '../../src/wire/gen/curfew/v1/workers_pb.ts'
import { endpointOf } from '../../src/wire/http-client.ts'
import { PROTOCOL_MAX, PROTOCOL_MIN } from '../../src/wire/protocol.ts'
import { fromConnectError } from '../../src/wire/wire-error.ts'
import type { Turn } from '../../src/wire/worker-port.ts'
import type { WireWorld } from './wire-world.ts'
import { until } from './wire-world.ts'

type Hello = MessageInitShape<typeof AttachRequestSchema>
type Sent = MessageInitShape<typeof ReportRequestSchema>

export class RogueWorker {
  readonly rpc
  readonly workerId: string
  readonly heard: AttachResponse[] = []
  error: CurfewError | null = null
  readonly #stop = new AbortController()
  #number = 0

  constructor(wire: WireWorld, manager: Curfew, workerId: string) {
    const endpoint = endpointOf(manager.url as string)
    this.rpc = createClient(WorkerService, endpoint.transport)
    this.workerId = workerId
    wire.atEnd(async () => {
      this.#stop.abort()
      endpoint.close()
    })
  }

  /** Comes back when it was welcomed or refused. */
  async attach(hello: Hello = {}): Promise<this> {
    const machine = { host: 'rogue', bootId: 'b', pidSpace: 'p', pid: 1, pidStarted: '1' }
    const request = create(AttachRequestSchema, {
      ...{ workerId: this.workerId, session: 1, version: '0.0.0', machine, allQueues: true, concurrency: 5 },
      ...{ turns: 5, protocolMin: PROTOCOL_MIN, protocolMax: PROTOCOL_MAX, ...(hello as object) },
    })
    void this.#listen(request)
    await until(() => this.heard.length > 0 || this.error !== null)
    return this
  }

  async #listen(request: Hello): Promise<void> {
    try {
      const stream = this.rpc.attach(request as never, { signal: this.#stop.signal })
      for await (const message of stream) this.heard.push(message)
    } catch (error) {
      this.error = fromConnectError(error)
    }
  }

  leaveStream(): void {
    this.#stop.abort()
  }

  /** Attempts it was given. */
  get assignments(): Assignment[] {
    return this.heard.flatMap(({ message }) => (message.case === 'start' ? message.value.assignments : []))
  }

  get turns(): Turn[] {
    return this.heard.flatMap(({ message }) =>
      message.case === 'turns' ? message.value.turns.map((text) => JSON.parse(text) as Turn) : [],
    )
  }

  /** The answers, or the error it was refused with. */
  report(sent: Sent): Promise<{ answers: (string | undefined)[]; turns: string[] } | CurfewError> {
    return this.rpc.report({ workerId: this.workerId, number: ++this.#number, ...(sent as object) }).then(
      ({ answers, turns }) => ({ answers: answers.map(({ what }) => what.case), turns }),
      (error: unknown) => fromConnectError(error),
    )
  }
}
