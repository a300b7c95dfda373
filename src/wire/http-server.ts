/**
 * One listener of a process: RPC, `/healthz`, `/readyz` and `/metrics` on a TCP port or a Unix socket. Every request
 * passes the gatekeeper first. Owns the bounds on what a stranger may cost: sizes, times, connections.
 */
import { chmodSync, rmSync } from 'node:fs'
import type { IncomingMessage, RequestListener, Server, ServerOptions, ServerResponse } from 'node:http'
import { createServer } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo, Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import type { ConnectRouter, Interceptor } from '@connectrpc/connect'
import { createConnectRouter } from '@connectrpc/connect'
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from '@connectrpc/connect-node'
import type { Clock, Timer } from '../core/clock.ts'
import { CurfewError } from '../core/errors.ts'
import {
  MAX_CONNECTIONS,
  MAX_HEADER_BYTES,
  MAX_HEADERS,
  MAX_MESSAGE_DEPTH,
  MAX_REQUEST_BYTES,
  MAX_REQUEST_MS,
} from '../core/limits.ts'
import type { Logger } from '../core/logger.ts'
import { unusable } from './certificates.ts'
import type { Refusal } from './gatekeeper.ts'
import { Gatekeeper } from './gatekeeper.ts'
import type { ListenAddress } from './listen-rules.ts'
import { formatListen } from './listen-rules.ts'
import type { QuickMethod } from './quick-unary.ts'
import type { Tokens } from './tokens.ts'
import { toConnectError } from './wire-error.ts'

export interface TlsOptions {
  /** PEM. */
  cert: string
  key: string
  /** Only callers with a certificate of it get through. */
  clientCa?: string
}

export interface HttpServerOptions {
  address: ListenAddress
  tokens?: Tokens | undefined
  tls?: TlsOptions | undefined
  hosts?: readonly string[] | undefined
  clock: Clock
  logger: Logger
  routes(router: ConnectRouter): void
  /** Of the routes, those that are called the most. */
  quick?: readonly QuickMethod[]
  ready(): boolean
  /** Requests that come before it wait for it. */
  started: Promise<void>
  metrics(): Promise<{ text: string; contentType: string }>
  /** For a request to arrive whole. */
  requestMs?: number
}

export interface HttpServer {
  /** With the port that the system picked. */
  address: string
  url: string
  /** Streams end, requests under way are answered, new ones are not taken. */
  close(): Promise<void>
}

const MAX_HEADERS_MS = 10_000
const LOOK_EVERY_MS = 5_000
/** Requests under way get so long when it closes. */
const CLOSE_MS = 2_000
const LOOK_FOR_IDLE_MS = 20
/** One that was refused may send the rest of its request for so long. */
const HEAR_OUT_MS = 1_000

