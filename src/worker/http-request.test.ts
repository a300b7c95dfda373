import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer, get } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { createServer as createTcpServer } from 'node:net'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { MAX_HTTP_BODY_BYTES } from '../core/limits.ts'
import type { TaskContext } from '../definitions/task.ts'
import type { HttpRequest } from '../graph/graph-types.ts'
import type { HttpOptions } from './http-task.ts'
import { hostName, httpTask } from './http-task.ts'
import { isPrivate } from './private-address.ts'

type Answer = (request: IncomingMessage, response: ServerResponse) => void

let answer: Answer
const seen: { method?: string; url?: string; headers: IncomingMessage['headers']; body: string }[] = []
const sockets = new Set<Socket>()
const server = createServer(async (request, response) => {
  let body = ''
  for await (const chunk of request) body += chunk
  const { method, url, headers } = request
  seen.push({ headers, body, ...(method && { method }), ...(url && { url }) })
  answer(request, response)
})
server.on('connection', (socket) => {
  sockets.add(socket)
  socket.on('close', () => sockets.delete(socket))
})
let base: string

beforeEach(async () => {
  seen.length = 0
  answer = (_, response) => response.end('hello')
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
})

afterEach(async () => {
  server.closeAllConnections()
  await new Promise((resolve) => server.close(resolve))
})

const json = (status: number, value: unknown): Answer => {
  return (_, response) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value))
}

function send(
  over: Partial<HttpRequest>,
  options: HttpOptions = { allowPrivate: true },
  signal: AbortSignal = new AbortController().signal,
  progress: TaskContext['progress'] = () => undefined,
): Promise<unknown> {
  const request = { method: 'GET', url: `${base}/`, headers: {}, body: null, expectedStatus: null, ...over }
  return httpTask(options).run(request as never, { signal, progress } as TaskContext) as Promise<unknown>
}

describe('what is sent', () => {
  test('a GET has no body, and says who asks', async () => {
    await send({ url: `${base}/pages?id=1`, headers: { 'X-Trace': 'a b' } })
    expect(seen).toMatchObject([
      { method: 'GET', url: '/pages?id=1', body: '', headers: { 'x-trace': 'a b', 'user-agent': 'curfew' } },
    ])
  })

  test('a value is sent as JSON, a text as it is, unless the headers say otherwise', async () => {
    await send({ method: 'POST', body: { pages: ['a', 'ü'] } })
    await send({ method: 'PUT', body: 'plain ü' })
    await send({ method: 'PATCH', body: '<a/>', headers: { 'Content-Type': 'application/xml' } })
    await send({ method: 'POST' })
    expect(seen.map(({ headers, body }) => [headers['content-type'], body])).toEqual([
      ['application/json', '{"pages":["a","ü"]}'],
      ['text/plain; charset=utf-8', 'plain ü'],
      ['application/xml', '<a/>'],
      [undefined, ''],
    ])
    expect(seen[3]?.headers['content-length']).toBe('0')
  })

  test('the name and password of an address are its authorization, and stay out of messages', async () => {
    answer = json(401, {})
    const url = base.replace('http://', 'http://ann:secret@')
    const failed = await send({ url }).catch((error: Error) => error)
    expect(seen[0]?.headers.authorization).toBe(`Basic ${Buffer.from('ann:secret').toString('base64')}`)
    expect((failed as Error).message).toBe(`GET ${base}/ answered 401`)
  })

  test.each(['a\r\nX-Admin: 1', 'a\nb', 'a\u0000', '日本'])(
    'a header that cannot hold its value is refused before anything is sent: %j',
    async (value) => {
      const failed = send({ headers: { 'X-Name': value } })
      await expect(failed).rejects.toMatchObject({ code: 'invalid_header', retryable: false })
      await expect(failed).rejects.toThrow('the header X-Name')
      expect(seen).toEqual([])
    },
  )

  test.each(['', 'a.example/x', 'ftp://a.example/', 'file:///etc/passwd', 'http://', 'javascript:1'])(
    '%j is no address',
    async (url) => {
      await expect(send({ url })).rejects.toMatchObject({ code: 'invalid_url', retryable: false })
    },
  )
})

