/** The action `http_request`: one request within the limits of its attempt, to public addresses unless allowed. */
import type { LookupAddress } from 'node:dns'
import { lookup } from 'node:dns'
import type { IncomingMessage } from 'node:http'
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { BlockList, isIP } from 'node:net'
import { HandlerError } from '../core/failure.ts'
import { MAX_HTTP_BODY_BYTES } from '../core/limits.ts'
import { HTTP_REQUEST } from '../core/own-work.ts'
import type { TaskContext, TaskDefinition } from '../definitions/task.ts'
import { DEFAULT_POLICY } from '../definitions/task-policy.ts'
import type { HttpRequest } from '../graph/graph-types.ts'

export interface HttpOptions {
  /** Requests may go to loopback and private addresses: all of them, or those of these host names. */
  allowPrivate?: boolean | readonly string[]
}

interface HttpResponse {
  status: number
  headers: Record<string, string>
  /** Parsed where it is JSON, else text. */
  body: unknown
}

export function httpTask(options: HttpOptions): TaskDefinition {
  const run = (input: HttpRequest, context: TaskContext) => sendRequest(input, options, context.signal)
  return {
    kind: 'task',
    name: HTTP_REQUEST,
    work: 'http_request',
    policy: DEFAULT_POLICY,
    isolation: 'inline',
    file: null,
    schema: null,
    run: run as TaskDefinition['run'],
  }
}

/** Loopback, private, link-local, multicast, documentation and the like, RFC 6890. */
const PRIVATE = new BlockList()
for (const [address, bits] of [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
] as const)
  PRIVATE.addSubnet(address, bits, 'ipv4')
for (const [address, bits] of [
  ['::', 128],
  ['::1', 128],
  ['64:ff9b::', 96],
  ['fc00::', 7],
  ['fe80::', 10],
  ['ff00::', 8],
  ['2001:db8::', 32],
  ['2002::', 16],
] as const)
  PRIVATE.addSubnet(address, bits, 'ipv6')

function isPrivate(address: string): boolean {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1]
  const plain = mapped ?? address
  return PRIVATE.check(plain, isIP(plain) === 6 ? 'ipv6' : 'ipv4')
}

function refused(host: string, address: string): HandlerError {
  const message = `${host} is at ${address}, a private address; open Curfew with http: { allowPrivate: ['${host}'] } to allow it`
  return new HandlerError(message, { code: 'private_address', retryable: false })
}

async function sendRequest(
  request: HttpRequest,
  options: HttpOptions,
  signal: AbortSignal,
): Promise<HttpResponse> {
  const url = parseUrl(request.url)
  const host = url.hostname.replace(/^\[|\]$/g, '')
  const allowed = options.allowPrivate === true || (options.allowPrivate || []).some((name) => name === host)
  // Addresses are checked where the connection is made: what a name stands for may change between two look-ups.
  const checkedLookup = (
    name: string,
    lookupOptions: object,
    done: (error: Error | null, address: string | LookupAddress[], family?: number) => void,
  ) =>
    lookup(name, { ...lookupOptions, all: true }, (error, addresses) => {
      const bad = allowed ? undefined : addresses?.find(({ address }) => isPrivate(address))
      if (error || bad) return done(error ?? refused(host, bad?.address ?? ''), [])
      if ((lookupOptions as { all?: boolean }).all) return done(null, addresses)
      done(null, addresses[0]?.address ?? '', addresses[0]?.family)
    })
  if (!allowed && isIP(host) && isPrivate(host)) throw refused(host, host)
  const body = bodyOf(request)
  const headers = { ...body.headers, ...lowerCased(request.headers) }
  const send = url.protocol === 'https:' ? httpsRequest : httpRequest
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const sent = send(
      url,
      { method: request.method, headers, signal, lookup: checkedLookup as never },
      resolve,
    )
    sent.on('error', reject)
    sent.end(body.text)
  }).catch((error: unknown) => {
    throw signal.aborted || error instanceof HandlerError ? error : unreachable(url, error as Error)
  })
  const text = await readText(response, signal)
  const status = response.statusCode ?? 0
  const expected = request.expectedStatus?.includes(status) ?? (status >= 200 && status < 300)
  if (!expected) {
    throw new HandlerError(`${request.method} ${url.origin}${url.pathname} answered ${status}`, {
      code: 'unexpected_status',
      retryable: status >= 500 || status === 429,
      details: { status, body: text.slice(0, 1_000) },
    })
  }
  return { status, headers: flat(response.headers), body: parseBody(text, response.headers['content-type']) }
}

function parseUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url?.protocol === 'http:' || url?.protocol === 'https:') return url
  throw new HandlerError(`'${text.slice(0, 200)}' is not an http or https address`, {
    code: 'invalid_url',
    retryable: false,
  })
}

function bodyOf({ body, method }: HttpRequest): { text?: string; headers: Record<string, string> } {
  if (body === null || body === undefined || method === 'GET' || method === 'HEAD') return { headers: {} }
  if (typeof body === 'string')
    return { text: body, headers: { 'content-type': 'text/plain; charset=utf-8' } }
  return { text: JSON.stringify(body), headers: { 'content-type': 'application/json' } }
}

function lowerCased(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]))
}

async function readText(response: IncomingMessage, signal: AbortSignal): Promise<string> {
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      bytes += chunk.length
      if (bytes > MAX_HTTP_BODY_BYTES) {
        throw new HandlerError(`the answer is larger than ${MAX_HTTP_BODY_BYTES} bytes`, {
          code: 'answer_too_large',
          retryable: false,
        })
      }
      chunks.push(chunk)
    }
  } catch (error) {
    response.destroy()
    throw signal.aborted ? signal.reason : error
  }
  return Buffer.concat(chunks).toString('utf8')
}

function parseBody(text: string, type: string | undefined): unknown {
  if (!/\bjson\b/.test(type ?? '')) return text
  try {
    return JSON.parse(text)
  } catch {
    return text // it only said so
  }
}

function flat(headers: IncomingMessage['headers']): Record<string, string> {
  const entries = Object.entries(headers).map(([name, value]) => [name, String(value ?? '')] as const)
  return Object.fromEntries(entries)
}

function unreachable(url: URL, error: Error): HandlerError {
  const { code } = error as NodeJS.ErrnoException
  return new HandlerError(`${url.origin} could not be reached: ${error.message || code}`, {
    code: 'unreachable',
    details: { cause: code ?? null },
    cause: error,
  })
}
