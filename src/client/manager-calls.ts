/**
 * Requests to one manager of several, whichever answers: sent again after a connection that failed, and streams that
 * go on over another one.
 */
import type { Client as RpcClient } from '@connectrpc/connect'
import { Code, ConnectError, createClient } from '@connectrpc/connect'
import type { Backoff } from '../core/backoff.ts'
import { backoffMs } from '../core/backoff.ts'
import type { Clock, Randomness } from '../core/clock.ts'
import { sleep } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import type { Problem } from '../definitions/problem.ts'
import { DefinitionError } from '../definitions/problem.ts'
import { ClusterService } from '../wire/gen/curfew/v1/cluster_pb.ts'
import { JobService } from '../wire/gen/curfew/v1/jobs_pb.ts'
import { WorkerService } from '../wire/gen/curfew/v1/workers_pb.ts'
import type { Endpoint } from '../wire/http-client.ts'
import { fromConnectError, isCut, isWorthRetrying } from '../wire/wire-error.ts'
import { CallSlots } from './call-slots.ts'
import type { ClientCounters } from './client-counters.ts'
import { StreamConnection } from './stream-connection.ts'

export interface Manager {
  endpoint: Endpoint
  jobs: RpcClient<typeof JobService>
  workers: RpcClient<typeof WorkerService>
  cluster: RpcClient<typeof ClusterService>
}

export interface CallParts {
  endpoints: readonly Endpoint[]
  clock: Clock
  randomness: Randomness
  counters: ClientCounters
}

interface CallOptions {
  signal: AbortSignal
  timeoutMs: number
}

/** Three more tries, from half a second to five. */
const RETRIES = 3
const BACKOFF: Backoff = { initialMs: 500, factor: 2, maxMs: 5_000, jitter: 0.5 }
/** Without an answer for so long it is a connection that failed. */
const ANSWER_WITHIN_MS = 15_000
/** Requests under way: each has a connection of its own, and a program may well have thousands at once. */
const MOST_CALLS = 100
/** Work whose manager cannot be reached for so long is given up on. */
const ORPHANED_MS = 15_000

export class ManagerCalls {
  readonly #parts: CallParts
  readonly #managers: Manager[]
  /** The one that answered last. */
  #current = 0
  readonly #closing = new AbortController()
  readonly #calls = new CallSlots(MOST_CALLS)

  constructor(parts: CallParts) {
    this.#parts = parts
    this.#managers = parts.endpoints.map((endpoint) => ({
      endpoint,
      jobs: createClient(JobService, endpoint.transport),
      workers: createClient(WorkerService, endpoint.transport),
      cluster: createClient(ClusterService, endpoint.transport),
    }))
  }

  close(): void {
    this.#closing.abort(new CurfewError('closed', 'this client was closed'))
    for (const { endpoint } of this.#managers) endpoint.close()
  }

  /** `patiently`: for as long as a stream would be opened again. */
  async call<T>(
    request: (manager: Manager, options: CallOptions) => Promise<T>,
    { patiently = false } = {},
  ): Promise<T> {
    const { clock, counters } = this.#parts
    const options = { signal: this.#closing.signal, timeoutMs: ANSWER_WITHIN_MS }
    let since: number | null = null
    counters.requests++
    for (let tries = 0; ; tries++) {
      const asked = this.#managers[this.#current] as Manager
      try {
        return await this.#calls.run(() => request(asked, options))
      } catch (error) {
        if (!patiently && tries >= RETRIES) {
          counters.failures++
          throw this.#faultOf(error)
        }
        since ??= clock.monotonic()
        try {
          await this.#afterFailure(error, { asked, tries, silentSince: since })
        } catch (fault) {
          counters.failures++
          throw fault
        }
      }
    }
  }

  /**
   * What comes over a stream, and over the next one after it: `open` asks for what is still missing. Ends when the
   * signal aborts, with a stream after which nothing is missing, or when nobody reads on.
   */
  async *follow<T>(
    open: (manager: Manager, options: { signal: AbortSignal }) => AsyncIterable<T>,
    signal: AbortSignal,
    isComplete = () => false,
  ): AsyncGenerator<T> {
    const stop = AbortSignal.any([signal, this.#closing.signal])
    let silentSince: number | null = null
    for (let tries = 0; !signal.aborted; tries++) {
      const asked = this.#managers[this.#current] as Manager
      const connection = new StreamConnection(this.#parts.clock, stop)
      try {
        for await (const message of open(asked, { signal: connection.signal })) {
          tries = 0
          silentSince = null
          // Whoever takes their time with it is not the manager.
          connection.pause()
          yield message
          connection.heard()
        }
        throw new ConnectError('the stream ended before its end', Code.Unavailable)
      } catch (error) {
        if (signal.aborted || isComplete()) return
        silentSince ??= this.#parts.clock.monotonic()
        await this.#afterFailure(error, { asked, tries, silentSince, stop })
      } finally {
        connection.close()
      }
      if (!signal.aborted) this.#parts.counters.reconnects++
    }
  }

  /** Throws what is no use to try again; otherwise waits a little, and goes to the next manager. */
  async #afterFailure(
    error: unknown,
    at: {
      asked: Manager
      tries: number
      silentSince: number
      stop?: AbortSignal
    },
  ): Promise<void> {
    const { asked, tries, silentSince, stop = this.#closing.signal } = at
    const fault = this.#faultOf(error)
    const { clock, randomness, counters } = this.#parts
    if (!isWorthRetrying(fault) || this.#closing.signal.aborted) throw fault
    if (clock.monotonic() - silentSince > ORPHANED_MS && tries >= RETRIES) {
      counters.orphaned++
      throw fault
    }
    counters.retries++
    await sleep(clock, backoffMs(BACKOFF, tries, randomness.next()), stop)
    // Of several that failed together, one goes on for all.
    if (this.#managers[this.#current] === asked) this.#current = (this.#current + 1) % this.#managers.length
  }

  #faultOf(error: unknown): CurfewError {
    if (this.#closing.signal.aborted) return new CurfewError('closed', 'this client was closed')
    const fault = fromConnectError(error)
    if (fault.code === 'invalid_definition' && Array.isArray(fault.fields.problems)) {
      return definitionError(fault)
    }
    if (fault.code !== 'unreachable') return fault
    const urls = this.#managers.map(({ endpoint }) => endpoint.url)
    const withoutTls = isCut(error) && urls.some((url) => url.startsWith('http:'))
    const tls = withoutTls ? ' If it has TLS, try https:// instead of http://.' : ''
    return new CurfewError('unreachable', `nobody answers at ${urls.join(', ')}: ${fault.message}`, {
      hint: `Is the manager running, and is this its address?${tls}`,
      fields: { urls },
      cause: error,
    })
  }
}

function definitionError({ message, fields }: CurfewError): DefinitionError {
  // The last one: a name may say it too.
  const what = /^(.*) has /.exec(message)?.[1] ?? 'the definition'
  return new DefinitionError(what, fields.problems as Problem[])
}
