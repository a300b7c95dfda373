/** Connections to a manager: over HTTP, HTTPS or a Unix socket. */
import { Agent as HttpAgent } from 'node:http'
import { Agent as HttpsAgent } from 'node:https'
import { createSecureContext } from 'node:tls'
import type { DescMessage, DescMethodServerStreaming, DescMethodStreaming } from '@bufbuild/protobuf'
import { fromBinary } from '@bufbuild/protobuf'
import type { Transport } from '@connectrpc/connect'
import { Code, ConnectError } from '@connectrpc/connect'
import type { Clock } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import { MAX_MESSAGE_DEPTH } from '../core/limits.ts'
import { maskUrl } from '../core/masked-url.ts'
import { SystemClock } from '../core/system-clock.ts'
import { checkCertificates, unusable } from './certificates.ts'
import { callStream } from './stream-call.ts'
import { callUnary } from './unary-call.ts'

export interface ConnectionOptions {
  token?: string | undefined
  /** PEM. `ca`: of the manager's certificate; `cert` and `key`: of this caller. */
  tls?: { ca?: string; cert?: string; key?: string } | undefined
}

export interface Endpoint {
  /** For people, without its password. */
  url: string
  transport: Transport
  /** For whoever sends a request by hand; the path of `origin` ends with a slash. */
  request: { origin: URL; socketPath: string | undefined; agent: HttpAgent | HttpsAgent }
  close(): void
}

const DEPTH = { recursionLimit: MAX_MESSAGE_DEPTH }
/** What may stand in a header. */
const SENDABLE = /^[\x20-\x7e]*$/

/** As it can be sent. A file that holds a token often ends with a line end. */
export function checkConnection({ token, tls }: ConnectionOptions): ConnectionOptions {
  checkCertificates(tls, ['ca', 'cert'])
  try {
    if (tls) createSecureContext(tls)
  } catch (error) {
    throw unusable('tls cannot be used', error)
  }
  if (token === undefined) return { tls }
  const trimmed = typeof token === 'string' ? token.trim() : null
  if (trimmed === null || !SENDABLE.test(trimmed))
    throw new CurfewError('invalid_option', 'token: it is not a token, as curfew token create prints them')
  return { token: trimmed, tls }
}

/** `http://host:port`, `https://…` or `unix:/path`. */
export function endpointOf(
  url: string,
  { token, tls }: ConnectionOptions = {},
  clock: Clock = new SystemClock(),
): Endpoint {
  const { origin, socketPath } = parseUrl(url)
  const keepAlive = { keepAlive: true, maxSockets: Infinity, noDelay: true }
  const secure = origin.protocol === 'https:'
  const agent = secure ? new HttpsAgent({ ...keepAlive, ...tls }) : new HttpAgent(keepAlive)
  const request = { origin, socketPath, agent }
  /** By hand: less than half of what the library's own costs. */
  const transport: Transport = {
    async stream(method, signal, timeoutMs, header, input) {
      if (header || timeoutMs !== undefined || !isServerStream(method)) throw unknownKind()
      const fromBytes = (bytes: Buffer) => fromBinary(method.output, bytes, DEPTH)
      const options = { token, fromBytes, ...(signal && { signal }) }
      const message = callStream({ request }, method, await only(input), options)
      const { parent: service } = method
      return { stream: true, service, method, header: new Headers(), trailer: new Headers(), message }
    },
    async unary(method, signal, timeoutMs, header, input) {
      if (header) throw unknownKind()
      const options = { token, clock, timeoutMs: timeoutMs ?? Infinity, ...(signal && { signal }) }
      const message = await callUnary({ request }, method, input, options)
      const { parent: service } = method
      return { stream: false, service, method, header: new Headers(), trailer: new Headers(), message }
    },
  }
  return { url: maskUrl(url), transport, request, close: () => agent.destroy() }
}

/** Nobody needs headers of a call, limits of a stream, or streams of messages that are sent. */
function unknownKind(): ConnectError {
  return new ConnectError('calls of this kind are not made', Code.Unimplemented)
}

function isServerStream<I extends DescMessage, O extends DescMessage>(
  method: DescMethodStreaming<I, O>,
): method is DescMethodServerStreaming<I, O> {
  return method.methodKind === 'server_streaming'
}

/** What a server stream is asked with. */
async function only<T>(input: AsyncIterable<T>): Promise<T> {
  for await (const message of input) return message
  throw new ConnectError('there is no request', Code.InvalidArgument)
}

function parseUrl(url: string): { origin: URL; socketPath: string | undefined } {
  if (url.startsWith('unix:')) {
    const socketPath = url.slice('unix:'.length).replace(/^\/\/(?=\/)/, '')
    if (socketPath !== '') return { origin: new URL('http://localhost'), socketPath }
  }
  const parsed = URL.canParse(url) ? new URL(url) : null
  if (parsed && ['http:', 'https:'].includes(parsed.protocol) && parsed.host !== '') {
    // A proxy may have it under a path, below which methods are looked for.
    if (!parsed.pathname.endsWith('/')) parsed.pathname += '/'
    return { origin: parsed, socketPath: undefined }
  }
  throw new CurfewError('invalid_option', `'${url.slice(0, 200)}' is no address of a manager`, {
    hint: 'Write http://HOST:PORT, https://HOST:PORT or unix:/PATH.',
  })
}
