/** Requests that are oversized, malformed, slow or cut: each gets an answer or a close, and nobody else notices. */
import { request as httpRequest } from 'node:http'
import { expect } from 'vitest'
import { RawSocket, rawRequest } from '../scripts/acceptance/raw-socket.ts'
import type { WireWorld } from '../scripts/acceptance/wire-world.ts'
import { onEachWire, until } from '../scripts/acceptance/wire-world.ts'
import { MAX_REQUEST_BYTES } from './core/limits.ts'
import { task } from './curfew.ts'

const LIST = '/curfew.v1.JobService/List'
const SUBMIT = '/curfew.v1.JobService/Submit'
const echo = task({ name: 'echo', run: (value: unknown) => value })

async function setUp(wire: WireWorld) {
  const manager = await wire.manager()
  await wire.work(manager, { tasks: [echo] })
  const client = await wire.connect(manager)
  const url = manager.url as string
  let done = 0
  return {
    ...{ manager, client, url },
    /** Somebody who does everything right is served, and nothing was changed behind their back. */
    async worksOn() {
      expect(await (await client.schedule(echo, ++done)).result({ timeout: '20s' })).toBe(done)
      expect((await client.list({ limit: 1_000 })).tasks).toHaveLength(done)
      expect(await client.workers()).toHaveLength(1)
    },
    send: (bytes: Uint8Array) => sent(wire, url, bytes),
  }
}

async function sent(
  wire: WireWorld,
  url: string,
  bytes: Uint8Array,
): Promise<{ status: number; heard: string }> {
  const raw = await RawSocket.open(wire, url)
  raw.write(bytes)
  const status = await raw.status()
  raw.socket.destroy()
  return { status, heard: raw.heard }
}

