/** Managers in this process, over a transport in memory, and a client of them on a virtual clock. */
import type { ServiceImpl } from '@connectrpc/connect'
import { Code, ConnectError, createRouterTransport } from '@connectrpc/connect'
import { newCounters } from '../../src/client/client-counters.ts'
import { RemoteTaskService } from '../../src/client/remote-task-service.ts'
import { CurfewError } from '../../src/core/errors.ts'
import { IdSource } from '../../src/core/id.ts'
import { SystemRandomness } from '../../src/core/system-clock.ts'
import { VirtualClock } from '../../src/testing/virtual-clock.ts'
import { ClusterService } from '../../src/wire/gen/curfew/v1/cluster_pb.ts'
import { JobService } from '../../src/wire/gen/curfew/v1/jobs_pb.ts'
import type { Endpoint } from '../../src/wire/http-client.ts'
import { toConnectError } from '../../src/wire/wire-error.ts'

const SILENT = { debug() {}, info() {}, warn() {}, error() {} }
export const gone = () => new ConnectError('connect ECONNREFUSED', Code.Unavailable)
export const refusal = (code: string, fields: Record<string, unknown> = { n: 1 }) =>
  toConnectError(new CurfewError(code, 'so it is', { fields }), SILENT)
export const NEVER = new AbortController().signal

export type Answering = Partial<ServiceImpl<typeof JobService> & ServiceImpl<typeof ClusterService>>

/** `managers`: what each answers. */
export function setUp(...managers: Answering[]) {
  const clock = new VirtualClock()
  const counters = newCounters()
  const chances: number[] = []
  const endpoints = managers.map((implementation, i): Endpoint => {
    const transport = createRouterTransport(({ service }) => {
      service(JobService, implementation)
      service(ClusterService, {
        getStatus: () => ({
          nodeId: `n_${i}`,
          version: '9',
          store: 'sqlite',
          ready: i === 0,
          workers: 3,
          fence: 7,
        }),
        ...implementation,
      })
    })
    return { url: `http://manager-${i}`, transport, request: null as never, close: () => undefined }
  })
  const randomness = {
    next: () => chances.shift() ?? 0,
    bytes: (count: number) => new SystemRandomness().bytes(count),
  }
  const service = new RemoteTaskService({
    endpoints,
    clock,
    randomness,
    counters,
    ids: new IdSource(randomness),
  })
  return { service, clock, counters, chances }
}

/** Lets the clock run on, a tenth of a second at a time, until it has ended. */
export async function inTime<T>(
  clock: VirtualClock,
  promise: Promise<T>,
): Promise<{ took: number; ended: T | CurfewError }> {
  const from = clock.wall()
  let ended: T | CurfewError | undefined
  promise.then(
    (value) => {
      ended = value
    },
    (error: CurfewError) => {
      ended = error
    },
  )
  for (let ticks = 0; ended === undefined && ticks < 10_000; ticks++) await clock.advance(10)
  return { took: clock.wall() - from, ended: ended as T | CurfewError }
}
