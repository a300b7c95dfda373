import type { IncomingHttpHeaders } from 'node:http'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { create, toBinary } from '@bufbuild/protobuf'
import { Code, createClient } from '@connectrpc/connect'
import { expect, onTestFinished, test } from 'vitest'
import { JobService, ScheduleResponseSchema } from './gen/curfew/v1/jobs_pb.ts'
import { endpointOf } from './http-client.ts'

test.each([
  ['http://127.0.0.1:4242', 'http://127.0.0.1:4242'],
  ['unix:/run/curfew.sock', 'unix:/run/curfew.sock'],
  ['https://me@host/curfew', 'https://me@host/curfew'],
  ['https://me:secret@host:1/curfew', 'https://me:***@host:1/curfew'],
  ['https://:s@cret@host', 'https://:***@host'],
])('a manager at %s is told of without its password', (url, shown) => {
  const endpoint = endpointOf(url)
  expect(endpoint.url).toBe(shown)
  endpoint.close()
})

test('a call has its token and its answer; what cannot be sent is refused', async () => {
  const seen: IncomingHttpHeaders[] = []
  const server = createServer((request, response) => {
    seen.push(request.headers)
    const body = toBinary(ScheduleResponseSchema, create(ScheduleResponseSchema, { tasks: [{ id: 't_1' }] }))
    request
      .resume()
      .on('end', () => response.writeHead(200, { 'content-type': 'application/proto' }).end(body))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  const endpoint = endpointOf(`http://127.0.0.1:${port}`, { token: 'secret' })
  onTestFinished(() => {
    endpoint.close()
    server.close()
  })
  const jobs = createClient(JobService, endpoint.transport)
  expect((await jobs.schedule({ name: 'a' }, { timeoutMs: 5_000 })).tasks[0]?.id).toBe('t_1')
  await expect(jobs.list({ limit: 1.5 })).rejects.toMatchObject({ code: 'invalid_request' })
  const own = { headers: { 'x-own': 'yes' } }
  await expect(jobs.schedule({ name: 'a' }, own)).rejects.toMatchObject({ code: Code.Unimplemented })
  expect(seen.map(({ authorization }) => authorization)).toEqual(['Bearer secret'])
})
