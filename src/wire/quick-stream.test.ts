/** A stream that is done by hand is told from the library's by its speed alone. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fromBinary, toBinary } from '@bufbuild/protobuf'
import { Code, ConnectError, createClient } from '@connectrpc/connect'
import { describe, expect, onTestFinished, test } from 'vitest'
import { CurfewError } from '../core/errors.ts'
import { SystemClock } from '../core/system-clock.ts'
import { libraryTransport } from './fixtures/library-transport.ts'
import type { AttachRequest, AttachResponse } from './gen/curfew/v1/workers_pb.ts'
import { AttachResponseSchema, WorkerService } from './gen/curfew/v1/workers_pb.ts'
import { endpointOf } from './http-client.ts'
import { startHttpServer } from './http-server.ts'
import { envelope, quickStream, STREAM_TYPE } from './quick-stream.ts'
import { callStream } from './stream-call.ts'
import { fromConnectError } from './wire-error.ts'
import { down } from './worker-messages.ts'

const { attach: method } = WorkerService.method
const LONG = 'x'.repeat(300_000)
const fromBytes = (bytes: Buffer) => fromBinary(AttachResponseSchema, bytes)
const news = (agentId: string) =>
  down('news', { $typeName: 'curfew.v1.News', agentId, token: '', dropped: false })
const said = ({ message }: AttachResponse) => (message.case === 'news' ? message.value.agentId.length : null)

/** Answers by the worker's id. */
async function startServer(byHand: boolean) {
  const came = { quick: 0, library: 0 }
  const ended = Promise.withResolvers<void>()
  const logger = { debug() {}, info() {}, warn() {}, error() {} }
  const follow = async function* ({ workerId }: AttachRequest, signal: AbortSignal) {
    if (workerId === 'refused') throw new CurfewError('version_mismatch', 'not you', { hint: 'Update.' })
    for (const text of ['', 'one', LONG, 'two']) yield news(text)
    if (workerId === 'broken') throw new TypeError('a secret')
    if (workerId === 'waits')
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
    ended.resolve()
  }
  const server = await startHttpServer({
    ...{ address: { type: 'tcp', host: '127.0.0.1', port: 0 }, clock: new SystemClock(), logger },
    ...{ started: Promise.resolve(), ready: () => true },
    metrics: async () => ({ text: '', contentType: 'text/plain' }),
    routes: (router) =>
      void router.rpc(method, (request, { signal }) => {
        came.library++
        return follow(request, signal)
      }),
    quick: byHand
      ? [
          quickStream(
            method,
            (request, { signal }) => {
              came.quick++
              return follow(request, signal)
            },
            (message) => toBinary(AttachResponseSchema, message),
          ),
        ]
      : [],
  })
  onTestFinished(() => server.close())
  return { url: server.url, came, ended: ended.promise, close: () => server.close() }
}

function calls(url: string, byHand: boolean) {
  const endpoint = endpointOf(url)
  onTestFinished(() => endpoint.close())
  return (workerId: string, signal = new AbortController().signal): AsyncIterable<AttachResponse> =>
    byHand
      ? callStream(endpoint, method, { workerId }, { token: undefined, signal, fromBytes })
      : createClient(WorkerService, libraryTransport(url)).attach({ workerId }, { signal })
}

async function outcome(stream: AsyncIterable<AttachResponse>) {
  const got: unknown[] = []
  try {
    for await (const message of stream) got.push(said(message))
    got.push('end')
  } catch (error) {
    const { code, message, hint } = fromConnectError(error)
    got.push({ code, message, hint })
  }
  return got
}

const LENGTHS = [0, 3, LONG.length, 3]