export async function startHttpServer(options: HttpServerOptions): Promise<HttpServer> {
  const { address, tls, clock, logger } = options
  const gatekeeper = new Gatekeeper(options)
  if (gatekeeper.warning) logger.warn({ address: formatListen(address) }, gatekeeper.warning)
  const shutdown = new AbortController()
  const router = createConnectRouter({
    // Few callers want them, and each is code that strangers reach.
    ...{ grpc: false, grpcWeb: false },
    readMaxBytes: MAX_REQUEST_BYTES,
    acceptCompression: [],
    shutdownSignal: shutdown.signal,
    interceptors: [translateErrors(logger)],
    jsonOptions: { alwaysEmitImplicit: true, recursionLimit: MAX_MESSAGE_DEPTH },
    binaryOptions: { recursionLimit: MAX_MESSAGE_DEPTH },
  })
  options.routes(router)
  const handlers = new Map(router.handlers.map((handler) => [handler.requestPath, handler]))
  const quick = new Map(options.quick?.map((method) => [method.path, method]))
  const rpc = async (path: string, request: IncomingMessage, response: ServerResponse) => {
    if (quick.get(path)?.answer(request, response, { logger, shutdown: shutdown.signal })) return
    const handler = handlers.get(path)
    if (!handler) return refuse(response, NOTHING_HERE, clock)
    try {
      const answer = await handler(universalRequestFromNodeRequest(request, response, undefined, undefined))
      await universalResponseToNodeResponse(answer, response)
    } catch (error) {
      // Whoever asked has gone: everything else is an answer.
      logger.debug({ path, error: String(error) }, 'a request was not answered to its end')
    }
  }
  const handle = (request: IncomingMessage, response: ServerResponse) => {
    const admission = gatekeeper.admit({
      path: request.url ?? '/',
      headers: request.headersDistinct,
      remoteAddress: request.socket.remoteAddress,
      clientCertificate: certificateOf(request),
    })
    if (admission.type === 'refused') return refuse(response, admission, clock)
    const path = (request.url ?? '/').split('?', 1)[0] as string
    if (path === '/healthz') return plain(response, 200, 'ok\n')
    if (path === '/readyz')
      return plain(response, options.ready() ? 200 : 503, options.ready() ? 'ready\n' : 'not ready\n')
    if (path === '/metrics') return void sendMetrics(options, response)
    void options.started.then(() => rpc(path, request, response))
  }
  const { requestMs = MAX_REQUEST_MS } = options
  const limits = {
    ...{ maxHeaderSize: MAX_HEADER_BYTES, requestTimeout: requestMs },
    headersTimeout: Math.min(MAX_HEADERS_MS, requestMs),
    // Times are looked at this often, and not at all in between.
    connectionsCheckingInterval: Math.min(LOOK_EVERY_MS, requestMs),
  }
  const server: Server = tls ? createSecureServer(tls, limits, handle) : createServer(limits, handle)
  const sockets = new Set<Socket>()
  const keep = (socket: Socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  }
  server.on('connection', keep)
  server.on('secureConnection', keep)
  server.maxHeadersCount = MAX_HEADERS
  server.maxConnections = MAX_CONNECTIONS
  server.keepAliveTimeout = 75_000
  server.on('clientError', (error: NodeJS.ErrnoException, socket) =>
    badRequest(error, socket as Socket, clock),
  )
  await bind(server, address)
  server.on('error', (error) => logger.error({ error: error.message }, 'a listener failed'))
  const at = addressOf(server, address)
  return {
    address: at,
    url: address.type === 'unix' ? at : `${tls ? 'https' : 'http'}://${at}`,
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()))
      shutdown.abort()
      // Also those that are answered only now; not while what was said has not gone out, for it would be lost.
      const closeIdle = (): Timer => {
        if ([...sockets].every(({ writableLength }) => writableLength === 0)) server.closeIdleConnections()
        return clock.setTimer(LOOK_FOR_IDLE_MS, () => {
          looking = closeIdle()
        })
      }
      let looking = closeIdle()
      // Also those whose greeting has not ended: the server does not know of them.
      const timer = clock.setTimer(CLOSE_MS, () => {
        for (const socket of sockets) socket.destroy()
      })
      await closed
      timer.cancel()
      looking.cancel()
      if (address.type === 'unix') rmSync(address.path, { force: true })
    },
  }
}

function createSecureServer(
  { cert, key, clientCa }: TlsOptions,
  limits: ServerOptions & { headersTimeout: number },
  handle: RequestListener,
): Server {
  const handshakeTimeout = limits.headersTimeout
  const callers =
    clientCa === undefined ? {} : { ca: clientCa, requestCert: true, rejectUnauthorized: true as const }
  try {
    return createTlsServer({ ...limits, handshakeTimeout, cert, key, ...callers }, handle)
  } catch (error) {
    throw unusable('tls.cert and tls.key cannot be used', error)
  }
}

async function bind(server: Server, address: ListenAddress): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(cannotListen(address, error)))
    if (address.type === 'unix') {
      // Whoever held it is gone: the store's lock is ours.
      rmSync(address.path, { force: true })
      listenPrivately(server, address.path, resolve)
    } else server.listen(address.port, address.host, resolve)
  })
  server.removeAllListeners('error')
}

/** Only its user can ever open it. */
function listenPrivately(server: Server, path: string, listening: () => void): void {
  let before: number | null = null
  try {
    before = process.umask(0o177)
  } catch {
    before = null // a thread has no mask of its own: it is set right below
  }
  try {
    server.listen(path, listening)
  } finally {
    if (before !== null) process.umask(before)
  }
  // Where it could not be made, the error comes with the next turn.
  if (server.listening) chmodSync(path, 0o600)
}