describe('the answer', () => {
  test('JSON is parsed, also where the type is only like it', async () => {
    answer = json(200, { pages: [1, { a: null }] })
    expect(await send({})).toMatchObject({ status: 200, body: { pages: [1, { a: null }] } })
    answer = (_, response) =>
      response.writeHead(200, { 'content-type': 'application/problem+json; charset=utf-8' }).end('\ufeff[1]')
    expect(await send({})).toMatchObject({ body: [1] })
  })

  test('anything else is text, also what only says it is JSON', async () => {
    expect(await send({})).toMatchObject({ body: 'hello' })
    answer = (_, response) => response.setHeader('content-type', 'application/json').end('{')
    expect(await send({})).toMatchObject({ body: '{' })
    answer = (_, response) => response.writeHead(204).end()
    expect(await send({})).toMatchObject({ status: 204, body: '' })
  })

  test('text is read in its own character set, or in UTF-8', async () => {
    const bytes = Buffer.from([0xfc])
    answer = (_, response) => response.setHeader('content-type', 'text/plain; charset="latin1"').end(bytes)
    expect(await send({})).toMatchObject({ body: 'ü' })
    answer = (_, response) => response.setHeader('content-type', 'text/plain; charset=klingon').end('ü')
    expect(await send({})).toMatchObject({ body: 'ü' })
  })

  test('headers are texts; those that cannot be keys are left out', async () => {
    answer = (_, response) => {
      response.setHeader('set-cookie', ['a=1', 'b=2']).setHeader('constructor', 'x').end()
    }
    const { headers } = (await send({})) as { headers: Record<string, string> }
    expect(headers).toMatchObject({ 'set-cookie': 'a=1, b=2', 'content-length': '0' })
    expect(Object.keys(headers)).not.toContain('constructor')
  })

  test('a status that was not expected is a failure that can be looked at', async () => {
    answer = json(404, { error: 'no such page' })
    await expect(send({ method: 'POST', url: `${base}/x?key=1` })).rejects.toMatchObject({
      code: 'unexpected_status',
      message: `POST ${base}/x answered 404`,
      retryable: false,
      details: { status: 404, body: '{"error":"no such page"}' },
    })
    for (const status of [408, 429, 500, 503]) {
      answer = json(status, {})
      await expect(send({})).rejects.toMatchObject({ retryable: true })
    }
  })

  test('which statuses are expected can be said: then 200 need not be one of them', async () => {
    answer = json(404, 'none')
    expect(await send({ expectedStatus: [200, 404] })).toMatchObject({ status: 404, body: 'none' })
    answer = json(200, 'some')
    await expect(send({ expectedStatus: [404] })).rejects.toMatchObject({ code: 'unexpected_status' })
  })

  test('a redirect is not followed, and says where it leads', async () => {
    answer = (_, response) => response.writeHead(302, { location: 'http://169.254.169.254/' }).end()
    await expect(send({})).rejects.toThrow('answered 302, a redirect to http://169.254.169.254/')
    const taken = await send({ expectedStatus: [302] })
    expect(taken).toMatchObject({ status: 302, headers: { location: 'http://169.254.169.254/' } })
    expect(seen).toHaveLength(2)
  })

  test('one byte more than can be kept is refused, told beforehand or not', async () => {
    const most = Buffer.alloc(MAX_HTTP_BODY_BYTES, 'x')
    answer = (_, response) => response.end(most)
    expect(await send({})).toMatchObject({ body: most.toString() })
    answer = (_, response) => response.end(Buffer.alloc(MAX_HTTP_BODY_BYTES + 1))
    const failure = { code: 'answer_too_large', retryable: false }
    await expect(send({})).rejects.toMatchObject(failure)
    answer = (_, response) => {
      const flood = () => {
        while (response.write(most));
      }
      response.on('drain', flood)
      flood()
    }
    await expect(send({})).rejects.toMatchObject(failure)
    await vi.waitFor(() => expect(sockets.size).toBe(0))
  })

  test('to HEAD the length is that of another answer', async () => {
    answer = (_, response) => response.setHeader('content-length', MAX_HTTP_BODY_BYTES + 1).end()
    expect(await send({ method: 'HEAD' })).toMatchObject({ status: 200, body: '' })
  })

  test('what has arrived is progress', async () => {
    const told: unknown[] = []
    answer = (_, response) => response.setHeader('content-length', 5).end('hello')
    await send({}, { allowPrivate: true }, undefined, (value) => told.push(value))
    expect(told).toEqual([{ completed: 5, total: 5 }])
  })
})

describe('what cannot be reached', () => {
  test('is a failure that another try may mend', async () => {
    const closed = createTcpServer().listen(0, '127.0.0.1')
    await new Promise((resolve) => closed.once('listening', resolve))
    const { port } = closed.address() as AddressInfo
    await new Promise((resolve) => closed.close(resolve))
    await expect(send({ url: `http://127.0.0.1:${port}/` })).rejects.toMatchObject({
      code: 'unreachable',
      retryable: true,
      details: { cause: 'ECONNREFUSED' },
    })
    await expect(send({ url: 'http://nobody.invalid/' })).rejects.toMatchObject({ code: 'unreachable' })
  })

  test('nor can what breaks off in the middle of its answer, or speaks no HTTP', async () => {
    answer = (_, response) => {
      response.setHeader('content-length', 100)
      response.write('half', () => response.destroy())
    }
    await expect(send({})).rejects.toMatchObject({ code: 'unreachable', details: { cause: 'ECONNRESET' } })
    answer = ({ socket }) => socket.end('220 mail.example\r\n')
    await expect(send({})).rejects.toMatchObject({ code: 'unreachable' })
  })
})

