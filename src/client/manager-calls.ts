/**
 * Requests to one manager of several, whichever answers: sent again after a connection that failed, and streams that
 * go on over another one.
 */
import type { Client as RpcClient } from '@connectrpc/connect'
import { Code, ConnectError, createClient } from '@connectrpc/connect'
import type { Backoff } from '../core/backoff.ts'
import { backoffMs } from '../core/backoff.ts'
import type { Clock, Randomness } from '../core/clock.ts'
import { hearingMs, sleep } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import type { Problem } from '../definitions/problem.ts'
import { DefinitionError } from '../definitions/problem.ts'
import { ClusterService } from '../wire/gen/curfew/v1/cluster_pb.ts'
import { JobService } from '../wire/gen/curfew/v1/jobs_pb.ts'
import { WorkerService } from '../wire/gen/curfew/v1/workers_pb.ts'
import type { Endpoint } from '../wire/http-client.ts'
import { fromConnectError, isCut, isWorthRetrying } from '../wire/wire-error.ts'
import { AnswerWatch } from './answer-watch.ts'
import { CallSlots } from './call-slots.ts'
import type { ClientCounters } from './client-counters.ts'
import { StreamConnection } from './stream-connection.ts'
import { bestRefusal, isUnknownName } from './unknown-name.ts'

export interface Manager {
  endpoint: Endpoint
  jobs: RpcClient<typeof JobService>
  workers: RpcClient<typeof WorkerService>
  cluster: RpcClient<typeof ClusterService>
  answers: AnswerWatch
}

export interface CallParts {
  endpoints: readonly Endpoint[]
  clock: Clock
  randomness: Randomness
  counters: ClientCounters
}

type Request<T> = (manager: Manager, options: { signal: AbortSignal; timeoutMs: number }) => Promise<T>

/** What has failed so far, since somebody was last heard. */
interface Outage {
  asked: Manager
  tries: number
  /** Nothing was heard from then on. */
  since: number
  /** As a stream is opened again: also where three more tries take less than a manager may take to come back. */
  patiently: boolean
  /** Those that are tried at least. */
  least: number
  stop: AbortSignal
}