function cannotListen(address: ListenAddress, error: NodeJS.ErrnoException): CurfewError {
  const at = formatListen(address)
  const inUse = error.code === 'EADDRINUSE'
  return new CurfewError(
    'cannot_listen',
    `cannot listen on ${at}: ${inUse ? 'it is in use' : error.message}`,
    {
      ...(inUse && { hint: 'Another process listens there; choose another port, or 0 for any free one.' }),
      fields: { address: at },
      cause: error,
    },
  )
}

function addressOf(server: Server, address: ListenAddress): string {
  if (address.type === 'unix') return formatListen(address)
  return formatListen({ ...address, port: (server.address() as AddressInfo).port })
}

/** Also those of streams, which come while they are read. */
function translateErrors(logger: Logger): Interceptor {
  return (next) => async (request) => {
    try {
      const response = await next(request)
      if (!response.stream) return response
      return { ...response, message: translated(response.message, logger) }
    } catch (error) {
      throw toConnectError(error, logger)
    }
  }
}

async function* translated<T>(messages: AsyncIterable<T>, logger: Logger): AsyncGenerator<T> {
  try {
    yield* messages
  } catch (error) {
    throw toConnectError(error, logger)
  }
}

async function sendMetrics({ metrics, logger }: HttpServerOptions, response: ServerResponse): Promise<void> {
  try {
    const { text, contentType } = await metrics()
    plain(response, 200, text, contentType)
  } catch (error) {
    logger.error({ error: String(error) }, 'metrics could not be read')
    plain(response, 500, 'metrics could not be read\n')
  }
}

function plain(
  response: ServerResponse,
  status: number,
  text: string,
  type = 'text/plain; charset=utf-8',
): void {
  response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' }).end(text)
}

const NOTHING_HERE: Refusal = {
  ...{
    type: 'refused',
    status: 404,
    code: 'not_found',
    message: 'there is nothing at this path',
    headers: {},
  },
}

/** As the Connect protocol tells errors, so that clients understand them. */
const CODES: Record<number, string> = {
  400: 'invalid_argument',
  401: 'unauthenticated',
  403: 'permission_denied',
  404: 'unimplemented',
  421: 'invalid_argument',
  // Only those who were not known are counted.
  429: 'unauthenticated',
}

function refuse(response: ServerResponse, { status, code, message, headers }: Refusal, clock: Clock): void {
  const body = JSON.stringify({ code: CODES[status] ?? code, message })
  const { req } = response
  // What else it sends nobody looks at. Cutting it off at once would cut off the answer too.
  req.resume()
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(body)
  const timer = clock.setTimer(HEAR_OUT_MS, () => req.destroy(), { background: true })
  req.once('close', () => timer.cancel())
}

function badRequest({ code }: NodeJS.ErrnoException, socket: Socket, clock: Clock): void {
  const status = CLIENT_ERRORS[code ?? ''] ?? '400 Bad Request'
  if (!socket.writable) return void socket.destroy()
  // Whoever keeps its own side open does not keep the socket.
  socket.end(`HTTP/1.1 ${status}\r\nconnection: close\r\n\r\n`)
  socket.destroySoon()
  // One whose greeting has not ended can be told nothing, and would stay for ever.
  const timer = clock.setTimer(HEAR_OUT_MS, () => socket.destroy(), { background: true })
  socket.once('close', () => timer.cancel())
}

const CLIENT_ERRORS: Record<string, string> = {
  HPE_HEADER_OVERFLOW: '431 Request Header Fields Too Large',
  ERR_HTTP_REQUEST_TIMEOUT: '408 Request Timeout',
}

function certificateOf({ socket }: IncomingMessage): { name: string } | undefined {
  const { authorized, getPeerCertificate } = socket as Partial<TLSSocket>
  if (!authorized || !getPeerCertificate) return undefined
  const { subject } = (socket as TLSSocket).getPeerCertificate()
  return { name: String(subject?.CN ?? 'certificate') }
}