describe('a request that is stopped', () => {
  const reason = Object.assign(new Error('over'), { code: 'soft_stop' })

  test('ends with the reason, and lets go of its connection: before it is sent, waiting, in the middle of the answer', async () => {
    await expect(send({}, { allowPrivate: true }, AbortSignal.abort(reason))).rejects.toBe(reason)
    for (const stage of ['waiting', 'reading']) {
      const stop = new AbortController()
      answer = (_, response) => {
        if (stage === 'reading') response.write('some')
        else stop.abort(reason)
      }
      const stopped = send({}, { allowPrivate: true }, stop.signal, () => stop.abort(reason))
      await expect(stopped).rejects.toBe(reason)
      await vi.waitFor(() => expect(sockets.size).toBe(0))
    }
  })

  test('ends while it connects: nobody answers its greeting', async () => {
    const stop = new AbortController()
    const silent = createTcpServer((socket) => {
      socket.on('close', () => silent.close())
      socket.once('data', () => stop.abort(reason))
    })
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
    const closed = new Promise((resolve) => silent.once('close', resolve))
    const url = `https://127.0.0.1:${(silent.address() as AddressInfo).port}/`
    await expect(send({ url }, { allowPrivate: true }, stop.signal)).rejects.toBe(reason)
    await closed
  })
})

describe('addresses that are not public', () => {
  test.each([
    ...['127.0.0.1', '127.1', '2130706433', '0x7f000001', '0177.0.0.1', '１２７.0.0.1', '0.0.0.0'],
    ...[
      '10.1.2.3',
      '172.31.0.1',
      '192.168.0.1',
      '100.64.0.1',
      '169.254.169.254',
      '198.18.0.1',
      '255.255.255.255',
    ],
    ...['[::1]', '[::]', '[::ffff:127.0.0.1]', '[::ffff:a00:1]', '[::127.0.0.1]', '[::ffff:0:127.0.0.1]'],
    ...[
      '[fe80::1]',
      '[fd00::1]',
      '[ff02::1]',
      '[64:ff9b::7f00:1]',
      '[2002:7f00:1::]',
      '[2001:0:1::]',
      '[100::1]',
    ],
  ])('%s is refused, and nothing is sent', async (host) => {
    const url = `http://${host}:${(server.address() as AddressInfo).port}/`
    await expect(send({ url }, {})).rejects.toMatchObject({ code: 'private_address', retryable: false })
    expect(seen).toEqual([])
  })

  test('addresses of the public are none of them', () => {
    const open = [
      '8.8.8.8',
      '172.32.0.1',
      '100.128.0.1',
      '192.0.1.1',
      '2606:4700::1111',
      '2a00:1450:4001::8a',
    ]
    expect(open.filter(isPrivate)).toEqual([])
    expect(['', 'localhost', '1.2.3', 'fe80::1%eth0'].filter((text) => !isPrivate(text))).toEqual([])
  })

  test('a name that stands for one is refused, with what to do about it', async () => {
    const url = base.replace('127.0.0.1', 'localhost')
    const failed = send({ url }, { allowPrivate: ['other.example'] })
    await expect(failed).rejects.toMatchObject({ code: 'private_address', details: { host: 'localhost' } })
    await expect(failed).rejects.toThrow(`http: { allowPrivate: ['localhost'] }`)
    expect(seen).toEqual([])
  })

  test('a connection that somebody else has open is not taken', async () => {
    const url = base.replace('127.0.0.1', 'localhost')
    await new Promise((resolve) => get(url, (response) => response.resume().on('end', resolve)))
    expect(sockets.size).toBe(1) // kept open for the next one
    await expect(send({ url }, {})).rejects.toMatchObject({ code: 'private_address' })
    expect(seen).toHaveLength(1)
  })

  test('names can be allowed one by one', async () => {
    const url = base.replace('127.0.0.1', 'LocalHost')
    expect(await send({ url }, { allowPrivate: ['LOCALHOST.'] })).toMatchObject({ body: 'hello' })
    expect(await send({}, { allowPrivate: ['127.0.0.1'] })).toMatchObject({ body: 'hello' })
    await expect(send({}, { allowPrivate: ['localhost'] })).rejects.toMatchObject({ code: 'private_address' })
  })

  test('names are compared as addresses have them', () => {
    const names = ['A.Example', 'a.example.', '[::1]', '::1', '0:0:0:0:0:0:0:1', '127.1', 'ü.example']
    const compared = ['a.example', 'a.example', '::1', '::1', '::1', '127.0.0.1', 'xn--tda.example']
    expect(names.map(hostName)).toEqual(compared)
    const none = ['', 'a.example:80', 'http://a.example', 'a/b', 'a@b', 'a b', '1.2.3.4.5', '[::1]:80']
    expect(none.map(hostName)).toEqual(none.map(() => null))
  })
})
