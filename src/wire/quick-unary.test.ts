/** What is done by hand is told from the library's by its speed alone. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Code, ConnectError, createClient } from '@connectrpc/connect'
import { expect, onTestFinished, test } from 'vitest'
import { CurfewError } from '../core/errors.ts'
import { SystemClock } from '../core/system-clock.ts'
import { libraryTransport } from './fixtures/library-transport.ts'
import type { BeatRequest } from './gen/curfew/v1/workers_pb.ts'
import { WorkerService } from './gen/curfew/v1/workers_pb.ts'
import { endpointOf } from './http-client.ts'
import { startHttpServer } from './http-server.ts'
import { asMessage, quickMethod } from './quick-unary.ts'
import { callUnary } from './unary-call.ts'
import { fromConnectError } from './wire-error.ts'

const clock = new SystemClock()
const { beat: method } = WorkerService.method

/** Answers by the worker's id; counts who came which way. */
async function startServer() {
  const came = { quick: 0, library: 0 }
  const errors: string[] = []
  const logger = {
    debug() {},
    info() {},
    warn() {},
    error: (fields: object) => errors.push(JSON.stringify(fields)),
  }
  const beat = async ({ workerId }: BeatRequest) => {
    if (workerId === 'refused')
      throw new CurfewError('not_attached', 'not here', { hint: 'Attach.', fields: { workerId, list: [1] } })
    if (workerId === 'broken') throw new TypeError('a secret')
    if (workerId === 'slow') await new Promise((resolve) => setTimeout(resolve, 60_000).unref())
    return { unknown: workerId === 'unknown', leaseAgeMs: 0.5 }
  }
  const server = await startHttpServer({
    ...{ address: { type: 'tcp', host: '127.0.0.1', port: 0 }, clock, logger },
    ...{ started: Promise.resolve(), ready: () => true },
    metrics: async () => ({ text: '', contentType: 'text/plain' }),
    routes: (router) =>
      void router.rpc(method, (request) => {
        came.library++
        return beat(request)
      }),
    quick: [
      quickMethod(
        method,
        (request) => {
          came.quick++
          return beat(request)
        },
        asMessage(method.input),
      ),
    ],
  })
  onTestFinished(() => server.close())
  return { url: server.url, came, errors }
}

function post(url: string, body: string | Uint8Array, headers: Record<string, string> = {}) {
  return fetch(`${url}/curfew.v1.WorkerService/Beat`, {
    ...{ method: 'POST', body: body as string },
    headers: { 'content-type': 'application/json', ...headers },
  })
}

async function whole(response: Response) {
  const { status, headers } = response
  return { status, type: headers.get('content-type'), body: await response.json() }
}

/** A timeout is for the library to look after. */
const BY_LIBRARY = { 'connect-timeout-ms': '60000' }

test.for([
  ['an answer', '{"workerId":"w"}'],
  ['names as in the proto file, and fields it does not know', '{"worker_id":"unknown","newer":1}'],
  ['a refusal with its details', '{"workerId":"refused"}'],
  ['a bug, which is not told', '{"workerId":"broken"}'],
  ['no JSON', '{"workerId":'],
  ['nothing', ''],
  ['JSON of another shape', '[1]'],
  ['a value of another type', '{"workerId":7}'],
])('JSON: %s is answered as the library does', async ([, body]) => {
  const { url, came } = await startServer()
  const quick = await whole(await post(url, body as string))
  const library = await whole(await post(url, body as string, BY_LIBRARY))
  expect(came.quick).toBe(came.library)
  expect(quick).toEqual(library)
})

test('bytes are answered as the library does, and those that are no message refused', async () => {
  const { url, came } = await startServer()
  const answer = async (bytes: number[], more: Record<string, string> = {}) => {
    const type = { 'content-type': 'application/proto' }
    const response = await post(url, Uint8Array.from(bytes), { ...type, ...more })
    return { status: response.status, body: Buffer.from(await response.arrayBuffer()).toString('hex') }
  }
  for (const bytes of [[], [0x0a, 0x01, 0x77]]) {
    const quick = await answer(bytes)
    expect(quick).toEqual(await answer(bytes, BY_LIBRARY))
    expect(quick.status).toBe(200)
  }
  expect(came).toEqual({ quick: 2, library: 2 })
  expect((await answer([0x0a, 0xff])).status).toBe(400)
})

