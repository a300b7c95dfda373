/** Those who are refused hear why, whatever they still have to send. */
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { connect } from 'node:net'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { SystemClock, SystemRandomness } from '../core/system-clock.ts'
import type { HttpServer } from './http-server.ts'
import { startHttpServer } from './http-server.ts'
import { createToken, readTokens } from './tokens.ts'

let server: HttpServer
let socket: Socket
let heard: string

beforeEach(async () => {
  const quiet = { debug() {}, info() {}, warn() {}, error() {} }
  const { entry } = createToken('client', new SystemRandomness())
  server = await startHttpServer({
    ...{ address: { type: 'tcp', host: '127.0.0.1', port: 0 }, tokens: readTokens([entry]) },
    ...{
      clock: new SystemClock(),
      logger: quiet,
      routes: () => undefined,
      ready: () => true,
      started: Promise.resolve(),
    },
    metrics: async () => ({ text: '', contentType: 'text/plain' }),
  })
  const { hostname, port } = new URL(server.url)
  heard = ''
  socket = connect(Number(port), hostname)
  socket.on('data', (bytes) => {
    heard += bytes
  })
  await once(socket, 'connect')
})

afterEach(async () => {
  socket.destroy()
  await server.close()
})

function head(length: number): string {
  return `POST /curfew.v1.JobService/List HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n\r\n`
}

const refusals = () => heard.match(/HTTP\/1\.1 401/g)?.length ?? 0

test('a request whose body comes after the answer is answered, and so is the next one', async () => {
  socket.write(head(2))
  await vi.waitUntil(() => refusals() === 1)
  socket.write('{}')
  socket.write(`${head(2)}{}`)
  await vi.waitUntil(() => refusals() === 2)
  expect(socket.destroyed).toBe(false)
})

test('one that never ends is cut off', async () => {
  socket.on('error', () => socket.destroy())
  socket.write(head(1_000_000))
  await vi.waitUntil(() => refusals() === 1)
  await once(socket, 'close')
})
