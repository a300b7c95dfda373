/**
 * What the action `http_request` does: one request within the limits of its attempt, to public addresses unless allowed.
 * Redirects are not followed: where they lead is for the workflow to see. A connection serves one request, so that
 * nobody gets one that was made under other rules.
 */
import type { LookupAddress } from 'node:dns'
import { lookup } from 'node:dns'
import type { IncomingMessage } from 'node:http'
import { request as httpRequest, validateHeaderName, validateHeaderValue } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { isIP } from 'node:net'
import { HandlerError } from '../core/failure.ts'
import { MAX_HTTP_BODY_BYTES } from '../core/limits.ts'
import { UNSAFE_KEYS } from '../definitions/definition-text.ts'
import type { TaskContext } from '../definitions/task.ts'
import type { HttpRequest } from '../graph/graph-types.ts'
import type { HttpOptions } from './http-task.ts'
import { hostName, hostOf } from './http-task.ts'
import { isPrivate } from './private-address.ts'

interface HttpResponse {
  status: number
  headers: Record<string, string>
  /** Parsed where it is JSON, else text. */
  body: unknown
}

function refused(host: string, address: string): HandlerError {
  const message = `${host} is at ${address}, which is not a public address; open Curfew with http: { allowPrivate: ['${host}'] } to allow it`
  return new HandlerError(message, { code: 'private_address', retryable: false, details: { host, address } })
}

export async function sendRequest(
  request: HttpRequest,
  { allowPrivate = false }: HttpOptions,
  context: TaskContext,
): Promise<HttpResponse> {
  const { signal } = context
  const url = parseUrl(request.url)
  const host = hostOf(url)
  const allowed =
    typeof allowPrivate === 'boolean' ? allowPrivate : allowPrivate.some((name) => hostName(name) === host)
  if (!allowed && isIP(host) && isPrivate(host)) throw refused(host, host)
  try {
    const response = await answerTo(request, url, allowed, signal)
    return await readAnswer(response, request, url, context)
  } catch (error) {
    if (signal.aborted) throw signal.reason
    throw error instanceof HandlerError ? error : broken(url, error as Error)
  }
}

function answerTo(
  request: HttpRequest,
  url: URL,
  allowed: boolean,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  const body = bodyOf(request)
  const headers = {
    'user-agent': 'curfew',
    'accept-encoding': 'identity',
    ...body.headers,
    ...checkedHeaders(request.headers),
  }
  const send = url.protocol === 'https:' ? httpsRequest : httpRequest
  const lookup = allowed ? {} : { lookup: publicLookup(hostOf(url)) as never }
  return new Promise((resolve, reject) => {
    const sent = send(url, { method: request.method, headers, signal, agent: false, ...lookup }, resolve)
    sent.on('error', reject)
    sent.end(body.text)
  })
}

/** Addresses are checked where the connection is made: what a name stands for may change between two look-ups. */
function publicLookup(host: string) {
  return (
    name: string,
    options: object,
    done: (error: Error | null, address: string | LookupAddress[], family?: number) => void,
  ) =>
    lookup(name, { ...options, all: true }, (error, addresses) => {
      const bad = addresses?.find(({ address }) => isPrivate(address))
      if (error || bad) return done(error ?? refused(host, bad?.address ?? ''), [])
      if ((options as { all?: boolean }).all) return done(null, addresses)
      done(null, addresses[0]?.address ?? '', addresses[0]?.family)
    })
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

/** A line break in a value would begin another header. */
function checkedHeaders(headers: Record<string, string>): Record<string, string> {
  const checked: Record<string, string> = {}
  for (const [name, value] of Object.entries(headers)) {
    try {
      validateHeaderName(name)
      validateHeaderValue(name, value)
    } catch (error) {
      const message = `the header ${name.slice(0, 100)} holds a character that a header cannot hold`
      throw new HandlerError(message, { code: 'invalid_header', retryable: false, cause: error })
    }
    checked[name.toLowerCase()] = value
  }
  return checked
}

async function readAnswer(
  response: IncomingMessage,
  { method, expectedStatus }: HttpRequest,
  url: URL,
  context: TaskContext,
): Promise<HttpResponse> {
  const text = await readText(response, method, context)
  const { statusCode: status = 0, headers } = response
  if (expectedStatus?.includes(status) ?? (status >= 200 && status < 300)) {
    return { status, headers: flat(headers), body: parseBody(text, headers['content-type']) }
  }
  const redirect = headers.location && `, a redirect to ${headers.location.slice(0, 200)}: it is not followed`
  throw new HandlerError(`${method} ${url.origin}${url.pathname} answered ${status}${redirect ?? ''}`, {
    code: 'unexpected_status',
    retryable: status >= 500 || status === 429 || status === 408,
    details: { status, body: text.slice(0, 1_000) },
  })
}

async function readText(
  response: IncomingMessage,
  method: HttpRequest['method'],
  context: TaskContext,
): Promise<string> {
  const length = Number(response.headers['content-length'] ?? Number.NaN)
  const total = Number.isSafeInteger(length) && length >= 0 ? { total: length } : {}
  const chunks: Buffer[] = []
  let bytes = 0
  try {
    // To HEAD it is the length of what GET would get.
    if (length > MAX_HTTP_BODY_BYTES && method !== 'HEAD') throw tooLarge()
    for await (const chunk of response as AsyncIterable<Buffer>) {
      bytes += chunk.length
      if (bytes > MAX_HTTP_BODY_BYTES) throw tooLarge()
      chunks.push(chunk)
      context.progress({ completed: bytes, ...total })
    }
  } finally {
    response.destroy()
  }
  return decode(Buffer.concat(chunks), response.headers['content-type'])
}

function tooLarge(): HandlerError {
  const message = `the answer is larger than ${MAX_HTTP_BODY_BYTES} bytes; fetch it in a task and pass a reference to it`
  return new HandlerError(message, { code: 'answer_too_large', retryable: false })
}

function decode(bytes: Buffer, type: string | undefined): string {
  const label = /;\s*charset="?([^\s;"]+)/i.exec(type ?? '')?.[1] ?? 'utf-8'
  try {
    return new TextDecoder(label).decode(bytes)
  } catch (error) {
    if (!(error instanceof RangeError)) throw error // a name nobody knows
    return new TextDecoder().decode(bytes)
  }
}

function parseBody(text: string, type: string | undefined): unknown {
  if (!/\bjson\b/i.test(type ?? '')) return text
  try {
    return JSON.parse(text)
  } catch {
    return text // it only said so
  }
}

function flat(headers: IncomingMessage['headers']): Record<string, string> {
  const entries = Object.entries(headers)
    .filter(([name]) => !UNSAFE_KEYS.includes(name))
    .map(([name, value]) => [name, Array.isArray(value) ? value.join(', ') : (value ?? '')] as const)
  return Object.fromEntries(entries)
}

function broken(url: URL, error: Error): HandlerError {
  const { code } = error as NodeJS.ErrnoException
  const message = `${url.origin} could not be reached, or broke off: ${error.message || code}`
  return new HandlerError(message, { code: 'unreachable', details: { cause: code ?? null }, cause: error })
}