describe.each([
  ['by hand', true],
  ['by the library', false],
])('a server %s', (_server, serverByHand) => {
  describe.each([
    ['by hand', true],
    ['by the library', false],
  ])('and a caller %s', (_caller, callerByHand) => {
    const setUp = async () => {
      const server = await startServer(serverByHand)
      return { ...server, call: calls(server.url, callerByHand) }
    }

    test('all messages arrive, whole and in order, and then the end', async () => {
      const { call, came } = await setUp()
      expect(await outcome(call('w'))).toEqual([...LENGTHS, 'end'])
      expect(came).toEqual(serverByHand ? { quick: 1, library: 0 } : { quick: 0, library: 1 })
    })

    test('an error is told as it is, also behind messages', async () => {
      const { call } = await setUp()
      expect(await outcome(call('refused'))).toEqual([
        { code: 'version_mismatch', message: expect.stringContaining('not you'), hint: 'Update.' },
      ])
      const broken = await outcome(call('broken'))
      expect(broken.slice(0, -1)).toEqual(LENGTHS)
      expect(JSON.stringify(broken)).not.toContain('secret')
      expect(broken.at(-1)).toMatchObject({ code: expect.any(String) })
    })

    test('a caller who goes is noticed', async () => {
      const { call, ended } = await setUp()
      const leaving = new AbortController()
      let count = 0
      const following = (async () => {
        for await (const _ of call('waits', leaving.signal)) if (++count === LENGTHS.length) leaving.abort()
      })()
      await expect(following).rejects.toThrow()
      await ended
    })

    test('a caller who gives up with a reason is told it', async () => {
      const { call } = await setUp()
      const silent = new AbortController()
      let count = 0
      const following = (async () => {
        for await (const _ of call('waits', silent.signal)) {
          if (++count === LENGTHS.length)
            silent.abort(new ConnectError('nothing came', Code.DeadlineExceeded))
        }
      })()
      const error = await following.then(
        () => null,
        (reason: unknown) => fromConnectError(reason),
      )
      expect(error).toMatchObject({ code: 'unreachable', message: 'nothing came' })
    })

    test('a server that closes ends it', async () => {
      const { call, close } = await setUp()
      let count = 0
      for await (const _ of call('waits')) if (++count === LENGTHS.length) void close()
      expect(count).toBe(LENGTHS.length)
    })
  })
})

test('JSON, and a call with a timeout, are left to the library', async () => {
  const { url, came } = await startServer(true)
  const post = async (headers: Record<string, string>, body: Uint8Array) => {
    const response = await fetch(`${url}/curfew.v1.WorkerService/Attach`, {
      ...{ method: 'POST', headers, body: Buffer.from(body) },
    })
    return Buffer.from(await response.arrayBuffer()).toString('latin1')
  }
  const json = envelope(0, Buffer.from('{"workerId":"w"}'))
  expect(await post({ 'content-type': 'application/connect+json' }, json)).toContain('"agentId":"one"')
  const empty = envelope(0, new Uint8Array())
  await post({ 'content-type': STREAM_TYPE, 'connect-timeout-ms': '10000' }, empty)
  expect(came).toEqual({ quick: 0, library: 2 })
  expect(await post({ 'content-type': STREAM_TYPE }, empty.subarray(0, 3))).toContain('invalid_argument')
  expect(await post({ 'content-type': STREAM_TYPE }, Buffer.concat([empty, empty]))).toContain('invalid_arg')
})

test.each([
  [502, 'text/html', '<h1>Bad Gateway</h1>', 'unreachable'],
  [401, 'application/json', '{"code":"unauthenticated","message":"no token"}', 'unauthenticated'],
  [200, 'text/html', '<h1>Log in</h1>', 'unreachable'],
  [200, STREAM_TYPE, envelope(0, new Uint8Array()).toString('latin1'), 'unreachable'],
  [200, STREAM_TYPE, '\0\0\0', 'unreachable'],
])('an answer of %s with %s is told as it is (%#)', async (status, type, body, code) => {
  const server = createServer((request, response) => {
    request.resume().on('end', () => response.writeHead(status, { 'content-type': type }).end(body, 'latin1'))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => void server.close())
  const call = calls(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, true)
  expect((await outcome(call('w'))).at(-1)).toMatchObject({ code })
})
