import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { expect, test } from 'vitest'
import { SystemClock } from '../core/system-clock.ts'
import { WorkerService } from './gen/curfew/v1/workers_pb.ts'
import { endpointOf } from './http-client.ts'
import { callUnary } from './unary-call.ts'
import { fromConnectError } from './wire-error.ts'

async function answering(status: number, type: string, body: string): Promise<string> {
  const server = createServer((request, response) => {
    request.resume().on('end', () => response.writeHead(status, { 'content-type': type }).end(body))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const endpoint = endpointOf(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  try {
    const options = { token: undefined, clock: new SystemClock(), timeoutMs: 5_000 }
    const message = { workerId: 'n_1' }
    const signal = new AbortController().signal
    await callUnary(endpoint, WorkerService.method.beat, message, { ...options, signal })
    return 'answered'
  } catch (error) {
    return fromConnectError(error).code
  } finally {
    endpoint.close()
    server.close()
  }
}

test.each([
  [200, 'application/proto', '', 'answered'],
  [502, 'text/html', '<h1>Bad Gateway</h1>', 'unreachable'],
  [503, 'application/json', '{"code":"unavailable","message":"closing"}', 'unreachable'],
  [401, 'application/json', '{"code":"unauthenticated","message":"no token"}', 'unauthenticated'],
  [403, 'application/json', '{"code":"permission_denied","message":"not you"}', 'permission_denied'],
  [200, 'text/html', '<h1>Log in</h1>', 'unreachable'],
])('an answer of %s with %s is told as it is, and hurts nobody', async (status, type, body, code) => {
  for (let i = 0; i < 20; i++) expect(await answering(status, type, body)).toBe(code)
})

test('a message that cannot be written is refused, not tried for ever', () => {
  const endpoint = endpointOf('http://127.0.0.1:1')
  const signal = new AbortController().signal
  const options = { token: undefined, clock: new SystemClock(), timeoutMs: 1_000, signal }
  const message = { workerId: 'n_1', number: 1.5 }
  expect(() => callUnary(endpoint, WorkerService.method.report, message, options)).toThrow(
    'it cannot be sent',
  )
  endpoint.close()
})
