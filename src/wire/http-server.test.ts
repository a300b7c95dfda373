/** What a stranger may cost: who is slow is cut off, who holds a socket file that cannot be made is told. */
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { SystemClock } from '../core/system-clock.ts'
import { certificates, hasOpenssl } from './fixtures/certificates.ts'
import { ClusterService } from './gen/curfew/v1/cluster_pb.ts'
import type { HttpServerOptions } from './http-server.ts'
import { startHttpServer } from './http-server.ts'

const QUIET = { debug() {}, info() {}, warn() {}, error() {} }
const STATUS = '/curfew.v1.ClusterService/GetStatus'

async function serve(options: Partial<HttpServerOptions> = {}) {
  const server = await startHttpServer({
    ...{ address: { type: 'tcp', host: '127.0.0.1', port: 0 }, clock: new SystemClock(), logger: QUIET },
    ...{
      ready: () => true,
      started: Promise.resolve(),
      metrics: async () => ({ text: '', contentType: 'x' }),
    },
    routes: (router) => void router.service(ClusterService, { getStatus: () => ({ version: '1' }) }),
    ...options,
  })
  onTestFinished(() => server.close())
  return server
}

/** Everything that is heard until the other side closes. */
const heardBy = async (url: string, ...parts: string[]) => (await call(url, ...parts)).heard

/** When it is connected. */
async function call(url: string, ...parts: string[]): Promise<{ heard: Promise<string> }> {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  onTestFinished(() => void socket.destroy())
  let heard = ''
  socket.on('data', (bytes) => {
    heard += bytes
  })
  socket.on('error', () => socket.destroy())
  await once(socket, 'connect')
  for (const part of parts) socket.write(part)
  return { heard: new Promise((resolve) => socket.once('close', () => resolve(heard))) }
}

test('a request that does not arrive whole in time is answered so, and its connection closed', async () => {
  const { url } = await serve({ requestMs: 200 })
  const head = `POST ${STATUS} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n`
  const slow = await Promise.all([
    heardBy(url, `POST ${STATUS} HTTP/1.1\r\nhost: 127`),
    heardBy(url, `${head}x-slow: `),
    heardBy(url, `${head}content-length: 100\r\n\r\n{`),
    heardBy(url, `${head}transfer-encoding: chunked\r\n\r\n1\r\n{\r\n`),
  ])
  for (const heard of slow) expect(heard).toMatch(/^HTTP\/1\.1 408 /)
  const answer = await fetch(`${url}${STATUS}`, {
    ...{ method: 'POST', body: '{}', headers: { 'content-type': 'application/json' } },
  })
  expect(await answer.json()).toMatchObject({ version: '1' })
})

test('headers that are too large are answered so', async () => {
  const { url } = await serve()
  const heard = await heardBy(url, `GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ${'a'.repeat(20_000)}\r\n\r\n`)
  expect(heard).toMatch(/^HTTP\/1\.1 431 /)
})

describe.runIf(hasOpenssl)('strangers who do not end their greeting', () => {
  const HALF = '\x16\x03\x01\x02\x00'

  async function serveTls(options: Partial<HttpServerOptions> = {}) {
    const folder = await mkdtemp(path.join(tmpdir(), 'curfew-tls-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    const { ca, server } = certificates(folder, 'own')
    return serve({ ...options, tls: { ...server, clientCa: ca } })
  }

  test('are cut off in time', async () => {
    const { url } = await serveTls({ requestMs: 200 })
    expect(await Promise.all([heardBy(url), heardBy(url, HALF)])).toEqual(['', ''])
  })

  test('do not keep it from closing', async () => {
    const { url, close } = await serveTls()
    const strangers = await Promise.all([call(url), call(url, HALF)])
    await close()
    expect(await Promise.all(strangers.map(({ heard }) => heard))).toEqual(['', ''])
  })
})

test('a socket that cannot be made is told of as such, and leaves nothing', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'curfew-socket-'))
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  const address = { type: 'unix' as const, path: path.join(folder, 'missing', 'm.sock') }
  await expect(serve({ address })).rejects.toMatchObject({
    ...{ code: 'cannot_listen', fields: { address: `unix:${address.path}` } },
  })
})

test('one that closes has ended when the requests under way are answered, though callers keep their connections', async () => {
  /** Nobody is cut off: the limit of the close is never over. */
  class PatientClock extends SystemClock {
    override setTimer(...[ms, callback, options]: Parameters<SystemClock['setTimer']>) {
      return super.setTimer(ms >= 1_000 ? 2 ** 31 : ms, callback, options)
    }
  }
  const asked = Promise.withResolvers<void>()
  const answer = Promise.withResolvers<void>()
  const server = await serve({
    clock: new PatientClock(),
    routes: (router) =>
      void router.service(ClusterService, {
        getStatus: async () => {
          asked.resolve()
          await answer.promise
          return { version: '1' }
        },
      }),
  })
  const head = `POST ${STATUS} HTTP/1.1\r\nhost: ${new URL(server.url).host}\r\ncontent-type: application/json`
  const { heard } = await call(server.url, `${head}\r\ncontent-length: 2\r\n\r\n{}`)
  await asked.promise
  const closed = server.close()
  answer.resolve()
  expect(await heard).toContain('"version":"1"')
  await closed
})