onEachWire(
  'hostile requests',
  (test) => {
    test('that are larger than any may be are refused while they come', async ({ wire }) => {
      const { url, worksOn, send } = await setUp(wire)
      const big = { length: MAX_REQUEST_BYTES + 1 }
      const whole = Buffer.alloc(big.length, 0x20)
      expect((await send(rawRequest(SUBMIT, whole))).status).toBe(429)
      // Without saying how long it will be, without end.
      const status = await new Promise<number>((resolve) => {
        const request = httpRequest(`${url}${SUBMIT}`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
        })
        const chunk = Buffer.alloc(64 * 1024, 0x20)
        const go = () => {
          while (!request.destroyed && request.write(chunk));
          if (!request.destroyed) request.once('drain', go)
        }
        request.on('response', (response) => {
          resolve(response.statusCode ?? 0)
          request.destroy()
        })
        request.on('error', () => resolve(0))
        go()
      })
      expect([429, 0]).toContain(status)
      // In an envelope that says more than it may.
      const envelope = Buffer.from([0, 0x7f, 0xff, 0xff, 0xff, 0x7b])
      const streamed = await send(
        rawRequest('/curfew.v1.JobService/Watch', envelope, { type: 'application/connect+json' }),
      )
      expect(streamed.status).toBe(200)
      await worksOn()
    })

    test('with headers that are too large or too many, or that are none, are refused', async ({ wire }) => {
      const { worksOn, send } = await setUp(wire)
      expect([400, 431]).toContain(
        (await send(rawRequest(LIST, '{}', { more: `x-big: ${'a'.repeat(20_000)}\r\n` }))).status,
      )
      const many = Array.from({ length: 1_000 }, (_, i) => `x-${i}: 1\r\n`).join('')
      expect((await send(rawRequest(LIST, '{}', { more: many }))).status).toBeLessThan(500)
      for (const broken of [
        'GARBAGE\r\n\r\n',
        '\u0016\u0003\u0001\u0002\u0000\u0001\u0000\u0001\r\n\r\n',
        `POST ${LIST} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}`,
        `POST ${LIST} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}`,
        `POST ${LIST} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -1\r\n\r\n{}`,
        `POST ${LIST} HTTP/1.1\r\nhost: 127.0.0.1\r\nbad header\r\n\r\n`,
        `POST ${LIST} HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n`,
        `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`,
      ]) {
        expect([broken.slice(0, 30), (await send(Buffer.from(broken, 'latin1'))).status]).toEqual([
          broken.slice(0, 30),
          400,
        ])
      }
      // Every request says whom it is for.
      expect((await send(Buffer.from(`GET ${LIST} HTTP/1.1\r\n\r\n`))).status).toBe(400)
      await worksOn()
    })

    test('that say nothing that could be understood are refused', async ({ wire }) => {
      const { worksOn, send } = await setUp(wire)
      const statusOf = async (...request: Parameters<typeof rawRequest>) =>
        (await send(rawRequest(...request))).status
      const proto = { type: 'application/proto' }
      for (const body of [
        '',
        '{',
        'null',
        '[]',
        '"x"',
        '{"statuses":1}',
        '{"limit":"x"}',
        '{"limit":1.5}',
        '{"limit":1e300}',
      ])
        expect([body, await statusOf(LIST, body)]).toEqual([body, 400])
      for (const bytes of [
        [0xff],
        [0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
        [0x0b, 0x0b, 0x0b],
        [0x0a, 2, 0xc3, 0x28],
      ])
        expect([400, 500]).toContain(await statusOf(LIST, Uint8Array.from(bytes), proto))
      for (const type of [
        'text/plain',
        'application/xml',
        'application/x-www-form-urlencoded',
        'application/grpc',
        'multipart/form-data',
      ])
        expect([type, await statusOf(LIST, '{}', { type })]).toEqual([type, 415])
      const gzip = { more: 'content-encoding: gzip\r\n' }
      expect([400, 404, 501]).toContain(await statusOf(LIST, '{}', gzip))
      // Not valid UTF-8, inside a JSON text.
      const bytes = Buffer.from('{"name":"\xff\xfe"}', 'latin1')
      expect([200, 400]).toContain(await statusOf(LIST, bytes))
      await worksOn()
    })

    test('for what is not there get no further than the door', async ({ wire }) => {
      const { worksOn, send } = await setUp(wire)
      const paths = [
        ...[
          '/',
          '/x',
          '/curfew.v1.JobService/',
          '/curfew.v1.JobService/Nothing',
          '/curfew.v1.NoService/List',
        ],
        ...[
          '/../../etc/passwd',
          '/curfew.v1.JobService/../../etc/passwd',
          '/%2e%2e/%2e%2e/etc/passwd',
          '//etc/passwd',
        ],
        ...[
          '/metrics/',
          '/healthz/..',
          '/curfew.v1.JobService/list',
          '/curfew.v1.JobService%2fList',
          `/${'a'.repeat(8_000)}`,
        ],
      ]
      for (const path of paths) {
        const { status, heard } = await send(rawRequest(path))
        expect([path.slice(0, 50), status]).toEqual([path.slice(0, 50), 404])
        expect(heard.length).toBeLessThan(1_000)
      }
      for (const method of ['GET', 'PUT', 'DELETE', 'PATCH', 'HEAD', 'OPTIONS', 'TRACE'])
        expect([method, (await send(rawRequest(SUBMIT, '{}', { method }))).status]).toEqual([method, 405])
      // Whose page asks, and by which name.
      const foreign =
        'POST /curfew.v1.JobService/List HTTP/1.1\r\nhost: evil.example\r\ncontent-length: 2\r\n\r\n{}'
      expect((await send(Buffer.from(foreign))).status).toBe(421)
      const origin = rawRequest(LIST, '{}', { more: 'origin: https://evil.example\r\n' })
      expect((await send(origin)).status).toBe(403)
      await worksOn()
    })

    test('that are half, or cut in the middle, are forgotten', async ({ wire }) => {
      const { url, worksOn, manager } = await setUp(wire)
      const whole = rawRequest(SUBMIT, JSON.stringify({ task: 'echo', input: 'x'.repeat(1_000) }))
      for (let cut = 1; cut < whole.length - 1; cut += 97) {
        const raw = await RawSocket.open(wire, url)
        raw.write(whole.subarray(0, cut))
        if (cut % 2) raw.socket.resetAndDestroy()
        else raw.socket.destroy()
      }
      const stream = Buffer.concat([Buffer.from([0, 0, 0, 0, 12]), Buffer.from('{"id":"t_1"}')])
      for (let i = 0; i < 20; i++) {
        const raw = await RawSocket.open(wire, url)
        raw.write(rawRequest('/curfew.v1.JobService/Watch', stream, { type: 'application/connect+json' }))
        raw.write(
          rawRequest('/curfew.v1.WorkerService/Attach', stream.subarray(0, 7), {
            type: 'application/connect+json',
            length: 17,
          }),
        )
        raw.socket.resetAndDestroy()
      }
      await worksOn()
      expect((await manager.list({ limit: 1_000 })).tasks).toHaveLength(1)
    })

    test('that only hold a connection do not keep others from theirs', async ({ wire }) => {
      const { url, worksOn, client } = await setUp(wire)
      const idle = await Promise.all(Array.from({ length: 200 }, () => RawSocket.open(wire, url)))
      for (const [i, raw] of idle.entries()) if (i % 2) raw.write(rawRequest(SUBMIT, '{', { length: 100 }))
      await worksOn()
      const started = process.hrtime.bigint()
      await Promise.all(Array.from({ length: 50 }, (_, i) => client.task(`t_${i}`).cancel()))
      expect(Number(process.hrtime.bigint() - started) / 1e6).toBeLessThan(5_000)
      for (const raw of idle) raw.socket.destroy()
      await worksOn()
    })

    test('that ask for streams and never read them cost one stream', async ({ wire }) => {
      const { url, client } = await setUp(wire)
      const held = await client.schedule(echo, 'later', { delay: '1h' })
      const body = Buffer.from(JSON.stringify({ id: held.id }))
      const length = Buffer.alloc(5)
      length.writeUInt32BE(body.length, 1)
      const request = rawRequest('/curfew.v1.JobService/Watch', Buffer.concat([length, body]), {
        type: 'application/connect+json',
      })
      const readers = await Promise.all(Array.from({ length: 20 }, () => RawSocket.open(wire, url)))
      for (const raw of readers) {
        raw.socket.pause()
        raw.write(request)
      }
      for (let i = 0; i < 50; i++) await held.extend('1s')
      await held.cancel()
      expect(await held.cancelled({ timeout: '20s' })).toMatchObject({ success: true })
      for (const raw of readers) raw.socket.resume()
      await until(() => readers.every(({ heard }) => heard.includes('"final":true')))
      expect((await client.list()).tasks).toHaveLength(1)
    })
  },
  ['file'],
)