/** Three more tries, or one at each manager, from half a second to five. */
const RETRIES = 3
const BACKOFF: Backoff = { initialMs: 500, factor: 2, maxMs: 5_000, jitter: 0.5 }
/** Without an answer for so long it is a connection that failed. */
const ANSWER_WITHIN_MS = 15_000
/** Whoever answers nothing at all for so long is gone, where there is another to ask or it was asked before. */
const SIGN_WITHIN_MS = 5_000
/** Whoever could not do it for so long is not asked again: so long a manager itself waits for its store. */
const RETRY_WITHIN_MS = 10_000
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
    this.#managers = parts.endpoints.map((endpoint) => {
      const cluster = createClient(ClusterService, endpoint.transport)
      return {
        endpoint,
        jobs: createClient(JobService, endpoint.transport),
        workers: createClient(WorkerService, endpoint.transport),
        cluster,
        answers: new AnswerWatch({
          ...{ clock: parts.clock, closing: this.#closing.signal },
          ask: (options) => cluster.getStatus({}, options),
        }),
      }
    })
  }

  close(): void {
    this.#closing.abort(new CurfewError('closed', 'this client was closed'))
    for (const { endpoint } of this.#managers) endpoint.close()
  }

  /**
   * `patiently`: for as long as a stream would be opened again. `byName`: it names something that one manager may know
   * and another not.
   */
  async call<T>(request: Request<T>, { patiently = false, byName = false } = {}): Promise<T> {
    const { clock, counters } = this.#parts
    const least = this.#managers.length - 1
    let since: number | null = null
    counters.requests++
    for (let tries = 0; ; tries++) {
      const asked = this.#managers[this.#current] as Manager
      try {
        return await this.#calls.run(() => {
          since ??= clock.monotonic()
          return this.#ask(asked, request, tries)
        })
      } catch (error) {
        const outage = { asked, tries, since: since ?? clock.monotonic(), patiently, least }
        try {
          if (byName && isUnknownName(this.#faultOf(error)))
            return await this.#askOthers(asked, request, error)
          since = await this.#afterFailure(error, { ...outage, stop: this.#closing.signal })
        } catch (fault) {
          counters.failures++
          throw fault
        }
      }
    }
  }

  async #ask<T>(manager: Manager, request: Request<T>, tries: number): Promise<T> {
    const { answers } = manager
    const silence = answers.expect(this.#signWithinMs(tries))
    try {
      const answer = await request(manager, { signal: answers.signal, timeoutMs: ANSWER_WITHIN_MS })
      answers.heard()
      return answer
    } catch (error) {
      answers.failed(error)
      throw error
    } finally {
      silence.cancel()
    }
  }

  /** Each once. Whoever has answered so far stays the one that is asked first: it is there, and may well know the next. */
  async #askOthers<T>(asked: Manager, request: Request<T>, error: unknown): Promise<T> {
    const refusals: [CurfewError, ...CurfewError[]] = [this.#faultOf(error)]
    const at = this.#managers.indexOf(asked)
    for (const other of [...this.#managers.slice(at + 1), ...this.#managers.slice(0, at)]) {
      this.#parts.counters.retries++
      try {
        return await this.#calls.run(() => this.#ask(other, request, refusals.length))
      } catch (reason) {
        const fault = this.#faultOf(reason)
        if (isUnknownName(fault)) refusals.push(fault)
        // What it refuses for another reason it knows.
        else if (!isWorthRetrying(fault) || this.#closing.signal.aborted) throw fault
      }
    }
    throw bestRefusal(refusals)
  }

  /** The first time the only one there is has all the time there is: a second request would not help it. */
  #signWithinMs(tries: number): number {
    return this.#managers.length > 1 || tries > 0 ? SIGN_WITHIN_MS : ORPHANED_MS
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
    const { clock, counters } = this.#parts
    const stop = AbortSignal.any([signal, this.#closing.signal])
    let since = clock.monotonic()
    let least = this.#managers.length - 1
    for (let tries = 0; !signal.aborted; tries++) {
      const asked = this.#managers[this.#current] as Manager
      const { answers } = asked
      const connection = new StreamConnection(clock, AbortSignal.any([stop, answers.signal]))
      const silence = answers.expect(this.#signWithinMs(tries))
      try {
        for await (const message of open(asked, { signal: connection.signal })) {
          answers.heard()
          tries = 0
          // It may be its connection alone that dies: it is asked once more, too.
          least = this.#managers.length
          // Whoever takes their time with it is not the manager.
          connection.pause()
          yield message
          connection.heard()
          since = clock.monotonic()
        }
        throw new ConnectError('the stream ended before its end', Code.Unavailable)
      } catch (error) {
        if (signal.aborted || isComplete()) return
        since = await this.#afterFailure(error, { asked, tries, since, patiently: true, least, stop })
      } finally {
        silence.cancel()
        connection.close()
      }
      if (!signal.aborted) counters.reconnects++
    }
  }

  /**
   * Throws what is no use to try again; otherwise waits a little, and goes to the next manager. Answers since when
   * nothing was heard.
   */
  async #afterFailure(error: unknown, outage: Outage): Promise<number> {
    const { asked, tries, stop } = outage
    const fault = this.#faultOf(error)
    const { clock, randomness, counters } = this.#parts
    if (!isWorthRetrying(fault) || this.#closing.signal.aborted) throw fault
    const now = clock.monotonic()
    // A connection that was cut was one until then. Of the time in which this process stood still nothing is known.
    const isCut = fault.code === 'unreachable' && ConnectError.from(error).code !== Code.DeadlineExceeded
    const since = (tries === 0 && isCut) || hearingMs(clock) > 0 ? now : outage.since
    if (this.#isOver(fault, { ...outage, since })) throw fault
    counters.retries++
    await sleep(clock, backoffMs(BACKOFF, tries, randomness.next()), stop)
    // Of several that failed together, one goes on for all.
    if (this.#managers[this.#current] === asked) this.#current = (this.#current + 1) % this.#managers.length
    return since
  }

  #isOver({ code }: CurfewError, { tries, since, patiently, least }: Outage): boolean {
    const now = this.#parts.clock.monotonic()
    if (tries < least) return false
    const heardAt = Math.max(since, ...this.#managers.map(({ answers }) => answers.heardAt))
    const isOrphaned = now - (tries < RETRIES ? heardAt : since) >= ORPHANED_MS
    if (isOrphaned) this.#parts.counters.orphaned++
    if (isOrphaned || patiently) return isOrphaned
    return tries >= RETRIES || (code !== 'unreachable' && now - since >= RETRY_WITHIN_MS)
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