test('what is out of the ordinary is left to the library', async () => {
  const { url, came } = await startServer()
  const chunked = new ReadableStream({
    start(controller) {
      controller.enqueue(new TextEncoder().encode('{"workerId":"w"}'))
      controller.close()
    },
  })
  const requests: [RequestInit, number][] = [
    [{ body: chunked, duplex: 'half' } as RequestInit, 200],
    [{ body: '{}', headers: { 'content-type': 'application/json; charset=utf-8' } }, 200],
    [{ body: '{}', headers: { 'content-type': 'text/plain' } }, 415],
    [{ body: 'x', headers: { 'content-type': 'application/json', 'content-encoding': 'gzip' } }, 501],
  ]
  for (const [init, status] of requests) {
    const response = await fetch(`${url}/curfew.v1.WorkerService/Beat`, {
      ...{ method: 'POST', headers: { 'content-type': 'application/json' }, ...init },
    })
    expect(response.status).toBe(status)
  }
  expect(came).toEqual({ quick: 0, library: 2 })
})

test('a call by hand has the answers and errors of one by the library', async () => {
  const { url, came, errors } = await startServer()
  const endpoint = endpointOf(url)
  onTestFinished(() => endpoint.close())
  const { signal } = new AbortController()
  const byHand = (workerId: string) =>
    callUnary(endpoint, method, { workerId }, { token: undefined, clock, timeoutMs: 10_000, signal })
  const rpc = createClient(WorkerService, libraryTransport(url))
  expect(await byHand('unknown')).toEqual(await rpc.beat({ workerId: 'unknown' }))
  for (const workerId of ['refused', 'broken']) {
    const [mine, its] = await Promise.all(
      [byHand(workerId), rpc.beat({ workerId })].map((call) =>
        call.then(
          () => null,
          (error: unknown) => fromConnectError(error),
        ),
      ),
    )
    const { code, message, hint, fields } = its as CurfewError
    expect(mine).toMatchObject({ code, message, fields })
    expect((mine as CurfewError).hint).toBe(hint)
    expect(message).not.toContain('secret')
  }
  expect(errors).toHaveLength(2)
  expect(came.quick).toBeGreaterThan(0)
})

test('a call by hand ends when nobody answers, when it takes too long and when nobody waits', async () => {
  const { url } = await startServer()
  const cut = createServer((request) => request.socket.destroy()).listen(0, '127.0.0.1')
  onTestFinished(() => void cut.close())
  await once(cut, 'listening')
  const fault = async (to: string, timeoutMs: number, abort = new AbortController()) => {
    const endpoint = endpointOf(to)
    onTestFinished(() => endpoint.close())
    const options = { token: undefined, clock, timeoutMs, signal: abort.signal }
    const call = callUnary(endpoint, method, { workerId: 'slow' }, options)
    return call.then(String, (error: unknown) => fromConnectError(error).code)
  }
  expect(await fault('http://127.0.0.1:9', 10_000)).toBe('unreachable')
  expect(await fault(`http://127.0.0.1:${(cut.address() as AddressInfo).port}`, 10_000)).toBe('unreachable')
  expect(await fault(url, 50)).toBe('unreachable')
  const abort = new AbortController()
  const waiting = fault(url, 10_000, abort)
  abort.abort()
  expect(await waiting).toBe('closed')
  expect(await fault(url, 10_000, abort)).toBe('closed')
  // Unless whoever ended it says why.
  const silent = new AbortController()
  const given = fault(url, 10_000, silent)
  silent.abort(new ConnectError('no answer', Code.DeadlineExceeded))
  expect(await given).toBe('unreachable')
})
